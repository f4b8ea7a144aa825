"""torch's own databases of operators, modules and optimizers, with and without a trace: the program sees no difference.

Compared are values to the last bit, dtypes, strides, ``requires_grad``, gradients, warnings, random numbers, and the type
and text of what is raised. Operators run in every dtype that the database has for them, out of place, in place and with
``out=``; modules forward and backward, in training and evaluation; optimizers three steps, one by one, foreach, fused and
differentiable. Then some of them again while other threads train beside.

A sample runs in ``make test``; ``make exhaustive`` runs all, with every option of a trace.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice, repeat
from typing import Any

import databases
import pytest
import torch
from outcomes import OPTIONS, Call, EmptyPair, bits, differences, every_warning_again, message, run, traced
from samples import SEED
from test_op_db import UNINITIALISED, fresh
from torch import nn
from torch.nn.utils import skip_init
from torch.utils._pytree import tree_leaves, tree_map

pytestmark = pytest.mark.filterwarnings("ignore")  # the databases' own; the two runs of a call record theirs
_every_warning_again = pytest.fixture(autouse=True)(every_warning_again)

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)
PARTS = 16
SAMPLES = 2


# ---------------------------------------------------------------- operators


def operator_calls(op, dtype: torch.dtype) -> Iterator[Call]:
    """Calls of one operator with every operand as the database has it for that dtype."""
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    samples = list(islice(op.sample_inputs("cpu", dtype, requires_grad=grad), SAMPLES))
    for number, sample in enumerate(samples):
        name = f"{op.formatted_name} #{number} in {dtype}"
        yield Call(op.op, partial(fresh, sample, grad), grad, what=name)
        if number:
            continue
        inplace = op.get_inplace()
        if inplace is not None and not sample.broadcasts_input:
            yield Call(inplace, partial(fresh, sample, grad, leaf=False), grad, what=f"{name} in place")
        if op.supports_out:
            yield Call(partial(into_zeros, op.op), partial(fresh, sample, False), False, what=f"{name} out")


def into_zeros(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """A call with ``out=``: zeros of what it gives."""
    made = function(*args, **kwargs)
    out = tree_map(lambda t: torch.zeros_like(t) if isinstance(t, torch.Tensor) else t, made)
    return out, function(*args, **kwargs, out=out)


# ---------------------------------------------------------------- modules


def copied(value: Any) -> Any:
    """Operands of a call, with memory of their own."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, nn.Module):
        return copy.deepcopy(value)
    return value


def module_calls(info, dtype: torch.dtype) -> Iterator[Call]:
    """Each module of one kind made, called and its gradients taken, in training and evaluation."""
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for number, item in enumerate(islice(inputs, SAMPLES)):
            if item.forward_input is None:
                continue
            given = item.constructor_input, item.forward_input
            yield Call(
                partial(built_and_called, info.module_cls, training),
                lambda given=given: (tuple(tree_map(copied, (g.args, g.kwargs)) for g in given), {}),
                what=f"{info.name} #{number} in {dtype}, {'training' if training else 'evaluation'}",
            )


def module_errors(info) -> Iterator[Call]:
    """The database's own wrong constructions and calls."""
    if info.module_error_inputs_func is None:
        return
    inputs = info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
    for number, item in enumerate(inputs):
        wrong = item.module_error_input
        given = wrong.constructor_input, wrong.forward_input
        yield Call(
            partial(built_and_called, info.module_cls, True),
            lambda given=given: (tuple(tree_map(copied, (g.args, g.kwargs)) if g else g for g in given), {}),
            what=f"{info.name}, wrong input #{number}",
        )


def built_and_called(kind: type[nn.Module], training: bool, constructor: tuple, forward: tuple | None) -> tuple:
    module = kind(*constructor[0], **constructor[1])
    module.train(training)
    made = module(*forward[0], **forward[1]) if forward else None
    return made, list(module.parameters()), list(module.buffers())


# ---------------------------------------------------------------- optimizers


def optimizer_calls(info, dtype: torch.dtype) -> Iterator[Call]:
    """Each configuration of one optimizer: as the database has it, and foreach, fused and differentiable."""
    if dtype.is_complex and not info.supports_complex:
        return
    kinds = [impl for impl in info.supported_impls if impl != "fused" or "cpu" in info.supports_fused_on]
    for item in info.optim_inputs_func("cpu"):
        for kind in ("", *kinds):
            settings = {**item.kwargs, **{impl: impl == kind for impl in kinds}}
            step = differentiated if kind == "differentiable" else trained
            yield Call(
                partial(step, info),
                lambda settings=settings: ((parameters(info, dtype), copy.deepcopy(settings)), {}),
                what=f"{info.name}({item.desc}{', ' * bool(kind)}{kind}) in {dtype}",
                backward=step is differentiated,
            )


def optimizer_errors(info) -> Iterator[Call]:
    for number, item in enumerate(info.optim_error_inputs_func("cpu", torch.float32)):
        wrong = item.optimizer_error_input
        given = parameters(info, torch.float32) if wrong.params is None else wrong.params
        yield Call(
            lambda given, settings, info=info: info.optim_cls(given, **settings).step() and None,
            lambda given=given, wrong=wrong: ((given, copy.deepcopy(wrong.kwargs)), {}),
            False,
            what=f"{info.name}, wrong input #{number} ({wrong.desc})",
        )


def parameters(info, dtype: torch.dtype) -> list[nn.Parameter]:
    torch.manual_seed(3)
    return [nn.Parameter(torch.randn(3, 3).to(dtype)), nn.Parameter(torch.randn(2, 3).to(dtype))]


def trained(info, weights: list[nn.Parameter], settings: dict[str, Any]) -> tuple:
    """Three steps, the middle one with a closure; what the optimizer holds belongs to what is compared."""
    optimizer = info.optim_cls(weights, **settings)

    def closure():
        optimizer.zero_grad()
        if info.only_supports_sparse_grads:
            loss = sum(nn.functional.embedding(torch.tensor([0, 1]), w, sparse=True).square().sum() for w in weights)
        else:
            loss = sum((w * w.conj()).real.sum() + (w @ weights[0]).abs().mean() for w in weights)
        loss.backward()
        return loss.detach()

    losses = []
    for number in range(3):
        if info.step_requires_closure or number == 1:
            losses.append(optimizer.step(closure))
        else:
            losses.append(closure())
            optimizer.step()
    return losses, [w.detach() for w in weights], tree_leaves(optimizer.state_dict())


def differentiated(info, weights: list[nn.Parameter], settings: dict[str, Any]) -> list[torch.Tensor]:
    """A step that gradients flow through: to the weights and to their gradients."""
    leaves = [torch.ones_like(w, requires_grad=True) for w in weights]
    moved = [w.clone() for w in weights]
    for w, gradient in zip(moved, leaves):
        w.grad = gradient
    info.optim_cls(moved, **settings).step()
    return [*moved, *leaves]


# ---------------------------------------------------------------- the comparison


def faults(name: str, calls: Iterable[Call], options: Iterator[tuple[str, ...]]) -> list[str]:
    """What the program can see of the trace, one line each. ``options`` gives the ways to trace the next call."""
    wrong = []
    for call, ways in zip(calls, options):
        plain = run(call)
        for way in ways:
            if way == "autofix" and plain.error is not None:
                continue  # a refused call may be healed
            watched, _ = traced(call, **OPTIONS[way])
            found = differences(plain, watched, name not in UNINITIALISED)
            if found:  # while any modes are on, torch itself takes another way: a trace does what an empty pair does
                found = [f for f in found if f in differences(run(call, EmptyPair()), watched)]
            if found and differences(plain, run(call)):
                continue  # it does not end the same twice by itself
            wrong += [f"{call.what}, {way}: {f}; {watched.error} instead of {plain.error}" for f in found]
    return wrong


def in_turn() -> Iterator[tuple[str, ...]]:
    """For a sample: each call with one option, all options in turn."""
    return ((way,) for way in cycle(OPTIONS))


def all_ways() -> Iterator[tuple[str, ...]]:
    return repeat(tuple(OPTIONS))


def operator_faults(part: int, parts: int, options: Iterator[tuple[str, ...]]) -> list[str]:
    """One part of all operators: another for each dtype."""
    wrong = []
    for shift, dtype in enumerate(DTYPES):
        for op in databases.operators()[(part + shift) % parts :: parts]:
            if op.supports_dtype(dtype, "cpu"):
                wrong += faults(op.name, operator_calls(op, dtype), options)
    return wrong


def module_faults(infos: Iterable, options: Iterator[tuple[str, ...]]) -> list[str]:
    wrong = []
    for info in infos:
        for dtype in info.dtypes:
            wrong += faults(info.name, module_calls(info, dtype), options)
        wrong += faults(info.name, module_errors(info), options)
    return wrong


def optimizer_faults(info, dtypes: Iterable[torch.dtype], options: Iterator[tuple[str, ...]]) -> list[str]:
    wrong = faults(info.name, optimizer_errors(info), options)
    for dtype in dtypes:
        wrong += faults(info.name, optimizer_calls(info, dtype), options)
    return wrong


def test_a_sample_of_operators():
    wrong = operator_faults(0, 31, in_turn())
    assert not wrong, message(wrong)


def test_a_sample_of_modules():
    wrong = module_faults(databases.modules()[::8], in_turn())
    assert not wrong, message(wrong)


def test_a_sample_of_optimizers():
    options, wrong = in_turn(), []
    for number, info in enumerate(databases.optimizers()[SEED % 4 :: 4]):
        dtype = DTYPES[number % len(DTYPES)]
        wrong += faults(info.name, optimizer_errors(info), options)
        wrong += faults(info.name, islice(optimizer_calls(info, dtype), number % 2, None, 2), options)
    assert not wrong, message(wrong)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operator(part):
    wrong = operator_faults(part, PARTS, all_ways())
    assert not wrong, message(wrong)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
def test_every_module(part):
    wrong = module_faults(databases.modules()[part::PARTS], all_ways())
    assert not wrong, message(wrong)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(15))
def test_every_optimizer(number):
    wrong = optimizer_faults(databases.optimizers()[number], DTYPES, all_ways())
    assert not wrong, message(wrong)


# ---------------------------------------------------------------- threads beside


def one_run() -> list[bytes]:
    """A short training that draws no random numbers, to the last bit."""
    first, second = (skip_init(nn.Linear, 4, size) for size in (4, 2))
    model = nn.Sequential(first, nn.Tanh(), second)
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):
            weight.copy_(torch.linspace(-1, 1, weight.numel()).view_as(weight) * (number + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
    return [bits(weight) for weight in model.parameters()]


@contextmanager
def training_beside(count: int = 2) -> Iterator[list[Any]]:
    """Untraced threads that train without end. Gives what went wrong in them: exceptions, and runs that ended otherwise."""
    expected, wrong, runs, stop = one_run(), [], [0] * count, threading.Event()

    def train(number: int) -> None:
        while not runs[number] or not stop.wait(0.001):
            try:
                if one_run() != expected:
                    wrong.append("other weights")
            except BaseException as error:
                wrong.append(error)
            runs[number] += 1

    threads = [threading.Thread(target=train, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield wrong
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_threads_that_train_beside_and_the_traced_program_end_the_same():
    with training_beside() as wrong_there:
        wrong = operator_faults(5, 240, in_turn())
        wrong += module_faults(databases.modules()[3::80], in_turn())
        wrong += optimizer_faults(
            next(i for i in databases.optimizers() if i.name == "AdamW"), (torch.float32,), in_turn()
        )
    assert not wrong_there, wrong_there[:3]
    assert not wrong, message(wrong)
