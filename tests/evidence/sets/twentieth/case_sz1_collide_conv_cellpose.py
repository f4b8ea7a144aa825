"""
title: fine-tuning the segmentation transformer for semantic classes stops at the new read-out convolution
expect: collision
thread: https://github.com/MouseLand/cellpose/issues/1327
fix_at: 65

Expectation, written first: the network converts itself to bfloat16 (its constructor's default), and afterwards the read-out `out` is replaced
by a fresh Conv2d, which is float32. The bf16 feature map meets the float32 bias in the head. Either the new layer is made in the
network's dtype (and with it the W2 kernel), or the network is trained in float32, or the features are cast in front of the head.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Transformer(nn.Module):
    def __init__(self, ps=4, nout=3, dim=32, dtype=torch.bfloat16):  # BORN
        super().__init__()
        self.ps, self.nout = ps, nout
        self.patch_embed = nn.Conv2d(3, dim, kernel_size=ps, stride=ps)
        layer = nn.TransformerEncoderLayer(dim, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.out = nn.Conv2d(dim, nout * ps ** 2, kernel_size=1)
        self.W2 = nn.Parameter(torch.eye(nout * ps ** 2).reshape(nout * ps ** 2, nout, ps, ps), requires_grad=False)
        self.dtype = dtype
        if self.dtype != torch.float32:
            self.to(self.dtype)

    def forward(self, x):
        x = self.patch_embed(x.to(self.dtype))
        b, c, h, w = x.shape
        x = self.encoder(x.flatten(2).transpose(1, 2))
        x = x.transpose(1, 2).reshape(b, c, h, w)
        x1 = self.out(x)  # BORN COLLIDES
        x1 = F.conv_transpose2d(x1, self.W2, stride=self.ps)
        return x1, x.mean(dim=(2, 3))


def loss_fn_class(lbl, y, class_weights=None):
    return F.cross_entropy(y[:, :-3].float(), lbl[:, 0].long(), weight=class_weights) + 5.0 * F.mse_loss(y[:, -3:-1].float(), lbl[:, 1:3])


def train_seg(net, images, labels, n_epochs=2, learning_rate=1e-3):
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=learning_rate)
    losses = []
    for _ in range(n_epochs):
        X, lbl = torch.from_numpy(images), torch.from_numpy(labels)
        y = net(X)[0]
        loss = loss_fn_class(lbl, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    ps, nclasses = 4, 6
    net = Transformer(ps=ps)  # BORN
    nch = (nclasses + 3) * ps ** 2
    net.out = nn.Conv2d(32, nch, kernel_size=1)  # BORN
    net.W2 = nn.Parameter(torch.eye(nch).reshape(nch, nclasses + 3, ps, ps), requires_grad=False)
    images = rng.random((2, 3, 32, 32), dtype=np.float32)
    labels = np.concatenate([rng.integers(0, nclasses, (2, 1, 32, 32)), rng.normal(size=(2, 2, 32, 32))], axis=1).astype(np.float32)
    print("losses", [round(v, 3) for v in train_seg(net, images, labels)])


if __name__ == "__main__":
    main()
