"""Titles name the very operands of a finding, state and never advise; where facts are missing the general one stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dtypetrace.records import Finding, FlowStep, Operand, Origin, Place
from dtypetrace.rules import titles
from dtypetrace.tables.codes import TITLES

BORN = Origin("factory", None, "ones", Place())


def operand(name: str, dtype: str, holder: str | None = None) -> Operand:
    return Operand(0, name, dtype, (2, 2), "cpu", holder, BORN)


def finding(code: str, *operands: Operand, op: str = "linear", module: str = "unet.linear_1", **changes) -> Finding:
    made = Finding(
        code, "collision", "error", TITLES.get(code, "refused"), "forward", op, None, module, 1, False, Place(),
        operands, operands[0] if operands else None, (), None, None,
    )  # fmt: skip
    return replace(made, **changes)


def test_both_sides_of_a_matmul_swap_the_title():
    weight, x = operand("linear_1.weight", "float16", "parameter"), operand("x", "float32")
    assert titles.specific(finding("DT101", x, weight)) == "linear_1 got a float32 input for its float16 weights"
    assert titles.specific(finding("DT101", weight, x)) == "linear_1 has float16 weights and got a float32 input"


def test_without_weights_the_operands_are_named():
    found = finding("DT106", operand("now", "bfloat16"), operand("kept", "float32"), op="lerp_", module="")
    assert titles.specific(found) == "lerp_ got bfloat16 `now` and float32 `kept`"


def test_two_half_dtypes_that_meet_run_in_neither():
    half, brain = operand("hidden", "float16"), operand("residual", "bfloat16")
    met = FlowStep(Place(), "add", "", "bfloat16 + float16", "float32", "promotion")
    found = finding("DT201", half, brain, op="add", flow=(met,), reach=None)
    assert titles.specific(found) == "float16 `hidden` and bfloat16 `residual` made `add` run in float32"
    wide = finding("DT201", operand("gain", "float32"), brain, op="mul", flow=(met,), reach=None)
    assert titles.specific(wide) == "float32 `gain` made `mul` run in float32"


def test_a_scalar_is_set_against_the_floating_tensor():
    found = finding("DT110", operand("-1e9", "python float"), operand("mask", "bool"), operand("scores", "float16"))
    assert titles.specific(found) == "-1e9 does not fit into float16 `scores`"


@pytest.mark.parametrize("code", sorted(TITLES))
def test_without_facts_the_general_title_stands(code):
    assert titles.specific(finding(code)) == TITLES[code]


def test_what_a_rule_has_titled_itself_is_kept():
    assert titles.specific(finding("DT304", title="3 weights did not move")) == "3 weights did not move"


@pytest.mark.parametrize(
    ("names", "number", "shown"),
    [
        (["w"], 1, "`w`"),
        (["w"], 3, "`w` and 2 more"),
        (["a" * 40 + ".attn1.to_q.lora_B"], 32, "...attn1.to_q.lora_B and 31 more"),
        ([], 0, ""),
    ],
)
def test_a_list_is_its_first_name_and_a_count(names, number, shown):
    assert titles.shared(names, number) == shown
