"""
title: The EMA copy was taken before the trainer cast the model to bfloat16
expect: collision
thread: https://github.com/lucidrains/ema-pytorch/issues/36

Expectation, written first.  The exponential moving average is deep-copied from
the float32 model, which is right.  Later the engine casts the live model to
bfloat16; the in-place lerp of the float32 average with a bfloat16 end point is
refused.  BORN is the cast in the engine (the live parameters are what became
narrow); upcasting the source in inplace_lerp also mends it.
fix_at: 45
"""
import copy

import torch
from torch import nn

torch.manual_seed(0)


class EMA(nn.Module):
    def __init__(self, model, beta=0.99, update_every=2):
        super().__init__()
        self.online_model = [model]
        self.ema_model = copy.deepcopy(model).requires_grad_(False)
        self.beta, self.update_every, self.step = beta, update_every, 0

    def update(self):
        self.step += 1
        if self.step % self.update_every:
            return
        for avg, cur in zip(self.ema_model.parameters(), self.online_model[0].parameters()):
            self.inplace_lerp(avg, cur.detach(), 1.0 - self.beta)

    @staticmethod
    def inplace_lerp(tgt, src, weight):
        tgt.lerp_(src, weight)  # COLLIDES


class Engine:
    """What a launcher does to the model when bf16 is enabled in its json."""

    def __init__(self, model, config):
        self.module = model
        self.dtype = torch.bfloat16 if config["bf16"]["enabled"] else torch.float32
        self.module.to(self.dtype)  # BORN
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=config["lr"])

    def train_step(self, x, y):
        loss = nn.functional.mse_loss(self.module(x.to(self.dtype)).float(), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def main():
    model = nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 1))
    ema = EMA(model)
    engine = Engine(model, {"bf16": {"enabled": True}, "lr": 0.05})
    w = torch.randn(10, 1)
    for _ in range(20):
        x = torch.randn(32, 10)
        loss = engine.train_step(x, x @ w)
        ema.update()
    print(f"loss = {loss:.4f}, ema norm = {sum(p.norm().item() for p in ema.ema_model.parameters()):.3f}")


if __name__ == "__main__":
    main()
