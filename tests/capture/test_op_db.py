"""torch's own operator database, run with and without a trace: nothing changes, and every refused dtype is reported.

Each operator runs forward and backward on the CPU in float32; then with each floating operand in turn in float16,
bfloat16 and float64; then in place and with ``out=``, where the database has those forms; then with the database's own
wrong inputs. A call that float32 passes and the mixed operands do not was refused because of a dtype: that must give
one collision, at the function that was called, with the operand that was changed.

``make test`` calls each operator in one form in float32, with one operand in another dtype, and in one region, in turn;
``make exhaustive`` calls all of them in every way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial

import databases
import pytest
import torch
from outcomes import Call, Operators, Outcome, differences, every_warning_again, message, run, traced
from samples import one_in
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from dtypetrace.capture import private

pytestmark = pytest.mark.filterwarnings("ignore")  # the database's own; the two runs of a call record theirs

CHUNKS = 16
SAMPLES = 3
MIXED = (torch.float16, torch.bfloat16, torch.float64)

UNINITIALISED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    }
)
"""Their values are whatever the memory held, so only dtype, shape and strides are compared."""

ANY_MODE = {
    "prod": "its backward multiplies in another order",
    "nn.functional.binary_cross_entropy_with_logits": "its backward computes out of place, and two dtypes then round elsewhere",
    "linalg.eig": "its backward leaves out the check that the loss does not depend on the phase of the eigenvectors",
    "nn.functional.bilinear": "autocast does not reach the inside of its backward",
    "linalg.lstsq": "autocast does not reach the inside of the pinv in its backward",
    "fft.hfftn": "under inference mode it is not taken apart above the mode and rounds elsewhere",
}
"""torch itself takes another way while any dispatch mode is on: a trace must do what an empty mode does."""


@lru_cache
def operators() -> tuple:
    return tuple(op for op in databases.operators() if op.supports_dtype(torch.float32, "cpu"))


# ---------------------------------------------------------------- calls


def fresh(
    sample, grad: bool, only: int = -1, dtype: torch.dtype | None = None, *, leaf: bool = True
) -> tuple[tuple, dict]:
    """The sample's operands, copied; the floating one numbered ``only`` in another dtype."""
    number = -1

    def copy(value):
        nonlocal number
        if not isinstance(value, torch.Tensor):
            return value
        new = value.detach().clone()
        if new.dtype == torch.float32:
            number += 1
            if number == only:
                new = new.to(dtype)
        new.requires_grad_(grad and value.requires_grad)
        return new

    args, kwargs = tree_map(copy, ((sample.input, *sample.args), sample.kwargs))
    if not leaf:  # a leaf that requires grad cannot be written in place
        args = (tree_map(lambda t: t * 1 if isinstance(t, torch.Tensor) and t.requires_grad else t, args[0]), *args[1:])
    return args, kwargs


def floating(sample) -> int:
    leaves = tree_leaves(((sample.input, *sample.args), sample.kwargs))
    return sum(isinstance(t, torch.Tensor) and t.dtype == torch.float32 for t in leaves)


def variants(op) -> Iterator[tuple[Call, list[Call]]]:
    """Each float32 call with the mixed calls that are to be compared with it."""
    samples = []
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd):
        samples.append(sample)
        if len(samples) == SAMPLES:
            break
    for number, sample in enumerate(samples):
        count = floating(sample)
        forms = [("", op.op, partial(fresh, sample, op.supports_autograd))]
        inplace = op.get_inplace()
        if inplace is not None and not sample.broadcasts_input and number == 0:
            forms.append(("in place", inplace, partial(fresh, sample, op.supports_autograd, leaf=False)))
        for form, function, make in forms:
            name = f"{op.formatted_name} #{number} {form}".rstrip()
            mixed = [
                Call(function, partial(make, only=i, dtype=d), changed=d, what=f"{name} with operand {i} in {d}")
                for i in range(count)
                for d in MIXED
            ]
            yield Call(function, make, what=name), mixed
        if op.supports_out and number == 0:
            yield from out_variants(op, sample)


def out_variants(op, sample) -> Iterator[tuple[Call, list[Call]]]:
    try:
        args, kwargs = fresh(sample, grad=False)
        expected = op.op(*args, **kwargs)
    except Exception:
        return
    several = isinstance(expected, (tuple, list))
    outs = tuple(expected) if several else (expected,)
    if not outs or not all(isinstance(o, torch.Tensor) and o.layout == torch.strided for o in outs):
        return

    def make(only: int = -1, dtype: torch.dtype | None = None, out: torch.dtype | None = None):
        args, kwargs = fresh(sample, False, only, dtype)
        made = tuple(torch.zeros_like(o, dtype=out if out and o.dtype == torch.float32 else None) for o in outs)
        return args, {**kwargs, "out": made if several else made[0]}

    name = f"{op.formatted_name} out"
    mixed = [
        Call(op.op, partial(make, i, d), False, d, f"{name} with operand {i} in {d}")
        for i in range(floating(sample))
        for d in MIXED
    ]
    if any(o.dtype == torch.float32 for o in outs):
        mixed += [Call(op.op, partial(make, out=d), False, d, f"{name} in {d}") for d in MIXED]
    yield Call(op.op, make, False, what=name), mixed


def changed_by_watching(op, call: Call, plain: Outcome, watched: Outcome) -> list[str]:
    found = differences(plain, watched, op.name not in UNINITIALISED, call.inside not in WITHOUT_GRAD)
    if found and op.name in ANY_MODE:
        other = differences(run(call, Operators()), watched, grad=call.inside not in WITHOUT_GRAD)
        found = [f for f in found if f in other]
    return [
        f"{call.what}: {f}, {watched.error} or {watched.warned} instead of {plain.error} or {plain.warned}"
        for f in found
    ]


# ---------------------------------------------------------------- what the trace says of it


class _Raised(TorchFunctionMode):
    """Names the torch functions that raise: what a trace is to call the op, found out without one."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[tuple[str, str]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        try:
            if func is torch.nn.functional.multi_head_attention_forward:  # a trace looks inside, so does this
                with self:
                    return inside_attention(*args, **kwargs)
            return func(*args, **(kwargs or {}))
        except Exception as error:
            name = getattr(func, "__name__", str(func))
            self.names.append((name[2:-2] if name.startswith("__") and name.endswith("__") else name, str(error)))
            raise


inside_attention = private.body_with_modes_on(torch.nn.functional.multi_head_attention_forward)


def raised_by(call: Call) -> str:
    mode = _Raised()
    ended = run(call, mode).error
    # an argument parser catches the errors of what it tries, such as __index__ of a list's tensors
    return next((name for name, text in mode.names if ended and text == ended[1]), "")


def misjudged(call: Call, base: Outcome, plain: Outcome, findings: tuple) -> list[str]:
    """What is wrong with the findings of a call, given how it and its float32 twin ended untraced.

    Of what succeeds only notes may be said: a value that ``out=`` or an in-place write narrows is one.
    """
    found = []
    findings = tuple(f for f in findings if f.severity != "note")
    operands = [(o.name, o.dtype) for f in findings for o in f.operands]
    earlier = base.stage == "backward" and plain.stage == "forward"
    if plain.error is None or base.error is not None and not earlier:
        if findings and (plain.error is None or not re.search(ABOUT_DTYPE, plain.error[1])):
            found.append(f"a finding ({findings[0].code} at {findings[0].op})")
    elif len(findings) != 1:
        found.append(f"{len(findings)} findings")
    else:
        [finding], changed = findings, str(call.changed).removeprefix("torch.")
        wanted = {"kind": "collision", "severity": "error", "phase": plain.stage.replace("forward", "other")}
        if plain.stage == "forward":
            wanted["op"] = raised_by(call)
        found += [f"{k} {getattr(finding, k)} instead of {v}" for k, v in wanted.items() if getattr(finding, k) != v]
        if (finding.exception.type, finding.exception.message) != plain.error:
            found.append(f"exception {finding.exception}")
        if changed not in {dtype for _, dtype in operands}:
            found.append(f"no operand in {changed}")
        # either side of a disagreement may be the one to blame; what has no kernel is the changed operand
        blamed = finding.culprit.dtype if finding.culprit else None
        if blamed != changed and (blamed not in ("float32", "complex64") or finding.code == "DT109"):
            found.append(f"culprit {blamed}")
    return [f"{call.what}: {f}; operands {operands}; ended in {plain.error}" for f in found]


ABOUT_DTYPE = re.compile(
    r"^(?!.*combination of arguments).*"
    r"(\bdtypes?\b(?! Float, but found -)|scalar type|[Tt]ype \((double|long|int)|to type|a bool tensor|Long tensor|Double tensors|double types)"
)
"""Independent of the catalogue: which of the database's wrong inputs are wrong because of a dtype."""


# ---------------------------------------------------------------- the sweep


def one_of(number: int, forms: list[tuple[Call, list[Call]]]) -> Iterator[tuple[Call, list[Call], list[str]]]:
    """One form of an operator with one of its mixed calls and one region; another number chooses others."""
    if forms:
        base, mixed = forms[number % len(forms)]
        yield base, mixed[number % len(mixed) :][:1] if mixed else [], [list(REGIONS)[number % len(REGIONS)]]


def sweep(ops, *, in_turn: bool = False) -> list[str]:
    """Everything that is wrong, one line each. ``in_turn``: of each operator one call of each kind, not all."""
    wrong = []
    for number, op in enumerate(ops):
        forms = (
            [(base, mixed, list(REGIONS)) for base, mixed in variants(op)]
            if not in_turn
            else one_of(number, list(variants(op)))
        )
        for base, mixed, regions in forms:
            before = run(base)
            for call in (base, *mixed):
                plain = before if call is base else run(call)
                watched, findings = traced(call)
                wrong += changed_by_watching(op, call, plain, watched)
                wrong += misjudged(call, before, plain, findings)
            for name in regions:
                inside = REGIONS[name]
                call = replace(
                    base, inside=inside, backward=base.backward and name == "autocast", what=f"{base.what} under {name}"
                )
                plain = run(call)
                watched, findings = traced(call)
                wrong += changed_by_watching(op, call, plain, watched)
                findings = [f for f in findings if f.severity != "note"]
                if findings and (plain.error is None or not re.search(ABOUT_DTYPE, plain.error[1])):
                    wrong.append(
                        f"{call.what}: a finding ({findings[0].code} at {findings[0].op}), ended in {plain.error}"
                    )
    return wrong


@contextmanager
def autocast_without_grad() -> Iterator[None]:
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        yield


REGIONS = {
    "autocast": partial(torch.autocast, "cpu", torch.bfloat16),
    "inference mode": torch.inference_mode,
    "inference mode and autocast": autocast_without_grad,
}
WITHOUT_GRAD = (torch.inference_mode, autocast_without_grad)


def wrong_inputs(ops) -> list[str]:
    """The database's own wrong inputs: a finding where the text speaks of dtypes, none where it does not."""
    wrong = []
    for op in ops:
        for number, item in enumerate(op.error_inputs("cpu") if op.error_inputs_func else ()):
            call = Call(
                op.op, partial(fresh, item.sample_input, True), False, what=f"{op.formatted_name} wrong input #{number}"
            )
            plain = run(call)
            watched, findings = traced(call)
            wrong += changed_by_watching(op, call, plain, watched)
            expected = int(plain.error is not None and bool(re.search(ABOUT_DTYPE, plain.error[1])))
            if len(findings) != expected:
                wrong.append(f"{call.what}: {len(findings)} findings instead of {expected}, ended in {plain.error}")
    return wrong


_every_warning_again = pytest.fixture(autouse=True)(every_warning_again)


@pytest.mark.parametrize("part", one_in(4, range(4)))
def test_each_operator_in_one_way(part):
    wrong = sweep(operators()[part::4], in_turn=True)
    assert not wrong, message(wrong)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: torch.linalg.pinv(a),
        lambda a: torch.fft.hfft(a),
        lambda a: torch.linalg.matrix_power(a[:, :5].mH, 3),
        lambda a: torch.diff(a.conj().imag),
    ],
    ids=["pinv", "hfft", "matrix_power", "diff"],
)
@pytest.mark.parametrize("inside", [torch.inference_mode, torch.no_grad, autocast_without_grad])
def test_conjugates_are_resolved_inside_of_operators(function, inside):
    def operands() -> tuple[tuple, dict]:
        torch.manual_seed(0)
        return (torch.randn(5, 7, dtype=torch.complex64),), {}

    call = Call(function, operands, False, inside=inside)
    assert not differences(run(call), traced(call)[0], grad=False)


def test_autocast_reaches_the_inside_of_what_a_scripted_module_calls():
    class Gram(torch.nn.Module):
        def forward(self, x):
            return torch.einsum("bi,ji->bj", [x, x])

    torch.manual_seed(0)
    scripted, x = torch.jit.script(Gram()), torch.randn(3, 8)
    call = Call(scripted, lambda: ((x,), {}), False, inside=autocast_without_grad)
    plain = run(call)
    assert plain.results[0].dtype == torch.bfloat16
    assert not differences(plain, traced(call)[0], grad=False)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_some_operators_in_every_way():
    wrong = sweep(operators()[::60])
    assert not wrong, message(wrong)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_operator(chunk):
    wrong = sweep(operators()[chunk::CHUNKS])
    assert not wrong, message(wrong)


@pytest.mark.parametrize("part", one_in(4, range(4)))
def test_wrong_inputs(part):
    wrong = wrong_inputs(operators()[part::4])
    assert not wrong, message(wrong)
