"""
title: in half precision the last stage's channels-first LayerNorm squares its input past 65504 and the classifier answers the same for every image
expect: silent:overflow
thread: https://github.com/facebookresearch/ConvNeXt/issues/80
measured: spread over images [0.0, 0.0, 0.0, 0.0, 0.0] ; classes [2, 2, 2, 2, 2, 2]
widened: spread over images [0.069, 0.035, 0.102, 0.064, 0.092] ; classes [2, 0, 2, 2, 2, 2]
innocent: spread over images [0.0, 0.0, 0.0, 0.0, 0.0] ; classes [2, 2, 2, 2, 2, 2]
suspect: 37 tiny (the layer scale is a millionth of the branch either way)

Expectation, written first: activations of a few hundred reach the hand-written LayerNorm in float16; their square exceeds 65504, the variance
becomes inf and the normalised map zero, so all images give one and the same logits. The layer scale of 1e-6 is a subnormal in float16 and
looks like the thing that underflows, but the branch it scales adds nothing visible anyway.
"""
import torch
from torch import nn


class LayerNormCF(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)  # BORN
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, dim, layer_scale_init_value=1e-6):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.pwconv = nn.Conv2d(dim, dim, 1)
        self.gamma = nn.Parameter(layer_scale_init_value * torch.ones(dim, dtype=torch.float16))

    def forward(self, x):
        return x + self.gamma[:, None, None] * torch.nn.functional.gelu(self.pwconv(self.dwconv(x)))


class ConvNeXtTail(nn.Module):
    def __init__(self, dim=16, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 4, stride=4)
        self.block = Block(dim)
        self.norm = LayerNormCF(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.norm(self.block(self.stem(x)))
        return self.head(x.mean((-2, -1)))


def build(seed=0):
    torch.manual_seed(seed)
    model = ConvNeXtTail()
    with torch.no_grad():
        model.stem.weight.mul_(900.0)
    return model.eval()


@torch.no_grad()
def predict(model, images):
    dtype = model.head.weight.dtype
    return model(images.to(dtype)).float()


def main():
    model = build().half()  # BORN
    images = torch.randn(6, 3, 32, 32)
    logits = predict(model, images)
    print("spread over images", [round(v, 3) for v in logits.std(0).tolist()])
    print("classes", logits.argmax(-1).tolist())


main()
