"""Single integers that wrap and that only Python reads: as sizes, which is damage, or as hashes and random numbers."""

from __future__ import annotations

import programs
import pytest

_SIZES = {
    "a share": "total = words * epochs\nshare = 1_000_000 / total.item()",
    "by a name": "total = words * epochs\nwhole = int(total)\nleft = 1 - 3 / max(whole, 1)",
    "a limit": "total = words * epochs\nwhole = total.item()\nif 5_000_000 > whole + 1:\n    done = True",
    "a sum": "total = words + words + words\nrate = total.item() / 3",
    "of a function that returns it": "def count():\n    return int(words * epochs)\nhashed = count() > 2**19",
    "of two functions": "def count():\n    total = words * epochs\n    return total.item() + 1\n"
    "def share(n):\n    whole = count()\n    return n / whole\nlimit = share(3)",
    "of a property": "class Level:\n    @property\n    def size(self):\n        return torch.prod(torch.stack([words, words])"
    ", dtype=torch.int32).item()\nlevel = Level()\ndense = 1 if level.size <= 4096 else 0",
    "one after the other": "for n in (4, 5):\n    total = words * n\n    rate = total.item() / n",
}
_OTHERS = {
    "a hash": "key = words * 31\nbucket = key.item() % 97",
    "bits of it": "key = words * 40503\nslot = (key.item() & 0xffff) / 65536",
    "a seed": "key = words * 7919\ngenerator = torch.Generator().manual_seed(abs(key.item()))",
    "a generator of random numbers": "for _ in range(20):\n    words = words * 1664525 + 1013904223\n"
    "    u = words.item() / 2 ** 32",
    "what fits": "total = words * 2\nshare = 1 / total.item()",
    "what is only shown": "total = words * epochs\nprint(total.item())",
    "what is not read": "total = words * epochs",
    "returned for a hash": "def key():\n    return int(words * 31)\nbucket = key() % 97",
    "returned to be shown": "def count():\n    return int(words * epochs)\nprint(count())",
    "equal or not": "key = words * epochs\nsame = key.item() == 7",
}


def found(tmp_path, text):
    before = "words, epochs = torch.tensor(900_000_000, dtype=torch.int32), 5"
    program = programs.run(tmp_path, text, before=before, numerics=True)
    assert program.error is None
    return [f.code for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("text", _SIZES.values(), ids=_SIZES)
def test_a_size_that_wraps(text, tmp_path):
    assert found(tmp_path, text) == ["DT301"]


@pytest.mark.parametrize("text", _OTHERS.values(), ids=_OTHERS)
def test_what_is_no_size(text, tmp_path):
    assert found(tmp_path, text) == []
