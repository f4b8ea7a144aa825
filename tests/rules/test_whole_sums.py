"""Integers that are added up in floating point and taken for exact afterwards: what is left of them shows it."""

from __future__ import annotations

import programs
import pytest

SETUP = "g = torch.Generator().manual_seed(0)\n"
PRODUCTS = """
def product(one, other):
    return (one.float() @ other.float()).to(torch.int32)  # made

weights = torch.randint(100, 128, (16384, 8), generator=g).to(torch.int8)
data = torch.full((4, 16384), ZERO, dtype=torch.int8)
data.scatter_(1, torch.randint(0, 16384, (4, 20), generator=g), ZERO - 1)
data.scatter_(1, torch.randint(0, 16384, (4, 20), generator=g), ZERO + 1)
sums = product(data, weights)
"""
CONVOLUTION = """
data = torch.full((2, 2048, 9, 9), 100, dtype=torch.int16)
data += (torch.rand(data.shape, generator=g) < 3e-5).to(torch.int16)
weights = torch.randint(100, 128, (6, 2048, 3, 3), generator=g).to(torch.int16)
sums = F.conv2d(data.float(), weights.float()).to(torch.int32)  # made
"""
HASHES = """
words, factors = torch.randint(0, 50000, (64, 300), generator=g), torch.randint(1, 5000, (300,), generator=g)
hashes = (words.float() * factors.float()).sum(-1).long()  # made
"""
OFFSETS = """
lengths = torch.randint(200_001, 400_001, (300,), generator=g)
ends = lengths.to(torch.float32).cumsum(0).to(torch.int64)  # made
words = lengths.cumsum(0) - torch.randint(0, 50, (300,), generator=g)
"""
LESS_A_TERM = "left = sums.long() - ZERO * weights.sum(0, dtype=torch.int64)\nprint((left.double() * 0.5).sum())"
LOST = {
    "a product, less the term of a zero point": PRODUCTS + LESS_A_TERM,
    "a convolution": CONVOLUTION + "left = sums - 100 * weights.int().sum((1, 2, 3))[:, None, None]\nprint(left.float().sum())",
    "rests": HASHES + "print(hashes % 1009)",
    "keys": HASHES + "print(len(hashes.unique()))",
    "places": HASHES + "print(torch.ones(1009)[hashes % 1009].sum())",
    "positions": OFFSETS + "print((ends - words).float().mean())",
}  # fmt: skip
HARMLESS = {
    "what is left is as large": (PRODUCTS + LESS_A_TERM).replace("ZERO", "3").replace("(sums", "(7 * sums"),
    "scaled": PRODUCTS + "print(((sums + 300).float() * 2.0**-22).round())",
    "small sums": (PRODUCTS + LESS_A_TERM).replace("16384", "512"),
    "in float64": (PRODUCTS + LESS_A_TERM).replace("float()", "double()"),
    "a mean": "image = torch.randint(0, 256, (3, 512, 512), generator=g)\nprint(image.float().sum((1, 2)).long() / 512**2)",
    "numbers that were no integers": "x = torch.rand(9, generator=g) * 1e9\nprint((x.sum(0, keepdim=True).long() % 1000))",
}  # fmt: skip


@pytest.mark.parametrize("how", LOST.values(), ids=LOST)
def test_sums_that_are_whole_ones_off(how, tmp_path):
    program = programs.run(tmp_path, SETUP + how.replace("ZERO", "126"), numerics=True)
    found = [f for f in program.findings if f.severity != "note"]
    assert program.error is None and [f.code for f in found] == ["DT308"], program.trace
    assert program.at(found[0].culprit.origin.place).endswith("# made")
    assert "rounds integers in float32" in found[0].title and "float64" in found[0].fix.why


@pytest.mark.parametrize("how", HARMLESS.values(), ids=HARMLESS)
def test_sums_that_are_exact_enough(how, tmp_path):
    program = programs.run(tmp_path, SETUP + how.replace("ZERO", "126"), numerics=True)
    assert program.error is None and not [f for f in program.findings if f.severity != "note"], program.trace
