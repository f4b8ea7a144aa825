"""
title: a replay memory for a game with small shaping rewards
expect: silent:downcast|precision-loss
thread: https://github.com/chandar-lab/RLHive/pull/86
measured: state values [0.08, -0.01, -0.24, -0.23, -0.01, 0.2]
widened: state values [2.17, 2.57, 2.82, 2.89, 2.81, 2.43]

Expectation, written first: the reward column is int8, as for clipped rewards, but the
rewards are fractions, so they are cut to 0 and the agent values every state at almost nothing.
BORN is the dtype of the reward column; float32 keeps them. The uint8 frames are as wanted.
"""
import torch
from torch import nn


class Memory:
    def __init__(self, capacity, shape):
        self.frames = torch.zeros((capacity, *shape), dtype=torch.uint8)
        self.rewards = torch.zeros(capacity, dtype=torch.int8)  # BORN
        self.next_frames = torch.zeros_like(self.frames)
        self.size = 0

    def add(self, frame, reward, next_frame):
        self.frames[self.size] = frame
        self.rewards[self.size] = reward
        self.next_frames[self.size] = next_frame
        self.size += 1

    def sample(self, gen, n):
        i = torch.randint(0, self.size, (n,), generator=gen)
        pixels = lambda f: f[i].float().flatten(1) / 255
        return pixels(self.frames), self.rewards[i].float(), pixels(self.next_frames)


class Track:
    """A bright dot walks along a line; each cell pays a fraction."""

    def __init__(self, cells):
        self.cells = cells

    def frame(self, pos):
        picture = torch.zeros(1, self.cells)
        picture[0, pos] = 255
        return picture

    def walk(self, gen):
        pos = 0
        while True:
            nxt = (pos + int(torch.randint(0, 2, (), generator=gen))) % self.cells
            yield self.frame(pos), 0.1 * nxt, self.frame(nxt)
            pos = nxt


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    track, memory = Track(6), Memory(500, (1, 6))
    for _, step in zip(range(500), track.walk(gen)):
        memory.add(*step)
    value = nn.Linear(6, 1)
    opt = torch.optim.Adam(value.parameters(), 2e-2)
    for _ in range(500):
        x, r, x2 = memory.sample(gen, 32)
        with torch.no_grad():
            goal = r + 0.9 * value(x2)[:, 0]
        loss = nn.functional.mse_loss(value(x)[:, 0], goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
    states = torch.eye(6)
    print("state values", [round(v, 2) for v in value(states)[:, 0].tolist()])


if __name__ == "__main__":
    main()
