"""
title: a particle filter multiplies its weights in float16 between two resampling steps
expect: silent:underflow|downcast|precision-loss
thread: https://github.com/kmolan/multicalc-rust/issues/205
measured: carried robots found again 0 of 30 after 220 steps, particles alive 1
widened: carried robots found again 30 of 30 after 220 steps, particles alive 200

Expectation, written first: the likelihoods of a few measurements in a row take the weights of far particles below the
smallest float16 number, they stay zero for good and cannot recover when the robot was carried elsewhere. Map cells as
uint8 and step counts as float16 whole numbers are exact.
"""
import torch


class Corridor:
    """doors on a circle; the robot sees whether it stands at a door"""

    def __init__(self, seed, length=200):
        gen = torch.Generator().manual_seed(seed)
        self.door = (torch.rand(length, generator=gen) < 0.3).to(torch.uint8)
        self.length, self.gen = length, gen

    def see(self, place):
        truth = bool(self.door[place])
        return truth if torch.rand(1, generator=self.gen).item() < 0.9 else not truth


class ParticleFilter:
    def __init__(self, corridor, dtype=torch.float16):  # BORN
        self.corridor = corridor
        self.place = torch.arange(corridor.length)
        self.weight = torch.full((corridor.length,), 1.0 / corridor.length, dtype=dtype)  # BORN
        self.steps = torch.tensor(0, dtype=torch.float16)

    def predict(self, move):
        self.place = (self.place + move) % self.corridor.length
        self.steps += 1

    def update(self, seen):
        match = self.corridor.door[self.place].bool() == seen
        likelihood = torch.where(match, 0.9, 0.1).to(self.weight.dtype)
        self.weight = self.weight * likelihood
        self.weight = self.weight / self.weight.sum()

    def estimate(self):
        return int(self.place[self.weight.argmax()])


def run(seed, before=60, after=160):
    """drives, is carried to another place without noticing, drives on"""
    corridor = Corridor(seed)
    robot, pf = 17, ParticleFilter(corridor)
    for t in range(before + after):
        if t == before:
            robot = (robot + 83) % corridor.length
        robot = (robot + 1) % corridor.length
        pf.predict(1)
        pf.update(corridor.see(robot))
    gap = abs(pf.estimate() - robot)
    alive = int((pf.weight > 0).sum())
    return min(gap, corridor.length - gap), alive, int(pf.steps)


def main():
    runs = [run(seed) for seed in range(30)]
    found = sum(gap <= 1 for gap, _, _ in runs)
    alive = sum(a for _, a, _ in runs) / len(runs)
    print(f"carried robots found again {found} of {len(runs)} after {runs[0][2]} steps, particles alive {alive:.0f}")


main()
