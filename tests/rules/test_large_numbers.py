"""Large numbers that are taken for integers, or that a product makes infinite."""

from __future__ import annotations

import programs
import pytest


@pytest.mark.parametrize(
    ("dtype", "size", "codes"), [("float16", 9000, ["DT204"]), ("float16", 900, []), ("float32", 9000, [])]
)
def test_16_bit_data_that_is_taken_for_integers(dtype, size, codes, tmp_path):
    text = f"""
    import numpy as np
    ids = np.random.default_rng(0).integers({size} // 2, {size}, 400)
    table = torch.tensor(ids.astype(np.{dtype}))  # given
    nn.Embedding({size} + 8, 2)(table.long())
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


@pytest.mark.parametrize(
    ("places", "codes"),
    [
        ("torch.tensor([i * 0.02 for i in range(500)]) / 0.02", []),  # on whole numbers: as often wrong in float64
        ("torch.arange(0, 5, 0.01) * 100", ["DT203"]),  # 29 becomes 28, and rounding before the cast helps
        ("torch.linspace(0, 1, 101) * 100", ["DT203"]),
        ("torch.rand(500) * 499", []),
        ("(torch.rand(500) * 499).bfloat16()", ["DT308"]),
        ("torch.rand(500, dtype=torch.bfloat16) * 499", ["DT308"]),
    ],
)
def test_integers_of_rounded_numbers_that_serve_as_indices(places, codes, tmp_path):
    text = f"torch.manual_seed(0)\nprint(torch.randn(501, 4)[({places}).long()].sum().item())"
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


TOLD_APART = {
    "voxels": "cells = ((far - far.min()) / 0.1).floor().int()  # whole\nprint(len(torch.unique(cells)))",
    "cells that hold something": "cells = ((far - far.min()) * 10).long()  # whole\nprint((cells.bincount() > 0).sum())",
    "cells that were there before": "cells = ((far - far.min()) // 0.1).long()  # whole\n"
    "print(torch.isin(cells, torch.arange(0, 200, 2)).sum())",
    "runs of the same": "cells = ((far.sort().values - far.min()) * 10).int()  # whole\n"
    "print(len(torch.unique_consecutive(cells)))",
}


@pytest.mark.parametrize("text", TOLD_APART.values(), ids=TOLD_APART)
@pytest.mark.parametrize(("origin", "codes"), [(5_412_340, ["DT308"]), (40, [])])
def test_integers_of_rounded_numbers_by_which_things_are_told_apart(origin, codes, text, tmp_path):
    made = f"far = ({origin} + 20 * torch.rand(4000, dtype=torch.float64)).float()  # cast\n"
    program = programs.run(tmp_path, made + text, before="torch.manual_seed(0)", numerics=True)
    found = [f for f in program.findings if f.severity != "note"]
    assert [f.code for f in found] == codes
    assert all(program.at(f.culprit.origin.place).endswith("# cast") for f in found)


DIGITS = {
    "the time between two steps": (
        "last = None\nfor i in range(9):\n    now = torch.tensor(1.6e9 + 0.01 * i)  # born\n"
        "    gap = 0.0 if last is None else (now - last).item()\n    last = now\nprint(gap)",
        ["DT308"],
    ),
    "cut points in samples": (
        "begin = torch.tensor([10_800 + i / 7 for i in range(99)])  # born\n"
        "at = torch.floor(begin * 44_100 + 0.5).long()\nprint(at.diff().max().item())",
        ["DT308"],
    ),
    "cut points near the start": (
        "begin = torch.tensor([i / 7 for i in range(99)])\n"
        "at = torch.floor(begin * 44_100 + 0.5).long()\nprint(at.diff().max().item())",
        [],
    ),
    "samples of sound in 32 bits": (
        "wave = torch.tensor([0.9 * i / 999 for i in range(999)])\npcm = (wave * (2**31 - 1)).to(torch.int32)\n"
        "back = torch.frombuffer(bytearray(pcm.numpy().tobytes()), dtype=torch.int32).float() / 2**31\n"
        "print((back - wave).abs().max().item())",
        [],
    ),
    "a result beside what was worked out by hand": (
        "worst = (torch.arange(40).float() * 0.1 - torch.tensor([0.1 * i for i in range(40)])).abs().max()\nprint(worst.item())",
        [],
    ),
}


@pytest.mark.parametrize("name", DIGITS)
def test_numbers_of_pythons_that_float32_rounds(name, tmp_path):
    text, codes = DIGITS[name]
    program = programs.run(tmp_path, text, numerics=True)
    serious = [f for f in program.findings if f.severity != "note"]
    assert [f.code for f in serious] == codes
    assert all(program.line("# born") == f.culprit.origin.place.line for f in serious)


@pytest.mark.parametrize(
    ("grid", "codes"),
    [
        ("(torch.arange(0, 10, 0.1) >= torch.tensor([i * 0.1 for i in range(100)])).float()", []),  # ties
        ("torch.remainder(torch.arange(0, 10, 0.1), 0.1)", []),  # multiples
        ("(torch.arange(0, 10, 0.1) * 10).frac()", []),
        ("(440.0 * (torch.arange(3600 * 16000, 3600 * 16000 + 4000) / 16000)) % 1", ["DT308"]),
    ],
)
def test_a_grid_that_is_compared_with_its_own_bounds(grid, codes, tmp_path):
    program = programs.run(tmp_path, f"print(({grid}).mean().item())", numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


def test_measurements_that_lie_close_together_by_chance_are_no_loss(tmp_path):
    text = "pressure = 101325 + torch.randn(4000, dtype=torch.float64) * 3\nprint((pressure.float() - 101325).mean().item())"
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == []


def test_the_op_that_made_an_infinity_in_a_loop_is_named(tmp_path):
    text = """
    mass = torch.tensor([2e30, 6e24])
    place = torch.tensor([[0.0, 0.0], [1.5e11, 0.0]])
    for _ in range(4):
        apart = place[None] - place[:, None]
        pull = mass[:, None] * mass[None]  # infinite
        place = place + (6.7e-11 * pull[..., None] * apart / (apart.norm(dim=-1)[..., None] + 1) ** 3).sum(1) / mass[:, None]
    print(place.sum().item())
    """
    program = programs.run(tmp_path, text, numerics=True)
    f = next(f for f in program.findings if f.severity != "note")
    assert f.kind == "overflow" and program.at(f.site).endswith("# infinite")


@pytest.mark.parametrize("gain", ["torch.tensor(0.5, dtype=torch.float16)", "torch.tensor(2.0).bfloat16()"])
def test_what_is_exact_in_a_narrow_dtype_made_no_table_coarse(gain, tmp_path):
    text = f"""
    gain = {gain}
    index = torch.arange(39_690_000, 39_694_000)
    time = (index.double() / 44_100).to(torch.float32)  # rounded
    wave = gain.to(time.dtype) * torch.sin(2 * 3.141592653589793 * 5000.0 * time)
    print((wave.diff() == 0).float().mean().item())
    """
    program = programs.run(tmp_path, text, numerics=True)
    found = [f for f in program.findings if f.severity != "note"]
    assert found and all(program.at(f.culprit.origin.place).endswith("# rounded") for f in found), program.trace
