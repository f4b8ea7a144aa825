"""
title: surrogate training with a bfloat16 forward and the loss computed outside autocast in float32
expect: clean
thread: https://github.com/wandb/senpai/pull/328
measured: bf16 val_loss 0.988 | fp32 val_loss 0.980
suspect: 52 prediction-is-upcast

Expectation, written first: only the matmuls of the forward run in bfloat16; the prediction is cast to float32 and squared
errors, masks and sums are float32, as are the parameters. The validation error agrees with an all-float32 run to a few
percent, so nothing has to be mended.
"""
import copy

import torch
import torch.nn as nn


class Surrogate(nn.Module):
    def __init__(self, in_dim=6, hidden=48, out_dim=3):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(in_dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.decoder = nn.Linear(hidden, out_dim)

    def forward(self, data):
        return {"preds": self.decoder(self.encoder(data["x"]))}


def make_batch(generator, n=64, nodes=20):
    x = torch.randn(n, nodes, 6, generator=generator)
    y = torch.stack([x[..., 0] * x[..., 1], x[..., 2].sin(), x[..., 3:].mean(-1)], dim=-1)
    is_surface = torch.rand(n, nodes, generator=generator) < 0.3
    mask = torch.rand(n, nodes, generator=generator) < 0.9
    return x, y, mask, is_surface


def compute_loss(pred, y_norm, mask, is_surface, surf_weight=5.0):
    channel_w = torch.tensor([1.0, 1.0, 1.5])
    vol_mask, surf_mask = mask & ~is_surface, mask & is_surface
    sq_err = (pred - y_norm) ** 2
    abs_err = (pred - y_norm).abs()
    vol_loss = (sq_err * vol_mask.unsqueeze(-1)).sum() / vol_mask.sum().clamp(min=1)
    surf_loss = (abs_err * surf_mask.unsqueeze(-1) * channel_w).sum() / surf_mask.sum().clamp(min=1)
    return vol_loss + surf_weight * surf_loss


def train(model, batches, stats, use_bf16):
    mean, std = stats
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for x, y, mask, is_surface in batches:
        y_norm = (y - mean) / std
        with torch.amp.autocast("cpu", dtype=torch.bfloat16, enabled=use_bf16):
            pred = model({"x": x})["preds"]
        loss = compute_loss(pred.float(), y_norm, mask, is_surface)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def validate(model, batch, stats):
    x, y, mask, is_surface = batch
    return compute_loss(model({"x": x})["preds"], (y - stats[0]) / stats[1], mask, is_surface).item()


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    batches = [make_batch(generator) for _ in range(150)]
    val = make_batch(generator, n=256)
    stats = (batches[0][1].mean((0, 1)), batches[0][1].std((0, 1)))
    base = Surrogate()
    for name, use_bf16 in (("bf16", True), ("fp32", False)):
        model = train(copy.deepcopy(base), batches, stats, use_bf16)
        print(f"{name} val_loss {validate(model, val, stats):.3f}")


if __name__ == "__main__":
    main()
