"""
title: single-matrix LoRA on a bfloat16 base does not learn: the adapter's own matrix hardly moves
expect: silent:lost-update|precision-loss
thread: https://github.com/kyegomez/SingLoRA/issues/6
measured: loss 1.965 -> 12.053, entries of A that moved 0.41
widened: loss 1.947 -> 6.048, entries of A that moved 1.00
innocent: loss 1.965 -> 12.053, entries of A that moved 0.41
suspect: line 30 harmless (a 0-dim factor, off by 0.4 % at most)

Expectation, written first: the adapter matrix A takes the dtype of the frozen base weight, bfloat16. The optimizer's
steps of 8e-4 are below half a bfloat16 step for entries above 0.25, so most of A never changes; the loss climbs with the
ramp and stays high. The bfloat16 ramp factor (which the thread blames) only scales the update by a fraction of a percent.
"""
import torch
import torch.nn as nn


class SingLoRALayer(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4, alpha: float = 4.0, ramp_up_steps: int = 60):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(base.out_features, rank, dtype=base.weight.dtype) * 0.6)  # BORN
        self.scale = alpha / rank
        self.ramp_up_steps = ramp_up_steps
        self.register_buffer("training_step", torch.tensor(0.0))

    def ramp(self):
        return torch.clamp(self.training_step / self.ramp_up_steps, max=1.0).to(torch.bfloat16)

    def forward(self, x):
        if self.training:
            self.training_step += 1
        A = self.A.to(x.dtype)
        update = (x @ A) @ A.t()
        return self.base(x) + self.ramp() * self.scale * update


class Lion:
    def __init__(self, params, lr, beta=0.9):
        self.params, self.lr, self.beta = params, lr, beta
        self.exp_avg = [torch.zeros_like(p, dtype=torch.float32) for p in params]

    @torch.no_grad()
    def step(self):
        for p, m in zip(self.params, self.exp_avg):
            m.lerp_(p.grad.float(), 1 - self.beta)
            p.add_(torch.sign(m).to(p.dtype), alpha=-self.lr)
            p.grad = None


def apply_singlora(model, rank):
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear):
            setattr(model, name, SingLoRALayer(child, rank=rank))
    return model


class Attention(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.to_q = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        return self.to_q(x)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    base = Attention().to(torch.bfloat16)
    direction = torch.randn(32, 2) * 0.35
    target_weight = base.to_q.weight.float() + direction @ direction.t()
    model = apply_singlora(base, rank=4)
    before = model.to_q.A.detach().clone()
    optimizer = Lion([p for p in model.parameters() if p.requires_grad], lr=8e-4)
    losses = []
    for step in range(200):
        x = torch.randn(64, 32)
        pred = model(x.to(torch.bfloat16)).float()
        loss = (pred - x @ target_weight.t()).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    moved = (model.to_q.A.detach() != before).float().mean().item()
    print(f"loss {sum(losses[:20]) / 20:.3f} -> {sum(losses[-20:]) / 20:.3f}, entries of A that moved {moved:.2f}")


main()
