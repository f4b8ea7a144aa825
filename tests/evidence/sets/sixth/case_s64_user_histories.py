"""
title: play counts are joined by user number; the numbers become float32 on the way, the small counts may be half
expect: silent:precision-loss|downcast|round-trip
"""
import torch

torch.manual_seed(902)


class Log:
    """Rows of user, song and plays; user numbers have nine digits."""

    def __init__(self, users=500, rows=4000, first=730_000_000):
        self.user = first + torch.randint(0, users, (rows,))
        self.song = torch.randint(0, 30, (rows,))
        self.plays = torch.randint(1, 40, (rows,))


def histories(log):
    """A table of plays per user and song."""
    plays = log.plays.half().float()
    key = log.user.float()  # BORN
    users, place = key.unique(return_inverse=True)
    table = torch.zeros(len(users), 30)
    table.index_put_((place, log.song), plays, accumulate=True)
    return table


log = Log()
table = histories(log)
print("users", len(table), "of", len(log.user.unique()), "plays per user", round(table.sum(1).mean().item(), 1))
