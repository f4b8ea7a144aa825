"""
title: fp16 autocast training with a gradient scaler whose first steps overflow
expect: clean
thread: https://github.com/facebookresearch/swav/issues/47

Expectation, written first.  Nothing is wrong.  The scaler starts with a scale
that is too high on purpose, the first scaled gradients are infinite, the
scaler skips those steps and halves the scale; unscale_ precedes the clipping.
The parameters are float32 throughout and the loss goes down.
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32), nn.GELU())
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.features(x))


def batches(n, size=64):
    g = torch.Generator().manual_seed(4)
    w = torch.randn(20, 5, generator=g)
    for _ in range(n):
        x = torch.randn(size, 20, generator=g)
        yield x, (x @ w).argmax(1)


def main(steps=60):
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 22, growth_interval=200)
    skipped, losses = 0, []
    for x, y in batches(steps):
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits.float(), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        losses.append(loss.item())
    print(f"{skipped} steps skipped, loss {losses[0]:.3f} -> {sum(losses[-5:]) / 5:.3f}")


if __name__ == "__main__":
    main()
