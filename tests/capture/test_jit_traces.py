"""What ``torch.jit.trace`` makes, warns of and refuses is the same with a trace of ours."""

from __future__ import annotations

import re

import programs
import pytest
import torch
from harmless import outcome, quick, whole  # noqa: F401 - fixtures
from torch import nn

import dtypetrace


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)

    def forward(self, x):
        b, s, d = x.shape
        q = self.q(x).view(b, s, 2, d // 2).transpose(1, 2)
        mask = torch.full((s, s), float("-inf")).triu(1)
        return nn.functional.scaled_dot_product_attention(q, q, q, mask).transpose(1, 2).reshape(b, s, d) + x.numel()


class Convolves(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
        self.rnn = nn.LSTM(4, 4)

    def forward(self, x):
        y = nn.functional.interpolate(self.layers(x), scale_factor=2.0)
        return y, self.rnn(y[0, :, :4, :4])[0], y.new_zeros(y.shape[0], 3), y[:, :, : y.size(2) // 2], y.std()


class Decides(nn.Module):
    def forward(self, x):
        return x * int(x.shape[0]) if x.sum() > 0 else x


def shown(graph):
    return re.sub(r"___torch_mangle_\d+|(\d+\.)?__torch__\S*", "", str(graph))


def traced_after_another_call():
    model, images = Attends(), torch.randn(2, 3, 8)
    model(torch.ones(1, 2, 8))
    graph = torch.jit.trace(model, images)
    return shown(graph.graph), shown(graph.inlined_graph), graph(torch.randn(1, 5, 8)), graph(images)


def trained():
    model = torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.Linear(4, 1)), torch.ones(2, 4))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
    return model.state_dict()


def of_several_methods():
    model = Attends()
    return [shown(torch.jit.trace_module(model, {"forward": torch.randn(1, 2, 8)}).graph), model(torch.ones(1, 2, 8))]


TRACED = {
    "sizes": traced_after_another_call,
    "convolutions": lambda: shown(torch.jit.trace(Convolves(), torch.randn(1, 1, 6, 6)).graph),
    "a function": lambda: shown(
        torch.jit.trace(lambda x: x.view(x.shape[0], -1) * x.numel(), torch.ones(2, 3, 1)).graph
    ),
    "named arguments": lambda: shown(torch.jit.trace(Attends(), example_kwarg_inputs={"x": torch.ones(1, 2, 8)}).graph),
    "values decide": lambda: shown(torch.jit.trace(Decides(), torch.ones(3)).graph),
    "the graph alone": lambda: str(torch.jit._get_trace_graph(Attends(), torch.randn(2, 3, 8))[0]),
    "several methods": of_several_methods,
    "trained": trained,
}


@pytest.mark.parametrize("name", TRACED)
def test_the_graph_is_the_same_with_its_names_and_warnings(name):
    TRACED[name]()  # what torch does only the first time
    untraced = outcome(TRACED[name])
    for precision in ("values", "reference"):
        trace = dtypetrace.trace(precision=precision)
        assert outcome(TRACED[name], trace) == untraced
        whole(trace)
        assert not [note for note in trace.recording.not_seen if "internal error" in note]


START = """import torch
from torch import nn
net = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))
x = torch.ones(2, 8)
net(x)
"""
REFUSED = {
    "a model": "net.half()  #!\ntorch.jit.trace(net, x)",
    "a function": "net.half().requires_grad_(False)  #!\ntorch.jit.trace(lambda x: net(x), x)",
    "a method": 'net.half()  #!\ntorch.jit.trace_module(net, {"forward": x})',
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_inside_is_told_with_its_module(name, tmp_path):
    text = START + REFUSED[name]
    program = programs.run(tmp_path, text)
    (finding,) = [f for f in program.findings if f.severity == "error"]
    assert finding.code == "DT101" and finding.module.endswith("0") and finding.phase == "forward"
    cast = [o for o in (finding.culprit, *finding.operands) if o is not None and o.dtype == "float16"]
    assert cast and cast[0].origin.place.line == 6
