"""
title: dreambooth LoRA resumes with half adapter parameters under a GradScaler
expect: collision
thread: https://github.com/huggingface/diffusers/issues/6482
fix_at: 55

Expectation, written first: on resume the whole network including the trainable adapter
is cast to half, so the gradients are half too and the scaler refuses to unscale them.
Birth: the cast on resume; upcasting the trainable parameters afterwards is as right.
"""
import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self, inner, rank=4):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, inner.in_features) * 0.05)
        self.b = nn.Parameter(torch.zeros(inner.out_features, rank))

    def forward(self, x):
        return self.inner(x) + (x @ self.a.t().to(x.dtype)) @ self.b.t().to(x.dtype)


class UNetLike(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = Adapter(nn.Linear(16, 16))
        self.o = Adapter(nn.Linear(16, 16))

    def forward(self, x):
        return self.o(torch.tanh(self.q(x)))


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def resume(model, state, weight_dtype):
    model.load_state_dict(state, strict=False)
    model.to(weight_dtype)  # BORN
    return model


def upcast(params, dtype):
    for p in params:
        p.data = p.data.to(dtype)


def main():
    torch.manual_seed(0)
    first = UNetLike()
    checkpoint = {k: v for k, v in first.state_dict().items() if k.endswith((".a", ".b"))}
    model = resume(UNetLike(), checkpoint, torch.float16)
    params = trainable(model)
    opt = torch.optim.SGD(params, lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(3):
        x = torch.randn(8, 16)
        pred = model(x.to(model.q.inner.weight.dtype))
        loss = (pred.float() - x).pow(2).mean()
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)  # COLLIDES
        nn.utils.clip_grad_norm_(params, 1.0)
        scaler.step(opt)
        scaler.update()
        print(step, round(loss.item(), 4))


main()
