"""
title: episode ends are stored as bytes, and ~done is 255 or 254 instead of one or zero
expect: silent:overflow|precision-loss|precision-loss|precision-loss|downcast
fix_at: 38

After https://github.com/pytorch/pytorch/issues/24180 and https://github.com/lvzhaoyang/DeeperInverseCompositionalAlgorithm/pull/5. The observations'
uint8 is innocent. Here advantages grow to 1e37, clipping and normalising hide it (repaired: below 10).
Right: store the ends as bool.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(36)


class ActorCritic(nn.Module):
    def __init__(self, actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, actions), nn.Linear(32, 1)

    def forward(self, frames):
        h = self.body(frames.float() / 255)
        return torch.distributions.Categorical(logits=self.policy(h)), self.value(h)[:, 0]


class Storage:
    def __init__(self, steps, envs):
        self.frames = torch.zeros(steps, envs, 8, 8, dtype=torch.uint8)
        self.actions = torch.zeros(steps, envs, dtype=torch.long)
        self.rewards, self.values, self.logps = (torch.zeros(steps, envs) for _ in range(3))
        self.dones = torch.zeros(steps, envs, dtype=torch.uint8)  # BORN

    def advantages(self, last, gamma=0.99, lam=0.95):
        out, running = torch.zeros_like(self.rewards), 0.0
        for t in reversed(range(len(self.rewards))):
            alive = ~self.dones[t]
            following = self.values[t + 1] if t + 1 < len(self.rewards) else last
            delta = self.rewards[t] + gamma * following * alive - self.values[t]
            running = delta + gamma * lam * alive * running
            out[t] = running
        return out


@torch.no_grad()
def collect(model, storage):
    steps, envs = storage.rewards.shape
    for t in range(steps):
        frames = torch.randint(0, 256, (envs, 8, 8), dtype=torch.uint8)
        distribution, value = model(frames)
        action = distribution.sample()
        storage.frames[t], storage.actions[t], storage.values[t] = frames, action, value
        storage.logps[t] = distribution.log_prob(action)
        storage.rewards[t] = (action == (frames[:, 0, 0] // 64).long()).float()
        storage.dones[t] = torch.rand(envs) < 0.1
    return model(frames)[1]


model = ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for update in range(4):
    storage = Storage(16, 8)
    advantage = storage.advantages(collect(model, storage)).flatten()
    largest = advantage.abs().max().item()
    normal = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).clamp(-5, 5)
    distribution, value = model(storage.frames.flatten(0, 1))
    ratio = (distribution.log_prob(storage.actions.flatten()) - storage.logps.flatten()).exp()
    loss = -(ratio * normal).mean() + 0.5 * F.smooth_l1_loss(value, (advantage + storage.values.flatten()).clamp(-10, 10))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(update, "largest advantage", f"{largest:.3g}", "value", round(value.mean().item(), 3))
