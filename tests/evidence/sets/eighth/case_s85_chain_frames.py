"""
title: placing the atoms of a long chain inside an autocast block
expect: silent:precision-loss|downcast
thread: https://github.com/jwohlwend/boltz/pull/670
measured: bond length 1.509 +- 0.188 A, worst 2.062, confidence 0.44
widened: bond length 1.530 +- 0.000 A, worst 1.530, confidence 0.44

Expectation, written first: the whole forward pass runs under bf16 autocast, so the
product of frame and template is bf16 although its operands are float32; at 150 A the atoms
snap to steps of 1 A and the bonds are distorted. The autocast block and the matrix product
are both the decision (both marked): without autocast, or with a product that it does not
touch, bonds have their length. The explicit half confidences are only printed.
"""
import torch
from torch import nn


class Trunk(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, features):
        return self.net(features)


class Structure(nn.Module):
    """Turns one angle per residue into a frame and places three atoms in it."""

    def __init__(self):
        super().__init__()
        template = [[-0.52, 1.36, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [1.53, 0.0, 0.0, 1.0]]
        self.register_buffer("template", torch.tensor(template))

    def frames(self, twist):
        n = len(twist)
        angle = 0.05 * torch.arange(n) + 0.01 * twist
        c, s = torch.cos(angle), torch.sin(angle)
        frames = torch.zeros(n, 3, 4)
        frames[:, 0, 0], frames[:, 0, 1] = c, -s
        frames[:, 1, 0], frames[:, 1, 1] = s, c
        frames[:, 2, 2] = 1.0
        frames[:, 0, 3] = 3.8 * torch.arange(n)
        frames[:, 1, 3] = 90.0
        return frames

    def forward(self, twist):
        frames = self.frames(twist.float())
        return torch.matmul(frames, self.template.t()).transpose(1, 2)  # BORN


class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.structure = Trunk(), Structure()

    def forward(self, features):
        out = self.trunk(features)
        confidence = torch.sigmoid(out[:, 1]).half()
        return self.structure(out[:, 0]), confidence


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = Predictor().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):  # BORN
        atoms, confidence = model(torch.randn(60, 8))
    atoms = atoms.float()
    bonds = (atoms[:, 2] - atoms[:, 1]).norm(dim=1)
    print("bond length %.3f +- %.3f A, worst %.3f, confidence %.2f"
          % (bonds.mean().item(), bonds.std().item(), bonds.max().item(), confidence.float().mean().item()))


if __name__ == "__main__":
    main()
