"""Float16 autocast with a backward pass and nothing that scales the loss: a warning of its own, unless gradients were
seen to vanish; and a scaler that divides gradients which nobody scaled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dtypetrace


def found(scale=None, *, dtype=torch.float16, size=1.0, by_hand=None, steps=2, numerics=True, forgets=False):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale) if scale else None
    with dtypetrace.trace(net, precision="values" if numerics else "off") as t:
        for _ in range(steps):
            with torch.autocast("cpu", dtype):
                loss = (net(torch.randn(32, 32)).float() * size).square().mean()
            loss = loss * by_hand if by_hand else loss
            (scaler.scale(loss) if scaler and not forgets else loss).backward()
            if steps and scaler:
                scaler.scale(torch.ones(()))  # which makes its scale
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            optimizer.zero_grad()
    return [(f.code, f.severity) for f in t.findings]


def test_gradients_that_fit_may_not_do_so_for_long():
    assert found() == [("DT404", "warning")]
    assert found(numerics=False) == [("DT404", "warning")]


def test_a_scaler_that_did_not_scale_the_loss():
    assert found(scale=1024.0, forgets=True, numerics=False) == [("DT404", "warning")]


def test_gradients_that_vanish_are_the_finding():
    codes = found(size=1e-4)
    assert codes and codes[0][1] == "warning" and "DT404" not in dict(codes)


@pytest.mark.parametrize("options", [{"scale": 1024.0}, {"dtype": torch.bfloat16}, {"by_hand": 1024.0}])
def test_a_scaled_loss_and_another_dtype_get_none(options):
    assert "DT404" not in dict(found(**options))
