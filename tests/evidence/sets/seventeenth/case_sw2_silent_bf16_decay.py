"""
title: weight decay has no effect on bfloat16 weights though the updates are rounded stochastically
expect: silent:lost-update|precision-loss
thread: https://github.com/Nerogar/OneTrainer/issues/996
measured: norm of the unused rows after 3000 steps: 1.0000 of the start, loss 0.1758
widened: norm of the unused rows after 3000 steps: 0.7424 of the start, loss 0.1570
innocent: norm of the unused rows after 3000 steps: 1.0000 of the start, loss 0.1769
suspect: 33 bf16 first moment: small (0.4% of a step of size lr)

Expectation, written first: The decay multiplies the bf16 weight by 1 - lr * wd = 0.9999 in place, which rounds back to the same bf16
    number; only the update itself goes through stochastic rounding. The bf16 first moment looks worse, but Adam's ratio is of order one
    and 0.4% on it does nothing.
"""
import torch
from torch import nn


def copy_stochastic_(target, source):
    bits = source.view(torch.int32) + torch.randint(0, 1 << 16, source.shape, dtype=torch.int32)
    target.copy_((bits & -65536).view(torch.float32))


class AdamWExtension:
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1):
        self.params, self.lr, self.betas, self.eps, self.wd = list(params), lr, betas, eps, weight_decay
        self.state, self.t = {}, 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p in self.params:
            if p not in self.state:
                m = torch.zeros_like(p, dtype=torch.bfloat16)
                self.state[p] = (m, torch.zeros_like(p, dtype=torch.float32))
            m, v = self.state[p]
            g = p.grad.float()
            m.mul_(self.betas[0]).add_(g.to(m.dtype), alpha=1 - self.betas[0])
            v.mul_(self.betas[1]).addcmul_(g, g, value=1 - self.betas[1])
            p.mul_(1 - self.lr * self.wd)  # BORN
            mhat = m.float() / (1 - self.betas[0] ** self.t)
            vhat = v / (1 - self.betas[1] ** self.t)
            copy_stochastic_(p, p.float() - self.lr * mhat / (vhat.sqrt() + self.eps))


class LoRALayer(nn.Module):
    def __init__(self, n_tokens=64, dim=16, used=16):
        super().__init__()
        self.used, self.embed = used, nn.Parameter((torch.randn(n_tokens, dim)).to(torch.bfloat16))

    def forward(self, ids):
        return self.embed[ids].float()


torch.manual_seed(0)
layer = LoRALayer()
start = layer.embed.detach().float().norm(dim=1)
opt, target = AdamWExtension([layer.embed]), torch.randn(16, 16)
for _ in range(3000):
    ids = torch.randint(0, layer.used, (8,))
    loss = ((layer(ids) - target[ids]) ** 2).mean()
    (layer.embed.grad,) = torch.autograd.grad(loss, [layer.embed])
    opt.step()
end = layer.embed.detach().float().norm(dim=1)
print(f"norm of the unused rows after 3000 steps: {(end / start)[16:].mean():.4f} of the start, loss {loss:.4f}")
