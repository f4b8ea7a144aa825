"""
title: the sums of a prioritised replay tree are float16, small changes of priorities no longer reach the root
expect: silent:precision-loss|lost-update|downcast
fix_at: 18

After https://github.com/instadeepai/flashbax/issues/52, https://github.com/instadeepai/flashbax/pull/58 and
https://github.com/JuliaReinforcementLearning/ReinforcementLearningTrajectories.jl/issues/59.
Right: the tree is float32 or wider.
"""
import torch

torch.manual_seed(701)


class SumTree:
    """Leaves in the second half, each inner node the sum of its two children."""

    def __init__(self, capacity, dtype=torch.float16):
        self.capacity = capacity
        self.nodes = torch.zeros(2 * capacity, dtype=dtype)  # BORN

    def set(self, index, priority):
        place = index + self.capacity
        change = priority.to(self.nodes.dtype) - self.nodes[place]
        while place[0] > 0:
            self.nodes.index_add_(0, place, change)
            place = place // 2

    def draw(self, mass):
        place = torch.ones(len(mass), dtype=torch.long)
        while place[0] < self.capacity:
            left = self.nodes[2 * place].float()
            right = mass >= left
            mass = torch.where(right, mass - left, mass)
            place = 2 * place + right.long()
        return place - self.capacity


class Replay:
    def __init__(self, capacity=1024):
        self.tree = SumTree(capacity)
        self.error = torch.rand(capacity) ** 4
        self.tree.set(torch.arange(capacity), torch.ones(capacity))

    def sample(self, count):
        total = self.tree.nodes[1].float()
        strata = (torch.arange(count) + torch.rand(count)) / count
        return self.tree.draw(strata * total * 0.999)

    def learn(self, steps=600, count=32):
        """The priority of what was looked at moves towards its error."""
        for step in range(steps):
            index = torch.randperm(len(self.error))[:count]
            old = self.tree.nodes[index + self.tree.capacity].float()
            self.tree.set(index, old + 0.2 * (self.error[index] + 0.01 - old))


replay = Replay()
replay.learn()
leaves = replay.tree.nodes[replay.tree.capacity:].double()
wanted = leaves / leaves.sum()
drawn = torch.bincount(torch.cat([replay.sample(256) for _ in range(60)]), minlength=1024).double()
print("root", round(replay.tree.nodes[1].item(), 1), "sum of leaves", round(leaves.sum().item(), 1),
      "wrong share of draws", round(0.5 * (drawn / drawn.sum() - wanted).abs().sum().item(), 3))
