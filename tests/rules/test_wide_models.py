"""Models that are wider than anybody chose: they followed their data, or a cast did not reach a part of them."""

from __future__ import annotations

import programs
import pytest

BLOCKS = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
    def forward(self, x): return x + self.linear(x.to(self.linear.weight.dtype)).to(x.dtype)
teacher = [Block()]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(8, 8)
        self.blocks = BLOCKS
    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks: x = block(x)
        return x
"""
CALL = "net = Net().bfloat16()\nwith torch.no_grad(): y = net(torch.ones(2, 8, dtype=torch.bfloat16))"
DATA = "data = torch.from_numpy(np.ones((2, 8)))\nnet = nn.Linear(8, 8)\n"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (BLOCKS.replace("BLOCKS", "[Block() for _ in range(2)]") + CALL, "self.blocks"),
        (DATA + "net = net.to(data.dtype)\ny = net(data)", "from_numpy"),
    ],
)
def test_wide_models_that_nobody_chose(lines, line, tmp_path):
    program = programs.run(tmp_path, "import numpy as np\n" + lines)
    assert program.error is None, program.error
    assert [(f.code, f.severity) for f in program.findings] == [("DT201", "warning")]
    assert line in program.text.splitlines()[program.findings[0].culprit.origin.place.line - 1]


@pytest.mark.parametrize(
    "lines",
    [
        BLOCKS.replace("BLOCKS", "nn.ModuleList(Block() for _ in range(2))") + CALL,
        BLOCKS.replace("BLOCKS", "teacher") + CALL,
        BLOCKS.replace("BLOCKS", "[Block()]") + CALL.replace(".bfloat16()", "").replace(", dtype=torch.bfloat16", ""),
        DATA + "net = net.double()\ny = net(data)",
        DATA + "net = net.to(data.float().dtype)\ny = net(data.float())",
    ],
)
def test_wide_models_that_were_chosen(lines, tmp_path):
    program = programs.run(tmp_path, "import numpy as np\n" + lines)
    assert program.error is None, program.error
    assert [f.title for f in program.findings if f.severity != "note"] == []


def test_a_model_that_is_cast_when_it_is_trained(tmp_path):
    text = """
    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 8)
        def forward(self, x):
            return self.first(x)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = Body()
            self.head = nn.Linear(8, 8, bias=False)
            self.head.weight = self.body.first.weight
        def forward(self, x):
            return self.head(self.body(x))
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.randn(4, 8)).square().mean().backward()
    opt.step()
    net.to(torch.bfloat16)
    with torch.no_grad():
        net(torch.randn(4, 8, dtype=torch.bfloat16))
    """
    assert [f.code for f in programs.run(tmp_path, text).findings] == []
