"""
title: Replay memory of a DQN stores the actions in a default (float) tensor
expect: collision
thread: https://github.com/philtabor/Deep-Q-Learning-Paper-To-Code/issues/2

Expectation, written first.  The action memory is allocated with torch.zeros
and no dtype, so the integer actions are stored as float32.  In learn() they
are used as an index into the Q-values, which only takes integer or bool
tensors.  BORN is the allocation of the action memory; dtype=torch.long there.
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class CorridorEnv:

    def reset(self):
        self.pos = 0
        return torch.eye(5)[self.pos]

    def step(self, action):
        self.pos = max(0, min(4, self.pos + (1 if action == 1 else -1)))
        done = self.pos == 4
        return torch.eye(5)[self.pos], 1.0 if done else -0.05, done


class ReplayMemory:
    def __init__(self, size, n_obs):
        self.size, self.count = size, 0
        self.states = torch.zeros(size, n_obs)
        self.next_states = torch.zeros(size, n_obs)
        self.actions = torch.zeros(size)  # BORN
        self.rewards = torch.zeros(size)
        self.terminals = torch.zeros(size, dtype=torch.bool)

    def store(self, s, a, r, s2, d):
        i = self.count % self.size
        self.states[i], self.actions[i], self.rewards[i] = s, a, r
        self.next_states[i], self.terminals[i] = s2, d
        self.count += 1

    def sample(self, batch):
        idx = torch.randint(0, min(self.count, self.size), (batch,))
        return (self.states[idx], self.actions[idx], self.rewards[idx], self.next_states[idx], self.terminals[idx])


class Agent:
    def __init__(self, gamma=0.95):
        self.q = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2))
        self.opt, self.gamma = torch.optim.Adam(self.q.parameters(), lr=5e-3), gamma
        self.memory = ReplayMemory(500, 5)

    def act(self, s, eps):
        return torch.randint(0, 2, ()).item() if torch.rand(()) < eps else self.q(s).argmax().item()

    def learn(self, batch=32):
        states, actions, rewards, next_states, done = self.memory.sample(batch)
        rows = torch.arange(batch)
        q_pred = self.q(states)[rows, actions]  # COLLIDES
        with torch.no_grad():
            target = rewards + self.gamma * self.q(next_states).max(1).values * ~done
        loss = nn.functional.smooth_l1_loss(q_pred, target)
        self.opt.zero_grad(); loss.backward(); self.opt.step()


if __name__ == "__main__":
    env, agent, lengths = CorridorEnv(), Agent(), []
    for episode in range(25):
        s, done, t = env.reset(), False, 0
        while not done and t < 30:
            a = agent.act(s, max(0.1, 1 - episode / 15))
            s2, r, done = env.step(a)
            agent.memory.store(s, a, r, s2, done)
            s, t = s2, t + 1
            if agent.memory.count > 40: agent.learn()
        lengths.append(t)
    print("mean length of the last episodes:", sum(lengths[-5:]) / 5)
