"""
title: the position map of a mixed convolution and attention block is float32 in a half network
expect: collision
thread: https://github.com/LeapLabTHU/ACmix/issues/15

Expectation, written first: the coordinates are made with linspace for every forward pass in
the default dtype; the block's 1x1 convolution over them is half after the cast of the net.
"""
import torch
from torch import nn


def position(h, w):
    loc_w = torch.linspace(-1.0, 1.0, w).unsqueeze(0).repeat(h, 1)  # BORN
    loc_h = torch.linspace(-1.0, 1.0, h).unsqueeze(1).repeat(1, w)  # BORN
    return torch.stack([loc_w, loc_h]).unsqueeze(0)


class MixedBlock(nn.Module):
    def __init__(self, planes, heads=2):
        super().__init__()
        self.heads, self.hd = heads, planes // heads
        self.qkv = nn.Conv2d(planes, 3 * planes, 1)
        self.conv_p = nn.Conv2d(2, self.hd, 1)
        self.local = nn.Conv2d(planes, planes, 3, padding=1, groups=planes)
        self.rate = nn.Parameter(torch.tensor([0.5, 0.5]))

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).view(b, 3, self.heads, self.hd, h * w).unbind(1)
        pe = self.conv_p(position(h, w)).view(1, 1, self.hd, h * w)  # COLLIDES
        att = (q.transpose(-1, -2) @ (k + pe) / self.hd ** 0.5).softmax(-1)
        glob = (v @ att.transpose(-1, -2)).reshape(b, c, h, w)
        return self.rate[0] * glob + self.rate[1] * self.local(x)


class Classifier(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=4, padding=1)
        self.block = MixedBlock(16)
        self.head = nn.Linear(16, classes)

    def forward(self, image):
        x = torch.relu(self.stem(image))
        return self.head(self.block(x).mean((2, 3)))


@torch.inference_mode()
def predict(images):
    torch.manual_seed(0)
    net = Classifier().eval().half()
    return net(images.half()).argmax(-1)


if __name__ == "__main__":
    print(predict(torch.rand(4, 3, 32, 32)).tolist())
