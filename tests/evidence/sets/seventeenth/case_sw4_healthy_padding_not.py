"""
title: motion prediction uses ~ on the padding mask; the mask is bool and the inversion is right
expect: clean
thread: https://github.com/ZikangZhou/HiVT/issues/44
measured: valid share 65.17%, loss 0.5170  (with float64 in its place: valid share 65.17%, loss 0.5170)
suspect: 37 inverted mask: bool (~ of a bool tensor is the logical not)

Expectation, written first: In Python ~True is -2, so ~padding_mask looks like a mask that is always true. The mask is a bool tensor, and
    ~ of that is the logical not; the share of valid steps and the loss agree with float64 weights.
"""
import torch
from torch import nn


class ArgoverseScene:
    def __init__(self, n_agents, steps, seed):
        g = torch.Generator().manual_seed(seed)
        self.positions = torch.randn(n_agents, steps, 2, generator=g).cumsum(1) * 0.1
        lengths = torch.randint(steps // 3, steps + 1, (n_agents,), generator=g)
        self.padding_mask = torch.ones(n_agents, steps, dtype=torch.bool)
        for i, n in enumerate(lengths.tolist()):
            self.padding_mask[i, :n] = False


class TemporalEncoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.inp, self.out = nn.Linear(2, dim), nn.Linear(dim, 2)

    def forward(self, displacement, padding_mask):
        h = torch.relu(self.inp(displacement))
        return self.out(h.masked_fill(padding_mask[..., None], 0.0))


class HiVTLoss(nn.Module):
    def forward(self, pred, target, padding_mask):
        reg_mask = (~padding_mask)
        error = (pred - target).abs().sum(-1)
        return (error * reg_mask).sum() / reg_mask.sum(), reg_mask


def displacements(scene):
    d = scene.positions.diff(dim=1)
    return torch.cat([torch.zeros_like(d[:, :1]), d], 1)


torch.manual_seed(0)
encoder, criterion = TemporalEncoder(), HiVTLoss()
losses, shares = [], []
with torch.no_grad():
    for seed in range(5):
        scene = ArgoverseScene(12, 30, seed)
        disp = displacements(scene)
        disp[scene.padding_mask] = 7.0
        target = disp.roll(-1, 1)
        loss, mask = criterion(encoder(disp, scene.padding_mask), disp, scene.padding_mask)
        losses.append(loss)
        shares.append(mask.float().mean())
print(f"valid share {100 * torch.stack(shares).mean():.2f}%, loss {torch.stack(losses).mean():.4f}")
