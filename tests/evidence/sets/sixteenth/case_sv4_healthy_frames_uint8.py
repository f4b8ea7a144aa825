"""
title: a replay buffer keeps the frames as the uint8 they came in and gives floats back
expect: clean
thread: https://github.com/DLR-RM/stable-baselines3/issues/40
measured: value at the start 0.35 (0.9**10 is 0.35), motion 0.069

Expectation, written first: the frames are whole numbers from 0 to 255, they are made float before anything is taken
from anything, and a buffer of float32 gives the same value function.
"""
import torch
from torch import nn


class ReplayBuffer:
    def __init__(self, size, shape, dtype=torch.uint8):
        self.frames = torch.zeros(size, *shape, dtype=dtype)
        self.next_frames = torch.zeros(size, *shape, dtype=dtype)
        self.rewards = torch.zeros(size)
        self.dones = torch.zeros(size)
        self.size, self.used = size, 0

    def add(self, frame, next_frame, reward, done):
        k = self.used % self.size
        self.frames[k] = frame.to(self.frames.dtype)
        self.next_frames[k] = next_frame.to(self.frames.dtype)
        self.rewards[k], self.dones[k] = reward, done
        self.used += 1

    def sample(self, n, gen):
        rows = torch.randint(0, min(self.used, self.size), (n,), generator=gen)
        frames, after = self.frames[rows].float() / 255, self.next_frames[rows].float() / 255
        return frames, after - frames, after, self.rewards[rows], self.dones[rows]


class Corridor:
    """a bright square moves to the right; the last column pays one"""

    def __init__(self, length=12):
        self.length, self.place = length, 0

    def frame(self):
        picture = torch.full((4, self.length), 20.0)
        picture[1:3, self.place] = 230.0
        return picture

    def step(self):
        self.place += 1
        done = self.place == self.length - 1
        after = self.frame()
        if done:
            self.place = 0
        return after, float(done), float(done)


def main():
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(6)
    world, buffer = Corridor(), ReplayBuffer(600, (4, 12))
    frame = world.frame()
    for _ in range(600):
        after, reward, done = world.step()
        buffer.add(frame, after, reward, done)
        frame = world.frame()
    value = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.Adam(value.parameters(), lr=2e-3)
    motion = 0.0
    for _ in range(700):
        x, change, after, reward, done = buffer.sample(64, gen)
        motion = 0.9 * motion + 0.1 * float(change.abs().mean())
        with torch.no_grad():
            target = reward + 0.9 * (1 - done) * value(after)[:, 0]
        loss = (value(x)[:, 0] - target).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        world.place = 0
        start = value(world.frame()[None] / 255).item()
    print(f"value at the start {start:.2f} (0.9**10 is {0.9**10:.2f}), motion {motion:.3f}")


main()
