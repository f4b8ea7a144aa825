"""Only what is known to have no effect outside its results is called a second time: by the spot checks, by the whole
reference, and to heal a refused call."""

from __future__ import annotations

import os

import pytest
import torch
from outcomes import OPTIONS
from torch.overrides import handle_torch_function, has_torch_function

import dtypetrace
from dtypetrace.capture.repeats import names, repeatable

calls: list[str] = []
LIBRARY = torch.library.Library("only_once", "DEF")
LIBRARY.define("scaled(Tensor x, Tensor y) -> Tensor")
OF_ATEN = torch.library.Library("aten", "FRAGMENT")
OF_ATEN.define("dtypetrace_test_counted(Tensor x) -> Tensor")


@torch.library.impl(LIBRARY, "scaled", "CompositeExplicitAutograd")
def _scaled(x, y):
    calls.append("scaled")
    return x @ y


@torch.library.impl(OF_ATEN, "dtypetrace_test_counted", "CompositeExplicitAutograd")
def _counted(x):
    calls.append("counted")
    return x * 2


@torch.library.custom_op("only_once::logged", mutates_args=())
def logged(x: torch.Tensor, file: str) -> torch.Tensor:
    calls.append("logged")
    with open(file, "a") as out:
        out.write("called\n")
    return x + 1


def own_function(x, y):
    """A library's function that modes and subclasses see, as torch documents it."""
    if has_torch_function((x, y)):
        return handle_torch_function(own_function, (x, y), x, y)
    calls.append("own function")
    return torch.mm(x, y)


def a_mapped_file(folder):
    path = str(folder / "raw")
    t = torch.from_file(path, shared=True, size=8)
    t.fill_(3)
    half = torch.from_file(path + "16", shared=True, size=8, dtype=torch.float16)
    half.fill_(2)
    return [t.clone(), half.clone()], os.path.getsize(path), os.path.getsize(path + "16")


def a_custom_operator_that_writes_a_file(folder):
    made = [logged(torch.ones(4, dtype=dtype), str(folder / "log")) for dtype in (torch.float16, torch.float32)]
    return made, (folder / "log").read_text()


def an_operator_of_another_namespace(folder):
    one = torch.ones(2, 2, dtype=torch.bfloat16)
    return [torch.ops.only_once.scaled(one, one), torch.ops.only_once.scaled.default(one.float(), one.float())]


def an_operator_that_the_program_added_to_torch(folder):
    return [torch.ops.aten.dtypetrace_test_counted(torch.ones(3).half())]


def random_numbers(folder):
    x = torch.ones(64).half()
    made = [
        x.bernoulli(0.5),
        torch.nn.functional.dropout(x, 0.5),
        torch.rand(3),
        x.clone().uniform_(),
        x.multinomial(5),
    ]
    gates = torch.nn.functional.gumbel_softmax(torch.ones(4, 4).half(), hard=True)
    return [*made, gates, torch.nn.functional.rrelu(-torch.ones(9), training=True), torch.rand(2)]


PROGRAMS = (
    a_mapped_file, a_custom_operator_that_writes_a_file, an_operator_of_another_namespace,
    an_operator_that_the_program_added_to_torch, random_numbers,
)  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=list(OPTIONS))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_it_runs_once(program, options, tmp_path):
    outcomes = []
    for name in ("plain", "traced"):
        (tmp_path / name).mkdir()
        calls.clear()
        torch.manual_seed(0)
        if name == "plain":
            made = program(tmp_path / name)
        else:
            with dtypetrace.trace(**OPTIONS[options]) as t:
                made = program(tmp_path / name)
            assert not [n for n in t.recording.not_seen if "internal error" in n], t.recording.not_seen
        tensors, rest = (made, ()) if isinstance(made, list) else (made[0], made[1:])
        outcomes.append(([x.tolist() for x in tensors], rest, list(calls)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("call", [torch.ops.only_once.scaled, torch.ops.only_once.scaled.default, own_function])
def test_a_refused_call_that_may_have_done_something_is_not_repeated(call):
    calls.clear()
    with pytest.raises(RuntimeError, match="dtype"), dtypetrace.trace(autofix=True) as t:
        call(torch.ones(2, 2).half(), torch.ones(2, 2))
    assert len(calls) == 1 and not t.fixes


def test_a_refused_dropout_between_layers_is_not_repeated():
    """The second layer is refused, when the numbers for the first one's result have been drawn."""
    lstm = torch.nn.LSTM(2, 2, num_layers=2, dropout=0.5)
    lstm.weight_hh_l1 = torch.nn.Parameter(lstm.weight_hh_l1.half())
    lstm._flat_weights = [getattr(lstm, n) for n in lstm._flat_weights_names]
    ends = []
    for options in ({}, {"autofix": True}):
        torch.manual_seed(0)
        with pytest.raises(RuntimeError), dtypetrace.trace(**options):
            lstm(torch.ones(3, 1, 2))
        ends.append(torch.rand(1).item())
    assert ends[0] == ends[1]


def test_what_is_asked_about_random_numbers_files_and_handles():
    """By torch's schemas: nothing in the table draws numbers, and none takes a name of a file, a stream or a storage."""
    words = {"rounding_mode", "approximate", "reduce", "mode", "padding", "norm", "indexing", "side", "UPLO", "driver", "interpolation",
             "equation", "ord", "p", "pad_mode", "padding_side", "api_name", "activation", "algorithm"}  # fmt: skip
    wrong = []
    for name in names():
        space, _, own = name.rpartition("::")
        packets = [getattr(torch.ops.aten, n, None) for n in (own, f"{own}_")] if not space else []
        for overload in (getattr(p, o) for p in packets if p is not None for o in p.overloads()):
            if not any("Tensor" in str(a.type) for a in overload._schema.arguments):
                continue  # TorchScript's operators on strings and lists
            seeded = torch.Tag.nondeterministic_seeded in overload.tags
            for a in overload._schema.arguments:
                kind = str(a.type)
                foreign = any(k in kind for k in ("Storage", "Stream", "Any", "__torch__")) and own != "set"
                if foreign or "str" in kind and a.name not in words:
                    wrong.append(f"{overload}: {a.name}")
            if seeded and not any(a.name.startswith("dropout") for a in overload._schema.arguments):
                wrong.append(f"{overload} is seeded")
    assert not wrong, wrong


@pytest.mark.parametrize(
    "known", [torch.mm, torch.Tensor.add_, torch.Tensor.__iadd__, torch.Tensor.__setitem__, torch.nn.functional.conv2d,
              torch.nn.functional.cross_entropy, torch.ops.aten.addmm.default, torch._foreach_add_, torch.nn.functional.layer_norm,
              torch.nn.functional.scaled_dot_product_attention, torch.einsum, torch.ops.aten.convolution_backward],
)  # fmt: skip
def test_what_is_repeated(known):
    assert repeatable(known)


@pytest.mark.parametrize(
    "unknown", [torch.from_file, torch.ops.aten.from_file.default, torch.ops.aten.save, torch.ops.aten.warn, torch.rand, torch.Tensor.normal_,
                torch.Tensor.backward, torch.autograd.grad, torch.nn.functional.multi_head_attention_forward, torch.nn.functional.dropout,
                torch.nn.functional.gumbel_softmax, torch.svd_lowrank, torch.ops.only_once.scaled, own_function, len, print, lambda x: x,
                torch.ops.aten.record_stream, torch.ops.aten.empty.memory_format],
)  # fmt: skip
def test_what_is_not_repeated(unknown):
    assert not repeatable(unknown)
