"""Exceptions leave a block as they were raised, with notes where the block was ended by a refusal."""

from __future__ import annotations

import traceback

import pytest
import torch
import torch.nn.utils.prune
from harmless import mlp, quick, raise_in_custom_backward, raise_in_forward, raise_in_recompute, raise_in_tensor_hook  # noqa: F401 - fixtures
from torch import nn

import dtypetrace


def refuse(model):
    model(torch.ones(2, 8, dtype=torch.float64))


def frames(error: BaseException) -> list[tuple[str, int]]:
    """The traceback's frames outside torch."""
    return [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__) if "/torch/" not in f.filename]


def test_the_exception_that_leaves_is_the_one_that_was_raised():
    model = mlp()
    caught = []

    class Remembers(nn.Module):
        def forward(self, x):
            try:
                return model(x)
            except RuntimeError as error:
                caught.append(error)
                raise

    def leave(watch):
        with pytest.raises(RuntimeError) as info:
            with watch:
                refuse(Remembers())
        return info.value

    plain = leave(torch.enable_grad())
    trace = dtypetrace.trace()
    error = leave(trace)
    assert error is caught[1]
    assert (type(error), str(error), error.args) == (type(plain), str(plain), plain.args)
    assert frames(error) == frames(plain)
    assert (error.__cause__, error.__context__, error.__suppress_context__) == (None, None, False)
    assert error.__notes__ and not hasattr(plain, "__notes__")
    assert any("DT101" in note for note in error.__notes__)
    assert [f.severity for f in trace.findings] == ["error"]


def test_an_exception_that_the_program_handles_is_left_alone():
    model, errors = mlp(), []
    with dtypetrace.trace() as trace:
        for _ in range(3):
            try:
                refuse(model)
            except RuntimeError as error:
                errors.append(error)
    assert not any(hasattr(e, "__notes__") for e in errors)
    [finding] = trace.findings
    assert (finding.kind, finding.severity, finding.count) == ("collision", "note", 3)


def test_another_exception_than_the_handled_one_gets_no_note():
    with pytest.raises(ValueError, match="other") as info:
        with dtypetrace.trace() as trace:
            try:
                refuse(mlp())
            except RuntimeError:
                pass
            raise ValueError("other")
    assert not hasattr(info.value, "__notes__")
    assert [f.severity for f in trace.findings] == ["note"]


def test_an_exception_raised_from_the_refused_one_gets_the_notes():
    with pytest.raises(ValueError) as info:
        with dtypetrace.trace() as trace:
            try:
                refuse(mlp())
            except RuntimeError as error:
                cause = error
                raise ValueError("the batch is bad") from error
    assert info.value.__cause__ is cause
    assert not hasattr(cause, "__notes__")
    assert info.value.__notes__
    assert [f.severity for f in trace.findings] == ["error"]


def test_notes_of_the_programs_own_stay_first():
    with pytest.raises(RuntimeError) as info:
        with dtypetrace.trace():
            try:
                refuse(mlp())
            except RuntimeError as error:
                error.add_note("in epoch 3")
                raise
    assert info.value.__notes__[0] == "in epoch 3"
    assert len(info.value.__notes__) > 1


@pytest.mark.parametrize(
    "ending",
    [raise_in_forward, raise_in_custom_backward, raise_in_tensor_hook, raise_in_recompute],
    ids=lambda f: f.__name__,
)
def test_tracebacks_lead_through_the_same_lines(ending):
    def raised(watch):
        torch.manual_seed(0)
        with pytest.raises(ValueError) as info:
            with watch:
                ending(mlp(), torch.rand(4, 8), ValueError("stop"))
        return info.value

    plain, error = raised(torch.enable_grad()), raised(dtypetrace.trace())
    assert frames(error) == frames(plain)
    assert [type(e) for e in chain(error)] == [type(e) for e in chain(plain)]


def chain(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_two_open_traces_in_one_thread():
    with dtypetrace.trace() as outer:
        with pytest.raises(RuntimeError) as info:
            with dtypetrace.trace():
                raise AssertionError("the block ran")
        mlp()(torch.rand(2, 8))
    message = str(info.value)
    assert "already open" in message and f"{__file__}:" in message and "\n" not in message
    assert outer.recording.ops and outer.findings == ()
    with pytest.raises(RuntimeError) as info:
        with outer:
            pass
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    "model", [lambda x: x, [nn.Linear(2, 2)], nn.Linear, "model"], ids=["function", "list", "class", "text"]
)
def test_a_model_argument_that_is_no_module(model):
    with pytest.raises(TypeError, match="torch.nn.Module") as info:
        dtypetrace.trace(model)
    assert "\n" not in str(info.value)
