"""Models that are wider than anybody chose: they followed their data."""

from __future__ import annotations

import programs
import pytest

DATA = "data = torch.from_numpy(np.ones((2, 8)))\nnet = nn.Linear(8, 8)\n"


def test_a_wide_model_that_nobody_chose(tmp_path):
    program = programs.run(tmp_path, "import numpy as np\n" + DATA + "net = net.to(data.dtype)\ny = net(data)")
    assert program.error is None, program.error
    assert [(f.code, f.severity) for f in program.findings] == [("DT201", "warning")]
    assert "from_numpy" in program.text.splitlines()[program.findings[0].culprit.origin.place.line - 1]


@pytest.mark.parametrize(
    "lines",
    [
        DATA + "net = net.double()\ny = net(data)",
        DATA + "net = net.to(data.float().dtype)\ny = net(data.float())",
    ],
)
def test_wide_models_that_were_chosen(lines, tmp_path):
    program = programs.run(tmp_path, "import numpy as np\n" + lines)
    assert program.error is None, program.error
    assert [f.title for f in program.findings if f.severity != "note"] == []
