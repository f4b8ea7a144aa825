"""
title: a volume-weighted price divides by a running volume in float32 that misses small trades; prices in quarters may be half
expect: silent:lost-update|precision-loss|downcast
"""
import torch

torch.manual_seed(905)


class Tape:
    """Trades of a day: one opening auction, then many of a few shares; prices in quarters below 200."""

    def __init__(self, trades=3000, auction=150_000_000):
        self.price = (150 + torch.randn(trades).cumsum(0) * 0.5).mul(4).round().div(4).clamp(20, 190).double()
        self.shares = torch.randint(1, 12, (trades,))
        self.shares[0] = auction


def since_auction(tape):
    """The average price of all trades after the auction, as a difference of running sums."""
    price = tape.price.half().double()
    volume = tape.shares.double()
    amount = price * volume
    running = torch.zeros((), dtype=torch.float32)  # BORN
    seen = []
    for v in volume.tolist():
        running += v
        seen.append(running.double().clone())
    sold = seen[-1] - seen[0]
    return amount[1:].sum() / sold


tape = Tape()
exact = (tape.price * tape.shares)[1:].sum() / tape.shares[1:].sum()
print("average price", round(since_auction(tape).item(), 2), "exact", round(exact.item(), 2))
