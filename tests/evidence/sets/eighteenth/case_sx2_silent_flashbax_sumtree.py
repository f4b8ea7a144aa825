"""
title: prioritised replay returns experiences of all zeros: the sum tree's root drifts from its leaves
expect: silent:precision-loss|cancellation
thread: https://github.com/instadeepai/flashbax/issues/52
measured: sum of the leaves 5.053, root 5.447, empty experiences in the batch 0.05
widened: sum of the leaves 5.057, root 5.057, empty experiences in the batch 0.00
innocent: sum of the leaves 5.053, root 5.447, empty experiences in the batch 0.05
suspect: line 48 harmless (observations of order one)

Expectation, written first: the nodes of the sum tree are float32 and every change is added as a difference along the path
to the root. New items enter with a priority of twenty thousand and drop to about 0.1 later; the rounding errors of the large
values stay in the inner nodes, the root promises more mass than the leaves have, and draws land on empty slots.
"""
import torch


class SumTree:
    def __init__(self, capacity, dtype=torch.float32):
        self.capacity = capacity
        self.nodes = torch.zeros(2 * capacity - 1, dtype=dtype)  # BORN

    def set(self, index, priority):
        node = index + self.capacity - 1
        delta = torch.as_tensor(priority).to(self.nodes.dtype) - self.nodes[node]
        while True:
            self.nodes[node] += delta  # BORN
            if node == 0:
                return
            node = (node - 1) // 2

    def get(self, mass):
        node = 0
        while node < self.capacity - 1:
            left = 2 * node + 1
            if mass < self.nodes[left]:
                node = left
            else:
                mass = mass - self.nodes[left]
                node = left + 1
        return node - (self.capacity - 1)

    def root(self):
        return self.nodes[0]


class PrioritisedBuffer:
    def __init__(self, capacity, obs_dim, max_priority=2e4):
        self.experience = torch.zeros(capacity, obs_dim, dtype=torch.float16)
        self.tree = SumTree(capacity, dtype=torch.float32)  # BORN
        self.max_priority = max_priority
        self.size = 0

    def add(self, obs):
        self.experience[self.size] = obs.to(self.experience.dtype)
        self.tree.set(self.size, self.max_priority * (1.0 + 0.37 * float(torch.rand(()))))
        self.size += 1

    def set_priorities(self, indices, priorities):
        for index, priority in zip(indices, priorities.tolist()):
            self.tree.set(index, priority)

    def sample(self, count):
        mass = torch.rand(count, dtype=torch.float64) * self.tree.root()
        picked = [self.tree.get(m.to(self.tree.nodes.dtype)) for m in mass]
        return self.experience[picked]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    buffer = PrioritisedBuffer(capacity=128, obs_dim=4)
    for _ in range(70):
        buffer.add(torch.randn(4) + 2.0)
    buffer.set_priorities(range(70), torch.rand(70) * 0.1 + 0.02)
    batch = buffer.sample(150)
    leaves = buffer.tree.nodes[buffer.tree.capacity - 1:].double().sum().item()
    empty = (batch == 0).all(dim=1).float().mean().item()
    print(f"sum of the leaves {leaves:.3f}, root {buffer.tree.root().item():.3f}, empty experiences in the batch {empty:.2f}")


main()
