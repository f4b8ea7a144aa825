"""Sums over samples that lie one after the other."""

import math

import pytest
import torch

from dtypetrace.reference import samples


@pytest.mark.parametrize("devices", [("cpu",), ()], ids=["segments", "by index"])
def test_the_sums_of_one_sample_are_its_own(devices, monkeypatch):
    monkeypatch.setattr(samples, "_SEGMENTS", devices)
    sizes, columns = [3, 0, 4, 1], [[1, 2, 3, math.inf, 1, math.nan, 1, 4], [0, 1, 2, 3, 4, 5, 6, 7]]
    wide = [torch.tensor(c, dtype=torch.float64) for c in columns]
    summed = samples.summed(wide, sizes, torch.device("cpu"))
    expected = torch.tensor([[6, 3], [0, 0], [math.nan, 18], [4, 7]], dtype=torch.float64)
    assert torch.equal(summed.nan_to_num(-1), expected.nan_to_num(-1))
