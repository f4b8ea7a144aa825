"""
title: LayerNorm module in bfloat16 without an upcast to float32
expect: clean
thread: https://github.com/rwth-i6/returnn/issues/1741
measured: frame error rate 0.2125
suspect: line 24 harmless (the kernel keeps its statistics in float32)

Expectation, written first: the whole encoder is bfloat16 and LayerNorm gets bfloat16 inputs. torch computes mean and
variance of such rows in float32 and rounds the result once, so the classifier's decisions are those of float32 up to
rounding and the frame error rate is the same.
"""
import torch
import torch.nn as nn


class ConformerBlock(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff1 = nn.Linear(dim, 2 * dim)
        self.ff2 = nn.Linear(2 * dim, dim)

    def forward(self, hidden):
        normed = self.norm(hidden.to(torch.bfloat16))
        update = self.ff2(torch.nn.functional.silu(self.ff1(normed)))
        return hidden + 0.5 * update


class FrameClassifier(nn.Module):
    def __init__(self, dim=64, labels=8, layers=2):
        super().__init__()
        self.blocks = nn.ModuleList(ConformerBlock(dim) for _ in range(layers))
        self.out = nn.Linear(dim, labels)

    def forward(self, frames):
        hidden = frames
        for block in self.blocks:
            hidden = block(hidden)
        return self.out(hidden).float()


def make_corpus(frames=2000, dim=64, labels=8):
    centers = torch.randn(labels, dim)
    targets = torch.randint(0, labels, (frames,))
    return centers[targets] + 3.5 * torch.randn(frames, dim) + 0.5, targets, centers


def init_from_centers(model, centers):
    with torch.no_grad():
        model.out.weight.copy_(centers)
        model.out.bias.copy_(-(centers.pow(2).sum(1) / 2 + 0.5 * centers.sum(1)))
        for block in model.blocks:
            block.ff2.weight.mul_(0.1)


def frame_error_rate(logits, targets):
    return (logits.argmax(-1) != targets).float().mean().item()


def main():
    torch.manual_seed(0)
    frames, targets, centers = make_corpus()
    model = FrameClassifier()
    init_from_centers(model, centers)
    model = model.to(torch.bfloat16).eval()
    with torch.no_grad():
        logits = model(frames.to(torch.bfloat16))
    print(f"frame error rate {frame_error_rate(logits, targets):.4f}")


main()
