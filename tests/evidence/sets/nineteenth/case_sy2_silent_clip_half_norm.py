"""
title: Clipping by norm in float16 turns finite gradients into zeros and the training stands still
expect: silent:overflow|zero-gradient|downcast
thread: https://github.com/tracel-ai/burn/issues/5699
measured: step 0 loss 2401 clipped gradient norm 0.00 | step 119 loss 2401 clipped gradient norm 0.00
widened: step 0 loss 2401 clipped gradient norm 1.00 | step 119 loss 24 clipped gradient norm 1.00
innocent: step 0 loss 2401 clipped gradient norm 0.00 | step 119 loss 2401 clipped gradient norm 0.00
suspect: 31 moderate

Expectation, written first: The gradients of the half copy of the model are some hundreds; their squares exceed 65504, so the norm taken in float16 is
infinite, the coefficient max_norm / norm is 0 and every gradient is multiplied away. The momentum buffers in bf16 are low precision as well but
hold clipped gradients of moderate size.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GradientClippingByNorm:
    def __init__(self, threshold):
        self.threshold = threshold

    def clip(self, grads):
        total = sum(g.square().sum() for g in grads)  # BORN
        norm = total.sqrt()
        coef = (self.threshold / (norm + 1e-6)).clamp(max=1.0)
        return [g * coef.to(g.dtype) for g in grads], norm


class MomentumSgd:
    momentum_dtype = torch.bfloat16

    def __init__(self, params, lr, momentum=0.9):
        self.master = [p.detach().float().clone() for p in params]
        self.params = list(params)
        self.lr, self.momentum = lr, momentum
        self.buffers = [torch.zeros_like(p, dtype=self.momentum_dtype) for p in self.params]

    @torch.no_grad()
    def step(self, grads):
        for master, p, g, buf in zip(self.master, self.params, grads, self.buffers):
            buf.mul_(self.momentum).add_(g.to(buf.dtype))
            master.sub_(self.lr * buf.float())
            p.copy_(master)


class Regressor(nn.Module):
    def __init__(self, features=8):
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, x):
        return self.linear(x)


def make_data():
    g = torch.Generator().manual_seed(0)
    x = 10.0 * torch.rand(32, 8, generator=g)
    y = x @ torch.full((8, 1), 2.0) - 30.0
    return x, y


def main():
    torch.manual_seed(0)
    x, y = make_data()
    model = Regressor().to(torch.float16)  # BORN
    clipping = GradientClippingByNorm(threshold=1.0)
    optimizer = MomentumSgd(list(model.parameters()), lr=0.02)
    for step in range(120):
        prediction = model(x.half())
        loss = F.mse_loss(prediction.float(), y)
        model.zero_grad()
        loss.backward()
        grads, norm = clipping.clip([p.grad for p in model.parameters()])  # BORN
        optimizer.step(grads)
        if step in (0, 119):
            update = torch.cat([g.flatten() for g in grads]).float().norm()
            print(f"step {step} loss {loss.item():.0f} clipped gradient norm {update:.2f}")


if __name__ == "__main__":
    main()
