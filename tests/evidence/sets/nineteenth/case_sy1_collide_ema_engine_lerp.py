"""
title: EMA update after a bf16 engine took the model over: expected dtype float for `end`
expect: collision
thread: https://github.com/lucidrains/ema-pytorch/issues/36
fix_at: 18, 26 (the default of coerce_dtype, and how it is kept)

Expectation, written first: the EMA copy is taken while the model is float32, then the engine turns the model's weights into bfloat16. The
in-place lerp of the float32 shadow towards a bfloat16 weight is refused. The EMA must be told to coerce the online weights, or lerp must
cast them, or the copy must be taken after the engine's cast.
"""
import copy

import torch
from torch import nn


class EMA(nn.Module):
    def __init__(self, model, beta=0.99, update_after_step=0, update_every=1, coerce_dtype=False):
        super().__init__()
        self.beta = beta
        self.online_model = [model]
        self.ema_model = copy.deepcopy(model)
        self.ema_model.requires_grad_(False)
        self.update_after_step = update_after_step
        self.update_every = update_every
        self.coerce_dtype = coerce_dtype
        self.register_buffer("step", torch.tensor(0))

    @property
    def model(self):
        return self.online_model[0]

    def inplace_lerp(self, tgt, src, weight):
        if self.coerce_dtype:
            src = src.to(tgt.dtype)
        tgt.lerp_(src, weight)  # BORN COLLIDES

    def update(self):
        step = self.step.item()
        self.step += 1
        if step % self.update_every != 0 or step < self.update_after_step:
            return
        self.update_moving_average(self.ema_model, self.model)

    @torch.no_grad()
    def update_moving_average(self, ma_model, current_model):
        for ma_params, params in zip(ma_model.parameters(), current_model.parameters()):
            self.inplace_lerp(ma_params.data, params.data, 1.0 - self.beta)


class Engine:
    def __init__(self, model, ds_config):
        self.module = model
        self.dtype = torch.bfloat16 if ds_config.get("bf16", {}).get("enabled") else torch.float32
        self.module.to(self.dtype)  # BORN
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=ds_config["lr"])

    def __call__(self, x):
        return self.module(x.to(self.dtype))

    def backward_and_step(self, loss):
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    torch.manual_seed(0)
    denoiser = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
    ema = EMA(denoiser, beta=0.995)  # BORN
    engine = Engine(denoiser, {"bf16": {"enabled": True}, "lr": 1e-3})
    for step in range(4):
        x = torch.randn(8, 16)
        loss = (engine(x + 0.1 * torch.randn_like(x)).float() - x).pow(2).mean()
        engine.backward_and_step(loss)
        ema.update()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
