"""Casts that drop a part of each value: integers that wrap in a narrower integer dtype, complex numbers that become real."""

import programs
import pytest

WRAPPED = {
    "class numbers in bytes": (
        """
        labels = torch.randint(0, 300, (64,))
        stored = labels.to(torch.uint8)
        loss = F.cross_entropy(torch.randn(64, 300), stored.long())
        """,
        "labels.to(torch.uint8)",
    ),
    "token numbers in int16": (
        """
        tokens = torch.randint(0, 90_000, (64,))
        kept = tokens.short()
        found = torch.randn(90_000, 2)[kept.long().clamp(min=0)]
        """,
        "tokens.short()",
    ),
    "written into a buffer": (
        """
        ids = torch.randint(0, 1000, (64,))
        panoptic = torch.zeros(64, dtype=torch.int8)
        panoptic.copy_(ids)
        areas = torch.zeros(1000).index_add_(0, panoptic.long().clamp(min=0), torch.ones(64))
        """,
        "panoptic.copy_(ids)",
    ),
    "offsets in int32": (
        """
        sizes = torch.full((40,), 2**28)
        ends = sizes.cumsum(0)
        place = ends.int()
        share = place / ends[-1]
        """,
        "ends.int()",
    ),
}

REAL = {
    "a spectrogram": (
        """
        wave = torch.randn(2, 512)
        spec = torch.stft(wave, 64, window=torch.hann_window(64), return_complex=True)
        level = spec.float().abs().mean()
        """,
        "spec.float()",
    ),
    "a rotation": (
        """
        x = torch.randn(4, 8)
        turned = torch.view_as_complex(x.view(4, 4, 2)) * torch.polar(torch.ones(4), torch.arange(4.0))
        out = turned.to(x.dtype) @ torch.randn(4, 2)
        """,
        "turned.to(x.dtype)",
    ),
    "written into a table": (
        """
        table = torch.zeros(3, 33)
        for i in range(3):
            table[i] = torch.fft.rfft(torch.randn(64))
        level = table.abs().mean()
        """,
        "torch.fft.rfft",
    ),
}

HEALTHY = {
    "labels that fit": """
        labels = torch.randint(0, 200, (64,)).to(torch.uint8)
        loss = F.cross_entropy(torch.randn(64, 200), labels.long())
        """,
    "the bytes of a number": """
        ids = torch.randint(0, 60_000, (64,))
        low, high = ids.to(torch.uint8), (ids >> 8).to(torch.uint8)
        again = low.long() + 256 * high.long()
        found = torch.randn(60_000, 2)[again]
        """,
    "a hash": """
        ids = torch.randint(0, 60_000, (64,)) * 2654435761
        bucket = ids.int() & 1023
        found = torch.randn(1024, 2)[bucket]
        """,
    "a rest": """
        ids = torch.randint(0, 60_000, (64,))
        digest = ids.to(torch.uint8)
        found = torch.randn(16, 2)[(digest % 16).long()]
        """,
    "an inverse transform": """
        field = torch.randn(4, 64)
        back = torch.fft.ifft(torch.fft.fft(field)).float()
        out = back @ torch.randn(64, 2)
        """,
    "the real part, asked for": """
        spec = torch.fft.rfft(torch.randn(4, 64))
        out = spec.real.float() @ torch.randn(33, 2)
        """,
    "real numbers kept as complex ones": """
        state = torch.linspace(0, 1, 16).to(torch.complex64)
        out = (2 * state).to(torch.float32).sum()
        """,
}

BEFORE = "import warnings; warnings.simplefilter('ignore'); torch.manual_seed(0)"


def serious(program):
    return [f for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize(("text", "line"), WRAPPED.values(), ids=WRAPPED)
def test_integers_that_wrap(tmp_path, text, line):
    program = programs.run(tmp_path, text, before=BEFORE, numerics=True)
    found = serious(program)
    assert [f.code for f in found][:1] == ["DT301"]
    assert line in program.at(found[0].site)


@pytest.mark.parametrize(("text", "line"), REAL.values(), ids=REAL)
def test_complex_numbers_that_become_real(tmp_path, text, line):
    program = programs.run(tmp_path, text, before=BEFORE, numerics=True)
    found = serious(program)
    assert [f.code for f in found][:1] == ["DT203"]
    assert line in program.at(found[0].site)


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_casts_that_drop_nothing_that_is_used(tmp_path, text):
    assert serious(programs.run(tmp_path, text, before=BEFORE, numerics=True)) == []
