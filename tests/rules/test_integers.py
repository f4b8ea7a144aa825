"""Integers that wrap, lose their fractions or become equal: on recordings made by hand, then from programs."""

from __future__ import annotations

from dataclasses import replace

import followed
import programs
import pytest
from recordings import RecordingBuilder

from dtypetrace import rules
from dtypetrace.records import Recording, Value


def kinds(recording: Recording) -> list[tuple[str, str]]:
    return [(f.code, f.kind) for f in rules.find(recording) if f.severity != "note"]


def spoilt(b: RecordingBuilder, op: int, share: float = 0.5) -> Recording:
    row = Value(op=op, measured=0, made=0, first=-1, made_nan=0, nans=0, bad=0, peak=0.0)
    return replace(b.recording, values=(replace(row, exact=1000, spoilt=int(1000 * share)),))


def summed(*after: str, out: str = "uint8", dtype: str = "uint8") -> Recording:
    """A sum of integers that wraps, and what the program does with it."""
    b = RecordingBuilder()
    pixels = b.made(dtype)
    made = total = b.ran("add", pixels, pixels, aten="add.Tensor")
    for n, op in enumerate(after):
        made = b.ran(op, made, out=out if n == len(after) - 1 else dtype)
    return spoilt(b, total.producer)


@pytest.mark.parametrize(
    "after", [("floor_divide",), ("view", "to"), ("sum", "to"), ("gt",), ("floor_divide", "stack", "to")]
)
def test_a_wrapped_sum_that_is_used_as_a_quantity(after):
    assert kinds(summed(*after, out="float32")) == [("DT301", "overflow")]


@pytest.mark.parametrize("after", [(), ("bitwise_and", "to"), ("remainder", "to"), ("eq",), ("zeros_like",)])
def test_bytes_that_may_wrap(after):
    assert kinds(summed(*after, out="float32")) == []


def written(share: float = 0.9, after: str = "to", *, out: str = "float32", itself: bool = False) -> Recording:
    """Floating numbers that a write stores in a tensor of integers, and what the program does with that tensor."""
    b = RecordingBuilder()
    kept = b.ran("zeros_like", b.made("int64"), aten="zeros_like.default")
    if itself:
        value = b.ran("mul", kept, out="float32", aten="mul.Tensor")
    else:
        value = b.ran("mul", b.made("float32"), aten="mul.Tensor")
    part = b.ran("getitem", kept, aten="select.int")
    write = b.ran("setitem", part, value, aten="copy_.default")
    if not itself:
        b.ran(after, kept, out=out)
    return spoilt(b, write.producer, share)


def test_fractions_that_a_write_into_integers_cuts_off():
    recording = written()
    assert kinds(recording) == [("DT203", "downcast")]
    culprit = rules.find(recording)[0].culprit
    assert culprit.origin.op == "zeros_like"


@pytest.mark.parametrize(
    "other", [{"share": 0.01}, {"after": "add", "out": "int64"}, {"after": "zeros_like"}, {"itself": True}]
)
def test_writes_into_integers_that_lose_nothing_that_is_used(other):
    """The last is an average of weights that averages a counter too."""
    assert kinds(written(**other)) == []


_TAKEN = "for row in torch.Tensor([[2.0**25 + n, 0.5] for n in range(4)]):\n    "
FOUND = {
    "wraps": ("pixels = torch.full((8,), 200, dtype=torch.uint8)\nmean = (pixels + pixels) // 2", "DT301"),
    "wraps in place": ("a = torch.full((8,), 200, dtype=torch.uint8)\na -= 210\nb = a.float()", "DT301"),
    "wraps below zero": ("a = torch.full((8,), 200, dtype=torch.uint8)\nb = (100 - a) / 2", "DT301"),
    "tokens in shards of 16 bits": (
        "ids = torch.arange(0, 120000, 29)\nshard = ids.to(torch.uint16)\nmost = shard.long().float().amax().item()",
        "DT301",
    ),
    "offsets of the planes of an image": (
        "planes = torch.arange(192).view(8, 8, 3).byte()\nplanes[..., 0] = planes[..., 0] - 16\n"
        "rgb = (planes.float() @ torch.rand(3, 3)).clamp(0, 255)",
        "DT301",
    ),
    "differences of frames that are kept as bytes": (
        "frames = torch.arange(192).view(6, 32).byte()\nkept = torch.zeros(5, 32, dtype=torch.uint8)\n"
        "for n in range(5):\n    kept[n] = (frames[n] - frames[n + 1]).flip(0)\nmean = kept[2:].float().mean()",
        "DT301",
    ),
    "a gain of a channel": (
        "sound = torch.arange(-9000, 9000, 50).view(180, 2).to(torch.int16)\nsound[:, 1] = sound[:, 1] * 6\n"
        "peak = (sound / 32768).abs().amax()",
        "DT301",
    ),
    "a square": ("a = torch.full((8,), 100, dtype=torch.int8)\nb = (a ** 2).float()", "DT301"),
    "a key": (
        "a = torch.arange(8, dtype=torch.int32) * 10_000\nkey = a * 120_000 + 7\nrow = key.long() // 120_000",
        "DT301",
    ),
    "a fraction in what chooses": (
        "a = torch.full((8,), 1)\nx = torch.arange(8.0) / 3\nfor _ in range(9):\n"
        "    chosen = torch.multinomial(a.float() + 1e-3, 4)\n    a[0] = x[chosen].max()",
        "DT203",
    ),
    "a sum by index": (
        "n = torch.zeros(3, dtype=torch.int16).index_add_(0, torch.zeros(64, dtype=torch.long), "
        "torch.full((64,), 999, dtype=torch.int16))\np = n / 2",
        "DT301",
    ),
    "a scattered sum": (
        "n = torch.zeros(3, dtype=torch.uint8)\nn.scatter_add_(0, torch.zeros(9, dtype=torch.long), "
        "torch.full((9,), 99, dtype=torch.uint8))\np = n.float()",
        "DT301",
    ),
    "a write that adds": (
        "n = torch.zeros(3, dtype=torch.uint8)\nn.index_put_((torch.zeros(9, dtype=torch.long),), "
        "torch.full((9,), 99, dtype=torch.uint8), accumulate=True)\np = n.float()",
        "DT301",
    ),
    "a total": ("a = torch.full((99,), 9, dtype=torch.int8)\nb = a.cumsum(0, dtype=torch.int8) / 2", "DT301"),
    "a float that is out of range": ("a = (torch.full((8,), 300.5)).to(torch.uint8)", "DT301"),
    "a fraction": ("a = torch.zeros(3, dtype=torch.long)\na[0] = torch.tensor(0.5)\nb = a.float()", "DT203"),
    "keys of edges": (
        "a = torch.arange(0, 200_000, 512, dtype=torch.int32)\nkey = a * 2**20 + 5\nkinds = key.unique(return_inverse=True)",
        "DT301",
    ),
    "keys of pairs of classes": (
        "a = torch.arange(64, dtype=torch.uint8)\nb = torch.isin(a * 16 + 3, torch.tensor([3], dtype=torch.uint8))",
        "DT301",
    ),
    "large numbers": ("a = torch.arange(4) + 2**25\nb = a.float()", "DT204"),
    "ids that float64 does not hold": ("a = 2**60 + torch.arange(20)\nb = a.to(torch.float64).unique()", "DT204"),
    "such ids beside amounts": (
        "a = torch.stack([torch.arange(300) + 2**60, torch.rand(300, dtype=torch.float64)], 1)\nb = a[:, 0].long()",
        "DT204",
    ),
    "stamps of close events": ("t = 17 * 10**17 + torch.arange(300) * 37\nd = t.double().diff()", "DT204"),
    "stamps that are folded into lines": (
        "t = 17 * 10**17 + torch.arange(320) * 37\nmiddle = t.view(-1, 8).double().mean(1)",
        "DT204",
    ),
    "the size of the least number": (
        "a = torch.arange(-128, 100, dtype=torch.int8)\nmost = a.abs().amax().item()",
        "DT301",
    ),
    "the negative of the least number": (
        "a = torch.arange(-2**15, 99, 7, dtype=torch.int16)\nlow, high = a.aminmax()\nmost = torch.maximum(-low, high).item()",
        "DT301",
    ),
    "the negative of bytes": ("a = torch.arange(1, 9, dtype=torch.uint8)\nb = torch.where(a > 4, a, -a) / 2", "DT301"),
    "a count of samples": (
        "seen = torch.zeros((), dtype=torch.int32)\nfor n in range(120):\n    seen += 20_000_000\n    at = seen.item()",
        "DT301",
    ),
    "a count that was loaded": (
        "seen = torch.zeros(1, dtype=torch.int32)\nseen.copy_(torch.tensor([2_100_000_000]))\n"
        "for n in range(20):\n    seen.add_(4_000_000)\nlate = int(seen) > 10",
        "DT301",
    ),
    "nibbles that a shift makes negative": (
        "packed = (torch.arange(256) | 0).to(torch.int8)\nhigh = (packed >> 4) * 0.5",
        "DT301",
    ),
    "codes of two bits": (
        "packed = torch.arange(256).to(torch.int8).view(64, 4)\ncode = torch.stack([packed & 3, packed >> 6])\nw = code - 1.5",
        "DT301",
    ),
    "steps that Python takes as floating numbers": (
        "a = torch.arange(0, 250, 5).byte()\nedges = [float(a[n] - a[-1]) ** 2 for n in range(40)]",
        "DT301",
    ),
    "a square root": (
        "import math\na = torch.arange(90, dtype=torch.int8)\nlengths = [math.sqrt(n * n & 127) for n in a]\n"
        "areas = [float(n * n) for n in a]",
        "DT301",
    ),
    "two products on one line": (
        "a = torch.full((8,), 99, dtype=torch.uint8)\nb = [(a * a).float(), (a * 3 + a).float()]",
        "DT301",
    ),
    "the upper byte": (
        "word = torch.arange(0, 65536, 255).to(torch.int16)\nupper = torch.bitwise_right_shift(word, 8).float()",
        "DT301",
    ),
    "large numbers that Python takes": (_TAKEN + "int(row[0])", "DT204"),
    "large numbers that serve as places": (_TAKEN + "range(2**30)[row[0].int()]", "DT204"),
    "large seeds": (_TAKEN + "torch.Generator().manual_seed(int(row[0]))", "DT204"),
    "numbers of 16 bits ranked and taken back": (
        "a = torch.full((999,), 900, dtype=torch.bfloat16)\na[torch.arange(800)] = torch.randint(0, 900, (800,)).to(a.dtype)\n"
        "b = a.sort().values.long()",
        "DT204",
    ),
    "chosen ones taken back": (
        "a = torch.arange(999).to(torch.bfloat16)\nb = torch.where(torch.arange(999) > 500, a, 0).topk(9).values.long()",
        "DT204",
    ),
    "joined ones taken back": (
        "a = torch.arange(9999).to(torch.float16)\nb = torch.cat([a, -a]).neg().view(2, -1).long()",
        "DT204",
    ),
    "large numbers taken back": ("a = torch.tensor([2.0**25 + 2])\nb = a[:1].long()", "DT204"),
    "ids beside amounts": (
        "a = torch.stack([torch.arange(300) + 90_000_000, torch.rand(300)], 1)\nb = a[:, 0].long()",
        "DT204",
    ),
    "ids that were floating numbers beside missing ones": (
        "ids = 2**60 + torch.arange(300) * 1_000_003\ncolumn = torch.full((900,), float('nan'), dtype=torch.float64)\n"
        "column[torch.arange(0, 900, 3)] = ids.double()\nknown = torch.isin(column[~column.isnan()].long(), ids)",
        "DT204",
    ),
    "ids that are kept beside scores": (
        "ids = 10**9 + torch.arange(300) * 30_000_001\ntable = torch.stack([ids.float(), torch.rand(300)], 1)\n"
        "best = table[table[:, 1].argsort()[:90]]\nnames = best[:, 0].long().tolist()",
        "DT204",
    ),
    "ids that are chosen as floating numbers": (
        "ids = 2**60 + torch.arange(300) * 1_000_003\nhas = torch.arange(300) % 3 > 0\n"
        "back = torch.where(has, ids.double(), 0.0).long()\nsame = (back[has] == ids[has]).sum()",
        "DT204",
    ),
    "ids that are written into a table": (
        "ids = 10**9 + torch.arange(300) * 30_000_001\ntable = torch.zeros(300, 2)\ntable[:, 0] = ids\n"
        "table[:, 1] = torch.rand(300)\nkinds = table[table[:, 1] > 0.5][:, 0].long().unique()",
        "DT204",
    ),
    "ids that are cast and written into a table": (
        "ids = 10**9 + torch.arange(300) * 30_000_001\ntable = torch.zeros(300, 2)\ntable[:, 0] = ids.to(table.dtype)\n"
        "names = torch.zeros(300, dtype=torch.int64)\nnames[:] = table[:, 0].long()",
        "DT204",
    ),
    "ids that are joined row by row": (
        "rows = torch.stack([torch.tensor([2.0**26 + 3 * n, 0.5]) for n in range(9)])\n"
        "w = torch.rand(5)[rows[:, 0].long() % 5]",
        "DT204",
    ),
    "ids that a loader joins": (
        "rows = [(torch.tensor(2.0**26 + 3 * n), torch.rand(3)) for n in range(9)]\n"
        "for key, x in torch.utils.data.DataLoader(rows, 3):\n    known = key.long().tolist()",
        "DT204",
    ),
}
MEANT = {
    "hits in bytes": "hits = torch.zeros((), dtype=torch.uint8)\nfor n in range(60):\n    hits += (torch.arange(20) < 9).sum()\n"
    "share = hits.item() / 1200",
    "correct tokens in 16 bits": "right = torch.zeros(1, dtype=torch.int16)\nfor n in range(60):\n"
    "    right.add_((torch.arange(900) > 9).sum())\nprint(right.item())",
    "masked pixels": "seen = torch.tensor(0, dtype=torch.int8)\nfor n in range(60):\n"
    "    seen -= (torch.arange(12) > 5).sum()\nprint(int(seen))",
    "differences of images whose squares are summed up": "a, b = torch.arange(200).byte(), torch.arange(200).flip(0).byte()\n"
    "d = a - b\nprint((d * d).sum().item())",
    "counts that are numbers of their own": "tp, fp = torch.tensor([600_000, 90_000], dtype=torch.int32)\n"
    "print((tp * fp / 3.0).item())",
    "totals in place of which the largest is looked for": "v = torch.zeros(4, dtype=torch.int16)\n"
    "v.view(-1).index_add_(0, torch.zeros(90, dtype=torch.int64), torch.full((90,), 1_000, dtype=torch.int16))\n"
    "print(v[:2].argmax().item())",
    "products of codes that are ranked": "codes = torch.arange(-60, 60).view(10, 12).to(torch.int8)\n"
    "print((codes @ codes.T).topk(3).indices.tolist())",
    "a part of many products": "codes = (torch.arange(3000 * 64).view(3000, 64) % 99).to(torch.int8)\n"
    "print((codes[:90] @ codes.T).argsort(-1)[0, 0].item())",
    "products of many matrices": "codes = (torch.arange(8 * 200 * 40).view(8, 200, 40) % 99).to(torch.int8)\n"
    "print(torch.bmm(codes, codes.mT).sort().indices[0, 0, 0].item())",
}
"""Integers that wrap and go on by their size."""
FINE = {
    "tokens that fit their shards": "shard = torch.arange(0, 65536, 29).to(torch.uint16)\nmost = shard.long().float().amax()",
    "masked nibbles": "packed = torch.arange(256).to(torch.int8)\nhigh = ((packed >> 4) & 15) * 0.5",
    "unsigned nibbles": "packed = torch.arange(256).to(torch.uint8)\nhigh = (packed >> 4) * 0.5",
    "packet numbers": "number = torch.arange(900).to(torch.uint8)\ngap = (number[1:] - number[:-1]).view(torch.int8).long()\nwhole = gap.cumsum(0) / 2",
    "a clock that wraps": "tick = torch.arange(0, 90000, 99).to(torch.int16)\ngap = (tick[1:] - tick[:-1]) & 0xFFF\nrate = gap.float()",
    "an angle of a turn in 256": "turn = torch.arange(900).to(torch.uint8)\nrest = ((turn - turn[0]) % 64).float()",
    "settings": "setting = torch.tensor([2.0**30, 3.0])\nmost = int(setting[0])",
    "small numbers that Python takes": "for n in torch.arange(3.0) * 100: int(n)",
    "steps in range that Python takes": "a = torch.arange(0, 250, 5).byte()\ne = [float(a[-1] - a[n]) ** 2 for n in range(40)]",
    "a check byte that Python takes": "a = torch.arange(200).byte()\nfirst = float((a[7] * 31 + a[9]) % 16)",
    "a check byte that Python compares": "a = torch.arange(200).byte()\nsame = [int(a[n] * 31) == 7 for n in range(9)]",
    "a negative": "image = torch.arange(250, dtype=torch.uint8)\nnegative = ~image / 2",
    "an inverted mask of bits": "flags = torch.tensor([0, 1, 1], dtype=torch.uint8)\nleft = ((~flags) & 1).float()",
    "an inverted mask": "mask = torch.tensor([0, 1, 1], dtype=torch.uint8)\nkept = (~mask.bool()).float() + (1 - mask).float()",
    "a sum by index": "n = torch.zeros(3, dtype=torch.int16)\nn.index_add_(0, torch.arange(3), torch.ones(3, dtype=torch.int16))\n"
    "n.scatter_add_(0, torch.arange(3), n.clone())\nn.index_put_((torch.arange(3),), n.clone(), accumulate=True)\np = n / 2",
    "a write by index": "m = torch.full((3,), 9, dtype=torch.uint8)\nm.index_put_((m > 3,), m[0])\np = m / 2",
    "a total in int64": "t = torch.full((99,), 9, dtype=torch.int8).sum() / 2",
    "in range": "pixels = torch.full((8,), 100, dtype=torch.uint8)\nmean = (pixels + pixels) // 2",
    "in range, in place": "a = torch.full((8,), 200, dtype=torch.uint8)\na -= 10\na += a // 10\nb = a.float()",
    "a hash": "a = torch.full((8,), 2**31 - 1, dtype=torch.int32)\nb = ((a * 31) % 1000).float()",
    "a long hash": "a = torch.full((8,), 2**62)\nb = (a * 31).float()",
    "cut off openly": "a = torch.zeros(3, dtype=torch.long)\na[0] = torch.tensor(0.5).long()\nb = a.float()",
    "whole numbers": "a = torch.zeros(3, dtype=torch.long)\na[0] = torch.tensor(3.0)\nb = a.float()",
    "a check sum in a table of numbers": "t = (torch.arange(400) % 250).view(100, 4).byte()\nt[:, 3] = t[:, 0] * 31 + t[:, 1]\n"
    "x = t[:, :3].float().mean()",
    "check bytes that are written after use": "t = (torch.arange(400) % 250).byte()\nx = t.float().mean()\nt[9:] = t[9:] * 31",
    "a state of random numbers in a table": "s = torch.arange(8, dtype=torch.int32)\nfor n in range(9):\n"
    "    s[n % 4] = s[n % 7] * 1_103_515_245 + 12_345\nx = ((s >> 16) & 1023).float()",
    "a check sum": "a = torch.arange(200).byte()\nb = (a * 31).sum() % 251",
    "kept hashes of bytes that are used": "for n in range(4):\n    a = torch.arange(200).byte()\n    b, c = a * 31, a.float()",
    "small ids beside amounts": "a = torch.stack([torch.arange(300), torch.rand(300)], 1)\nb = a[:, 0].long()",
    "numbers that float32 tells apart": "a = torch.arange(4) * 4096 + 2**25\nb = a.float()",
    "computed numbers": "a = torch.rand(3) * 2.0**30\nb = a.long()",
    "products that fit and are ranked": "codes = torch.eye(9, dtype=torch.int8)\nbest = (codes @ codes).topk(2).indices",
    "products modulo 2": "bits = torch.ones(200, 200, dtype=torch.int8)\nparity = ((bits @ bits) % 2).topk(2).indices",
    "no rows": "codes = torch.zeros(0, 9, dtype=torch.int8)\nbest = (codes @ codes.T).topk(0).indices",
    "numbers ranked and limited before they are integers": "a = torch.randint(0, 900, (900,)).to(torch.bfloat16)\n"
    "b = a.clamp(max=200).sort().values.long()",
    "small ids in a table": "a = torch.full((99,), 200, dtype=torch.bfloat16)\na[torch.arange(9)] = torch.arange(9).to(a.dtype)\n"
    "b = a.sort().values.long()",
    "hashes that become shares": "h = torch.randint(-(2**63), 2**63 - 1, (900,))\nshare = (h.double() / 2.0**64).mean()",
    "stamps of milliseconds": "t = 17 * 10**17 + torch.arange(300) * 1_000_003\ngap = t.double().diff().mean()",
    "stamps of two clocks": "t = 17 * 10**17 + torch.arange(320).flip(0) * 5_003\nt = torch.stack([t, t + 10**6], 1)\n"
    "apart = t.double().diff(dim=1)",
    "sizes that fit": "a = torch.arange(-127, 100, dtype=torch.int8)\nmost = torch.maximum(-a.min(), a.abs().max()) / 2",
    "the lowest bits": "a = torch.arange(-2**15, 99, 7, dtype=torch.int16)\nlowest = (a & -a).float().amax()",
    "buckets of hashes": "a = torch.arange(9, dtype=torch.int32) - 2**31\nbucket = a.abs() % 16",
    "a state of random numbers": "state = torch.zeros((), dtype=torch.int32)\nfor n in range(60):\n"
    "    state += 1_640_531_527\n    drawn = state.item()",
    "a mixed state": "state = torch.ones((), dtype=torch.int32)\nfor n in range(60):\n    state *= 1_103_515\n"
    "    state += 12_345\n    drawn = state.item()",
    "a state that is shifted": "state = torch.ones((), dtype=torch.int32)\nfor n in range(60):\n    state += 99_999_999\n"
    "    state ^= state << 13\n    drawn = state.item()",
    "a clock that runs around": "tick = torch.full((), 2**31 - 500, dtype=torch.int32)\nfor n in range(60):\n    tick += 90\n"
    "    slot = (tick & 1023).item()",
    "numbers of packets": "packet = torch.zeros((), dtype=torch.uint8)\nfor n in range(600):\n    packet += 1\n    n = packet.item()",
    "a check sum of bytes": "check = torch.zeros((), dtype=torch.uint8)\nfor n in range(60):\n    check += torch.arange(50).sum()\n"
    "    n = check.item()",
    "a count": "seen = torch.zeros((), dtype=torch.int32)\nfor n in range(60):\n    seen += 20_000_000\n    at = seen.item()",
    "bits that float32 holds": "a = 2 ** (torch.arange(600) % 60)\nback = torch.stack([a.float(), torch.rand(600)])[0].long()\n"
    "same = back == a",
    "a class beside ids that stay numbers": "table = torch.zeros(300, 2)\ntable[:, 0] = 10**9 + torch.arange(300) * 30_000_001\n"
    "table[:, 1] = torch.arange(300) % 7\nrows = torch.rand(7)[table[:, 1].long()] * table[:, 0]",
    "ids that float64 holds": "a = 2**40 + torch.arange(300) * 30_000_001\nb = torch.isin(a.double()[9:].long(), a)",
    "stamps that were floating numbers": "t = 17 * 10**17 + torch.arange(300) * 1_000_003\nlate = t.double()[9:].long() > t[0]",
    "a mark of what is missing": "a = torch.arange(300).where(torch.arange(300) % 2 > 0, 2**62 + 1)\nb = a.double().flip(0).long() == a",
    "hashes that are shares and buckets": "h = torch.randint(-(2**62), 2**62, (900,))\nb = (h.double() / 2.0**63 * 64).long().unique()",
    "not finite": "a = torch.tensor([float('nan')]).to(torch.uint8)",
}


@pytest.mark.parametrize("how", MEANT)
def test_integers_that_wrap_and_are_read_by_their_size(how, tmp_path):
    program = programs.run(tmp_path, MEANT[how], numerics=True)
    assert program.error is None and not program.recording.not_seen, (program.error, program.recording.not_seen)
    assert [f.code for f in program.findings if f.severity != "note"] == ["DT301"]


@pytest.mark.parametrize("how", FOUND)
def test_programs_that_lose_integers(how, tmp_path):
    lines, code = FOUND[how]
    program = programs.run(tmp_path, lines, numerics=True)
    assert program.error is None and not program.recording.not_seen, (program.error, program.recording.not_seen)
    assert [f.code for f in program.findings if f.severity != "note"] == [code]


CAST_FIRST = {
    "a difference": "a, b = torch.arange(99).byte(), torch.arange(99).flip(0).byte()\nd = (a - b).float().mean()",
    "a method": "a = (torch.arange(99) * 77 % 250).byte()\nd = a.diff(dim=0).abs().float().mean()",
    "a sum": "a, b = (torch.arange(99) + 90).byte(), (torch.arange(99) + 99).byte()\nd = (a + b).float().mean()",
    "a square": "a = torch.arange(99).byte()\nenergy = (a**2).float().mean()",
    "products in a list": "r, g, b = (torch.arange(300).view(3, 100) % 97 + 150).byte()\n"
    "planes = torch.stack([p.float() for p in (r * g, r * b, g * b)])",
    "sums in one call": "r, g, b = (torch.arange(300).view(3, 100) % 97 + 150).byte()\nplanes = torch.cat([(r + g).float(), (g + b).float()])",
    "products in a table": "r, g, b = (torch.arange(300).view(3, 100) % 97 + 150).byte()\nplanes = {'red': (r * g).float().mean(), 'blue': (b * g).float()}",
}
NOT_FIRST = {
    "that is stored in bytes": "a, b = torch.arange(99).byte(), torch.arange(99).flip(0).byte()\n"
    "kept = torch.zeros(99, dtype=torch.uint8)\nkept[:] = a - b\ne = kept.float().mean()",
}


@pytest.mark.parametrize("how", CAST_FIRST)
def test_arithmetic_that_wraps_is_shown_in_more_bits(how, tmp_path):
    program = programs.run(tmp_path, CAST_FIRST[how], numerics=True)
    (finding,) = [f for f in program.findings if f.severity != "note"]
    assert finding.fix is not None and {e.change.dtype for e in finding.fix.edits} == {"int32"}
    text = followed.applied(program.text, finding.fix.edits, program.file)
    mended = programs.run(tmp_path, text, name="mended.py", numerics=True)
    assert mended.error is None and not [f for f in mended.findings if f.severity != "note"]


KEPT = {
    "labels": "n = torch.arange(600)\nlabel = n.to(torch.uint8)\nmean = label.float().mean()",
    "places": "n = torch.arange(0, 2**17, 99)\nat = n.to(torch.int16)\nmean = at.float().mean()",
    "ids": "ids = (torch.arange(900) * 2**24).int()\nfound = torch.isin(ids, ids[:9])",
}


@pytest.mark.parametrize("how", KEPT)
def test_a_cast_in_which_integers_wrap_keeps_them(how, tmp_path):
    program = programs.run(tmp_path, "import torch\n" + KEPT[how], numerics=True)
    finding = next(f for f in program.findings if f.code == "DT301")
    assert finding.fix is not None and {e.change.dtype for e in finding.fix.edits} == {"int64"}
    text = followed.applied(program.text, finding.fix.edits, program.file)
    mended = programs.run(tmp_path, text, name="mended.py", numerics=True)
    assert mended.error is None and not [f for f in mended.findings if f.severity != "note"]


@pytest.mark.parametrize("how", NOT_FIRST)
def test_more_bits_that_would_be_lost_again_are_no_diff(how, tmp_path):
    program = programs.run(tmp_path, NOT_FIRST[how], numerics=True)
    finding = next(f for f in program.findings if f.code == "DT301")
    assert finding.fix is not None and not finding.fix.edits


def test_programs_that_lose_none(tmp_path):
    program = programs.run(tmp_path, "\n".join(FINE.values()), numerics=True)
    assert program.error is None and not program.recording.not_seen, (program.error, program.recording.not_seen)
    assert [f.title for f in program.findings if f.severity != "note"] == []


@pytest.mark.parametrize(
    "made",
    [
        "torch.tensor(stamps)",
        "torch.ones(1).new_tensor(stamps)",
        "torch.as_tensor(numpy.array(stamps), dtype=torch.float32)",
        "torch.from_numpy(numpy.array(stamps)).float()",
    ],
)
def test_times_that_are_equal_in_float32(made, tmp_path):
    text = "import numpy\nstamps = [1.7e9 + n / 2 for n in range(200)]\n"
    program = programs.run(tmp_path, text + f"times = {made}", numerics=True)
    (found,) = program.findings
    assert (found.code, found.kind, found.culprit.origin.line) == ("DT204", "downcast", 3)
    assert found.title == "different numbers are equal in float32"


@pytest.mark.parametrize(
    "numbers",
    [
        "torch.randn(4096, dtype=torch.float64).tolist()",
        "[0.1 + 0.2, 0.3, 0.7 - 0.4, 1.0] * 8",  # they differ by rounding only
        "[float('nan'), float('inf'), 1.0, 2.0]",
        "[n + 1e9 for n in range(0, 64000, 64)]",
    ],
)
def test_numbers_that_float32_holds_well_enough(numbers, tmp_path):
    program = programs.run(tmp_path, f"x = torch.tensor({numbers})", numerics=True)
    assert [f for f in program.findings if f.code == "DT204"] == []


@pytest.mark.parametrize(
    "text",
    [
        "rows = torch.arange(60_000, 60_200).to(torch.int32)  # cast\nkeys = rows * 60_000 + rows\nshown = keys.double() / 2",
        "ids = torch.arange(400).long().int()  # cast\nplaces = ids * 2**24\nearly = places < 5",
        "label = (torch.arange(400) % 19).byte()  # cast\n"
        "share = torch.bincount((label * 19 + label.flip(0)).long(), minlength=361).double() / 400",
        "page = torch.arange(200).byte()  # cast\nkinds = (page * 4 + 1).long().unique()",
        "frames = torch.full((64,), 300).short()  # cast\nenergy = (frames * frames).float()",
        "frames = torch.full((64,), 300.0).to(torch.int16)  # cast\nheld = frames[:32]\nenergy = (held * held + held) // 2",
        "store = torch.zeros(400, dtype=torch.int16)  # cast\nids = torch.arange(0, 80_000, 200)\n"
        "store[:] = ids.to(store.dtype)\nright = store.long() == ids",
        "known = torch.tensor([3, 7], dtype=torch.uint8)  # cast\nids = torch.arange(400)\nshown = ids.type_as(known).long()",
    ],
)
def test_integers_that_wrap_after_a_cast_are_told_at_the_cast(text, tmp_path):
    program = programs.run(tmp_path, f"import torch\n{text}", numerics=True)
    (found,) = [f for f in program.findings if f.severity == "warning"]
    assert found.code == "DT301" and program.at(found.culprit.origin.place).endswith("# cast")
    again = program.text.replace(found.fix.edits[0].before, found.fix.edits[0].after)
    assert [
        f for f in programs.run(tmp_path, again, numerics=True, name="again.py").findings if f.severity == "warning"
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "total = torch.zeros((), dtype=torch.int64)  # made\nfor n in range(9):\n"
        "    total += (torch.tensor(3.0) / (n + 1)).half().to(total.dtype)",
        "sums = torch.zeros(4, dtype=torch.int32)  # made\n"
        "sums.index_add_(0, torch.arange(64) % 4, torch.rand(64).type_as(sums))\nmean = sums / 16",
        "reward = torch.zeros(8, dtype=torch.int8)  # made\nfor n in range(8):\n    reward[n] = 0.3 * n\nx = reward.float()",
        "share = torch.arange(8)  # made\nshare[2:6] = 0.4\nx = share * 0.5",
        "kept = torch.zeros_like(torch.arange(9))  # made\nkept[kept == 0] = torch.rand(9).to(kept.dtype)\nx = kept.double()",
    ],
)
def test_numbers_whose_fractions_are_cut_off_by_the_dtype_of_what_they_are_put_into(text, tmp_path):
    program = programs.run(tmp_path, text, numerics=True)
    (found,) = [f for f in program.findings if f.severity == "warning"]
    assert found.code == "DT203" and program.at(found.culprit.origin.place).endswith("# made")
    assert "torch.float16" not in found.fix.change


@pytest.mark.parametrize(
    "text",
    [
        "image = torch.zeros(64, dtype=torch.uint8)\nimage[:] = (torch.rand(64) * 255).to(image.dtype)\nx = image / 255",
        "cells = torch.zeros(9, dtype=torch.int64)\ncells[:] = (torch.rand(9) * 4).to(cells.dtype)\nx = torch.rand(4)[cells]",
        "flags = torch.zeros(4, dtype=torch.int8)\nflags[2] = 1.0\nx = flags.float()",
        "seconds = torch.zeros((), dtype=torch.int64)\nseconds += torch.tensor(3.7).long()\nx = seconds / 2",
        "votes = torch.zeros(4, dtype=torch.int64)\nvotes += (torch.rand(4) > 0.5).float().to(votes.dtype)\nx = votes / 9",
        "a = torch.arange(4_000, dtype=torch.int32)\nbuckets = ((a * 73_856_093) + 19_349_663).unique()",
        "a = torch.arange(4_000, dtype=torch.int32) * 65_536\nh = (a * 3) ^ (a >> 16)\nbuckets = h.unique()",
        "a = torch.arange(4_000, dtype=torch.int32)\ncells = (a // 7 * 100_000 + a % 7).unique()",
        "tokens, total = torch.tensor(80_000_003), torch.rand(64).sum()\nstats = torch.stack([tokens, total])\n"
        "mean = stats[1] / stats[0].long()",
        "times = torch.arange(200) * 600 + 1_700_000_000\nrows = torch.stack([times, torch.rand(200)], 1)\n"
        "day = rows[:, 0].long() // 86_400",
        "seen = torch.tensor([300_000_000])\nlog = torch.cat([seen, torch.rand(3)])\nlate = log[0].long() > 10_000",
        "sizes = torch.stack([torch.tensor([8e7 + 7 * n, 0.5]) for n in range(8)])[:, 0].long()\nmean = (sizes / 1e6).mean()",
    ],
)
def test_whole_numbers_that_are_meant(text, tmp_path):
    assert programs.run(tmp_path, text, numerics=True).findings == ()


@pytest.mark.parametrize(
    "text",
    [
        "done = torch.zeros(4, dtype=torch.uint8)  # made\nvalue = torch.ones(4) * ~done",
        "done = torch.tensor([0, 1, 0, 1], dtype=torch.int16)  # made\nvalue = torch.where((~done).bool(), 1.0, 0.0) + ~done / 2",
        "done = (torch.arange(4) > 2).byte()  # made\nweight = (~done).float().mean()",
        "done = torch.ones(4, 1, dtype=torch.uint8)  # made\nvalue = ((~done).expand(4, 3) * torch.rand(4, 3)).sum()",
    ],
)
def test_flags_that_are_inverted_and_taken_for_numbers(text, tmp_path):
    program = programs.run(tmp_path, text, numerics=True)
    (found,) = [f for f in program.findings if f.severity == "warning"]
    assert (found.code, "flags" in found.title) == ("DT301", True)
    assert program.at(found.culprit.origin.place).endswith("# made")


STEPS = "steps = (torch.rand(2000) * 300 + 100).round().long()\n"
PHASES = {
    "16 bits": "phase = steps.cumsum(0).to(torch.int16)\nwave = torch.sin(phase * (2 * torch.pi / 2**16))",
    "turns": "phase = steps.mul(2**16).cumsum(0).to(torch.int32)\nwave = torch.cos(2 * torch.pi * (phase.double() / 2**32))",
    "harmonics": "phase = steps.cumsum(0).short()[:, None] * torch.arange(1, 5, dtype=torch.int16)\n"
    "wave = torch.sin(phase.float() / 2**15 * torch.pi).half()",
    "bytes": "phase = steps.cumsum(0).to(torch.uint8)\nwave = torch.sin(phase.float() * torch.pi / 128)",
}
COUNTED = {
    "samples": "n = steps.cumsum(0).to(torch.int16)\nwave = torch.sin(n * (2 * torch.pi * 440 / 16000))",
    "turns, and a ramp": "phase = steps.cumsum(0).to(torch.int16)\nturns = phase.float() / 2**16\n"
    "wave, ramp = torch.sin(2 * torch.pi * turns), turns * 0.1 + 1",
    "half of a turn": "phase = steps.cumsum(0).to(torch.int16)\nwave = torch.sin(phase.float() * torch.pi / 2**16)",
}


@pytest.mark.parametrize("text", PHASES.values(), ids=PHASES)
def test_phases_that_wrap_where_the_angle_does(text, tmp_path):
    assert programs.run(tmp_path, STEPS + text, before="torch.manual_seed(0)", numerics=True).findings == ()


@pytest.mark.parametrize("text", COUNTED.values(), ids=COUNTED)
def test_angles_of_integers_that_wrap_elsewhere(text, tmp_path):
    program = programs.run(tmp_path, STEPS + text, before="torch.manual_seed(0)", numerics=True)
    assert "DT301" in [f.code for f in program.findings if f.severity == "warning"]


@pytest.mark.parametrize(
    ("numbers", "codes"),
    [
        ("torch.tensor([100 * i for i in range(1000)])", ["DT301"]),
        ("torch.randint(0, 119_547, (4000,))", ["DT301"]),
        ("torch.randint(0, 60_000, (4000,))", []),
        ("torch.randint(0, 2**62, (4000,))", []),  # next to nothing fits: the low bits are meant
        ("torch.arange(4000) * 2_654_435_761", []),  # a hash
        ("torch.arange(4000) * 2_654_435_761 >> 7", []),
    ],
)
def test_integers_that_are_only_saved(numbers, codes, tmp_path):
    text = f"import io\nkept = ({numbers}).to(torch.uint16)  # born\ntorch.save(kept, io.BytesIO())"
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


@pytest.mark.parametrize(
    ("read", "codes"),
    [
        ("back.long() & 0xFFFF", []),
        ("back.int() % 65536", []),
        ("table[back.long()]", ["DT301"]),
        ("(back.long() & 0xFFFF) + back.long().sum()", ["DT301"]),
    ],
)
def test_bits_that_come_back_out_of_a_file(read, codes, tmp_path):
    text = f"""
    import io
    import numpy as np
    kept, table = io.BytesIO(), torch.randn(65536, 4)
    np.save(kept, torch.randint(0, 65536, (200,)).to(torch.int16).numpy())
    kept.seek(0)
    back = torch.from_numpy(np.load(kept))
    print(({read}).sum().item())
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


SIZES = "torch.randint(15_000, 21_000, (8,), dtype=torch.int32)"
KEPT_OFFSETS = {
    "offsets of masks": (
        f"cells = {SIZES} * {SIZES}\nstarts = torch.zeros(9, dtype=torch.int32)\nstarts[1:] = cells.cumsum(0)",
        "[int(start) for start in starts]",
    ),
    "written where they belong": (
        f"starts = torch.zeros(8, dtype=torch.int32)\nstarts.copy_(({SIZES} * {SIZES}).cumsum(0))",
        "starts.tolist()",
    ),
    "cast": (f"starts = ({SIZES}.long() * 20_000).cumsum(0).to(torch.int32)", "starts.tolist()"),
}
KEPT_HASHES = {
    "a hash of two": "keys = (torch.arange(8) * 73_856_093 + torch.arange(8) * 19_349_663_000).to(torch.int32)",
    "a hash of each": "keys = (torch.arange(8) * 2_654_435_761).to(torch.int32)",
    "offsets that fit": f"keys = ({SIZES} * 1000).cumsum(0).to(torch.int32)",
}


@pytest.mark.parametrize(("text", "read"), KEPT_OFFSETS.values(), ids=KEPT_OFFSETS)
def test_offsets_that_wrap_and_that_python_reads(text, read, tmp_path):
    """A running sum of products is no hash, whose low bits are meant."""
    program = programs.run(tmp_path, f"{text}\nprint({read})", before="torch.manual_seed(0)", numerics=True)
    assert [f.code for f in program.findings if f.severity == "warning"] == ["DT301"]


@pytest.mark.parametrize("text", KEPT_HASHES.values(), ids=KEPT_HASHES)
def test_products_that_wrap_and_that_python_reads(text, tmp_path):
    program = programs.run(tmp_path, f"{text}\nprint(keys.tolist())", before="torch.manual_seed(0)", numerics=True)
    assert not [f for f in program.findings if f.severity == "warning"]


STORAGES = """
class Storage:
    def __init__(self):
        self.data = {}

    def put(self, name, row, value):
        value = torch.as_tensor(value)
        if name not in self.data:
            self.data[name] = torch.zeros(64, dtype=value.dtype)  # made
        self.data[name][row] = value

kept = Storage()
for row in range(64):
    kept.put("action", row, row %% 3)
    kept.put("pay", row, 0 if row == 0 else %s)
batch = {name: numbers[torch.arange(8)] for name, numbers in kept.data.items()}
value = torch.rand(3)[batch["action"]] + %s
"""


@pytest.mark.parametrize(
    ("pay", "use", "codes"),
    [
        ("0.3 + row / 100", "batch['pay'].float()", ["DT203"]),
        ("1.0", "batch['pay'].float()", []),
        ("0.3 + row / 100", "torch.rand(3)[batch['pay']]", []),
    ],
)
def test_a_storage_in_the_dtype_of_its_first_value(pay, use, codes, tmp_path):
    program = programs.run(tmp_path, STORAGES % (pay, use), numerics=True)
    found = [f for f in program.findings if f.severity != "note"]
    assert [f.code for f in found] == codes
    assert all(program.at(f.culprit.origin.place).endswith("# made") for f in found)


def test_no_cast_of_a_module_is_shown_for_its_integers(tmp_path):
    text = (
        'norm = nn.BatchNorm1d(4)  # made\nsteps = norm.state_dict()["num_batches_tracked"]\nfor n in range(9):\n'
        "    steps += (torch.tensor(3.0) / (n + 2)).to(steps.dtype)\nmean = steps / 4"
    )
    program = programs.run(tmp_path, text, numerics=True)
    (found,) = [f for f in program.findings if f.severity == "warning"]
    assert found.code == "DT203" and program.at(found.culprit.origin.place).endswith("# made")
    assert found.fix.edits == ()


@pytest.mark.parametrize(
    "text",
    [
        "target = torch.rand(64)\ntarget = target.long()  # made\nloss = (torch.randn(64) - target).square().mean()",
        "target = torch.rand(64, 1)\nloss = F.mse_loss(torch.randn(64, 1), target.int().float())  # made",
        "weight = torch.rand(64)\nkept = torch.randn(64) * weight.long()  # made",
        "target = torch.from_numpy(numpy.random.default_rng(0).uniform(-1, 1, (64, 3)))\n"
        "target = target.long()  # made\nloss = F.mse_loss(torch.randn(64, 3), target.float())",
        "share = torch.from_numpy(numpy.random.default_rng(0).random(640)).int()  # made\nnet = torch.nn.Linear(3, 1)\n"
        "for n in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(share), 64):\n"
        "    F.l1_loss(net(torch.rand(64, 3))[:, 0], n[0].float()).backward()",
        "gain = torch.from_numpy(numpy.random.default_rng(0).random((5, 99))).to(torch.int64)  # made\n"
        "net = torch.nn.Linear(99, 1)\nfor row in gain:\n    (net(torch.rand(4, 99)) * row.to(torch.float32)).sum().backward()",
        "net = torch.nn.Linear(3, 1)\ntarget = torch.rand(64, 1).long()  # made\n"
        "F.smooth_l1_loss(net(torch.rand(64, 3)), target.float()).backward()",
        "scores = torch.rand(64).tolist()\ntarget = torch.tensor(scores, dtype=torch.long)  # made\n"
        "F.binary_cross_entropy_with_logits(torch.randn(64), target.float())",
        "rows = [{'ids': [3, 1], 'score': n / 101} for n in range(100)]\n"
        "made = [torch.tensor([row[k] for row in rows], dtype=torch.int64) for k in ('ids', 'score')]  # made\n"
        "F.mse_loss(torch.nn.Embedding(4, 1)(made[0]).mean((1, 2)), made[1].float())",
        "pairs = [[n / 65, 1 - n / 65] for n in range(1, 65)]\nshares = torch.as_tensor(pairs, dtype=torch.int32)  # made\n"
        "y = torch.randn(64, 2) * shares",
    ],
)
def test_a_cast_that_makes_zeros_of_all_numbers(text, tmp_path):
    program = programs.run(tmp_path, text, before="import numpy", numerics=True)
    (found,) = [f for f in program.findings if f.severity != "note"]
    assert (found.code, program.at(found.culprit.origin.place).endswith("# made")) == ("DT203", True)


@pytest.mark.parametrize(
    "text",
    [
        "x = torch.rand(64)\nbucket = (x * 10).long()\ny = torch.randn(64) - bucket",
        "x = torch.rand(64)\nleft = x.long()\npart = x - left\ny = torch.randn(4)[left] * (1 - part)",
        "x = torch.rand(64)\npart = x * 0.5 - x.long()",
        "x = torch.rand(64)\nrow = x.long()\ny = torch.randn(4)[row] - torch.randn(64)",
        "mask = (torch.rand(64) > 0.5).float()\ny = torch.randn(64) * mask.long()",
        "mask = torch.zeros(64)\nmask[3] = 0.25\ny = torch.randn(64) * mask.long()",
        "x = torch.rand(64)\ny = F.one_hot(x.long(), 3) * torch.randn(64, 3)",
        "x = torch.rand(64)\ny = F.cross_entropy(torch.randn(64, 3), x.long())",
        "x = torch.rand(64)\ny = torch.randn(64) * (x.long() == 0)",
        "x = torch.rand(64)\ny = torch.randn(64) - x.round().long()",
        "x = torch.rand(4)\ny = torch.randn(4) - x.long()",
        "x = torch.from_numpy(numpy.random.default_rng(0).random(64) * 9)\ny = torch.randn(64) - x.long().float()",
        "x = torch.from_numpy(numpy.random.default_rng(0).random(64))\ny = torch.randn(64) - (x + 0.5).int().float()",
        "x = torch.from_numpy(numpy.random.default_rng(0).random(64))\ny = x - x.long().float()",
        "x = torch.from_numpy(numpy.random.default_rng(0).random(64)).long()\ny = torch.randn(4)[x] - x.float()",
        "x = torch.from_numpy(numpy.random.default_rng(0).random(64)).long()\ny = (x.float() > 0.5) * torch.randn(64)",
        "x = torch.tensor([float(n % 2) for n in range(64)], dtype=torch.long)\ny = torch.randn(64) * x",
        "x = torch.tensor([0.0] * 64, dtype=torch.int64)\ny = torch.randn(64) * x",
        "x = torch.tensor([n / 4 for n in range(64)], dtype=torch.int64)\ny = torch.randn(64) * x",
        "x = torch.tensor([0.5, 0.25], dtype=torch.int64)\ny = torch.randn(2) * x",
    ],
)
def test_casts_that_may_make_zeros(text, tmp_path):
    program = programs.run(tmp_path, text, before="import numpy\ntorch.manual_seed(0)", numerics=True)
    assert [f for f in program.findings if f.severity != "note"] == []


WAVE = "wave = torch.sin(torch.linspace(0, 300, 20_000))\nwave = wave / wave.max()\n"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("pcm = (wave * 32768).to(torch.int16)\nback = pcm.float() / 32768", ["DT301"]),
        ("picture = (wave * 0.5 + 0.5) * 256\nstored = picture.byte()\nback = stored / 255", ["DT301"]),
        ("q = (wave * 128).char()\ny = q.float() * torch.rand(20_000)", ["DT301"]),
        ("pcm = (wave * 32767).to(torch.int16)\nback = pcm.float() / 32767", []),
        ("pcm = (wave * 32768).clamp(-32768, 32767).to(torch.int16)\nback = pcm.float() / 32768", []),
        ("pcm = (wave[:0] * 32768).to(torch.int16)\nback = pcm.float() / 32768", []),
    ],
)
def test_the_peaks_of_a_long_tensor_are_outside_the_range(text, codes, tmp_path):
    program = programs.run(tmp_path, WAVE + text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


@pytest.mark.parametrize(
    ("pack", "codes"),
    [
        (
            "rows = [torch.stack([users[n], items[n]]).half() for n in range(200)]\nback = torch.stack(rows).long()[:, 1]",
            ["DT204"],
        ),
        ("back = items.half().view(20, 10).long().flatten()", ["DT204"]),
        ("back = torch.cat([items.bfloat16(), items.bfloat16()])[:200].to(torch.int64)", ["DT204"]),
        ("back = torch.stack([users, items], 1).float().long()[:, 1]", []),
        ("back = (users % 2000).half().long()", []),
    ],
)
def test_ids_that_travel_in_few_bits(pack, codes, tmp_path):
    made = "users, items = torch.randint(0, 500, (200,)), torch.randint(0, 6000, (200,))\n"
    program = programs.run(tmp_path, f"{made}{pack}\ntable = torch.randn(6200, 4)[back]", numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


FAR = "p = torch.rand(4000, 3, dtype=torch.float64) * 0.4 + torch.tensor([4e5, 5.3e6, 500.0], dtype=torch.float64)\n"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("cell = (p / 0.002).floor().int()\nfound = torch.unique(cell, dim=0)", ["DT301"]),
        ("cell = (p * 1e6).to(torch.int32)\nmiddle = cell.double().mean(0)", ["DT301"]),
        ("cell = (p / 0.002).floor().long()\nfound = torch.unique(cell, dim=0)", []),
        ("cell = ((p - p.amin(0)) / 0.002).int()\nfound = torch.unique(cell, dim=0)", []),
        # what is outside is sorted out
        ("u = (p * 1e6).int()\nseen = (u >= 0) & (u < 640)\nfound = torch.unique(u[seen])", []),
        ("q = p * 1e6\nu = q.int()\nfound = torch.unique(u[(q < 640) & (q >= 0)])", []),
        # a mark of what is missing
        ("p[::2] = 1e12\ncell = (p / 0.1).int()\nfound = torch.unique(cell, dim=0)", []),
    ],
)
def test_cells_beyond_32_bits(text, codes, tmp_path):
    program = programs.run(tmp_path, FAR + text, before="torch.manual_seed(0)", numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("x = torch.rand(40000).half()  # made\ncounts = torch.histc(x, bins=8, min=0, max=1)", ["DT307"]),
        ("x = torch.rand(40000).bfloat16()  # made\ncounts = x.histc(16).double()", ["DT307"]),
        ("x = torch.rand(40000).half()\ncounts = torch.histc(x.float(), bins=8, min=0, max=1)", []),
        ("x = torch.rand(12000).half()\ncounts = torch.histc(x, bins=8, min=0, max=1)", []),
        ("x = torch.rand(40000)\ncounts = torch.histc(x, bins=8, min=0, max=1).half()", []),
    ],
)
def test_a_histogram_that_stops_counting(text, codes, tmp_path):
    program = programs.run(tmp_path, "import torch\n" + text, before="torch.manual_seed(0)", numerics=True)
    found = [f for f in program.findings if f.severity != "note"]
    assert [f.code for f in found] == codes
    assert all(program.at(f.culprit.origin.place).endswith("# made") for f in found)
    assert all([e.after for e in f.fix.edits] == ["x.to(torch.float32)"] for f in found)


ALONE, ALL = "threads = torch.get_num_threads()\ntorch.set_num_threads(1)\n", "torch.set_num_threads(threads)"
"""Several threads add up counts of their own."""


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (
            f"{ALONE}x = torch.zeros(17_500_000)  # made\ncounts = torch.histc(x, bins=3, min=0, max=2)\n{ALL}",
            ["DT307"],
        ),
        (
            f"{ALONE}x = torch.zeros(17_500_000)  # made\ndef areas(a, b):\n    both = torch.histc(a, bins=3, min=0, max=2)\n"
            f"    return both, torch.histc(b, bins=2, min=0, max=1)\none, other = areas(x, x)\n{ALL}",
            ["DT307"],
        ),
        (f"{ALONE}x = torch.zeros(17_500_000).double()\ncounts = torch.histc(x, bins=3, min=0, max=2)\n{ALL}", []),
        (f"{ALONE}x = torch.arange(17_500_000) % 3.0\ncounts = torch.histc(x, bins=3, min=0, max=2)\n{ALL}", []),
    ],
)
def test_a_long_histogram_that_stops_counting_in_float32(text, codes, tmp_path):
    program = programs.run(tmp_path, "import torch\n" + text, numerics=True)
    found = [f for f in program.findings if f.severity != "note"]
    assert [f.code for f in found] == codes
    assert all({e.after.rpartition(".")[2] for e in f.fix.edits} == {"float64)"} for f in found)


def test_a_fraction_that_is_written_at_listed_places_of_reals_is_kept(tmp_path):
    text = "norm = nn.LayerNorm(8)\nwith torch.no_grad():\n    for n in range(4):\n        norm.weight[[1, 2]] = 0.01\nx = norm.weight / 2"
    assert not programs.run(tmp_path, text, numerics=True).findings


TAKEN_IN_A_LOOP = {
    "a list": "r, g = torch.randint(100, 246, (2, 500), dtype=torch.uint8)\n"
    "mean = torch.stack([c.float() for c in (r, g, r * g)]).mean()",
    "a table": "r, g = torch.randint(100, 246, (2, 500), dtype=torch.uint8)\nmeans = {}\n"
    "for name, plane in {'red': r, 'green': g, 'sum': r + g}.items():\n    means[name] = plane.to(torch.float32).mean()",
    "what the last round made": "level = torch.randint(100, 120, (500,), dtype=torch.uint8)\nmeans = []\n"
    "for _ in range(3):\n    means.append(level.float().mean())\n    level = level * 3",
}


@pytest.mark.parametrize("text", TAKEN_IN_A_LOOP.values(), ids=TAKEN_IN_A_LOOP)
def test_results_that_wrap_and_that_a_loop_takes_after_others(text, tmp_path):
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    assert [f.code for f in program.findings if f.severity == "warning"] == ["DT301"]


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("made", ["int8", "uint8", "int32", "int64"])
def test_float8_numbers_that_become_integers_are_measured(kind, made, tmp_path):
    text = f"x = torch.tensor([1.5, 300.0, 2.0]).to(torch.{kind})\ny = x.to(torch.{made})\nz = y.float() / 3"
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None and not program.recording.not_seen
    beyond = made in ("int8", "uint8")
    assert [f.code for f in program.findings if f.severity != "note"] == ["DT301"] * beyond
