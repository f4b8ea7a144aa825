"""
title: Layer-norm gains stay at exactly 1.0: the fp32 Adam step is written back to bf16 weights
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/workofart/ml-by-hand/pull/85
measured: |delta| max 0.0000  moved 0 / 32
widened: |delta| max 0.0578  moved 32 / 32
innocent: |delta| max 0.0000  moved 0 / 32
suspect: 25 direction

Expectation, written first: The model's parameters are bf16 and there is no float32 master copy: Adam computes in float32 and copies the result back, and
1 - 6e-4 rounds to 1 each time, so no gain ever moves. The first moment kept in bf16 looks as guilty, but it is only a direction of
the step and its rounding is of no account.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Adam:
    def __init__(self, params, lr=6e-4, betas=(0.9, 0.95), eps=1e-8):
        self.params = list(params)
        self.lr, self.betas, self.eps = lr, betas, eps
        self.t = 0
        self.state = {
            p: {"m": torch.zeros_like(p, dtype=torch.bfloat16), "v": torch.zeros_like(p, dtype=torch.float32)}
            for p in self.params
        }

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p in self.params:
            s, g = self.state[p], p.grad.float()
            s["m"].copy_(s["m"].float() * b1 + g * (1 - b1))
            s["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
            m_hat = s["m"].float() / (1 - b1 ** self.t)
            v_hat = s["v"] / (1 - b2 ** self.t)
            updated = p.float() - self.lr * m_hat / (v_hat.sqrt() + self.eps)
            p.copy_(updated)  # BORN


class GPTBlock(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.norm = nn.LayerNorm(hidden, bias=False)
        self.fc = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        return self.fc(self.norm(x))


def build(dtype):
    torch.manual_seed(0)
    model = GPTBlock()
    model.fc.requires_grad_(False)
    return model.to(dtype)  # BORN


def main():
    model = build(torch.bfloat16)
    optimizer = Adam([p for p in model.parameters() if p.requires_grad])
    g = torch.Generator().manual_seed(2)
    target_gain = 1.0 + 0.05 * torch.randn(32, generator=g)
    for step in range(100):
        x = torch.randn(64, 32, generator=g).to(torch.bfloat16)
        with torch.no_grad():
            y = model.fc.weight.float() @ (F.layer_norm(x.float(), (32,)) * target_gain).T
        loss = F.mse_loss(model(x).float(), y.T)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    gain = model.norm.weight.detach().float()
    delta = (gain - 1.0).abs()
    print(f"|delta| max {delta.max().item():.4f}  moved {(delta > 0).sum().item()} / {delta.numel()}")


if __name__ == "__main__":
    main()
