"""
title: an EMA copy taken before the engine turned the model into bfloat16
expect: collision
thread: https://github.com/lucidrains/ema-pytorch/issues/36
fix_at: 19, 51, 56, 98

Expectation, written first: the copy is float32, the engine casts the online module to bfloat16 in place; the first
update that blends instead of copying calls lerp_ with two dtypes and is refused.
"""
from copy import deepcopy

import torch
from torch import nn

DS_CONFIG = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 8, "optimizer": {"lr": 2e-3}}


class EMA(nn.Module):
    def __init__(self, model, beta=0.99, update_after_step=3, update_every=1, coerce_dtype=False):
        super().__init__()
        self.online_model = [model]
        self.ema_model = deepcopy(model).requires_grad_(False)
        self.beta, self.update_after_step, self.update_every = beta, update_after_step, update_every
        self.coerce_dtype, self.step, self.initted = coerce_dtype, 0, False

    def pairs(self):
        return zip(self.ema_model.parameters(), self.online_model[0].parameters())

    @torch.no_grad()
    def copy_params(self):
        for tgt, src in self.pairs():
            tgt.copy_(src)

    def update(self):
        self.step += 1
        if self.step % self.update_every:
            return
        if self.step <= self.update_after_step or not self.initted:
            self.copy_params()
            self.initted = self.step > self.update_after_step
            return
        self.update_moving_average()

    def decay(self):
        epoch = max(self.step - self.update_after_step - 1, 0)
        return min(1 - (1 + epoch) ** -0.75, self.beta)

    def inplace_lerp(self, tgt, src, weight):
        if self.coerce_dtype:
            src = src.to(tgt.dtype)
        tgt.lerp_(src, weight)  # COLLIDES

    @torch.no_grad()
    def update_moving_average(self):
        for tgt, src in self.pairs():
            self.inplace_lerp(tgt, src, 1.0 - self.decay())


class Engine:
    """what deepspeed.initialize makes of a module"""

    def __init__(self, module, config):
        self.module, self.config = module, config
        self.master = [p.detach().clone().float() for p in module.parameters()]
        if config["bf16"]["enabled"]:
            self.module.bfloat16()  # BORN
        self.optimizer = torch.optim.AdamW(self.master, lr=config["optimizer"]["lr"])

    def __call__(self, x):
        return self.module(x.to(next(self.module.parameters()).dtype))

    def step(self, loss):
        loss.backward()
        for m, p in zip(self.master, self.module.parameters()):
            m.grad, p.grad = p.grad.float(), None
        self.optimizer.step()
        with torch.no_grad():
            for m, p in zip(self.master, self.module.parameters()):
                p.copy_(m)


class RegressionData(torch.utils.data.Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, 12, generator=g)
        self.y = self.x[:, :1] * self.x[:, 1:2]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Linear(32, 1))
    ema = EMA(model, beta=0.95)
    engine = Engine(model, DS_CONFIG)
    loader = torch.utils.data.DataLoader(RegressionData(), DS_CONFIG["train_micro_batch_size_per_gpu"], shuffle=True)
    for x, y in loader:
        loss = nn.functional.mse_loss(engine(x).float(), y)
        engine.step(loss)
        ema.update()
    print(f"loss {loss.item():.3f}, drift {(next(ema.ema_model.parameters()) - engine.master[0]).abs().max():.4f}")


main()
