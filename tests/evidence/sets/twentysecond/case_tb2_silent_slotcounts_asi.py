"""
title: usage counts of memory slots stop at 2**24 and the least-used slot is never found again
expect: silent:lost-update|precision-loss
thread: https://github.com/SlopDotCash/asi/issues/1067
measured: matched [839, 603, 367, 191] counted [0, 2, 3, 0] | steps 67110863 sum of counts 67108868 least used 0
widened: matched [839, 603, 367, 191] counted [839, 603, 367, 191] | steps 67110863 sum of counts 67110863 least used 3; innocent: matched [839, 603, 367, 191] counted [0, 2, 3, 0] | steps 67110863 sum of counts 67108868 least used 0
suspect: line 28 - innocent: the prototypes are far apart, bfloat16 does not change which one is nearest

Expectation, written first: the event counters are kept as float32 and raised by 1.0. From 16777216 on the sum rounds
back to the old value, so the counts stand still while step_count goes on, and counts and steps disagree. The
prototypes in bfloat16 are only used for a nearest-neighbour match among distant points.
"""
from dataclasses import dataclass

import torch


@dataclass
class SelectorState:
    prototypes: torch.Tensor
    action_counts: torch.Tensor
    step_count: torch.Tensor


class FiniteCandidateSelector:
    def __init__(self, prototypes, state_dict):
        self.state = SelectorState(
            prototypes=prototypes.to(torch.bfloat16),
            action_counts=torch.tensor(state_dict["action_counts"], dtype=torch.float32),  # BORN
            step_count=torch.tensor(state_dict["step_count"], dtype=torch.int64),
        )

    def match(self, x):
        gap = (self.state.prototypes.float() - x).pow(2).sum(dim=1)
        return int(gap.argmin())

    def update(self, x):
        index = self.match(x)
        self.state.action_counts[index] += 1.0  # BORN
        self.state.step_count += 1
        return index

    def least_used(self):
        return int(self.state.action_counts.argmin())


class ObservationStream:
    def __init__(self, centres, seed=9):
        self.centres = centres
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self, weights):
        index = int(torch.multinomial(weights, 1, generator=self.gen))
        return self.centres[index] + 0.05 * torch.randn(self.centres.shape[1], generator=self.gen)


def saved_state(n_slots=4):
    base = 2 ** 24
    counts = [base, base + 2, base - 3, base]
    return {"action_counts": [float(c) for c in counts[:n_slots]], "step_count": sum(counts[:n_slots])}


def main():
    centres = torch.eye(4) * 3.0
    stored = saved_state()
    selector = FiniteCandidateSelector(centres, stored)
    stream = ObservationStream(centres)
    weights = torch.tensor([0.4, 0.3, 0.2, 0.1])
    hits = [0, 0, 0, 0]
    for _ in range(2000):
        hits[selector.update(stream.draw(weights))] += 1
    gained = [int(c - b) for c, b in zip(selector.state.action_counts.tolist(), stored["action_counts"])]
    counted = int(selector.state.action_counts.double().sum())
    print("matched", hits, "counted", gained)
    print("steps", int(selector.state.step_count), "sum of counts", counted, "least used", selector.least_used())


if __name__ == "__main__":
    main()
