"""
title: a policy with bfloat16 weights that are copied from float32 master weights after each step
expect: clean
thread: https://github.com/PufferAI/PufferLib/pull/479
measured: success 93%

Expectation, written first: forward and backward run in bfloat16, but the optimizer works on the float32 masters and
the advantages are float32; small steps are kept, and a run in float64 reaches the same place.
"""
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, width=16, actions=4):
        super().__init__()
        self.body = nn.Linear(8, width)
        self.head = nn.Linear(width, actions)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


class MasterWeights:
    def __init__(self, model, lr):
        self.model = model
        self.masters = [p.detach().clone().float().requires_grad_() for p in model.parameters()]
        self.optimizer = torch.optim.Adam(self.masters, lr=lr)

    def step(self):
        for master, p in zip(self.masters, self.model.parameters()):
            master.grad = p.grad.float()
            p.grad = None
        self.optimizer.step()
        with torch.no_grad():
            for master, p in zip(self.masters, self.model.parameters()):
                p.copy_(master)


def rollout(gen, n=256):
    state = torch.randn(n, 8, generator=gen)
    return state, state[:, :4].argmax(1)


def main():
    torch.manual_seed(0)
    policy = Policy().to(torch.bfloat16)
    trainer = MasterWeights(policy, lr=1e-2)
    gen = torch.Generator().manual_seed(5)
    for _ in range(300):
        state, good = rollout(gen)
        logits = policy(state.to(policy.body.weight.dtype)).float()
        logp = logits.log_softmax(-1)
        action = good.where(torch.arange(len(good)) % 3 > 0, (good + 1) % 4)
        reward = (action == good).float()
        advantage = (reward - reward.mean()) / (reward.std() + 1e-5)
        loss = -(logp.gather(1, action[:, None])[:, 0].clamp(min=-4) * advantage).mean()
        loss.backward()
        trainer.step()
    state, good = rollout(gen, 4096)
    with torch.no_grad():
        right = policy(state.to(policy.body.weight.dtype)).float().argmax(-1) == good
    print(f"success {100 * right.float().mean().item():.0f}%")


main()
