"""
title: loss explodes on resume: the second moments of AdamW were saved in FP16 and are zero after loading
expect: silent:underflow|round-trip|downcast
thread: https://github.com/ultralytics/ultralytics/pull/24085
measured: loss before saving 0.0001, worst after resume 0.01756, twentieth 0.004177
widened: loss before saving 0.0001, worst after resume 0.0001133, twentieth 9.406e-05
innocent: loss before saving 0.0001, worst after resume 0.01757, twentieth 0.004214
suspect: 46 half weights: small (0.05% of the weights)

Expectation, written first: The checkpoint converts all optimizer state but the step to half; exp_avg_sq of about 1e-9 is under the
    smallest half number and becomes zero, so the first update after loading divides by epsilon. The weights and first moments are
    converted as well, which looks alike but costs 0.05%.
"""
import copy
import torch
from torch import nn


class AdamW:
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.999), eps=1e-8):
        self.params, self.lr, self.betas, self.eps = list(params), lr, betas, eps
        self.state = [{"step": 0, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)} for p in self.params]

    @torch.no_grad()
    def step(self, grads):
        b1, b2 = self.betas
        for p, g, s in zip(self.params, grads, self.state):
            s["step"] += 1
            s["exp_avg"].mul_(b1).add_(g, alpha=1 - b1)
            s["exp_avg_sq"].mul_(b2).addcmul_(g, g, value=1 - b2)
            denom = (s["exp_avg_sq"] / (1 - b2 ** s["step"])).sqrt() + self.eps
            p.addcdiv_(s["exp_avg"] / (1 - b1 ** s["step"]), denom, value=-self.lr)


def convert_optimizer_state_dict_to_fp16(state):
    out = []
    for s in copy.deepcopy(state):
        for k, v in s.items():
            if k != "step" and torch.is_tensor(v) and v.dtype is torch.float32:  # BORN
                s[k] = v.half()  # BORN
        out.append(s)
    return out


def save(model, optimizer):
    weights = {k: v.to(torch.float16) for k, v in model.state_dict().items()}
    return {"model": weights, "optimizer": convert_optimizer_state_dict_to_fp16(optimizer.state)}


def resume(ckpt):
    model = build()
    model.load_state_dict({k: v.float() for k, v in ckpt["model"].items()})
    optimizer = AdamW(model.parameters())
    optimizer.state = [{k: v.float() if torch.is_tensor(v) else v for k, v in s.items()} for s in ckpt["optimizer"]]
    return model, optimizer


def build():
    return nn.Sequential(nn.Linear(16, 24), nn.SiLU(), nn.Linear(24, 4))


def train(model, optimizer, data, steps, scale=1e-3):
    losses = []
    for i in range(steps):
        x, y = data[i % len(data)]
        loss = scale * nn.functional.mse_loss(model(x), y)
        optimizer.step(torch.autograd.grad(loss, list(model.parameters())))
        losses.append(loss.item() / scale)
    return losses


torch.manual_seed(0)
teacher = build()
data = [(x, teacher(x).detach()) for x in torch.randn(20, 64, 16)]
model = build()
optimizer = AdamW(model.parameters())
before = train(model, optimizer, data, 1500)
after = train(*resume(save(model, optimizer)), data, 20)
print(f"loss before saving {before[-1]:.4f}, worst after resume {max(after):.4g}, twentieth {after[-1]:.4g}")
