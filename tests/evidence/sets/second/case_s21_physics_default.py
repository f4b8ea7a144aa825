"""
title: a simulator sets torch's default dtype to float64 for its own accuracy and never gives it back
expect: collision
fix_at: 65

After rballester/tntorch#4, cics-nd/gptorch#22 and gensyn-ai/rl-swarm#188 (a global default that others inherit): the network that
is made later is float64, the stored observations are float32. Right: ask for float64 in the simulator's own tensors, or restore.
"""
import math

import torch
from torch import nn
import torch.nn.functional as F


class Pendulum:
    """Semi-implicit Euler; small steps need more digits than float32 has."""

    def __init__(self, batch, step=1e-3):
        torch.set_default_dtype(torch.float64)  # BORN
        self.step = step
        self.angle = torch.empty(batch).uniform_(-math.pi, math.pi)
        self.speed = torch.zeros(batch)

    def advance(self, torque, repeat=20):
        for _ in range(repeat):
            self.speed = self.speed + self.step * (torque - 9.81 * torch.sin(self.angle))
            self.angle = self.angle + self.step * self.speed
        return self.observe()

    def observe(self):
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed], dim=-1)


class Memory:
    def __init__(self, size, width):
        self.rows = torch.zeros(size, width, dtype=torch.float32)
        self.next_rows = torch.zeros(size, width, dtype=torch.float32)
        self.filled = 0

    def add(self, before, after):
        end = self.filled + len(before)
        self.rows[self.filled : end] = before
        self.next_rows[self.filled : end] = after
        self.filled = end

    def sample(self, n):
        index = torch.randint(0, self.filled, (n,))
        return self.rows[index], self.next_rows[index]


def world_model(width=3, hidden=16):
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, width))


def main():
    torch.manual_seed(12)
    plant = Pendulum(batch=8)
    memory = Memory(size=80, width=3)
    before = plant.observe()
    for _ in range(10):
        after = plant.advance(torch.zeros(8))
        memory.add(before, after)
        before = after
    model = world_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(5):
        rows, target = memory.sample(16)
        loss = F.mse_loss(model(rows), target)  # COLLIDES
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 3))


main()
