"""Two runs compared: aligned by module and op, the first difference first, with both births.

`DTYPETRACE_GOLDEN=1 pytest tests/compare` writes the expected texts in `tests/compare/golden/` anew.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest
import warm
from recordings import RecordingBuilder

from dtypetrace import saved
from dtypetrace.compare.differences import DtypeDifference, Replaced, compare
from dtypetrace.records import Parameter
from dtypetrace.render import differences
from dtypetrace.results import conclude
from dtypetrace.rules import patterns

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("before.trace", "after.trace")


def golden(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("DTYPETRACE_GOLDEN"):
        file.write_text(text + "\n", "utf-8")
    assert text + "\n" == file.read_text("utf-8")


def run(norm: str = "float32", *, layers: int = 3, model: str = "net", above: int = 0, scores: str = "attention"):
    """A few layers in bfloat16, whose norm weights are of a dtype; ``above``: lines that were added on top."""
    b = RecordingBuilder(file="/p/train.py")
    for _ in range(above):
        b.line()
    x = b.made("bfloat16", text="x = «torch.randn(4, 4, dtype=torch.bfloat16)»")
    weight = b.made(norm, "cast", explicit=True, text="net = «net.to(norm_dtype)»")
    for n in range(layers):
        own = weight.as_parameter(f"{model}.layers.{n}.norm.weight")
        b.parameters.append(Parameter(own.name, norm, 16, own.event))
        x = b.ran("mul", x, own, out="bfloat16", module=f"{model}.layers.{n}.norm", text="return «x * self.weight»")
        for op in scores.split():
            x = b.ran(op, x, module=f"{model}.layers.{n}.attn", text=f"return «{op}(x)»")
    return dataclasses.replace(b.recording, modules=tuple(dict.fromkeys(o.module for o in b.ops)))


# ---------------------------------------------------------------- the comparison


def test_the_same_run_differs_in_nothing():
    found = compare(run(), run())
    assert found.same and found.differences == ()


def test_lines_and_the_models_variable_may_change():
    assert compare(run(), run(above=7, model="transformer")).same


def test_one_cause_is_one_difference_with_both_births():
    (found,) = compare(run("float32"), run("bfloat16", above=2)).differences
    assert isinstance(found, DtypeDifference)
    assert [side.dtype for side in found.sides] == ["float32", "bfloat16"]
    assert [side.origin.place.line for side in found.sides] == [2, 4]
    assert (found.first.op, found.first.module) == ("mul", "layers.0.norm")
    assert (found.ops, found.modules, found.parameters) == (3, ("layers.*.norm",), ("layers.*.norm.weight",))


def test_the_two_sides_may_be_swapped():
    one, other = (
        compare(*pair).differences[0] for pair in ((run("float32"), run("float16")), (run("float16"), run("float32")))
    )
    assert one.sides == other.sides[::-1]


def test_other_ops_at_the_same_point_are_one_block_for_all_layers():
    (found,) = compare(run(scores="matmul softmax matmul"), run(scores="sdpa")).differences
    assert isinstance(found, Replaced)
    assert found.modules == ("layers.*.attn",)
    assert [[call.op for call in side] for side in found.calls] == [["matmul", "softmax", "matmul"], ["sdpa"]]


def test_the_difference_that_ran_first_stands_first():
    kinds = [
        type(d) for d in compare(run("float32", scores="matmul softmax"), run("float16", scores="sdpa")).differences
    ]
    assert kinds == [DtypeDifference, Replaced]


def test_an_op_that_decides_by_itself_is_the_cause():
    """Both operands are the same; the op gives another dtype, as autocast or another version of torch makes it."""
    made = []
    for dtype in ("float32", "bfloat16"):
        b = RecordingBuilder()
        y = b.ran("softmax", b.made("bfloat16"), out=dtype, module="net.a", text="y = «softmax(x)»")
        b.ran("linear", dataclasses.replace(y, dtype=dtype), out=dtype, module="net.b")
        made.append(b.recording)
    first, *_ = compare(*made).differences
    assert first.first.op == "softmax" and [side.origin.kind for side in first.sides] == ["op", "op"]


def test_a_promotion_is_followed_to_the_operand_that_differs():
    made = []
    for dtype in ("bfloat16", "float32"):
        b = RecordingBuilder()
        x, other = b.made("bfloat16", text="x = «torch.ones(4)»"), b.made(dtype, text="scale = «make()»")
        y = b.widened(x, other) if dtype == "float32" else b.ran("mul", x, other)
        b.ran("linear", y, module="net.head")
        made.append(b.recording)
    births = {d.sides[1].origin.place.line for d in compare(*made).differences if isinstance(d, DtypeDifference)}
    assert births == {2}


def test_what_ran_in_one_run_only_stands_where_it_ran():
    made = []
    for extra in (False, True):
        b = RecordingBuilder()
        x = b.ran("linear", b.made("bfloat16"), module="net.a")
        if extra:
            b.ran("exp", x, module="net.new")
        wide = b.made("float32" if extra else "float16", text="scale = «make()»")
        b.ran("mul", x, wide, module="net.b")
        made.append(b.recording)
    assert [type(d) for d in compare(*made).differences] == [Replaced, DtypeDifference]


def test_a_cast_that_is_the_birth_of_a_change_is_no_difference_of_its_own():
    made = []
    for cast in (False, True):
        b = RecordingBuilder()
        x = b.made("bfloat16")
        if cast:
            narrow, x = x, b.made("float32", "cast", explicit=True, text="x = «x.float()»")
            b.ran("float", narrow, out="float32", at=1, aten="_to_copy.default")
        b.ran("exp", x, out=x.dtype, module="net.a")
        made.append(b.recording)
    assert [type(d) for d in compare(*made).differences] == [DtypeDifference]


# ---------------------------------------------------------------- two versions of torch


def attended(*steps: tuple[str, str], x: str = "bfloat16", gives: str = "bfloat16"):
    """Two layers that call attention, which runs operators of its own, each in a dtype; then something reads the result."""
    b = RecordingBuilder()
    hidden = b.made(x, text="x = «torch.randn(4, 4)»")
    for n in range(2):
        own = f"net.layers.{n}.attn"
        at, inner = b.line("return «attention(x)»"), hidden
        for m, (aten, dtype) in enumerate(steps):
            last = m == len(steps) - 1
            inner = b.ran("attention", inner, out=gives if last else dtype, module=own, at=at, aten=f"{aten}.default")
        hidden = b.ran("linear", inner, out=gives, module=f"net.layers.{n}.out")
    return b.recording


MATH = (("_to_copy", "float32"), ("bmm", "float32"), ("_to_copy", "bfloat16"))
"""What torch 2.8 ran on a CPU where 2.13 ran one kernel."""
FUSED = (("_flash_attention", "bfloat16"),)


def test_a_function_that_computes_in_another_dtype_inside_is_one_difference():
    (found,) = compare(attended(*MATH), attended(*FUSED)).differences
    assert isinstance(found, Replaced)
    assert (found.modules, found.inside) == (("net.layers.*.attn",), "attention")
    assert [[call.op for call in side] for side in found.calls] == [
        ["_to_copy", "bmm", "_to_copy"],
        ["_flash_attention"],
    ]
    head, a, b = differences.block(1, found)
    assert head == "1. net.layers.*.attn (forward): other ops inside attention"
    assert a.startswith("   a: _to_copy bf16->f32, bmm f32, _to_copy f32->bf16  /p/train.py")
    assert b.startswith("   b: _flash_attention bf16  /p/train.py")


def test_a_function_that_runs_other_operators_in_the_same_dtypes_is_no_difference():
    """As quantile of torch 2.8, which checked its argument by ops of its own."""
    checks = (("ge", "bool"), ("all", "bool"), ("sort", "bfloat16"))
    assert compare(attended(*checks), attended(("sort", "bfloat16"))).same


def test_a_function_whose_operand_or_result_differs_is_seen_whatever_runs_inside():
    (born,) = compare(attended(*FUSED), attended(("_math", "float32"), x="float32", gives="bfloat16")).differences
    assert isinstance(born, DtypeDifference) and born.first.op == "attention"
    assert [side.dtype for side in born.sides] == ["bfloat16", "float32"]
    first, *_ = compare(attended(*FUSED), attended(("_math", "float32"), gives="float32")).differences
    assert isinstance(first, DtypeDifference) and [s.origin.op for s in first.sides] == ["attention", "attention"]
    assert [side.dtype for side in first.sides] == ["bfloat16", "float32"]


@pytest.mark.parametrize("read", [False, True])
def test_ops_of_one_run_that_have_nothing_to_do_with_the_rest_are_counted_below(read):
    """As what a part of torch runs while it is imported, for the first time inside the block."""
    made = []
    for extra in (True, False):
        b = RecordingBuilder()
        x = b.made("bfloat16")
        if extra:
            at = b.line("optimizer = «AdamW(parameters)»")
            ones = b.ran("ones", out="float32", phase="other", at=at)
            ones = b.ran("abs", ones, phase="other", at=at)
            ones = b.ran("view", ones, phase="other", at=at)
        b.ran("mul", *([x, ones] if extra and read else [x]), out="bfloat16", module="net.a")
        made.append(b.recording)
    found = compare(*made)
    assert bool(found.differences) == read
    assert [[a.ops for a in side] for side in found.apart] == ([[], []] if read else [[2], []])
    if not read:
        assert differences.rest(found)[0] == (
            "only in a: 2 ops at /p/train.py:2:13; nothing else of the run reads what they make"
        )


def test_a_long_sequence_of_other_ops_is_cut():
    found = compare(run(scores=" ".join(f"op{n}" for n in range(40))), run(scores="sdpa")).differences
    (lines,) = [differences.block(1, f) for f in found]
    assert "op11 bf16 and 28 more  " in lines[1]


def test_settings_findings_and_parameters_of_one_run_only():
    one, other = run(layers=2), run(layers=3)
    other = dataclasses.replace(other, meta={**other.meta, "torch": "2.12.0"})
    b = RecordingBuilder()
    b.refused("linear", b.made("float32"), b.made("float16", "cast", explicit=True).as_parameter("net.weight"))
    judged = conclude(b.recording)
    found = compare(one, other, ((), judged.findings))
    assert found.settings == (("torch", "2.13.0", "2.12.0"),)
    assert ("layers.2.norm", "parameters", "", "weight float32") in [
        (f.modules[0], f.key, f.wanted, f.found) for f in found.facts
    ]
    assert found.findings == ((), judged.findings)
    assert not compare(one, one, (judged.findings, judged.findings)).findings[0]


def test_patterns_keep_numbers_that_do_not_differ():
    names = ["h.0.attn.2", "h.1.attn.2", "head.7"]
    assert patterns.collapsed(names) == {"h.*.attn.2": ("h.0.attn.2", "h.1.attn.2"), "head.7": ("head.7",)}


# ---------------------------------------------------------------- what is shown


def both():
    return compare(run("float32", scores="matmul softmax matmul"), run("bfloat16", scores="sdpa", above=3))


def test_the_console_text_is_golden():
    golden("norm.txt", differences.text(both(), NAMES))


LLAMA = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=4, max_position_embeddings=64, attn_implementation=sys.argv[1])
model = LlamaForCausalLM(config).to(torch.bfloat16)
ids = torch.arange(16).view(1, 16)
model(input_ids=ids, labels=ids).loss.backward()
"""


@pytest.mark.slow
def test_eager_attention_against_sdpa_in_a_real_model(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "step.py").write_text(LLAMA)
    for kind in ("eager", "sdpa"):
        ended = command(tmp_path, "run", "-q", "--save", f"{kind}.trace", "step.py", kind, models=True)
        assert ended.returncode == 0, ended.stderr
    shown = command(tmp_path, "diff", "eager.trace", "sdpa.trace")
    assert shown.returncode == 1
    golden("attention.txt", re.sub(r"(?<=\.py):\d+:\d+", ":N", shown.stdout.rstrip("\n")))  # lines of transformers


# ---------------------------------------------------------------- the command


def command(folder: Path, *words: str, models: bool = False) -> subprocess.CompletedProcess[str]:
    return warm.run(["-m", "dtypetrace", *words], folder, models=models)


def test_the_command_compares_two_files(tmp_path):
    for name, recording in zip(NAMES, (run("float32"), run("bfloat16"))):
        saved.save(tmp_path / name, conclude(recording))
    ended = command(tmp_path, "diff", *NAMES)
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith(
        "a: before.trace\nb: after.trace\n\n1. layers.*.norm.weight: float32 in a, bfloat16 in b\n"
    )
    assert command(tmp_path, "diff", NAMES[0], NAMES[0]).returncode == 0


def test_what_is_no_trace_is_one_line(tmp_path):
    (tmp_path / "a.trace").write_text("{}")
    ended = command(tmp_path, "diff", "a.trace", "b.trace")
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and "a.trace" in ended.stderr
