"""
title: a job resumed every few steps makes no progress: the fp32 masters are rebuilt from bfloat16 weights
expect: silent:lost-update|round-trip|precision-loss
thread: https://github.com/TensorAuto/OpenTau/issues/185
measured: loss after the first job 0.0571, after the last 0.0557
widened: loss after the first job 0.0571, after the last 0.0096
innocent: loss after the first job 0.0571, after the last 0.0557
suspect: line 44 harmless (moments rounded to a part in 250)

Expectation, written first: the checkpoint holds the live bfloat16 weights and not the fp32 masters, and on resume the
masters are made from them. What a short session has gathered in the masters is less than half a bfloat16 step, so each
resume throws it away and the loss stays. The optimizer moments saved in bfloat16 look worse and cost nothing.
"""
import torch
import torch.nn as nn


class MasterWeightOptimizer:
    def __init__(self, live, lr):
        self.live, self.lr, self.betas = live, lr, (0.9, 0.99)
        self.rebuild_masters_from_live()
        self.moments = {f"exp_avg.{i}": torch.zeros_like(m) for i, m in enumerate(self.masters)}
        self.moments |= {f"exp_avg_sq.{i}": torch.zeros_like(m) for i, m in enumerate(self.masters)}
        self.steps = 0

    def rebuild_masters_from_live(self):
        self.masters = [p.detach().to(torch.float32).clone() for p in self.live.parameters()]  # BORN

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for i, (master, p) in enumerate(zip(self.masters, self.live.parameters())):
            g = p.grad.float()
            m = self.moments[f"exp_avg.{i}"].lerp_(g, 1 - self.betas[0])
            v = self.moments[f"exp_avg_sq.{i}"].lerp_(g * g, 1 - self.betas[1])
            m_hat, v_hat = m / (1 - self.betas[0]**self.steps), v / (1 - self.betas[1]**self.steps)
            master.sub_(self.lr * m_hat / (v_hat.sqrt() + 1e-8))
            p.copy_(master)
            p.grad = None

    def save_state(self):
        return {
            "model": {k: v.clone() for k, v in self.live.state_dict().items()},  # BORN
            "moments": {k: v.to(torch.bfloat16) for k, v in self.moments.items()},
            "steps": self.steps,
        }

    def load_state(self, state):
        self.live.load_state_dict(state["model"])
        self.rebuild_masters_from_live()
        if state["model"]["weight"].dtype == torch.float32:
            self.masters = [v.clone() for v in state["model"].values()]
        self.moments = {k: v.float() for k, v in state["moments"].items()}
        self.steps = state["steps"]


def session(state, steps, target):
    policy = nn.Linear(16, 16, bias=False).to(torch.bfloat16)
    nn.init.constant_(policy.weight, 0.75)
    optimizer = MasterWeightOptimizer(policy, lr=1e-4)
    if state is not None:
        optimizer.load_state(state)
    for _ in range(steps):
        x = torch.randn(32, 16)
        loss = (policy(x.to(torch.bfloat16)).float() - x @ target.t()).pow(2).mean()
        loss.backward()
        optimizer.step()
    return optimizer.save_state(), loss.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    target = 0.75 + torch.sign(torch.randn(16, 16)) * 0.06
    state, losses = None, []
    for job in range(40):
        state, loss = session(state, steps=12, target=target)
        losses.append(loss)
    print(f"loss after the first job {losses[0]:.4f}, after the last {losses[-1]:.4f}")


main()
