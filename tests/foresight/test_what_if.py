"""A forecast is compared with the run that it forecasts: the same program, really made in the other dtypes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dtypetrace
from dtypetrace.errors import UnknownDtypeError, UnknownNameError
from dtypetrace.foresight import DtypeChange, what_if
from dtypetrace.records import Recording

LINE = next(
    n
    for n, line in enumerate(Path(__file__).read_text().splitlines(), 1)
    if "net(bare *" in line and "enumerate" not in line
)
DTYPES = ("float16", "bfloat16", "float32", "float64")


def made(dtype: str) -> torch.dtype:
    return getattr(torch, dtype)


class Mixer(nn.Module):
    """What models are made of: convolution, normalisation, attention, rotary positions, a feed-forward part."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.last = nn.LayerNorm(8)
        self.register_buffer("table", torch.linspace(0, 1, 8))

    def forward(self, x, mask, scale):
        h = F.silu(self.norm(self.conv(x)))
        h = h.flatten(2).transpose(1, 2)
        q, k, v = self.q(h), self.k(h), self.v(h)
        angles = torch.arange(16).float()[:, None] * self.table.float()
        q = (q.float() * angles.cos()).type_as(q)
        h = h + F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)[0]
        h = self.last(h) * scale
        return h + torch.softmax(h, -1, dtype=torch.float32).to(h.dtype)


def program(model="float32", mask="float32", scale="float32", image="float32"):
    """A step of forward and backward; returns what it gives."""
    torch.manual_seed(0)
    net = Mixer().to(made(model))
    x = torch.randn(2, 3, 4, 4, dtype=made(image))
    attention_bias = torch.zeros(16, 16, dtype=made(mask))
    factor = torch.ones(8, dtype=made(scale))
    out = net(x, attention_bias, factor)
    loss = out.float().pow(2).mean()
    loss.backward()
    return net


def watched(action) -> Recording:
    net = None
    try:
        with dtypetrace.trace() as t:
            net = action()
    except (RuntimeError, NotImplementedError):
        pass
    del net
    return t.recording


@pytest.fixture(scope="module")
def base():
    return watched(program)


NAMES = {"model": "net", "mask": "attention_bias", "scale": "factor", "image": "x"}


def forecast_and_run(base: Recording, **changed: str):
    forecast = what_if(base, {NAMES[part]: dtype for part, dtype in changed.items()})
    return forecast, watched(lambda: program(**changed))


def results(recording: Recording, forecast=None) -> list[tuple]:
    """Every op of forward with the dtype of its result, casts left out: which of them run depends on the dtypes."""
    from dtypetrace.foresight.carry import Replay

    outputs = (
        [c.outputs for c in Replay(recording, forecast.change).ops] if forecast else [o.outputs for o in recording.ops]
    )
    return [
        (o.op, o.aten, o.module, made[:1])
        for o, made in zip(recording.ops, outputs)
        if o.phase == "forward" and o.module and not o.aten.startswith("_to_copy")
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", NAMES)
def test_one_part_in_another_dtype(base, part, dtype):
    forecast, real = forecast_and_run(base, **{part: dtype})
    collisions = [r for r in real.refused if r.left]
    assert [(p.op, p.code) for p in forecast.refused][:1] == [(r.op, r.code) for r in collisions][:1]
    if not collisions:
        assert results(base, forecast) == results(real)
        assert not forecast.unknown


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_all_parts_together_are_clean(base, dtype):
    forecast, real = forecast_and_run(base, model=dtype, mask=dtype, scale=dtype, image=dtype)
    assert forecast.clean and not forecast.widened and not real.refused
    assert results(base, forecast) == results(real)
    size = torch.empty((), dtype=made(dtype)).element_size()
    assert forecast.after.parameters == {dtype: forecast.before.parameters["float32"] * size // 4}


def test_a_wide_scale_widens_what_follows(base):
    forecast, real = forecast_and_run(base, model="float16", mask="float16", image="float16")
    assert [(p.op, p.gives) for p in forecast.widened] == [("mul", "float32")]
    assert results(base, forecast) == results(real)


def test_unknown_names_are_refused_with_a_suggestion(base):
    with pytest.raises(UnknownNameError, match="did you mean"):
        what_if(base, {"nett": "float16"})
    with pytest.raises(UnknownDtypeError, match="no dtype to compute in; did you mean bfloat16"):
        what_if(base, {"net": "bfloat"})


def test_labels_are_asked_for_as_integers():
    """Integers that a loss refuses, and an index that stays as it is."""

    def step():
        labels = torch.zeros(4, dtype=torch.int32)
        return F.cross_entropy(nn.Linear(3, 2)(torch.ones(4, 3)), labels[torch.arange(4)])

    recording = watched(step)
    assert [r.code for r in recording.refused if r.left] == ["DT108"]
    line = f"{Path(__file__).name}:{step.__code__.co_firstlineno + 1}"
    assert what_if(recording, {line: "int64"}).clean
    assert not what_if(recording, {line: "int16"}).clean


def test_no_change_changes_nothing(base):
    forecast = what_if(base, DtypeChange())
    assert forecast.clean and not forecast.changed and not forecast.widened and not forecast.unknown
    assert forecast.before == forecast.after


# ---------------------------------------------------------------- as people ask it


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved trace of a step in which a float32 mask met float16 weights."""
    path = tmp_path_factory.mktemp("what_if") / "run.trace"
    with pytest.raises(RuntimeError), dtypetrace.trace() as t:
        bare = torch.ones(2, 4)
        net = nn.Linear(4, 4).half()
        net(bare * torch.ones(2, 4, dtype=torch.float16))
    t.save(path)
    return path


def test_a_trace_answers_with_text(saved):
    trace = dtypetrace.load(saved)
    answer = trace.what_if({"bare": "float16"})
    assert answer.clean and answer.forecast.mended
    assert repr(answer).splitlines()[:3] == [
        "what if bare is float16",
        "was refused, and would run:",
        f"  linear(float16, float16, float16) -> float16 in net at {Path(__file__).relative_to(Path.cwd())}:{LINE}",
    ]
    wide = trace.what_if({"bare": "float64"})
    assert not wide.clean and "and still would be:" in repr(wide)
    with pytest.raises(ValueError, match="nothing called 'bore' was recorded; did you mean bare"):
        trace.what_if({"bore": "float16"})


def show(saved, *words, capsys):
    from dtypetrace.__main__ import main

    with pytest.raises(SystemExit) as ended:
        raise main(["show", str(saved), *words])
    return ended.value.code, *capsys.readouterr()


def test_show_answers_what_if(saved, capsys):
    code, out, _ = show(saved, "--what-if", "net=float32", capsys=capsys)
    assert code == 0 and out.startswith("what if net is float32\nwas refused, and would run:\n")
    assert "parameters: 40 B float16, would be 80 B float32" in out
    code, out, _ = show(saved, "--what-if", "bare=float16", "--what-if", "autocast=off", capsys=capsys)
    assert code == 0 and out.startswith("what if bare is float16, autocast is off\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("bare", "is no NAME=DTYPE"),
        ("bare=int3", "'int3' is no dtype to compute in; did you mean int32?"),
        ("bare=int64", "nothing called 'bare' was recorded with integers"),
        ("net=int64", "net has floating weights, and int64 is no floating dtype"),
        ("bore=float16", "did you mean bare?"),
        ("xylophone=float16", "nothing called 'xylophone' was recorded. Give a module, a parameter"),
        ("autocast=of", "no dtype that autocast computes in"),
    ],
)
def test_show_refuses_what_it_cannot_answer(saved, change, said, capsys):
    code, out, error = show(saved, "--what-if", change, capsys=capsys)
    assert (code, out) == (2, "") and said in error and error.count("\n") == 1
