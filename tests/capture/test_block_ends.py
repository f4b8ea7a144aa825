"""However a block ends, nothing is left behind and nothing is kept alive."""

from __future__ import annotations

import gc
import warnings
import weakref

import torch
import torch.nn.utils.prune
from harmless import end, endings, mlp, process, quick, whole  # noqa: F401 - fixtures
from torch import nn

import dtypetrace


@endings
def test_the_process_is_left_as_it_was_found(ending, kind):
    before = process()
    end(ending, kind)
    random = torch.get_rng_state()
    assert process() == before, "the ending itself leaves something behind"
    trace = dtypetrace.trace()
    end(ending, kind, trace)
    assert process() == before
    assert torch.equal(torch.get_rng_state(), random)
    whole(trace)


@endings
def test_nothing_is_kept_alive(ending, kind):
    def alive(references):
        gc.collect()
        return [type(r()) for r in references if r() is not None]

    assert alive(end(ending, kind)) == [], "the ending itself keeps something alive"
    trace = dtypetrace.trace()
    references = end(ending, kind, trace)
    assert alive(references) == []
    assert trace.recording.ops
    trace.findings
    assert alive(references) == []


def test_the_block_frees_what_the_program_frees():
    """A loss and its graph die inside the block when the program drops them, without a collection."""
    model, x = mlp(), torch.rand(4, 8)
    with dtypetrace.trace(model) as trace:
        gc.disable()
        try:
            y = model(x)
            alive = weakref.ref(y)
            y.sum().backward()
            del y
            assert alive() is None
        finally:
            gc.enable()
    whole(trace)


def test_the_variables_of_a_function_that_goes_on_after_a_refusal_are_free():
    net, x = nn.Linear(4, 4).half(), torch.ones(2, 4)
    alive = weakref.ref(x)
    try:
        with dtypetrace.trace(net) as trace:
            net(x)
    except RuntimeError as error:
        error.__traceback__ = None
    del x
    gc.collect()
    assert alive() is None
    whole(trace)


def test_a_trace_that_is_never_closed_ends_with_its_generator():
    def watched():
        with dtypetrace.trace() as trace:
            yield trace

    before = process()
    generator = watched()
    next(generator)
    torch.ones(2) * 2
    del generator
    assert process() == before


def test_filters_that_are_put_back_after_the_block_hold_none_of_ours():
    before = process()
    caught = warnings.catch_warnings()
    with dtypetrace.trace():
        caught.__enter__()
        warnings.simplefilter("ignore")
    caught.__exit__(None, None, None)
    assert process() == before


def test_what_the_program_sets_inside_the_block_stays():
    def show(*args):
        pass

    def compile(model):
        return model

    filters, shows, compiles = warnings.filters[:], warnings.showwarning, torch.compile
    try:
        with dtypetrace.trace():
            warnings.simplefilter("error", ResourceWarning)
            warnings.showwarning = show
            torch.compile = compile
            torch.set_default_dtype(torch.float64)
            handle = nn.modules.module.register_module_forward_hook(lambda *args: None)
        assert warnings.filters[0][0] == "error"
        assert warnings.showwarning is show
        assert torch.compile is compile
        assert torch.get_default_dtype() is torch.float64
        assert list(nn.modules.module._global_forward_hooks) == [handle.id]
        handle.remove()
    finally:
        warnings.filters[:], warnings.showwarning, torch.compile = filters, shows, compiles
        torch.set_default_dtype(torch.float32)
