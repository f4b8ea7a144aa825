"""
title: the PPO rollout buffer holds the old log-probabilities in bfloat16
expect: silent:precision-loss|downcast|round-trip
modes: diagnose

After huggingface/transformers#31267 and huggingface/blog#2110 (the ratio of bf16 log-probabilities nulls 3 % of PPO's and 20 to 40 %
of RLOO's data), PrimeIntellect-ai/prime-rl#568. In the first epoch policy and old policy are the same, each ratio should be 1; here a sum
over 12 action dimensions near -17 is rounded to steps of 0.125 and ratios lie between 0.94 and 1.06; 10 % of the
data is clipped away (repaired: none). Right: keep them in float32.
"""
import torch
from torch import nn

torch.manual_seed(24)


class Policy(nn.Module):
    def __init__(self, observation=6, action=12, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observation, hidden), nn.Tanh())
        self.mean = nn.Linear(hidden, action)
        self.value = nn.Linear(hidden, 1)
        self.log_std = nn.Parameter(torch.zeros(action))

    def forward(self, observation):
        h = self.body(observation)
        return torch.distributions.Normal(self.mean(h), self.log_std.exp()), self.value(h)[:, 0]


class Rollout:
    def __init__(self, steps, envs, observation, action):
        self.observation = torch.zeros(steps, envs, observation)
        self.action = torch.zeros(steps, envs, action)
        self.logp = torch.zeros(steps, envs, dtype=torch.bfloat16)  # BORN
        self.reward = torch.zeros(steps, envs)
        self.value = torch.zeros(steps, envs)

    def store(self, t, observation, action, logp, reward, value):
        self.observation[t], self.action[t] = observation, action
        self.logp[t] = logp  # BORN
        self.reward[t], self.value[t] = reward, value

    def flat(self):
        advantage = self.reward - self.value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        return (part.flatten(0, 1) for part in (self.observation, self.action, self.logp, advantage, self.reward))


@torch.no_grad()
def collect(policy, steps=16, envs=8):
    rollout = Rollout(steps, envs, 6, 12)
    observation = torch.randn(envs, 6)
    for t in range(steps):
        distribution, value = policy(observation)
        action = distribution.sample()
        logp = distribution.log_prob(action).sum(-1)
        reward = -(action - observation.repeat(1, 2)).square().mean(-1)
        rollout.store(t, observation, action, logp, reward, value)
        observation = torch.randn(envs, 6)
    return rollout


def main(clip=0.05):
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    observation, action, old, advantage, returns = collect(policy).flat()
    for epoch in range(2):
        distribution, value = policy(observation)
        logp = distribution.log_prob(action).sum(-1)
        ratio = (logp - old.float()).exp()
        surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        loss = -surrogate.mean() + 0.5 * (value - returns).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outside = ((ratio - 1).abs() > clip).float().mean().item()
        print(epoch, "ratio", round(ratio.min().item(), 3), round(ratio.max().item(), 3), "clipped", round(outside, 3))


main()
