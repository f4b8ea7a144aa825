"""
title: optimizer resumed from a checkpoint: Optimizer.load_state_dict casts the fp32 moments to the bf16 of the parameters
expect: collision
thread: https://github.com/pytorch/ao/issues/3314
fix_at: 20

Expectation, written first: the AdamW keeps its moments in float32 beside bfloat16 weights and computes in float32, which works in a
fresh run. On resuming, torch's load_state_dict silently casts every floating state but 'step' to the parameter's dtype, so exp_avg
comes back as bfloat16 and the next step's lerp with the float32 gradient raises.
"""
import io

import torch
import torch.nn.functional as F
from torch import nn

def single_param_adamw(p, grad, step, exp_avg, exp_avg_sq, lr, beta1, beta2, weight_decay, eps):
    p_f32, grad_f32 = p.float(), grad.float()
    p_f32 = p_f32 - lr * weight_decay * p_f32
    exp_avg.lerp_(grad_f32, 1 - beta1)  # COLLIDES
    exp_avg_sq.lerp_(grad_f32.square(), 1 - beta2)
    bias_correction1, bias_correction2 = 1 - beta1 ** step, 1 - beta2 ** step
    denom = (exp_avg_sq.sqrt() / bias_correction2 ** 0.5) + eps
    p.copy_(p_f32 - lr * (exp_avg / bias_correction1) / denom)

class AdamW32State(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def _new_buffer(self, p):
        return torch.zeros_like(p, dtype=torch.float32)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"] = self._new_buffer(p)
                    state["exp_avg_sq"] = self._new_buffer(p)
                state["step"] += 1
                single_param_adamw(p, p.grad, state["step"].item(), state["exp_avg"], state["exp_avg_sq"],
                                   group["lr"], *group["betas"], group["weight_decay"], group["eps"])

class Checkpointer:
    def __init__(self):
        self.blob = None

    def save(self, model, optimizer):
        buffer = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
        self.blob = buffer.getvalue()

    def load(self, model, optimizer):
        checkpoint = torch.load(io.BytesIO(self.blob))
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])  # BORN

class Trainer:
    def __init__(self, checkpointer, resume=False):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(torch.bfloat16)
        self.optimizer = AdamW32State(self.model.parameters(), lr=3e-3)
        self.checkpointer = checkpointer
        if resume:
            checkpointer.load(self.model, self.optimizer)

    def fit(self, steps):
        x, y = torch.randn(64, 16).to(torch.bfloat16), torch.randint(0, 4, (64,))
        for _ in range(steps):
            loss = F.cross_entropy(self.model(x).float(), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.checkpointer.save(self.model, self.optimizer)
        return loss.item()

if __name__ == "__main__":
    checkpointer = Checkpointer()
    print(f"first run: {Trainer(checkpointer).fit(10):.4f}")
    print(f"resumed:   {Trainer(checkpointer, resume=True).fit(10):.4f}")
