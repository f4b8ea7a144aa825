"""Numbers of which a constant scale leaves less than a step of their 8-bit codes, and quantisation as it is meant."""

from __future__ import annotations

import programs
import pytest

_LOST = {
    "a scale of one": "codes = (x / 1.0).round().clamp(-128, 127).to(torch.int8)\ny = (codes.float() * 1.0) @ w",
    "a scale of five for weights": "codes = torch.round(w * 5).to(torch.int8)\ny = x @ (codes.float() / 5)",
    "a scale that is a buffer": "scale = torch.tensor(1.0)\ncodes = torch.clamp((x / scale).round(), -127, 127).char()\n"
    "y = (codes.to(torch.float32) * scale) @ w",
    "a cache": "cache = torch.zeros(4, 64, 32, dtype=torch.int8)\nfor i in range(4):\n"
    "    cache[i] = (x * 0.5 / 1.0).round().to(torch.int8)\ny = (cache.float() * 2.0) @ w",
}
_CUT_OFF = {
    "four bits": "scale = w.abs().amax() / 7\ncodes = (w / scale).clamp(-7, 7).to(torch.int8)\ny = x @ (codes.float() * scale)",
    "a scale of each row": "scale = x.abs().amax(-1, keepdim=True) / 15\ncodes = torch.clamp(x / scale, -15, 15).char()\n"
    "y = (codes.float() * scale) @ w",
    "codes that are stored": "codes = torch.empty(64, 32, dtype=torch.int8)\nscale = x.abs().amax() / 7\n"
    "codes.copy_((x / scale).to(torch.int8))\ny = (codes.to(torch.bfloat16) * scale.bfloat16()).float() @ w",
}
_MEANT = {
    "half a step added": "scale = w.abs().amax() / 7\ncodes = (w / scale + 0.5 * w.sign()).clamp(-7, 7).to(torch.int8)\n"
    "y = x @ (codes.float() * scale)",
    "eight bits": "scale = w.abs().amax() / 127\ncodes = (w / scale).clamp(-127, 127).to(torch.int8)\ny = x @ (codes.float() * scale)",
    "rounded at random": "scale = w.abs().amax() / 7\ncodes = (w / scale + torch.rand_like(w)).floor().to(torch.int8)\n"
    "y = x @ (codes.float() * scale)",
    "a scale of the numbers": "scale = x.abs().amax() / 127\ncodes = (x / scale).round().to(torch.int8)\n"
    "y = (codes.float() * scale) @ w",
    "a scale of each row": "scale = x.abs().amax(-1, keepdim=True) / 127\ncodes = (x / scale).round().to(torch.int8)\n"
    "y = (codes.float() * scale) @ w",
    "a constant that fits": "codes = (x * 40).round().clamp(-128, 127).to(torch.int8)\ny = (codes.float() / 40) @ w",
    "ternary weights": "scale = w.abs().mean()\ncodes = (w / scale).round().clamp(-1, 1).to(torch.int8)\n"
    "y = x @ (codes.float() * scale)",
    "ternary weights by a constant": "codes = (w / 0.05).round().clamp(-1, 1).to(torch.int8)\n"
    "y = x @ (codes.float() * 0.05)",
    "whole numbers": "x = torch.randint(-2, 3, (64, 32)).float()\ncodes = (x / 1.0).round().to(torch.int8)\n"
    "y = (codes.float() * 1.0) @ w",
    "classes": "codes = (x * 1.0).round().to(torch.int8)\ncounts = torch.unique(codes, return_counts=True)",
    "what stays floating": "codes = (x / 1.0).round()\ny = (codes * 1.0) @ w",
    "cells of a grid": "cells = (x / 1.0).round().to(torch.int64)\ny = (cells.float() * 1.0) @ w",
    "a picture": "codes = (x.sigmoid() * 255).round().to(torch.uint8)\ny = (codes.float() / 255) @ w",
}

_BELOW = {
    "steps of a schedule": "steps = ((1 - torch.linspace(0, 1, 11)) * 1000).long()\ny = x[steps % 64]",
    "tenths": "cells = ((1 - torch.arange(1, 11) * 0.1) * 10).to(torch.int32)\ny = cells.float() @ w[:10]",
    "percentages": "share = torch.tensor([0.29, 0.57, 0.58, 0.3], dtype=torch.float64) * 100\nn = share.int()",
    "a size that Python takes": "wide = torch.tensor(4.1) - torch.tensor(0.9)\nsizes = [int(wide / 0.1) for _ in range(3)]",
    "a count that is an attribute": "class Grid:\n    res = 0.1\n    def size(self, low, high):\n"
    "        return ((high - low) / self.res).long()\nn = [Grid().size(torch.tensor(12.3 + k * 1.6), torch.tensor(12.3 + k * 1.6) + 32 * 0.1) for k in range(6)]",
}
_WHOLE = {
    "a picture": "back = (torch.arange(256).float() / 255 * 255).to(torch.uint8)\ny = back.float() / 255",
    "cells": "cells = (torch.rand(4096) * 50 / 0.5).long()\ncounts = torch.bincount(cells)",
    "rounded": "cells = (torch.arange(1, 33) * 0.1 / 0.1).round().long()\ny = cells.float() @ w",
    "whole ones": "cells = (torch.arange(64).float() / 4 * 4).long()\ny = cells[:32].float() @ w",
    "frames": "frames = torch.linspace(0, 63, 8).long()\ny = x[frames]",
    "large": "ids = (torch.rand(512) * 1e6).long()\ny = torch.bincount(ids)",
    "coarse": "ids = (x.bfloat16() * 20).long()\ny = ids.float() @ w",
}


def found(tmp_path, text):
    before = "torch.manual_seed(0); x, w = 0.6 * torch.randn(64, 32), 0.1 * torch.randn(32, 8)"
    program = programs.run(tmp_path, text, before=before, numerics=True)
    assert program.error is None
    return [(f.code, program.at(f.site)) for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("text", _LOST.values(), ids=_LOST)
def test_codes_of_which_next_to_none_are_used(text, tmp_path):
    ((code, line),) = found(tmp_path, text)
    assert code == "DT203" and ("int8" in line or "char" in line)


@pytest.mark.parametrize("text", _CUT_OFF.values(), ids=_CUT_OFF)
def test_codes_that_are_cut_off_and_not_rounded(text, tmp_path):
    ((code, line),) = found(tmp_path, text)
    assert code == "DT203" and ("int8" in line or "char" in line)


@pytest.mark.parametrize("text", _BELOW.values(), ids=_BELOW)
def test_numbers_that_are_whole_but_for_their_rounding(text, tmp_path):
    ((code, line),) = found(tmp_path, text)
    assert code == "DT203" and ("long" in line or "int" in line)


@pytest.mark.parametrize("text", _WHOLE.values(), ids=_WHOLE)
def test_numbers_that_are_cut_off_as_they_should_be(text, tmp_path):
    assert not found(tmp_path, text)


def test_codes_that_also_cut_parameters_off_are_told_as_that(tmp_path):
    text = (
        "coder, w = nn.Linear(32, 8), nn.Parameter(w.T)\noptimizer = torch.optim.SGD([*coder.parameters(), w], lr=0.01)\n"
        "for _ in range(3):\n    codes = (coder(x) * 8).to(torch.int8)\n    y = (codes.float() / 8) @ w\n"
        "    y.square().mean().backward()\n    optimizer.step()\n    optimizer.zero_grad()"
    )
    assert [code for code, _ in found(tmp_path, text)] == ["DT305"]


@pytest.mark.parametrize("text", _MEANT.values(), ids=_MEANT)
def test_quantisation_as_it_is_meant(text, tmp_path):
    assert found(tmp_path, text) == []
