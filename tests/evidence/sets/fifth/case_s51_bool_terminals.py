"""
title: the replay buffer stores terminals as booleans, the target subtracts them from one
expect: collision
fix_at: 37

After https://github.com/yhenon/pytorch-retinanet/pull/110 and https://github.com/nlpyang/PreSumm/issues/54.
Right: the terminals become numbers before they are subtracted.
"""
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(120)


@dataclass
class Transitions:
    state: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    following: torch.Tensor
    terminal: torch.Tensor

    @classmethod
    def empty(cls, capacity, dim):
        return cls(torch.zeros(capacity, dim), torch.zeros(capacity, dtype=torch.long), torch.zeros(capacity),
                   torch.zeros(capacity, dim), torch.zeros(capacity, dtype=torch.bool))  # BORN

    def write(self, slot, *values):
        for field, value in zip(fields(self), values):
            getattr(self, field.name)[slot] = value

    def sample(self, filled, size):
        rows = torch.randint(0, filled, (size,))
        return Transitions(*(getattr(self, field.name)[rows] for field in fields(self)))


class Corridor:
    """Walk right to the end; every fifth step or so ends by chance."""

    def reset(self):
        self.place = torch.zeros(4)
        return self.place

    def step(self, action):
        self.place = self.place + (1 if action else -1) * 0.1 * torch.rand(4)
        done = bool(self.place.mean() > 0.3) or bool(torch.rand(()) < 0.2)
        return self.place, float(self.place.mean()), done


class Agent:
    def __init__(self, dim=4, actions=2, gamma=0.95):
        make = lambda: nn.Sequential(nn.Linear(dim, 24), nn.ReLU(), nn.Linear(24, actions))
        self.online, self.target, self.gamma = make(), make(), gamma
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)

    def bootstrap(self, batch):
        with torch.no_grad():
            best = self.target(batch.following).max(1).values
            return batch.reward + self.gamma * (1 - batch.terminal) * best  # COLLIDES

    def learn(self, batch):
        chosen = self.online(batch.state).gather(1, batch.action[:, None])[:, 0]
        loss = F.smooth_l1_loss(chosen, self.bootstrap(batch))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


env, agent, memory = Corridor(), Agent(), Transitions.empty(200, 4)
state = env.reset()
for step in range(60):
    action = int(torch.randint(0, 2, ()))
    following, reward, done = env.step(action)
    memory.write(step, state, action, reward, following, done)
    state = env.reset() if done else following
    if step >= 30 and step % 10 == 0:
        print(step, round(agent.learn(memory.sample(step, 16)), 4))
