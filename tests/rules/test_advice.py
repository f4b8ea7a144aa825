"""The diff of a finding, followed as it stands, ends in a program that runs and trains what it trained before.

What to expect of each program was written down with it: where the wrong dtype was born (``#!``). Each also runs changed:
its names replaced, the other half dtype, all of it inside a function, the two sides swapped. The verdict must follow
the change.
"""

from __future__ import annotations

import ast
import re
import textwrap

import pytest
import torch
from advice_programs import FURTHER, HALF, WIDE
from followed import applied, follow, imported
from programs import run

from dtypetrace import report, rules
from dtypetrace.records import CAST, NAMED, Change, Edit, Fix
from dtypetrace.rules import checks

TRAIN = """
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
for _ in range(2):
    loss = {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
NET = "net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))\n"
MIX = """
class Mix(nn.Module):
    def __init__(self, dtype=None):
        super().__init__()
        self.base, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
        {made}
    def forward(self, x):
        {forward}
"""

PROGRAMS = {
    "class weights that bincount counted": NET
    + """
labels = torch.tensor([0, 1, 2, 3, 3, 1])
weight = torch.bincount(labels, minlength=4)  #!
"""
    + TRAIN.format(loss="F.cross_entropy(net(torch.ones(6, 8)), labels, weight=weight)"),
    "one-hot codes": NET
    + "codes = F.one_hot(torch.tensor([0, 7, 3]), 8)  #!\n"
    + TRAIN.format(loss="net(codes).square().mean()"),
    "indices that topk gave": NET
    + "best = torch.ones(3, 9).topk(8).indices\nbest = torch.ones(3, 9).argsort(1)[:, :8]  #!\n"
    + TRAIN.format(loss="net(best).square().mean()"),
    "a default argument": NET
    + "def noise(n, dtype=torch.bfloat16):\n    return torch.ones(n, 8, dtype=dtype)  #!\n"
    + TRAIN.format(loss="net(noise(3)).square().mean()"),
    "an argument": NET
    + "def noise(n, dtype):\n    return torch.ones(n, 8, dtype=dtype)  #!\n"
    + TRAIN.format(loss="net(noise(3, torch.bfloat16)).square().mean()"),
    "a setting in a dataclass": "from dataclasses import dataclass\n@dataclass\nclass Config:\n    kind: torch.dtype = torch.bfloat16\n"
    + NET
    + "def noise(cfg):\n    return torch.ones(3, 8, dtype=cfg.kind)  #!\n"
    + TRAIN.format(loss="net(noise(Config())).square().mean()"),
    "a name in a dictionary": "SETTINGS = {'kind': 'bfloat16', 'n': 3}\n"
    + NET
    + "def noise(s):\n    return torch.ones(s['n'], 8, dtype=getattr(torch, s['kind']))  #!\n"
    + TRAIN.format(loss="net(noise(SETTINGS)).square().mean()"),
    "the environment": "import os\nKIND = getattr(torch, os.environ.get('DTYPETRACE_NO_SUCH', 'bfloat16'))\n"
    + NET
    + "x = torch.ones(3, 8, dtype=KIND)  #!\n"
    + TRAIN.format(loss="net(x).square().mean()"),
    "a decision that others read": "kind = torch.bfloat16\nhalves = nn.Linear(8, 8).to(kind).requires_grad_(False)\n"
    + NET
    + "with torch.no_grad():\n    halves(torch.ones(3, 8, dtype=kind))\nx = torch.ones(3, 8, dtype=kind)  #!\n"
    + TRAIN.format(loss="net(x).square().mean()"),
    "a cast that changed nothing": """
net = nn.Linear(8, 4).to(torch.bfloat16).requires_grad_(False)
x = torch.rand(3, 8)
x = x.to(torch.float32)  #!
net(x)
""",
    "cast like the lengths": """
net = nn.Linear(8, 4)
lengths = torch.tensor([2, 5])
keep = (torch.arange(8) < lengths[:, None]).type_as(lengths)  #!
net(keep)
""",
    "the default was left": NET
    + "torch.set_default_dtype(torch.float64)  #!\nx = torch.rand(3, 8)\n"
    + TRAIN.format(loss="net(x).square().mean()"),
    "a narrow encoder before a head that is trained": """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
        self.head = nn.Linear(8, 4)
    def forward(self, x):
        return self.head(self.encoder(x))
net = Both()
net.encoder.to(torch.bfloat16).requires_grad_(False)  #!
"""
    + TRAIN.format(loss="net(torch.ones(3, 8, dtype=torch.bfloat16)).square().mean()"),
    "an adapter beside frozen weights": MIX.format(
        made="self.a = nn.Parameter(torch.ones(8, 8))  #!",
        forward="return self.head(self.base(x) + x @ self.a)",
    )
    + """
net = Mix()
net.base.to(torch.bfloat16).requires_grad_(False)
net.head.to(torch.bfloat16).requires_grad_(False)
"""
    + TRAIN.format(loss="net(torch.ones(3, 8, dtype=torch.bfloat16)).square().mean()"),
    "a narrow adapter that is trained": MIX.format(
        made="self.a = nn.Linear(8, 8, dtype=torch.bfloat16)  #!", forward="return self.head(self.base(x) + self.a(x))"
    )
    + "net = Mix()\n"
    + TRAIN.format(loss="net(torch.ones(3, 8)).square().mean()"),
    "what autocast narrowed, among embeddings": """
class Merge(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.vision, self.head = nn.Embedding(9, 8), nn.Linear(4, 8), nn.Linear(8, 4)
    def forward(self, ids):
        h = self.tokens(ids).clone()
        seen = self.vision(torch.ones(2, 4))  #!
        h[ids == 0] = seen
        return self.head(h)
net = Merge()
ids = torch.tensor([0, 3, 0, 5])
def step():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net(ids)
"""
    + TRAIN.format(loss="step().float().square().mean()"),
    "a hook that returns a wider gradient": """
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)).to(torch.bfloat16)
def clip(grad):
    return grad.to(torch.float32).clamp(-1, 1)  #!
def step(x):
    h = net[0](x)
    h.register_hook(clip)
    return net[1](h)
"""
    + TRAIN.format(loss="step(torch.ones(3, 8, dtype=torch.bfloat16)).float().square().mean()"),
}


PROGRAMS |= FURTHER


class _Renaming(ast.NodeTransformer):
    """Gives what a program calls its own another name; keywords and attributes stay."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def new(self, name: str) -> str:
        return f"my_{name}" if name in self.names else name

    def visit_Name(self, node):
        return ast.Name(self.new(node.id), node.ctx)

    def visit_arg(self, node):
        return ast.arg(self.new(node.arg), node.annotation)

    def visit_FunctionDef(self, node):
        node.name = self.new(node.name)
        return self.generic_visit(node)

    visit_ClassDef = visit_FunctionDef


def renamed(text: str) -> str:
    """Other names for what the program calls its own, but for its model."""
    tree = ast.parse(text)
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    made = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    classes = [c for c in tree.body if isinstance(c, ast.ClassDef)]
    statements = [s for c in classes for s in c.body if isinstance(s, (ast.Assign, ast.AnnAssign))]
    fields = {n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name)}
    given = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    return ast.unparse(_Renaming((stored | made | given) - {"net", "opt", "self"} - fields).visit(tree))


def other_half(text: str) -> str:
    return text.replace("bfloat16", "float16")


def in_function(text: str) -> str:
    """All of it in a function, whose model is still known outside."""
    return "def main():\n    global net, opt\n" + textwrap.indent(text, "    ") + "\nmain()\n"


def in_method(text: str) -> str:
    """All of it in a method."""
    body = textwrap.indent(text, "        ")
    return f"class Program:\n    def run(self):\n        global net, opt\n{body}\nProgram().run()\n"


def in_decorated(text: str) -> str:
    """All of it in a function that a decorator wraps."""
    decorator = (
        "import functools\ndef logged(f):\n    @functools.wraps(f)\n    def inner(*a, **k):\n        return f(*a, **k)\n"
        "    return inner\n@logged\n"
    )
    return decorator + in_function(text)


def in_blocks(text: str) -> str:
    """All of it in a loop, a condition and a try statement."""
    return (
        "for _once in range(1):\n  if True:\n    try:\n"
        + textwrap.indent(text, "      ")
        + "\n    finally:\n      pass\n"
    )


def spread(text: str) -> str:
    """Other lines and columns: Python's own formatting, beyond comments and names that are not ASCII."""
    plain = ast.unparse(ast.parse(text))
    return "naïve_größe = 'ÄÖÜ'  # ∀ε\n\n\n" + plain.replace("\n", "\n")


_FACTORY = re.compile(r"((?:torch\.(?:zeros|ones)|nn\.Linear)\([^()]*)\)")


def swapped(text: str) -> str:
    """The two sides exchanged: a wide model meets something in half where a half one met something wide, or the other
    way round."""
    if HALF not in text:
        model = NET.rstrip() + ".to(torch.bfloat16)\n"
        rest = text.replace("bfloat16", "float32")
        assert rest != text and (NET in text or WIDE in text)
        return rest.replace(WIDE, HALF).replace(NET, model)
    lines = text.replace(HALF, WIDE).replace(", dtype=torch.bfloat16", "").splitlines()
    (born,) = (n for n, line in enumerate(lines) if line.endswith("#!"))
    narrow = lines[born].replace(".float()", ".bfloat16()")
    if narrow == lines[born]:
        narrow = _FACTORY.sub(r"\1, dtype=torch.bfloat16)", lines[born])
    assert narrow != lines[born]
    return "\n".join([*lines[:born], narrow, *lines[born + 1 :]]) + "\n"


SWAPPED = (
    "a default argument", "an argument", "a setting in a dataclass", "a name in a dictionary", "the environment",
    "a partial function that names a dtype", "a lambda's default", "a dtype that a class holds",
    "a mask of the default dtype", "a bias of the default dtype", "a layer that was added later",
    "a result that is gathered in the default dtype", "gates of the default dtype", "a scatter into the default dtype",
    "a norm that is not cast back",
)  # fmt: skip
"""Programs that torch refuses both ways round."""


def as_it_is(text: str) -> str:
    return text


@pytest.fixture(autouse=True)
def the_default_dtype_is_float32_again():
    yield
    torch.set_default_dtype(torch.float32)


CHANGES = (as_it_is, renamed, other_half, in_function, in_method, in_decorated, in_blocks, spread)


@pytest.mark.parametrize(
    ("name", "change"),
    # float16 autocast also needs a loss scaler, which is not tested here
    [(name, c) for name, text in PROGRAMS.items() for c in CHANGES if not (c is other_half and "autocast" in text)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_advice_can_be_applied(name, change, tmp_path):
    found = follow(tmp_path, change(PROGRAMS[name]))
    assert found.shown, found.program.findings
    assert found.clean, (found.program.findings, found.text)
    assert not found.narrowed
    assert all(fix.checked for fix in found.shown)


@pytest.mark.parametrize("name", PROGRAMS)
def test_advice_can_be_applied_in_another_file(name, tmp_path):
    found = follow(tmp_path, PROGRAMS[name], run=imported)
    assert found.shown, found.program.findings
    assert found.clean, (found.program.findings, found.text)
    assert not found.narrowed


@pytest.mark.parametrize("name", SWAPPED)
def test_the_verdict_and_the_advice_swap_with_the_sides(name, tmp_path):
    born = {}
    for text in (PROGRAMS[name], swapped(PROGRAMS[name])):
        program = run(tmp_path, text)
        culprit = program.findings[0].culprit
        assert program.at(culprit.origin.place).endswith("#!")
        born[text] = culprit.dtype
    assert sorted(born.values()) == ["bfloat16", "float32"]
    found = follow(tmp_path, text)
    assert found.shown and found.clean, (found.program.findings, found.text)
    assert not found.narrowed


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_birth_is_named(name, tmp_path):
    program = run(tmp_path, PROGRAMS[name])
    assert program.at(program.findings[0].culprit.origin.place).endswith("#!")


# ---------------------------------------------------------------- each check, on what it is for


def objected(tmp_path, text: str, fragment: str, after: str) -> str:
    """What the checks say of replacing a fragment of a program that was refused."""
    program = run(tmp_path, text)
    recording = program.with_text
    case = rules.judged(recording, recording.refused[-1]).case
    line = max(n for n, source in enumerate(program.text.splitlines(), 1) if fragment in source)
    column = program.text.splitlines()[line - 1].index(fragment) + 1
    change = Change(CAST if after.startswith(f"{fragment}.") else NAMED, after.rpartition("torch.")[2].rstrip(")"))
    edit = Edit(program.file, (line, column), (line, column + len(fragment)), fragment, after, change)
    assert applied(program.text, (edit,), program.file)
    place = case.site if case.site.line == line else case.origin.place
    return checks.objection(case, Fix("cast", place, (edit,), True, ""))


REFUSED = """
import torch
net = nn.Linear(8, 4)
batch = {"x": torch.ones(3, 8, dtype=torch.bfloat16)}
net(batch["x"])
"""


@pytest.mark.parametrize(
    ("fragment", "after", "why"),
    [
        ('batch["x"])', 'batch["x"]).to(torch.float32', "not valid Python"),
        ("torch.bfloat16", "th.float32", "no meaning"),
        ('{"x": torch.ones(3, 8, dtype=torch.bfloat16)}', '{"x": torch.ones(3, 8, dtype=torch.bfloat16)}.half()', "no tensor"),
        ("batch", "batch.to(torch.float32)", "indexed with a string"),
        ('batch["x"]', 'batch["x"].to(torch.float64)', "would refuse it again"),
        ('batch["x"]', 'batch["x"].to(torch.float32)', ""),
        ("torch.bfloat16", "torch.float32", ""),
    ],
)  # fmt: skip
def test_what_a_check_objects_to(fragment, after, why, tmp_path):
    said = objected(tmp_path, REFUSED, fragment, after)
    assert why in said if why else said == "", said


def test_a_literal_is_not_written_over_a_variable(tmp_path):
    text = "import torch\nkind = torch.bfloat16\nnet = nn.Linear(8, 4)\nx = torch.ones(3, 8, dtype=kind )\nnet(x)"
    assert "is a variable" in objected(tmp_path, text, "kind ", "torch.float32")


def test_a_change_that_moves_the_collision_is_not_shown(tmp_path):
    text = """
    import torch
    net = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 64)).to(torch.bfloat16)
    other, x = nn.Linear(8, 4), torch.ones(3, 8)
    other(x)
    net(x)
    """
    program = run(tmp_path, text)
    (edit,) = program.findings[0].fix.edits
    assert program.text.splitlines()[edit.start[0] - 1] == "net(x)", "not where other() takes it as it is"


def test_a_change_that_moves_the_collision_is_not_shown_in_inference_mode(tmp_path):
    """Operators run whole there: ``linear.default`` and not ``addmm.default``."""
    text = """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower, self.head = nn.Linear(8, 8), nn.Linear(8, 64).to(torch.bfloat16)
    def forward(self, x):
        words = torch.zeros(3, 8, dtype=torch.bfloat16)
        return self.head(words.masked_scatter(words == 0, self.tower(x)))
net, x = Both(), torch.ones(3, 8)
with torch.inference_mode():
    net(x)
"""
    said = objected(tmp_path, text, "torch.ones(3, 8)", "torch.ones(3, 8, dtype=torch.bfloat16)")
    assert "would refuse it" in said, said
    found = follow(tmp_path, text, rounds=1)
    assert found.clean, found.text


def test_a_change_that_a_wider_operand_undoes_is_not_shown(tmp_path):
    text = """
    import torch
    net = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 64)).to(torch.bfloat16)
    wave, window = torch.ones(3, 8), torch.hann_window(8)
    net((wave * window).abs())
    """
    said = objected(tmp_path, text, "torch.ones(3, 8)", "torch.ones(3, 8, dtype=torch.bfloat16)")
    assert "`linear` would refuse it again" in said, said
    found = follow(tmp_path, text, rounds=1)
    assert found.clean, found.text


def test_every_check_gives_its_reason():
    assert all((check.__doc__ or "").strip().endswith(".") for check in checks.CHECKS)


def test_the_checks_stand_in_the_report(tmp_path):
    program = run(tmp_path, REFUSED)
    fix = report.to_json(program.recording, program.findings)["findings"][0]["fix"]
    assert "text" in fix["checked"]


TABLE = """
import torch
def table(width):
    angles = torch.arange(width).float()
    return angles.cos() + angles.sum()
net = nn.Linear(8, 4).to(torch.bfloat16)
net(table(8)[None])
"""
LABELS = """
import torch
labels = torch.tensor([0, 1], dtype=torch.int32)
loss = nn.CrossEntropyLoss()
loss(torch.ones(2, 3), labels[:2].flatten())
"""


@pytest.mark.parametrize(
    ("text", "fragment", "after", "why"),
    [
        (TABLE, "table(8)", "table(8).to(torch.float64)", "would refuse it again"),
        (TABLE, "table(8)", "table(8).to(torch.bfloat16)", ""),
        (LABELS, "labels[:2].flatten()", "labels[:2].flatten().to(torch.int16)", "would refuse it again"),
        (LABELS, "labels[:2].flatten()", "labels[:2].flatten().to(torch.int64)", ""),
    ],
)
def test_a_change_is_followed_through_calls_and_integers(text, fragment, after, why, tmp_path):
    said = objected(tmp_path, text, fragment, after)
    assert why in said if why else said == "", said
