"""What NumPy cast before torch saw it, compared with the array that it was cast from, where that still exists."""

from __future__ import annotations

import textwrap

import programs
import pytest

_LOST = {
    "labels": "y = torch.from_numpy(ids.astype(np.uint8)).long()",
    "by a name": "small = ids.astype('int8')\ny = torch.from_numpy(small).long()",
    "by np.array": "y = torch.tensor(np.array(ids, dtype=np.uint8)).long()",
    "by np.asarray": "y = torch.as_tensor(np.asarray(ids, np.int8)).long()",
    "of an attribute": "class Data: pass\ndata = Data()\ndata.ids = ids\ny = torch.from_numpy(data.ids.astype(np.uint8)).long()",
    "in a function": "def load(a):\n    return torch.from_numpy(a.astype(np.uint8))\ny = load(ids).long()",
    "whole times": "stamps = (times * 1e6).round()\nt = torch.from_numpy(stamps.astype(np.float32))\ny = t.diff()",
    "by a type": "y = torch.from_numpy(np.uint8(ids)).long()",
    "before another cast": "small = ids.astype(np.uint8)\ny = torch.from_numpy(small.astype(np.int64)) + 1",
    "in a table": "pairs = np.stack([ids, ids], 1).astype(np.uint8)\ny = torch.from_numpy(pairs.astype(np.int64)).sum()",
    "into an array": "store = np.zeros(1000, dtype=np.uint8)\n"
    "store[:600] = torch.arange(600).numpy().astype(store.dtype)\ndel ids\n"
    "y = torch.from_numpy(store.astype(np.int64)) + 1",
    "times": "t = torch.from_numpy(times.astype(np.float32))\ny = t.diff()",
}
_KEPT = {
    "what fits": "y = torch.from_numpy((ids % 200).astype(np.uint8)).long()",
    "what fits by a name": "few = ids % 100\ny = torch.from_numpy(few.astype(np.int8)).long()",
    "low bytes": "y = torch.from_numpy((ids & 255).astype(np.uint8)).long()",
    "a rest": "y = torch.from_numpy(ids.astype(np.uint8)) % 16",
    "what is ignored": "ids[::2] = -1\nids[1::2] = 7\ny = torch.from_numpy(ids.astype(np.uint8)).long()",
    "another array of the shape": "ids = ids + 1\nother = np.ones_like(ids)\n"
    "y = torch.from_numpy(np.array(other, dtype=np.uint8)).long()",
    "measurements": "y = torch.from_numpy(noise.astype(np.float32)).sum()",
    "times from their first": "since = times - times[0]\ny = torch.from_numpy(since.astype(np.float32)).diff()",
    "a curve that is flat": "x = np.tanh(np.linspace(-20, 20, 600))\ny = torch.from_numpy(x.astype(np.float32)).abs().sum()",
    "one number with rounding": "x = np.cumsum(np.full(600, 0.1)) / np.arange(1, 601)\n"
    "y = torch.from_numpy(x.astype(np.float32)).sum()",
    "wider": "y = torch.from_numpy(ids.astype(np.int64)).long()",
    "low bytes by a name": "low = ids & 255\ny = torch.from_numpy(low.astype(np.uint8)).long()",
    "planes": "planes = np.stack([ids & 255, ids >> 8], 1).astype(np.uint8)\ny = torch.from_numpy(planes).long().sum()",
    "fractions": "y = torch.from_numpy((noise * 99).astype(np.int8)).float().sum()",
    "an image": "x = torch.rand(20, 20)\ny = torch.from_numpy((x * 255).numpy().astype(np.uint8)).float() / 255",
    "stored in integers": "y = torch.zeros(600, dtype=torch.int64)\nfew = ids % 100\n"
    "y[:] = torch.from_numpy(few.astype(np.int16))",
}
_BEFORE = """
import numpy as np
ids = np.arange(600, dtype=np.int32)
times = 1.55e9 + np.arange(600) * 0.1
noise = np.random.default_rng(0).normal(size=600)
"""


def found(tmp_path, text):
    program = programs.run(tmp_path, text, before=_BEFORE, numerics=True)
    assert program.error is None and "values" not in str(program.recording.not_seen)
    return [(f.code, program.at(f.culprit.origin.place)) for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("text", _LOST.values(), ids=_LOST)
def test_numbers_that_numpy_cast_to_fewer_bits(text, tmp_path):
    ((code, born),) = found(tmp_path, text)
    assert code == ("DT204" if "times" in text else "DT301")
    assert "np." in born or "int8" in born


_FAR = {
    "differences": "x = torch.from_numpy(points.astype(np.float32))\ny = (x[1:] - x[:-1]).norm(dim=1).mean()",
    "of columns": "xyz = np.stack([east, north], 1).astype(np.float32)\nx = torch.from_numpy(xyz)\n"
    "y = (x - x.mean(0)).abs().mean()",
    "rows": "x = torch.from_numpy(np.array(rows, dtype=np.float32))\ny = (x[1:] - x[:-1]).norm(dim=1).mean()",
    "of fields": "t = np.zeros(300, dtype=[('x', 'i2'), ('north', 'f8')])\nt['north'] = north\n"
    "x = torch.from_numpy(t['north'].astype(np.float32))\ny = (x - x.mean()).abs().mean()",
    "returned": "def load():\n    return points.astype(np.float32), 3\nx, n = load()\nx = torch.from_numpy(x)\n"
    "y = (x[1:] - x[:-1]).norm(dim=1).mean()",
    "by a choice": "x = torch.from_numpy(points.astype(np.float32))\ny = ((x - x[0]) / 0.1).floor().long().unique(dim=0)",
    "too large": "store = points.astype(np.float16)\ny = torch.from_numpy(store.astype(np.float32)).mean()",
}
_NEAR = {
    "from their mean": "x = torch.from_numpy((points - points.mean(0)).astype(np.float32))\n"
    "y = (x[1:] - x[:-1]).norm(dim=1).mean()",
    "never computed with": "x = torch.from_numpy(points.astype(np.float32))\nhull = x.amin(0)",
    "the rounding itself": "x = torch.from_numpy(points.astype(np.float32))\n"
    "y = (x.double() - torch.from_numpy(points)).abs().max()",
    "written since": "few = points.astype(np.float32)\nx = torch.from_numpy(few)\nfew[:] = np.random.rand(300, 2)\n"
    "y = (x[1:] - x[:-1]).norm(dim=1).mean()",
    "standardised": "z = (points - points.mean(0)) / points.std(0)\nx = torch.from_numpy(z.astype(np.float32))\n"
    "y = torch.nn.Linear(2, 1)(x).square().mean()",
    "days": "age = 1.6e9 + np.sort(np.random.rand(300)) * 8e6\nt = torch.from_numpy(age.astype(np.float32))\n"
    "y = torch.exp((t - t.max()) / 2.6e6).mean()",
    "images": "x = torch.from_numpy((ids.reshape(1, 1, 20, 30) % 256 / 255).astype(np.float32))\n"
    "y = torch.nn.Conv2d(1, 2, 3)(x).mean()",
    "sound": "wave = np.sin(np.arange(600) / 9)\nx = torch.from_numpy(wave.astype(np.float32))\n"
    "y = (x[1:] - 0.97 * x[:-1]).abs().mean()",
    "cells": "cells = np.floor((points - points[0]) / 0.1).astype(np.int32)\nx = torch.from_numpy(cells.astype(np.float32))\n"
    "y = (x - x[0]).abs().mean()",
}
_POINTS = """
rng = np.random.default_rng(0)
east, north = 501_234 + rng.random(300), 5_412_345 + rng.random(300)
points, rows = np.stack([east, north], 1), list(map(list, zip(east.tolist(), north.tolist())))
"""


@pytest.mark.parametrize("text", _FAR.values(), ids=_FAR)
def test_what_is_computed_from_numbers_that_numpy_rounded(text, tmp_path):
    ((code, born),) = found(tmp_path, _POINTS + text)
    assert code == ("DT301" if "float16" in text else "DT204" if "f8" in text else "DT308")
    assert "np.float" in born


@pytest.mark.parametrize("text", _NEAR.values(), ids=_NEAR)
def test_rounded_numbers_from_which_nothing_is_lost(text, tmp_path):
    assert found(tmp_path, _POINTS + text) == []


def test_a_table_whose_fractions_are_gone(tmp_path):
    text = """
    people = torch.rand(40, 2) * 100 + 9
    table = torch.cat([people, 0.6 + torch.rand(40, 1) * 0.3], 1)
    old = table.numpy().astype(np.uint8)
    both = torch.cat([table, torch.IntTensor(old.astype(np.int32)).float()])
    good = torch.cat([people, torch.from_numpy(people.numpy().astype(np.uint8)).float()])
    """
    ((code, born),) = found(tmp_path, textwrap.dedent(text))
    assert code == "DT203" and "np.uint8" in born


@pytest.mark.parametrize("text", _KEPT.values(), ids=_KEPT)
def test_numbers_that_lose_nothing(text, tmp_path):
    assert found(tmp_path, text) == []
