"""Every shape of code: the birth and the collision are underlined exactly, in the console and by the finding's columns.

In each program `«...»` stands around the birth and `‹...›` around the expression that is refused.
"""

from __future__ import annotations

import linecache
import re
import subprocess
import sys
from pathlib import Path

import programs
import pytest

from dtypetrace import report
from dtypetrace.tracing import Trace

ROOT = Path(__file__).parents[2]
X = "x = torch.ones(2, 4).half()\n"

SHAPES = {
    "a call over several lines": X
    + """
w = «torch.ones(
    4,
    3,
)»
y = ‹torch.mm(
    x,
    w,
)›
""",
    "a method chain over several lines": X
    + """
w = (
    torch.arange(12)
    .reshape(4, 3)
    .«to(torch.float32)»
    .contiguous()
)
y = (
    x
    .relu()
    .‹matmul(w)›
)
""",
    "an operator over several lines": X
    + """
w = «torch.ones(4, 3)»
y = (
    ‹x
    @ w›
)
""",
    "a list comprehension": X
    + """
ws = [«torch.full((4, 3), 1.0 * i)» for i in range(2)]
ys = [‹x @ w› for w in ws]
""",
    "nested comprehensions": X
    + """
ws = {i: [«torch.zeros(4, i + 1)» for _ in range(1)] for i in range(1)}
ys = {k: [‹torch.mm(x, w)› for w in v] for k, v in ws.items()}
""",
    "a generator expression": X
    + """
y = sum(‹x.mm(w)› for w in («torch.eye(4)» for _ in range(2)))
""",
    "a lambda": X
    + """
make = lambda n: «torch.ones(4, n)»
apply = lambda w, n=1: (n, ‹x @ w›)
apply(make(3))
""",
    "a default argument": X
    + """
def apply(x, w=«torch.ones(4, 4)»):
    return ‹x.mm(w)›
apply(x)
""",
    "a decorated function": X
    + """
import functools
def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper
@torch.no_grad()
@logged
def make():
    return «torch.linspace(0, 1, 4)»
@logged
@torch.no_grad()
def apply(w):
    return ‹x @ w›
apply(make())
""",
    "a decorator's own code": X
    + """
def in_float(function):
    return lambda *args: «function(*args).float()»
@in_float
def make():
    return torch.arange(4)
y = ‹torch.matmul(x, make())›
""",
    "nested functions": X
    + """
def outer():
    def inner():
        def innermost():
            return «torch.rand(4, 4)»
        return innermost()
    return inner
class Model:
    def forward(self):
        def step(w):
            return ‹x @ w›
        return step(outer()())
Model().forward()
""",
    "an f-string": X
    + """
w = torch.tensor([[1] * 4] * 4)
text = f"{w.sum():.1f} and {‹x @ «w.float()»›}"
""",
    "an f-string over several lines": X
    + """
def show(w):
    return f'''first
    {‹x.mm(w)›!r:>10}
    '''
show(«torch.ones(4, 4)»)
""",
    "several calls on one line": X
    + """
a, b = torch.ones(4, 4).half(), «torch.ones(4, 4)»; y = x @ a; z = ‹x @ b› ; w = x @ a
""",
    "a conditional and a walrus": X
    + """
if (w := «torch.ones(4, 4)») is not None and (y := ‹x @ w›) is not None:
    pass
""",
    "a starred call": X
    + """
parts = (x, «torch.ones(4, 4)»)
y = ‹torch.mm(*parts)›
""",
    "characters outside ASCII": X
    + """
été, s = «torch.ones(4, 4)», '漢字'; y = {'ключ': ‹x @ été›}
""",
    "a subscript and an augmented assignment": X
    + """
ws = {'a': «torch.ones(4, 4)»}
ws['b'] = 'ß', ‹x @ ws['a']›
""",
    "a property": X
    + """
class Bank:
    @property
    def weight(self):
        return «torch.ones(4, 4)»
    def __call__(self, x):
        return ‹x @ self.weight›
Bank()(x)
""",
    "a generator function": X
    + """
def weights():
    while True:
        yield «torch.ones(4, 4)»
for w in weights():
    ‹x.mm(w)›
""",
    "a with statement": X
    + """
with torch.no_grad(), torch.autograd.profiler.record_function("é"): y = ‹x @ («torch.ones(4, 4)»)›
""",
    "an assert and a return": X
    + """
def check(w):
    assert ‹torch.mm(x, w)›.shape == (2, 4), "never"
check(w=«torch.ones(4, 4)»)
""",
    "a match statement": X
    + """
match «torch.ones(4, 4)»:
    case w if ‹x @ w› is not None:
        pass
""",
    "a coroutine": X
    + """
import asyncio
async def make():
    await asyncio.sleep(0)
    return «torch.ones(4, 4)»
async def main():
    return ‹x @ await make()›
asyncio.run(main())
""",
}


def unmarked(text: str) -> tuple[str, dict[str, tuple]]:
    """The program without its marks, and (line, column, end line, end column) of both, from 1."""
    spans, line, column, plain = {}, 1, 1, ""
    for c in text:
        if c in "«‹":
            spans[c] = (line, column)
        elif c in "»›":
            opening = "«" if c == "»" else "‹"
            spans[opening] += (line, column)
        else:
            plain += c
            line, column = (line + 1, 1) if c == "\n" else (line, column + 1)
    return plain, {"birth": spans["«"], "collision": spans["‹"]}


def exactly(place) -> tuple:
    return place.line, place.column, place.end_line, place.end_column


@pytest.mark.parametrize("shape", SHAPES)
def test_the_span_is_the_expression_itself(shape, tmp_path):
    plain, spans = unmarked(SHAPES[shape].lstrip("\n"))
    program = programs.run(tmp_path, plain)
    found = program.findings[0]
    assert exactly(found.site) == spans["collision"]
    assert exactly(found.culprit.origin.place) == spans["birth"]
    # and the console underlines what of it stands on the line that it shows
    shown = report.text(program.recording, (found,), 300).splitlines()
    for (line, column, end_line, end_column), label in ((spans["birth"], "born here"), (spans["collision"], " meets ")):
        text = plain.splitlines()[line - 1]
        code = text[column - 1 : end_column - 1] if line == end_line else text[column - 1 :]
        number = next(n for n, reported in enumerate(shown) if label in reported)
        marks = shown[number] if re.search(r"[-^] ", shown[number]) else shown[number - 1]
        above = next(reported for reported in reversed(shown[:number]) if re.match(rf" *{line} \|", reported))
        span = re.search(r"(?<=\| ) *([-^]+)", marks)
        if above.isascii():
            assert above[span.start(1) : span.end(1)] == code
        else:
            assert span.end(1) - span.start(1) == len(code)


# ---------------------------------------------------------------- without a file


def test_code_without_text_is_known_by_its_lines():
    """What `exec` runs has no text: the block says where, and what happened there."""
    names: dict = {}
    exec("import torch", names)
    trace = Trace()
    with pytest.raises(RuntimeError), trace:
        exec("x = torch.ones(2, 4).half()\nw = torch.ones(4, 3)\ny = x @ w", names)
    shown = repr(trace)
    assert "--> <string>:3:5" in shown
    assert "2 | (no source) float32 is born here: ones() without a dtype" in shown
    assert "3 | (no source) float32 `other` [4, 3] meets float16 `self` [2, 4] in `matmul`" in shown
    assert re.search(r"help: give ones\(\) dtype=torch.float16 \(<string>:2:5\)", shown)


def test_a_program_given_by_c_and_a_string_that_it_executes():
    code = "import torch, dtypetrace\ndef f(ä): return ä @ torch.ones(2, 2)\nwith dtypetrace.trace() as t:\n  try: f(torch.ones(2, 2).half())\n  except RuntimeError: pass\nprint(t)\n"
    code += "with dtypetrace.trace() as t:\n  exec('\\n\\ntry: torch.ones(2, 2).half() @ torch.ones(2, 2)\\nexcept RuntimeError: pass')\nprint(t)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "--> -c:2:18" in ended.stdout and "help: give ones() dtype=torch.float16 (-c:2:22)" in ended.stdout
    assert (
        "2 | def f(ä): return ä @ torch.ones(2, 2)\n  |                      ^^^^^^^^^^^^^^^^ float32 is born here: ones() without a dtype"
        in ended.stdout
    )
    assert "--> <string>:3:6" in ended.stdout


def test_text_that_is_registered_is_shown():
    """Doctest, attrs and others that compile strings put their text where tracebacks look for it."""
    text = "x = torch.ones(2, 4).half()\nw = torch.ones(4, 3)\ny = x @ w"
    names: dict = {}
    exec("import torch", names)
    linecache.cache["<generated 1>"] = len(text), None, text.splitlines(keepends=True), "<generated 1>"
    trace = Trace()
    try:
        with pytest.raises(RuntimeError), trace:
            exec(compile(text, "<generated 1>", "exec"), names)
        assert "2 | w = torch.ones(4, 3)\n  |     ^^^^^^^^^^^^^^^^ float32 is born here" in repr(trace)
    finally:
        del linecache.cache["<generated 1>"]


# ---------------------------------------------------------------- notebooks


@pytest.fixture
def shell():
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    yield interactive.InteractiveShell.instance()
    interactive.InteractiveShell.clear_instance()


CELLS = (
    "import torch, dtypetrace",
    "def make():\n    return torch.ones(4, 3)",
    "x = torch.ones(2, 4).half()\n\nwith dtypetrace.trace() as t:\n    y = x @ make()",
)


def test_frames_in_cells_are_named_by_their_number(shell, capsys):
    for number, cell in enumerate(CELLS, 5):
        shell.execution_count = number
        shell.run_cell(cell, store_history=True)
    capsys.readouterr()
    trace = shell.user_ns["t"]
    (found,) = trace.findings
    assert (found.site.file, *exactly(found.site)) == ("In [7]", 4, 9, 4, 19)
    assert (found.culprit.origin.file, *exactly(found.culprit.origin.place)) == ("In [6]", 2, 12, 2, 28)
    assert found.site.stack[0].user
    shown = repr(trace)
    assert "--> In [7]:4:9" in shown
    assert (
        "  ::: In [6]:2\n2 |     return torch.ones(4, 3)\n  |            ^^^^^^^^^^^^^^^^ float32 is born here" in shown
    )
    assert (
        "  ::: In [7]:4\n4 |     y = x @ make()\n  |         ---------- float32 make() [4, 3] meets float16 `x` [2, 4]"
        in shown
    )


def test_a_kernel_s_file_is_named_by_its_cell(shell, monkeypatch):
    """A kernel compiles its cells under names of temporary files; IPython's compiler knows the numbers."""
    file = "/tmp/ipykernel_4242/1234567890.py"
    monkeypatch.setattr(shell.compile, "get_code_name", lambda *_args: file)
    shell.execution_count = 9
    shell.run_cell(
        CELLS[0] + "\nx = torch.ones(2, 4).half()\nwith dtypetrace.trace() as t:\n    y = x @ torch.ones(4, 3)",
        store_history=True,
    )
    shown = repr(shell.user_ns["t"])
    assert "--> In [9]:4:9" in shown and "4 |     y = x @ torch.ones(4, 3)" in shown
