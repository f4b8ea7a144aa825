"""
title: PPO on byte frames, bfloat16 autocast for the net, log-probabilities and advantages in float32, ends as bool
expect: clean

The right way round of https://github.com/pytorch/pytorch/issues/24180; the recipe is cleanrl's ppo_atari.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(46)


class Agent(nn.Module):
    def __init__(self, actions=3):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(2, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.policy, self.value = nn.Linear(8 * 9, actions), nn.Linear(8 * 9, 1)

    def forward(self, frames):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = self.conv(frames.float() / 255)
            logits, value = self.policy(h), self.value(h)
        return torch.distributions.Categorical(logits=logits.float()), value.float()[:, 0]


class Catch:
    def __init__(self, envs):
        self.envs, self.t = envs, 0

    def observe(self):
        self.cell = torch.randint(0, 3, (self.envs,))
        frames = torch.zeros(self.envs, 2, 8, 8, dtype=torch.uint8)
        frames[torch.arange(self.envs), 0, :, self.cell * 2] = 255
        return frames

    def step(self, action):
        self.t += 1
        reward = (action == self.cell).float()
        done = torch.rand(self.envs) < 0.1
        return self.observe(), reward, done


@torch.no_grad()
def collect(agent, env, steps, gamma=0.9, lam=0.95):
    frames, out = env.observe(), {k: [] for k in ("frames", "actions", "logps", "values", "rewards", "dones")}
    for _ in range(steps):
        distribution, value = agent(frames)
        action = distribution.sample()
        following, reward, done = env.step(action)
        for key, item in zip(out, (frames, action, distribution.log_prob(action), value, reward, done)):
            out[key].append(item)
        frames = following
    out = {k: torch.stack(v) for k, v in out.items()}
    last, running = agent(frames)[1], torch.zeros(env.envs)
    out["advantages"] = torch.zeros_like(out["rewards"])
    for t in reversed(range(steps)):
        alive = (~out["dones"][t]).float()
        delta = out["rewards"][t] + gamma * last * alive - out["values"][t]
        running = delta + gamma * lam * alive * running
        out["advantages"][t], last = running, out["values"][t]
    return {k: v.flatten(0, 1) for k, v in out.items()}


agent, env = Agent(), Catch(16)
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
for update in range(8):
    data = collect(agent, env, 16)
    advantage = (data["advantages"] - data["advantages"].mean()) / (data["advantages"].std() + 1e-8)
    for epoch in range(2):
        distribution, value = agent(data["frames"])
        ratio = (distribution.log_prob(data["actions"]) - data["logps"]).exp()
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = loss + 0.5 * F.mse_loss(value, data["advantages"] + data["values"]) - 0.01 * distribution.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("reward", round(data["rewards"].mean().item(), 3))
