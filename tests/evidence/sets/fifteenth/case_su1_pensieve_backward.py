"""
title: the critic of a bitrate agent learns from discounted returns that numpy computed
expect: collision
thread: https://github.com/linnaeushuang/pensieve-pytorch/issues/10
fix_at: 39, 51, 70, 87

Expectation, written first: the returns are float64 from numpy and the loss of the critic takes them in the forward
pass without a word; its backward formula finds double where it expected float.
"""
import numpy as np
import torch
from torch import nn

BITRATES = np.array([300, 750, 1200, 1850, 2850, 4300], dtype=np.float32)


class Link:
    """a player's buffer behind a link of changing throughput"""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.buffer, self.last = 10.0, 0

    def state(self):
        speed = self.rng.uniform(500, 4000)
        self.speed = speed
        return np.array([speed / 4000, self.buffer / 10, self.last / 5], dtype=np.float32)

    def play(self, choice):
        wait = BITRATES[choice] * 4 / self.speed
        stall = max(wait - self.buffer, 0.0)
        self.buffer = max(self.buffer - wait, 0.0) + 4.0
        quality, change = BITRATES[choice] / 1000, abs(BITRATES[choice] - BITRATES[self.last]) / 1000
        self.last = choice
        return quality - 4.3 * stall - change


def discounted(rewards, gamma):
    returns = np.zeros(len(rewards))  # BORN
    running = 0.0
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running
        returns[t] = running
    return returns


class Batch:
    def __init__(self, states, actions, rewards, gamma=0.99):
        self.states = torch.from_numpy(np.stack(states))
        self.actions = torch.tensor(actions)
        self.returns = torch.from_numpy(discounted(rewards, gamma))  # BORN


class A3C:
    def __init__(self, n_state=3, n_action=6, hidden=32):
        self.actor = nn.Sequential(nn.Linear(n_state, hidden), nn.ReLU(), nn.Linear(hidden, n_action))
        self.critic = nn.Sequential(nn.Linear(n_state, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.optimizer = torch.optim.RMSprop([*self.actor.parameters(), *self.critic.parameters()], lr=1e-3)
        self.critic_loss = nn.HuberLoss(delta=5.0)

    def choose(self, state):
        with torch.no_grad():
            return torch.distributions.Categorical(logits=self.actor(torch.from_numpy(state))).sample().item()

    def losses(self, batch):
        values = self.critic(batch.states).squeeze(-1)
        policy = torch.distributions.Categorical(logits=self.actor(batch.states))
        advantage = (batch.returns - values).detach()
        actor = -(policy.log_prob(batch.actions) * advantage).mean() - 0.1 * policy.entropy().mean()
        return actor, self.critic_loss(values, batch.returns)

    def learn(self, batch):
        actor, critic = self.losses(batch)
        self.optimizer.zero_grad()
        actor.backward()
        critic.backward()  # COLLIDES
        self.optimizer.step()
        return critic.item()


def rollout(agent, link, steps=20):
    states, actions, rewards = [], [], []
    for _ in range(steps):
        states.append(link.state())
        actions.append(agent.choose(states[-1]))
        rewards.append(link.play(actions[-1]))
    return Batch(states, actions, rewards)


torch.manual_seed(3)
agent, link = A3C(), Link(seed=8)
print("critic", [round(agent.learn(rollout(agent, link)), 3) for _ in range(4)])
