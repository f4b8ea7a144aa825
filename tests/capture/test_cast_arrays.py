"""What NumPy cast before torch saw it, compared with the array that it was cast from, where that still exists."""

from __future__ import annotations

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


@pytest.mark.parametrize("text", _KEPT.values(), ids=_KEPT)
def test_numbers_that_lose_nothing(text, tmp_path):
    assert found(tmp_path, text) == []
