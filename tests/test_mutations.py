"""Saved traces changed at random: each is refused in one line or shown by every view, none ends in a traceback."""

import copy
import io
import json
import random
import time

import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace import report
from dtypetrace.render import html_report
from dtypetrace.saved import TraceFileError

MUTATIONS = 400
SLOWEST = 10.0
"""Seconds for all views of one trace: far above what they take, far below what an endless loop would."""
VALUES = (
    None, True, 0, -1, 1, -2, 7, 10**6, 2**31, 2**62, 2**63 - 1, 2**63, 10**30, 1.5, float("nan"), float("inf"), "", "x",
    "error", "float32", "python float", "input", "form", "attribute", "\x1b[31m", "\u2028", "\ud800", [], {}, [0], [[]],
    {"a": 1}, "A" * 5000, [0] * 300,
)  # fmt: skip


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        h = self.a(x).float().half()
        return self.b((h * torch.ones(8)).to(h.dtype))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    model = Net().half()
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    with pytest.raises(RuntimeError), dtypetrace.trace(model, numerics=True) as t:
        for _ in range(2):
            model(torch.randn(3, 4).half()).float().pow(2).sum().backward()
            optimizer.step()
        model(torch.randn(3, 4).half() * torch.ones(3, 4))
    path = tmp_path_factory.mktemp("traces") / "t.json"
    t.save(path)
    return json.loads(path.read_text())


def places(data, path=()):
    """The way to every value inside plain data."""
    if path:
        yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def mutated(data, ways, random_):
    """The data with one to three values replaced, moved, repeated, taken out; half of them keep each type."""
    data = copy.deepcopy(data)
    gently = random_.random() < 0.5
    for _ in range(random_.choice((1, 1, 2, 3))):
        *way, last = random_.choice(ways)
        at = data
        try:
            for key in way:
                at = at[key]
            own = [v for v in VALUES if not gently or type(v) is type(at[last])]
            how = random_.random()
            if how < 0.7 or gently:
                at[last] = random_.choice(own or [at[last]])
            elif how < 0.8:
                del at[last]
            elif isinstance(at, list):
                other = random_.randrange(len(at))
                at[last], at[other] = at[other], at[last]
        except (KeyError, IndexError, TypeError):
            pass  # an earlier change took it away
    return data


def look(trace):
    """Asks for every view."""
    report.console(trace, file=io.StringIO(), program="train.py")
    json.dumps(report.to_json(trace.recording, trace.findings))
    html_report.render(trace.recording, trace.findings)
    report.operators_text(trace.recording)
    trace.to_dataframe("casts")
    for name in trace.recording.modules[:2]:
        try:
            repr(trace.why(name))
        except ValueError:  # a module of which nothing was seen
            pass
    if trace.recording.ops:
        repr(trace.slice(len(trace.recording.ops) - 1))
    trace._repr_html_()


@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_trace_is_refused_or_shown(saved, tmp_path, seed):
    random_, ways, shown = random.Random(seed), list(places(saved)), 0
    path = tmp_path / "t.json"
    for _ in range(MUTATIONS // 4):
        path.write_text(json.dumps(mutated(saved, ways, random_)))
        began = time.thread_time()
        try:
            trace = dtypetrace.load(path)
        except TraceFileError as error:
            assert "\n" not in str(error) and str(error).isprintable()
        else:
            look(trace)
            shown += 1
        assert time.thread_time() - began < SLOWEST
    assert shown, "nothing was tested beyond the loading"
