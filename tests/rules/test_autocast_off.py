"""A call that is refused because autocast is off there, although it was on before, or on around it."""

from __future__ import annotations

import followed
import programs
import pytest

NET = (
    followed.IMPORTS
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.mid, self.out = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
    def forward(self, x):
        return self.out(torch.relu(self.mid(torch.relu(self.inp(x)))))
    def probe(self, x):
        return self.out(x)
net = Net()
x = torch.randn(2, 8)
"""
)
# the program, the first words of the advice, and the line to which they refer (`#!`); the rest of the program runs on
BEFORE = {
    "a second call without it": """
with torch.autocast("cpu", dtype=torch.bfloat16):  #!
    net(x)
y = net(x.bfloat16())
""",
    "a helper called in and out of it": """
def sample(net, x):
    y = net(x)
    return y.float()
with torch.no_grad():
    with torch.autocast("cpu", dtype=torch.float16):  #!
        sample(net, x.half())
    sample(net, x.half())
""",
    "trained with it, validated without": """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with torch.autocast("cpu", dtype=torch.bfloat16):  #!
    net(x).sum().backward()
optimizer.step()
with torch.no_grad():
    y = net(x.bfloat16())
""",
    "a method that runs one layer": """
kept = []
net.mid.register_forward_hook(lambda m, a, out: kept.append(out))
with torch.autocast("cpu", dtype=torch.bfloat16):  #!
    net(x)
y = net.probe(kept[0])
""",
    "no module at all": """
w = torch.randn(4, 8)
def project(x):
    y = F.linear(x, w)
    return y
with torch.autocast("cpu", dtype=torch.bfloat16):  #!
    project(x)
project(x.bfloat16())
""",
    "two calls of one operator in a forward that replaced a layer's": """
class Adapter(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.down, self.up = nn.Parameter(torch.randn(2, 16)), nn.Parameter(torch.zeros(16, 2))
        self.layer, self.before = [layer], layer.forward
        layer.forward = self.forward
    def forward(self, x):
        base = self.before(x)
        low = F.linear(x, self.down)
        return base + F.linear(low, self.up)
net.bfloat16().requires_grad_(False)
adapter = Adapter(net.mid)
optimizer = torch.optim.SGD(adapter.parameters(), lr=0.1)
with torch.autocast("cpu", dtype=torch.bfloat16):  #!
    net(x).sum().backward()
optimizer.step()
with torch.no_grad():
    y = net(x.bfloat16())
""",
}


@pytest.mark.parametrize("name", BEFORE)
def test_what_ran_under_autocast_before_runs_under_it_again(name, tmp_path):
    found = followed.follow(tmp_path, NET + BEFORE[name], rounds=1)
    (shown,) = found.shown
    line = next(n for n, text in enumerate((NET + BEFORE[name]).lstrip("\n").splitlines(), 1) if text.endswith("#!"))
    dtype = "float16" if "torch.float16" in BEFORE[name] else "bfloat16"
    assert shown.why == f'run this under torch.autocast("cpu", dtype=torch.{dtype}), as program.py:{line} does'
    assert found.clean and not found.narrowed


def finding(tmp_path, text):
    program = programs.run(tmp_path, NET + text)
    return program, next(f for f in program.findings if f.kind == "collision")


INNER = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with torch.autocast("cpu", dtype=torch.bfloat16):
    h = net.inp(x)
    with torch.autocast({inner}):  #!
        y = net.mid(h)
"""
OFF = {
    # what the inner region is given, why it is off, and what is changed
    '"cpu", dtype=torch.float64': ("autocast takes no float64", "torch.bfloat16"),
    '"cpu", torch.float64, enabled=len(x) > 1': ("autocast takes no float64", "torch.bfloat16"),
    '"cpu", dtype=torch.float32': ("autocast takes no float32", ""),  # it is meant: the weights are float32
    '"cpu", enabled=False': ("enabled=False", ""),
    '"cpu", enabled=len(x) > 9': ("", ""),
}


@pytest.mark.parametrize("inner", OFF)
@pytest.mark.filterwarnings("ignore:In CPU autocast")
def test_an_inner_region_that_switched_autocast_off(inner, tmp_path):
    why, change = OFF[inner]
    program, f = finding(tmp_path, INNER.format(inner=inner))
    at, outer = program.line("#!"), program.line('with torch.autocast("cpu", dtype=torch.bfloat16):')
    reason = f": {why}" if why else ""
    said = f"autocast is off in the region of program.py:{at}{reason}, and the autocast of program.py:{outer} is off inside it, too"
    assert said in f.notes
    assert ([e.after for e in f.fix.edits] == [change]) is bool(change)
    if change:
        assert followed.follow(tmp_path, NET + INNER.format(inner=inner), rounds=1).clean


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.parametrize("device", ['"cuda"', "device"])
def test_a_region_for_another_device(device, tmp_path):
    text = f"device = 'cuda'\nwith torch.autocast({device}, dtype=torch.bfloat16):  #!\n    y = net(x.bfloat16())\n"
    program, f = finding(tmp_path, text)
    assert f.fix.why == "make this region one for cpu: it is for cuda, and the tensors are on cpu"
    assert f.fix.place.line == program.line("#!")
    assert [e.after for e in f.fix.edits] == (['"cpu"'] if device == '"cuda"' else [])


def test_a_hand_written_backward(tmp_path):
    text = """
class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.T, x.T @ g
w = torch.randn(8, 4, requires_grad=True)
with torch.autocast("cpu", dtype=torch.bfloat16):
    y = Times.apply(x.requires_grad_(), w)
y.sum().backward()
"""
    _, f = finding(tmp_path, text)
    assert any("custom_fwd" in said and "custom_bwd" in said for said in (f.fix.why, *f.fix.alternatives))
    decorated = text.replace("    def forward(ctx", '    @torch.amp.custom_fwd(device_type="cpu")\n    def forward(ctx')
    decorated = decorated.replace(
        "    def backward(ctx", '    @torch.amp.custom_bwd(device_type="cpu")\n    def backward(ctx'
    )
    assert programs.run(tmp_path, NET + decorated, name="decorated.py").error is None


def test_what_ran_without_autocast_too_does_not_miss_it(tmp_path):
    text = "net(x)\nwith torch.autocast('cpu', dtype=torch.bfloat16):\n    net(x)\nnet(x.bfloat16())\n"
    _, f = finding(tmp_path, text)
    assert not any("autocast" in words for words in (*f.notes, f.fix.why))


def test_where_autocast_was_never_on_nothing_is_said_of_it(tmp_path):
    program, f = finding(
        tmp_path,
        "net.half()\nwith torch.autocast('cpu', dtype=torch.bfloat16):\n    net.inp(x)\nnet.mid(torch.ones(2, 16))\n",
    )
    assert not any("autocast" in text for text in (*f.notes, f.fix.why, *f.fix.alternatives))


HAND_WRITTEN = """
import torch
from torch.amp import custom_bwd, custom_fwd
class Shift(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight
    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        back = torch.zeros_like(x)
        {write}
        return back, (grad * x).sum(0)
stem, weight = torch.nn.Linear(4, 3), torch.nn.Parameter(torch.ones(3))
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = Shift.apply(stem(torch.ones(5, 4)), weight).float().sum()
loss.backward()
"""


@pytest.mark.parametrize(
    ("write", "after"),
    [
        ("back.index_add_(0, torch.arange(5), grad * weight)", "(grad * weight).to(back.dtype)"),
        (
            "back.scatter_add_(0, torch.zeros_like(x, dtype=torch.long), grad * weight)",
            "(grad * weight).to(back.dtype)",
        ),
        ("back.index_copy_(0, torch.arange(5), weight * grad)", "(weight * grad).to(back.dtype)"),
    ],
)
def test_written_in_backward(write, after, tmp_path):
    """A gradient made like what autocast made keeps its dtype."""
    found = programs.run(tmp_path, HAND_WRITTEN.format(write=write)).findings[0]
    assert found.fix is not None and [edit.after for edit in found.fix.edits] == [after]
    fixed = HAND_WRITTEN.format(write=write.replace(after[1 : after.index(")")], after))
    assert programs.run(tmp_path, fixed, name="fixed.py").error is None
