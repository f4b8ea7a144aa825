"""
title: the share still alive is one minus a hazard in bfloat16; the hazards themselves, of powers of two, may be half
expect: silent:precision-loss|downcast|cancellation
"""
import torch

torch.manual_seed(912)


class LifeTable:
    """Monthly hazards by age group: each a power of two."""

    def __init__(self, months=240):
        self.hazard = 2.0 ** -torch.linspace(11, 8, months).round()


def survival(table):
    hazard = table.hazard.half().float()
    stay = 1 - hazard
    stay = stay.bfloat16().float()  # BORN
    return stay.cumprod(0)


def pension(curve, rate=0.002):
    """What a monthly payment of one is worth."""
    discount = (1 + rate) ** -torch.arange(1.0, len(curve) + 1)
    return (curve * discount).sum().item()


table = LifeTable()
exact = (1 - table.hazard.double()).cumprod(0)
print("alive at the end", round(survival(table)[-1].item(), 3), "exact", round(exact[-1].item(), 3), "worth", round(pension(survival(table)), 1),
      "exact", round(pension(exact), 1))
