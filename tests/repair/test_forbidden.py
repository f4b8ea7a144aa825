"""What a patch may never do, however the program runs with it."""

from __future__ import annotations

from dataclasses import replace

import programs
from test_autofix import fix

from dtypetrace import rules
from dtypetrace.records import Parameter, Recording
from dtypetrace.repair.candidates import gather
from dtypetrace.repair.proof import narrowed, new_findings
from dtypetrace.source.patch import Patch

TRAINED = """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
        self.head = nn.Linear(8, 4)
    def forward(self, x):
        return self.head(self.encoder(x))
net = Both()
net.encoder.to(torch.bfloat16).requires_grad_(False)
torch.optim.SGD(net.head.parameters(), lr=0.1)
net(torch.ones(3, 8, dtype=torch.bfloat16))
"""


def recorded(*parameters: Parameter) -> Recording:
    return Recording(parameters=parameters, meta={"trains": True})


def test_no_candidate_narrows_what_an_optimizer_trains(tmp_path):
    program = programs.run(tmp_path, TRAINED, autofix=True)
    (problem,) = gather(program.with_text, Patch())
    texts = [piece.text for changes in problem.changes.values() for c in changes for piece in c.pieces]
    assert texts and not any("bfloat16" in text for text in texts), texts


def test_a_patch_that_trains_weights_in_a_narrower_dtype_is_not_proven():
    wide, narrow = Parameter("w", "float32", 4, 0, True), Parameter("w", "float16", 4, 0, True)
    other = Parameter("v", "float16", 4, 0, True)
    assert narrowed(recorded(wide), recorded(narrow)) == ["w"]
    assert narrowed(recorded(narrow), recorded(wide)) == []
    assert narrowed(recorded(wide, other), recorded(narrow, other)) == [], "the program trains others so"
    frozen = recorded(replace(wide, trained=False)), recorded(replace(narrow, trained=False))
    assert narrowed(*frozen) == []


def test_a_patch_with_a_finding_of_its_own_is_not_proven(tmp_path):
    plain = programs.run(tmp_path, "x = torch.ones(4)\nx * 2").with_text
    worse = programs.run(
        tmp_path,
        """
        net = nn.Linear(512, 512).to(torch.bfloat16)
        for _ in range(3):
            net.weight.float().to(torch.bfloat16)
            net(torch.ones(256, 512, dtype=torch.bfloat16)).float().to(torch.bfloat16)
        """,
    ).with_text
    serious = [f for f in rules.find(worse) if f.severity != "note"]
    assert len(new_findings(plain, worse)) == len(serious) and new_findings(worse, worse) == []


def test_fix_takes_a_path_with_dots(tmp_path):
    """python runs ``../train.py`` under that very name; the patched text is known by the normal one."""
    (tmp_path / "here").mkdir()
    (tmp_path / "program.py").write_text("import torch\nprint((torch.ones(2, 2) @ torch.ones(2, 2).half()).shape)\n")
    done = fix(tmp_path / "here", "--write", script="../program.py")
    assert done.returncode == 0 and "proven" in done.stderr, done.stderr
