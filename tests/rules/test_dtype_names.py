"""A dtype is written as the program itself names it, where that name was seen to have this value."""

from __future__ import annotations

import re

import pytest
from followed import follow

HALF = "net = nn.Linear(8, 4).to({name})\nx = torch.ones(3, 8, dtype={name})\nnet(x)\n"

NAMED = {
    "a variable of the script": (
        "weight_dtype = torch.bfloat16\n" + HALF.format(name="weight_dtype") + "noise = torch.randn(3, 8)\nnet(x + noise)",
        "weight_dtype",
    ),
    "a variable that is decided in a branch": (
        "weight_dtype = torch.float32\nif True:\n    weight_dtype = torch.bfloat16\n"
        + HALF.format(name="weight_dtype") + "noise = torch.randn(3, 8)\nnet(x + noise)",
        "weight_dtype",
    ),
    "a setting": (
        "class args:\n    dtype = torch.bfloat16\n" + HALF.format(name="args.dtype") + "noise = torch.randn(3, 8)\nnet(x + noise)",
        "args.dtype",
    ),
    "an argument": (
        "def main(dtype):\n    net = nn.Linear(8, 4).to(dtype)\n    x = torch.ones(3, 8, dtype=dtype)\n"
        "    mask = torch.zeros(3, 8)\n    return net(x + mask)\nmain(torch.bfloat16)",
        "dtype",
    ),
    "the variable of the script, in a function": (
        "weight_dtype = torch.bfloat16\n" + HALF.format(name="weight_dtype")
        + "def step(x):\n    return net(x + torch.zeros(3, 8))\nstep(x)",
        "weight_dtype",
    ),
    "another tensor's dtype, ten lines below": (
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 4)
    def forward(self, x):
        gate = torch.ones(8)
        scale = torch.arange(8.0).to(x.dtype)
        return self.two(self.one(x * scale) * gate)
net = Net().to(torch.bfloat16)
net(torch.ones(3, 8, dtype=torch.bfloat16))
""",
        "x.dtype",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_the_program_s_own_name_is_written(name, tmp_path):
    text, written = NAMED[name]
    found = follow(tmp_path, "import torch\n" + text)
    assert found.clean, (found.text, found.program.findings)
    (edit,) = found.shown[0].edits
    assert edit.after.endswith((f"dtype={written})", f".to({written})")), edit


LITERAL = {
    "a name of another value": "save_dtype = torch.float16\ntorch.ones(2).to(save_dtype)\n"
    + HALF.format(name="torch.bfloat16") + "net(x + torch.randn(3, 8))",
    "a name that is bound later": HALF.format(name="torch.bfloat16")
    + "def step(x):\n    return net(x + torch.zeros(3, 8))\ntry:\n    step(x)\nexcept ZeroDivisionError:\n    pass\n"
    "late_dtype = torch.bfloat16\n",
    "a name of another function": "def make():\n    kind_dtype = torch.bfloat16\n    return nn.Linear(8, 4).to(kind_dtype)\n"
    "net = make()\nnet(torch.ones(3, 8))",
    "the dtype of a tensor that was bound again": "net = nn.Linear(8, 4).to(torch.bfloat16)\nx = torch.ones(3, 8, dtype=torch.bfloat16)\n"
    "y = torch.ones(3, 8).to(x.dtype)\nnet(y)\nx = torch.ones(3, 8)\nz = torch.zeros(3, 8)\nnet(z)",
    "the variable of a comprehension": "net = nn.Linear(8, 4).bfloat16()\nparts = [torch.ones(3, 8, dtype=torch.bfloat16)]\n"
    "def step(parts):\n    one = torch.ones(8)\n    parts = [p for p in parts]\n    mask = torch.zeros(3, 8)\n"
    "    parts = [p * one.to(p.dtype) for p in parts]\n    return net(parts[0] + mask)\nstep(parts)",
    "a name of a class": "class Net(nn.Module):\n    kind_dtype = torch.bfloat16\n    scale = torch.ones(8).to(kind_dtype)\n"
    "    def __init__(self):\n        super().__init__()\n        self.one = nn.Linear(8, 4).bfloat16()\n"
    "    def forward(self, x):\n        mask = torch.zeros(3, 8)\n        return self.one(x * self.scale + mask)\n"
    "Net()(torch.ones(3, 8).bfloat16())",
    "a name of a function inside": "net = nn.Linear(8, 4).bfloat16()\ndef step(x):\n    def made():\n        kind_dtype = torch.bfloat16\n"
    "        return torch.ones(8).to(kind_dtype)\n    scale = made()\n    mask = torch.zeros(3, 8)\n"
    "    return net(x * scale + mask)\nstep(torch.ones(3, 8).bfloat16())",
}  # fmt: skip


@pytest.mark.parametrize("name", LITERAL)
def test_else_a_literal(name, tmp_path):
    found = follow(tmp_path, "import torch\n" + LITERAL[name])
    assert found.clean, (found.text, found.program.findings)
    assert all("torch.bfloat16" in fix.edits[0].after for fix in found.shown), found.shown


ROUNDED = {
    "a method": "net(torch.rand(3, 8, dtype=torch.float64).half())",
    "a cast": "y = torch.rand(3, 8, dtype=torch.float64)\nnet(y.to(torch.float16))",
    "a cast by a variable": "kind = torch.float16\ny = torch.rand(3, 8, dtype=torch.float64)\nnet(y.to(kind))\ny.to(kind)",
}


@pytest.mark.parametrize("name", ROUNDED)
def test_no_diff_rounds_and_then_widens(name, tmp_path):
    found = follow(
        tmp_path, f"import torch\nnet = nn.Linear(8, 4)\nopt = torch.optim.SGD(net.parameters())\n{ROUNDED[name]}"
    )
    assert found.clean, (found.text, found.program.findings)
    assert not re.search(r"\.(half\(\)|to\([^()]*16\)|to\(kind\))\.to\(", found.text), found.text


TABLES = {
    "a table of the script": ("TABLE = {WORDS}\n", "TABLE[config.dtype]"),
    "a table of a class": ("class Names:\n    table = {WORDS}\n", "Names.table[config.dtype]"),
    "a table that is asked": ("TABLE = {WORDS}\n", "TABLE.get(config.dtype)"),
    "a table on the spot": ("", "{WORDS}[config.dtype]"),
}
WORDS = {
    "'bf16': torch.bfloat16, 'fp32': torch.float32": "'fp32'",
    "'bf16': torch.bfloat16, 'full': torch.float32": "'full'",
    "'bf16': torch.bfloat16, 'fp16': torch.float16": "",
}


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("name", TABLES)
def test_a_word_that_is_looked_up_is_one_that_the_table_has(name, words, tmp_path):
    before, taken = TABLES[name]
    text = f"""
import torch
{before}class Config:
    def __init__(self, dtype='bf16'):
        self.dtype = dtype
config = Config()
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
sigma = torch.ones(2, 4, dtype={taken})
net(torch.ones(2, 4))
net(sigma)
""".replace("WORDS", words)
    found = follow(tmp_path, text)
    assert found.clean, (found.text, found.program.findings)
    assert [e.after for e in found.shown[0].edits] == [WORDS[words] or "sigma.to(torch.float32)"]
