"""
title: Atari style replay buffer stores frames as uint8 and scales them to float only when a batch is sampled
expect: clean
thread: https://github.com/cpnota/autonomous-learning-library/pull/172
measured: uint8: worst 0, max pixel 243, td loss 0.03062; float32: the same numbers
suspect: 26 lossless

Expectation, written first: the buffer casts frames to uint8, which looks like a downcast. The screen is uint8 to begin with, so the cast is exact, and
the division by 255 happens in float after sampling. The run with the uint8 buffer gives the same losses as the one with a float buffer.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ReplayBuffer:
    def __init__(self, capacity, frame_shape, dtype):
        self.states = torch.zeros(capacity, *frame_shape, dtype=dtype)
        self.next_states = torch.zeros(capacity, *frame_shape, dtype=dtype)
        self.actions = torch.zeros(capacity, dtype=torch.long)
        self.rewards = torch.zeros(capacity)
        self.dtype, self.capacity, self.pos, self.full = dtype, capacity, 0, False

    def store(self, state, action, reward, next_state):
        self.states[self.pos] = state.to(self.dtype)
        self.next_states[self.pos] = next_state.to(self.dtype)
        self.actions[self.pos], self.rewards[self.pos] = action, reward
        self.pos = (self.pos + 1) % self.capacity
        self.full = self.full or self.pos == 0

    def sample(self, batch_size, rng):
        idx = torch.from_numpy(rng.integers(0, self.capacity if self.full else self.pos, batch_size))
        return self.states[idx], self.actions[idx], self.rewards[idx], self.next_states[idx]


class NatureDQN(nn.Module):
    def __init__(self, actions=3):
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 4, stride=2)
        self.fc = nn.Linear(8 * 25, actions)

    def forward(self, frames):
        x = frames.float() / 255
        return self.fc(F.relu(self.conv(x)).flatten(1))


class BreakoutLike:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.ball = 5

    def screen(self):
        frame = np.zeros((2, 12, 12), dtype=np.uint8)
        frame[0, :, self.ball] = 142
        frame[1, 10:, max(self.ball - 1, 0) : self.ball + 2] = 236
        return torch.from_numpy(frame + self.rng.integers(0, 8, frame.shape, dtype=np.uint8))

    def step(self, action):
        self.ball = int(np.clip(self.ball + action - 1, 0, 11))
        return float(self.ball in (5, 6))


def run(dtype):
    torch.manual_seed(0)
    env, rng = BreakoutLike(3), np.random.default_rng(4)
    buffer, q = ReplayBuffer(64, (2, 12, 12), dtype), NatureDQN()
    optimizer = torch.optim.SGD(q.parameters(), lr=0.01)
    state, worst = env.screen(), 0
    for t in range(120):
        action = int(rng.integers(0, 3))
        reward = env.step(action)
        next_state = env.screen()
        buffer.store(state, action, reward, next_state)
        worst = max(worst, int((buffer.states[buffer.pos - 1].int() - state.int()).abs().max()))
        state = next_state
        if t >= 16:
            s, a, r, s2 = buffer.sample(16, rng)
            with torch.no_grad():
                target = r + 0.9 * q(s2).amax(dim=1)
            loss = F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(str(dtype), "worst", worst, "max pixel", int(s.max()), "td loss", round(loss.item(), 5))


if __name__ == "__main__":
    run(torch.uint8)
    run(torch.float32)
