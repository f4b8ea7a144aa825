"""
title: the buffer of discounted returns takes its dtype from the actions
expect: silent:precision-loss|precision-loss|downcast|precision-loss
fix_at: 44

After https://github.com/chandar-lab/RLHive/pull/86 and https://github.com/CarperAI/trlx/pull/520 (rewards without a dtype): zeros_like of an int64 tensor is int64,
each return is cut to a whole number as it is stored. The bfloat16 log-probabilities are nearly innocent here.
Here all returns are 0 and nothing is learned (repaired: mean return 4.8, reward 0.89 for 0.41). Right: zeros_like(rewards).
"""
import torch
from torch import nn

torch.manual_seed(33)


class Policy(nn.Module):
    def __init__(self, states=4, actions=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(states, 32), nn.Tanh(), nn.Linear(32, actions))

    def forward(self, state):
        return torch.distributions.Categorical(logits=self.net(state))


class Corridor:
    """The action 2 is right in every state, a step pays between 0 and 0.9."""

    def __init__(self, envs):
        self.envs = envs

    def reset(self):
        self.state = torch.randn(self.envs, 4)
        return self.state

    def step(self, action):
        reward = 0.45 * action.float()
        self.state = 0.9 * self.state + 0.1 * torch.randn_like(self.state)
        return self.state, reward


def discounted(rewards, actions, gamma):
    returns = torch.zeros_like(actions)  # BORN
    for t in reversed(range(len(rewards))):
        returns[t] = rewards[t] + gamma * returns[t + 1] if t + 1 < len(rewards) else rewards[t]
    return returns


def rollout(policy, env, length=16):
    state = env.reset()
    logps, actions, rewards = [], [], []
    for _ in range(length):
        distribution = policy(state)
        action = distribution.sample()
        logps.append(distribution.log_prob(action).to(torch.bfloat16))
        state, reward = env.step(action)
        actions.append(action)
        rewards.append(reward)
    return torch.stack(logps), torch.stack(actions), torch.stack(rewards)


policy, env = Policy(), Corridor(16)
optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
for step in range(15):
    logps, actions, rewards = rollout(policy, env)
    returns = discounted(rewards, actions, gamma=0.9)
    advantage = returns.float() - returns.float().mean()
    loss = -(logps.float() * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("mean return", round(returns.float().mean().item(), 3), "mean reward", round(rewards.mean().item(), 3))
