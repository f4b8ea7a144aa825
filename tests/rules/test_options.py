"""Each alternative passes what a diff has to pass; no advice acts on what was never made, or is no tensor."""

from __future__ import annotations

import pytest
from followed import follow
from programs import run

from dtypetrace import rules
from dtypetrace.rules import remedies


def others(program) -> str:
    return "\n".join(program.findings[0].fix.alternatives)


def candidates(program):
    case = rules.judged(program.with_text, program.recording.refused[-1]).case
    return list(remedies.candidates(case))


# ---------------------------------------------------------------- "remove this cast"

CHANGED_NOTHING = {
    "float() of what is float32": "x = torch.rand(2, 3, 8, 8).to(memory_format=torch.contiguous_format).float()",
    "to() of what is float32": "x = torch.rand(2, 3, 8, 8).to(torch.float32)",
    "type_as() of another float32": "y = torch.rand(4)\nx = torch.rand(2, 3, 8, 8).type_as(y)",
    "float() of numbers that are wider still": "x = torch.rand(2, 3, 8, 8, dtype=torch.float64).float()",
}


@pytest.mark.parametrize("name", CHANGED_NOTHING)
def test_a_cast_is_not_to_be_removed_where_that_helps_nothing(name, tmp_path):
    program = run(tmp_path, f"conv = nn.Conv2d(3, 4, 3).to(torch.bfloat16)\n{CHANGED_NOTHING[name]}\nconv(x)")
    assert program.error is not None and "remove this cast" not in others(program)


def test_a_cast_that_decided_may_be_removed(tmp_path):
    text = "conv = nn.Conv2d(3, 4, 3).to(torch.bfloat16)\nx = torch.rand(2, 3, 8, 8, dtype=torch.bfloat16).float()\nconv(x)"
    assert "remove this cast" in others(run(tmp_path, text))


# ---------------------------------------------------------------- a variable of the whole program

SETTING = """
weight_dtype = torch.bfloat16
net = nn.Linear(8, 4)
x = torch.ones(3, 8)
{call}
"""


@pytest.mark.parametrize(
    "call", ["net(x.to(weight_dtype))", "net(x.to(dtype=weight_dtype))", "y = x.to('cpu', dtype=weight_dtype)\nnet(y)"]
)
def test_the_program_s_setting_stays_where_the_cast_can_be_left_out(call, tmp_path):
    found = follow(tmp_path, SETTING.format(call=call))
    assert found.clean and "weight_dtype = torch.bfloat16" in found.text, found.text


# ---------------------------------------------------------------- a line that several modules run

SHARED = """
class Block(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.up = nn.Linear(8, 8, dtype=dtype)
    def forward(self, x):
        return self.up(x)
net = nn.ModuleList([Block(torch.float32), Block(torch.bfloat16)])
wide, narrow = net
h = wide(torch.ones(3, 8))
narrow(h * torch.ones(3, 8))
"""


def test_a_literal_is_not_written_into_a_line_that_runs_in_two_dtypes(tmp_path):
    program = run(tmp_path, SHARED)
    assert "torch.bfloat16) at the call" not in others(program)
    found = follow(tmp_path, SHARED)
    assert found.clean, (found.text, found.program.findings)


def test_a_line_of_every_layer_is_not_called_a_single_call(tmp_path):
    text = SHARED.replace("Block(torch.float32)", "Block(torch.bfloat16)").replace(
        "h = wide(torch.ones(3, 8))", "h = wide(torch.ones(3, 8, dtype=torch.bfloat16)).float()"
    )
    program = run(tmp_path, text)
    assert program.error is not None and "fixes only this call" not in others(program)


# ---------------------------------------------------------------- what did not return, what is no tensor

UNRETURNED = {
    "a model that is refused inside": """
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 4)
    def forward(self, x):
        return self.proj(torch.cat([x, torch.ones(3, 4)], 1))
head = Head().to(torch.bfloat16)
y = head(torch.ones(3, 4, dtype=torch.bfloat16))
""",
    "a function that is refused inside": """
def project(x, w):
    table = torch.arange(8.0)
    return (table * x) @ w
z = project(torch.ones(3, 8, dtype=torch.bfloat16), torch.ones(8, 2, dtype=torch.bfloat16)) + 1
""",
    "a library's timestep embedding": """
from diffusers.models.embeddings import TimestepEmbedding, Timesteps
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.embed = Timesteps(8, True, 0), TimestepEmbedding(8, 8)
    def forward(self, t):
        return self.embed(self.time(t))
both = Both().to(torch.bfloat16)
y = both(torch.tensor([1, 2]))
""",
}


@pytest.mark.parametrize("name", UNRETURNED)
def test_no_advice_casts_the_result_of_a_call_that_did_not_return(name, tmp_path):
    if "diffusers" in UNRETURNED[name]:
        pytest.importorskip("diffusers")
    program = run(tmp_path, UNRETURNED[name])
    site = {(f.line, f.end_column) for f in program.findings[0].site.stack if f.user}
    casts = [
        e
        for c in candidates(program)
        if len(c.fix.edits) == 1
        for e in c.fix.edits
        if e.after.startswith(f"{e.before}.to(")
    ]
    assert not [e for e in casts if e.end in site], casts
    found = follow(tmp_path, UNRETURNED[name])
    assert found.clean, (found.text, found.program.findings)


NO_TENSOR = {
    "a tuple of features": "feats = tuple(map(torch.ones, [(3, 8), (3, 8)]))",
    "a list of features": "feats = [torch.ones(3, 8) for _ in range(2)]",
    "chunks": "feats = torch.ones(6, 8).chunk(2)",
    "the values of a dictionary": "feats = list({'a': torch.ones(3, 8), 'b': torch.ones(3, 8)}.values())",
    "a function that returns several": "def make():\n    return torch.ones(3, 8), torch.ones(3, 8)\nfeats = make()",
}


@pytest.mark.parametrize("name", NO_TENSOR)
def test_no_advice_casts_what_is_no_tensor(name, tmp_path):
    text = f"net = nn.Linear(8, 4).to(torch.bfloat16)\n{NO_TENSOR[name]}\nnet(feats[0])\n"
    program = run(tmp_path, text)
    shown = program.findings[0].fix.edits
    assert not any(e.before.startswith(("tuple(", "list(", "[torch", "make()")) for e in shown), shown
    assert not any(e.before == "feats" or e.before.endswith(".chunk(2)") for e in shown), shown
    found = follow(tmp_path, text)
    assert found.clean, (found.text, found.program.findings)
