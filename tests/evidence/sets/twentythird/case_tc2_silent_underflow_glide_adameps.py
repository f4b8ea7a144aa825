"""
title: glide finetuning in pure half precision turns NaN after the first optimizer step
expect: silent:underflow
thread: https://github.com/afiaka87/glide-finetune/pull/6
measured: loss [1.023, nan, nan] last nan | non-finite weights 765 of 765
widened: loss [1.023, 1.025, 0.971] last 0.944 | non-finite weights 0 of 765
innocent: loss [1.023, nan, nan] last nan | non-finite weights 765 of 765
suspect: line 41, the table is read back in float32 and its rounding does not matter to the training

Expectation, written first: the whole UNet is turned to float16 and AdamW keeps its state in that dtype with the default eps of 1e-8. The
squares of the small gradients and the eps both flush to zero, the update divides by zero and the weights are inf or NaN after one step.
Float32 weights (or an eps half can hold) train. The noise table in half precision is innocent.
"""
import torch
from torch import nn
import torch.nn.functional as F


class Text2ImUNet(nn.Module):
    def __init__(self, ch=6):
        super().__init__()
        self.inp = nn.Conv2d(3, ch, 3, padding=1)
        self.time = nn.Linear(16, ch)
        self.mid = nn.Conv2d(ch, ch, 3, padding=1)
        self.out = nn.Conv2d(ch, 3, 3, padding=1)

    @property
    def dtype(self):
        return self.inp.weight.dtype

    def forward(self, x, t):
        f = torch.exp(-torch.arange(8, dtype=torch.float32))
        emb = torch.cat([torch.sin(t[:, None] * f), torch.cos(t[:, None] * f)], -1).to(self.dtype)
        h = F.silu(self.inp(x.to(self.dtype)) + self.time(emb)[:, :, None, None])
        return self.out(F.silu(self.mid(h)))


class GaussianDiffusion:
    def __init__(self, steps=100):
        betas = torch.linspace(1e-4, 0.02, steps)
        self.abar = torch.cumprod(1 - betas, 0).to(torch.float16)
        self.steps = steps

    def q_sample(self, x0, t, noise):
        a = self.abar.float()[t][:, None, None, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * noise


def load_model(use_fp16):
    model = Text2ImUNet()
    if use_fp16:
        model = model.half()  # BORN
    return model


def base_train_step(model, diffusion, x0, g):
    t = torch.randint(0, diffusion.steps, (x0.shape[0],), generator=g)
    noise = torch.randn(x0.shape, generator=g)
    pred = model(diffusion.q_sample(x0, t, noise), t.float())
    return F.mse_loss(pred.float(), noise)


def run_finetune(use_fp16=True, lr=2e-4, steps=6):  # BORN
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    model = load_model(use_fp16)  # BORN
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)  # BORN
    diffusion = GaussianDiffusion()
    x0 = torch.rand(2, 3, 8, 8, generator=g) * 2 - 1
    losses = []
    for _ in range(steps):
        loss = base_train_step(model, diffusion, x0, g)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return model, losses


model, losses = run_finetune()
bad = sum(int((~torch.isfinite(p)).sum()) for p in model.parameters())
total = sum(p.numel() for p in model.parameters())
print("loss", [round(v, 3) for v in losses[:3]], "last %.3f" % losses[-1])
print("non-finite weights %d of %d" % (bad, total))
