"""What was healed, the patch for it, and `dtypetrace fix`, which proves the patch."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import programs
import pytest
import torch
import warm
from torch import nn

import dtypetrace
from dtypetrace import autofix
from dtypetrace.autofix import compare
from dtypetrace.records import Frame, Place, Recording
from dtypetrace.records.ledger import empty
from dtypetrace.repair.candidates import Problem, gather
from dtypetrace.source.patch import Patch

ROOT = Path(__file__).resolve().parents[2]

FAULT = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(torch.bfloat16)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    x = torch.ones(
        3,
        4,  # features
    )
    loss = net(x).float().square().mean()
    loss.backward()
    optimizer.step()
    print("step", step)
"""


# ---------------------------------------------------------------- in a block


def healed(tmp_path, text):
    return programs.run(tmp_path, text, autofix=True)


def test_fixes_say_what_where_why_and_how_often(tmp_path):
    p = healed(tmp_path, "net = nn.Linear(4, 2).half()\nfor _ in range(3):\n    net(torch.ones(1, 4))")
    (fix,) = p.trace.fixes
    assert p.error is None
    assert (fix.place.line, fix.op, fix.phase, fix.count) == (3, "linear", "forward", 3)
    assert (fix.cast.argument, fix.cast.source, fix.cast.to, fix.cast.back) == ("input", "float32", "float16", False)
    assert str(fix).startswith("program.py:3: input of linear: float32 -> float16 (3 times); ")


def test_the_diff_is_a_source_patch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    p = healed(tmp_path, "net = nn.Linear(4, 2).half()\nnet(torch.ones(1, 4))\nimport torch")
    diff = p.trace.diff()
    assert "-net(torch.ones(1, 4))\n+net(torch.ones(1, 4, dtype=torch.float16))\n" in diff
    assert diff.startswith("--- a/program.py\n+++ b/program.py\n")


def test_nothing_healed_is_no_fix_and_no_diff(tmp_path):
    p = healed(tmp_path, "nn.Linear(4, 2)(torch.ones(1, 4))")
    assert (p.trace.fixes, p.trace.diff(), p.findings) == ((), "", ())


def test_a_saved_trace_keeps_its_fixes(tmp_path):
    p = healed(tmp_path, "net = nn.Linear(4, 2).half()\nnet(torch.ones(1, 4))")
    p.trace.save(tmp_path / "t.trace")
    assert dtypetrace.load(tmp_path / "t.trace").fixes == p.trace.fixes


def test_a_healed_collision_is_an_error_reported_once_per_cause(tmp_path):
    p = healed(
        tmp_path,
        "net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)).half()\nx = torch.ones(1, 4)\nnet[0](x)\nnet[2](x)\nnet(x)",
    )
    assert (p.only.severity, p.only.count) == ("error", 3)
    assert len(p.recording.refused) == 3


def test_what_the_program_handles_is_left_alone(tmp_path):
    text = """
    net = nn.Linear(4, 2).half()
    def run(x):
        try:
            return net(x)
        except RuntimeError:
            return "another way"
    first = run(torch.ones(1, 4))
    def again(x):
        try:
            return net(x)
        except RuntimeError:
            print("failed")
            raise
    second = again(torch.ones(1, 4))
    """
    p = healed(tmp_path, text)
    assert p.names["first"] == "another way" and p.names["second"].dtype is torch.float16
    assert len(p.trace.fixes) == 1


def test_a_handler_around_the_block_is_none_of_the_programs(tmp_path):
    net, x = nn.Linear(4, 2).half(), torch.ones(1, 4)
    try:
        with dtypetrace.trace(autofix=True) as t:
            out = net(x)
    except RuntimeError:
        raise AssertionError("not healed")
    assert out.dtype is torch.float16 and len(t.fixes) == 1


@pytest.mark.parametrize(
    "text",
    [
        "torch.zeros(3).half().masked_fill(torch.ones(3, dtype=torch.bool), -1e9)",  # no cast makes the number fit
        "p = nn.Parameter(torch.zeros(2).half()); (p * 2).sum().backward()\ns = torch.amp.GradScaler('cpu')\n"
        "o = torch.optim.SGD([p], 0.1)\ns.scale(torch.zeros(()))\ns.unscale_(o)",
    ],
)
def test_what_cannot_be_healed_honestly_raises_as_without_healing(tmp_path, text):
    p = healed(tmp_path, text)
    assert isinstance(p.error, (RuntimeError, ValueError)) and p.trace.fixes == ()


def test_a_collective_is_not_healed(tmp_path):
    """It would write into the cast copy of its output; and the other ranks would send what they have."""
    text = f"""
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
    try:
        room = torch.empty(1, 2)
        dist.all_gather_into_tensor(room, torch.ones(1, 2).bfloat16())
    finally:
        dist.destroy_process_group()
    """
    p = healed(tmp_path, text)
    assert isinstance(p.error, RuntimeError) and p.trace.fixes == ()
    assert (p.findings[0].code, p.findings[0].severity) == ("DT117", "error")
    assert not any(other.startswith("cast output") for other in p.findings[0].fix.alternatives)


def test_what_has_no_kernel_runs_in_float32_and_comes_back(tmp_path):
    p = healed(
        tmp_path, "m = torch.eye(3, dtype=torch.float16)\nu, s, v = torch.linalg.svd(m)\nf = torch.linalg.cholesky(m)"
    )
    assert [p.names[n].dtype for n in "usvf"] == [torch.float16] * 4
    assert all(fix.cast.back for fix in p.trace.fixes)


def test_a_sum_that_its_destination_cannot_hold_is_bound_to_the_name(tmp_path):
    p = healed(tmp_path, "x = torch.arange(3)\nx += 0.5")
    assert p.names["x"].tolist() == [0.5, 1.5, 2.5]
    q = healed(tmp_path, "x = torch.arange(3)\nx.add_(0.5)")  # nobody would see another tensor
    assert isinstance(q.error, RuntimeError)


def test_random_numbers_are_drawn_once(tmp_path):
    text = "torch.manual_seed(0)\nm = nn.MultiheadAttention(8, 2, dropout=0.5).half()\nx = torch.ones(3, 1, 8)\nm(x, x, x)\nafter = torch.rand(3)"
    plain = programs.run(tmp_path, text.replace("torch.ones(3, 1, 8)", "torch.ones(3, 1, 8).half()"))
    assert torch.equal(healed(tmp_path, text).names["after"], plain.names["after"])


def test_without_autofix_the_functions_on_lists_are_torchs_own():
    before = torch._foreach_add_
    with dtypetrace.trace():
        assert torch._foreach_add_ is before
    with dtypetrace.trace(autofix=True):
        assert torch._foreach_add_ is not before
    assert torch._foreach_add_ is before


def test_lists_of_dtypes_that_torch_takes_are_left_alone():
    def step(weights):
        torch._foreach_addcdiv_(
            weights, state, [torch.ones(3), torch.ones(3)], [0.5, 0.25]
        )  # Adam's call: a number for each

    state = [torch.ones(3), torch.ones(3)]
    plain, watched = ([torch.ones(3, dtype=torch.bfloat16) for _ in range(2)] for _ in range(2))
    step(plain)
    with dtypetrace.trace(autofix=True) as t:
        step(watched)
    assert t.fixes == () and not any(f.kind == "collision" for f in t.findings) and state[0].dtype is torch.float32
    assert all(torch.equal(a, b) for a, b in zip(plain, watched))


# ---------------------------------------------------------------- dtypetrace fix


def fix(folder, *words, script="program.py"):
    return warm.run(["-m", "dtypetrace", "fix", *words, script], folder)


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(FAULT)
    return file


def test_fix_shows_a_proven_patch_and_writes_nothing(program):
    done = fix(program.parent)  # docs/test_guide.py runs it in a process of its own, on the page "start"
    assert done.returncode == 0, done.stderr
    assert "torch.bfloat16" in done.stdout and "# features" in done.stdout
    assert "step 0" not in done.stdout and done.stderr.count("step 0") == 1
    assert re.search(
        r"proven: nothing is refused; 2 backward passes \(loss and gradient norm\) (equal the healed run|agree with .* within)",
        done.stderr,
    )
    assert "runs program.py several times, first with casts inserted" in done.stderr
    assert program.read_text() == FAULT
    subprocess.run(["patch", "-p1", "-s"], input=done.stdout, text=True, check=True, cwd=program.parent)
    assert warm.run([program.name], program.parent).returncode == 0


def test_fix_writes_and_a_second_one_finds_nothing(program):
    assert fix(program.parent, "--write").returncode == 0
    written = program.read_text()
    assert "# features" in written and written != FAULT and list(program.parent.iterdir()) == [program]
    again = fix(program.parent, "--write")
    assert (
        again.returncode == 0
        and "nothing to fix" in again.stderr
        and again.stdout == ""
        and program.read_text() == written
    )


def test_an_unproven_patch_is_not_written(tmp_path):
    file = tmp_path / "program.py"
    # what is drawn depends on the text of the script itself, so the patched run's values are others
    file.write_text(
        FAULT.replace(
            "torch.manual_seed(0)", "torch.manual_seed(len(__import__('inspect').getsource(__import__('__main__'))))"
        )
    )
    before = file.read_text()
    done = fix(tmp_path, "--write")
    assert done.returncode == 1 and "not proven: nothing is refused, but its values differ" in done.stderr
    assert "nothing was written, because the patch is not proven" in done.stderr and file.read_text() == before


def test_a_program_that_draws_other_numbers_each_time_is_reported(tmp_path):
    # the time scales the loss, too: two draws alone may agree within the tolerance of bfloat16
    program = FAULT.replace("torch.manual_seed(0)", "import time\ntorch.seed()")
    program = program.replace(".mean()", ".mean() * 2.0 ** (time.monotonic() % 64 / 4)")
    (tmp_path / "program.py").write_text(program)
    done = fix(tmp_path)
    assert done.returncode == 1 and "not proven" in done.stderr and "it is not deterministic" in done.stderr


def test_imported_modules_are_patched_and_libraries_are_not(tmp_path):
    (tmp_path / ".git").mkdir()
    library = tmp_path / "site-packages" / "lib"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("import torch\ndef wide(n):\n    return torch.zeros(n, 4)\n")
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "data.py").write_text("import torch\nrows = [torch.tensor([0.5] * 4) for _ in range(3)]\n")
    (tmp_path / "program.py").write_text(
        "import sys, os\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'site-packages'))\nimport torch\nfrom torch import nn\n"
        "import lib\nfrom pkg.data import rows\nnet = nn.Linear(4, 2).half()\nprint([net(r).dtype for r in rows])\ny = lib.wide(2)\nprint(net(y).dtype)\n"
    )
    done = fix(tmp_path, "--write")
    assert done.returncode == 0, done.stderr
    assert "torch.tensor([0.5] * 4, dtype=torch.float16)" in (package / "data.py").read_text()
    assert "return torch.zeros(n, 4)\n" in (library / "__init__.py").read_text()
    assert "net(y.to(net.weight.dtype))" in (tmp_path / "program.py").read_text()


def test_steps_bound_the_runs(tmp_path):
    (tmp_path / "program.py").write_text(FAULT.replace("range(2)", "range(10**9)"))
    done = fix(tmp_path, "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert "step 0" in done.stderr and "step 2" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words", "status", "said"),
    [
        (None, (), 2, "no such script: 'program.py'"),
        ("print('fine')", (), 0, "nothing to fix: no dtype is refused in program.py"),
        ("raise KeyError('x')", (), 1, "nothing to fix: program.py ends with KeyError, which no dtype caused"),
        ("import torch\nprint(input())", (), 1, "program.py ends with EOFError, which no dtype caused"),
        ("print(1)", ("--steps", "none"), 2, "--steps needs a whole number of at least 1"),
        ("import os\nos._exit(3)", (), 1, "the run ended without an answer (exit status 3)"),
        (
            "# Generated by hand. DO NOT EDIT\n" + FAULT,
            ("--write",),
            1,
            "says that it is generated. Change what generates it",
        ),
    ],
    ids=lambda v: None,
)
def test_bad_input_gets_one_clear_line(tmp_path, text, words, status, said):
    file = tmp_path / "program.py"
    if text is not None:
        file.write_text(text)
    done = fix(tmp_path, *words)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert (
        "Traceback" not in done.stderr
        or "KeyError" in done.stderr
        or "EOFError" in done.stderr
        or "RuntimeError" in done.stderr
    )
    assert text is None or file.read_text() == text


def test_the_command_that_would_write_is_reported_whole(tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "my.py").write_text(FAULT)
    done = fix(tmp_path, "--steps", "1", "-m", script="pkg.my")
    assert done.returncode == 0 and done.stderr.endswith(
        "To change pkg/my.py: dtypetrace fix --write --steps 1 -m pkg.my\n"
    ), done.stderr


def test_a_notebook_is_distinguished_from_a_script(tmp_path):
    (tmp_path / "work.ipynb").write_text("{}")
    for command in ("run", "fix"):
        done = warm.run(["-m", "dtypetrace", command, "work.ipynb"], tmp_path)
        assert (done.returncode, "'work.ipynb' is a notebook" in done.stderr) == (2, True), done.stderr


def test_a_file_that_changes_during_the_run_is_not_written(tmp_path):
    text = FAULT.replace('    print("step", step)', '    open(__file__, "a").write("# touched\\n")')
    (tmp_path / "program.py").write_text(text)
    done = fix(tmp_path, "--write")
    assert done.returncode == 1 and "has changed since it was run; nothing was written" in done.stderr, done.stderr
    assert "dtype=torch.bfloat16" not in (tmp_path / "program.py").read_text()


def test_a_link_out_of_the_project_is_not_followed(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere.py"
    (project / ".git").mkdir(parents=True)
    elsewhere.write_text("import torch\ndef make():\n    return torch.ones(2, 4)\n")
    (project / "made.py").symlink_to(elsewhere)
    (project / "program.py").write_text(
        "import torch\nfrom torch import nn\nimport made\nprint(nn.Linear(4, 2).half()(made.make()).dtype)\n"
    )
    done = fix(project, "--write")
    assert elsewhere.read_text() == "import torch\ndef make():\n    return torch.ones(2, 4)\n"
    assert (
        (project / "made.py").is_symlink()
        and done.returncode == 0
        and ".to(torch.float16)" in (project / "program.py").read_text()
    ), done.stderr


@pytest.mark.slow
@pytest.mark.exhaustive
def test_ten_faults_over_a_real_unet_vae_text_encoder_and_adapters(tmp_path):
    pytest.importorskip("diffusers")
    pytest.importorskip("transformers")
    shutil.copytree(ROOT / "tests" / "projects" / "inpainting", tmp_path, dirs_exist_ok=True)
    done = warm.run(["-m", "dtypetrace", "fix", "--write", "train.py"], tmp_path, models=True, timeout=420)
    assert done.returncode == 0, done.stderr
    assert "proven: nothing is refused; 2 backward passes" in done.stderr
    changed = [line for line in done.stdout.splitlines() if line.startswith("+ ")]
    assert len(changed) >= 10
    assert warm.run(["train.py"], tmp_path, models=True).returncode == 0


HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\ntorch.manual_seed(0)\n"


def fixed(tmp_path, text, name="program.py"):
    """The lines that a proven repair adds to a program; what it wrote runs."""
    (tmp_path / name).write_text(HEAD + text)
    done = fix(tmp_path, "--write", script=name)
    assert done.returncode == 0, done.stderr
    assert warm.run([name], tmp_path).returncode == 0
    return [
        line[1:].strip() for line in done.stdout.splitlines() if line.startswith("+") and not line.startswith("+++")
    ], done.stderr


def test_a_backward_inside_a_transform_does_not_end_the_watching(tmp_path):
    text = """
from torch.func import grad, vmap
w = torch.ones(3)
print(vmap(grad(lambda w, x: (w * x).sum()), (None, 0))(w, torch.ones(2, 3)))
net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
print(net(torch.ones(3, dtype=torch.float64)))
"""
    added, said = fixed(tmp_path, text)
    assert added == ["print(net(torch.ones(3, dtype=torch.float32)))"] and "internal error" not in said


def test_other_random_numbers_of_another_dtype_are_no_difference(tmp_path):
    text = """
net = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))
for _ in range(2):
    x = torch.randn(32, 8, dtype=torch.float64)
    net(x).square().mean().backward()
"""
    added, said = fixed(tmp_path, text)
    assert added == ["x = torch.randn(32, 8, dtype=torch.float32)"] and "for the same random numbers" in said


DECODES = """
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 3)
    def forward(self, x):
        x = self.conv(x)
        <body>
embed = nn.Embedding(8, 4).half()
latents = torch.randn(2, 4, 8).to(torch.float16) + embed(torch.tensor([1])).mean()
decoder = Decoder()
with torch.no_grad():
    print(decoder(latents).abs().float().mean())
"""


@pytest.mark.parametrize(
    "body",
    [
        "return torch.linalg.qr(x)[0]",
        "return torch.istft(torch.polar(x.abs(), x), 10, 2, window=torch.ones(10))",
        "return torch.fft.irfft(torch.view_as_complex(x.reshape(2, 6, 3, 2)), n=5)",
    ],
)
def test_the_other_side_is_cast_where_the_first_leads_to_calls_that_cannot_be_repaired(body, tmp_path):
    """The program chose half in two places and left the decoder out: it is blamed. What it computes has no half."""
    added, said = fixed(tmp_path, DECODES.replace("<body>", body))
    assert added == ["latents = torch.randn(2, 4, 8).to(torch.float32) + embed(torch.tensor([1])).mean()"], said


def test_one_value_for_models_of_two_dtypes_follows_their_weights(tmp_path):
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    def forward(self, s):
        return self.body(s)
net, target = Net(), Net().half()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
s = torch.ones(3, 4, dtype=torch.float64)
value = net(s).sum()
with torch.no_grad():
    future = target(s).max()
(value - future).backward()
"""
    follows = "return self.body(s.to(next(self.body.parameters()).dtype))"
    assert fixed(tmp_path, text)[0] == [follows, "s = torch.ones(3, 4, dtype=torch.float32)"]


def test_a_line_that_runs_in_two_dtypes_is_cast_to_what_it_meets(tmp_path):
    """A table that one model made is kept for another: each cast to one dtype is taken back, as the first model refuses it."""
    text = """
made = {}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
    def forward(self, x):
        h = self.a(x)
        if "table" not in made:
            made["table"] = torch.eye(4).to(h.dtype)
        return self.b(h @ made["table"])
wide, net = Net(), Net().half()
x = torch.ones(3, 4)
goal = wide(x).detach()
(net(x.half()).float() - goal).square().mean().backward()
"""
    added, _ = fixed(tmp_path, text)
    assert added == ['return self.b(h @ made["table"].to(h.dtype))']


def test_a_frozen_teacher_in_half_stays_so(tmp_path):
    text = """
teacher, net = nn.Linear(4, 3).bfloat16(), nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 3))
x = torch.ones(2, 4)
out = net(x)
with torch.no_grad():
    soft = teacher(x.bfloat16())
total = torch.zeros(3)
total.index_add_(0, torch.tensor([0, 1]), soft.amax(-1))
(out.sum() + total.sum()).backward()
"""
    added, _ = fixed(tmp_path, text)
    assert added == ["total.index_add_(0, torch.tensor([0, 1]), soft.amax(-1).to(total.dtype))"]


def test_a_cast_that_the_patch_made_is_taken_back_where_it_is_refused(tmp_path):
    text = "x = torch.ones(2, 4)\nnet = nn.Linear(4, 4).half()\ny = net(x)\n"
    p = healed(tmp_path, text + "import torch")
    patch = Patch()
    problems = gather(p.with_text, patch)
    repair = autofix.Repair(None, patch, problems)
    (problem,) = problems
    assert problem.choose_next()
    patch.set(problem.chosen_changes)
    file = next(iter(patch.texts))
    while "net(x.to(" not in patch.texts[file]:
        assert problem.choose_next()
        patch.set(problem.chosen_changes)
    line = patch.texts[file].splitlines()[2]
    assert ".to(torch.float16))" in line

    def born(end):
        (finding,) = problem.findings
        place = Place((Frame(file, 3, "<module>", True, line.index("x.to(") + 1, 3, end),))
        return Problem(
            (),
            [replace(finding, culprit=replace(finding.culprit, origin=replace(finding.culprit.origin, place=place)))],
        )

    assert repair._maker(born(line.rindex(")") + 1)) is problem and repair._maker(born(line.index("x.to(") + 2)) is None
    problem.withdraw()
    assert problem.chosen is None


def test_a_cast_of_several_values_is_left_where_another_of_them_needs_it(tmp_path):
    text = """
def to_like(batch, like):
    return {
        key: value.to(
            like.device,
        ).to(like.dtype)
        for key, value in batch.items()
    }
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.style = nn.Embedding(9, 4), nn.Linear(3, 4)
    def forward(self, ids, style):
        return self.words(ids) + self.style(style)[:, None]
net = Net().half()
batch = to_like({"ids": torch.tensor([[1, 2]]), "style": torch.ones(1, 3)}, net.style.weight)
net(**batch)
"""
    added, _ = fixed(tmp_path, text)
    assert added == ["return self.words(ids.to(torch.int64)) + self.style(style)[:, None]"]


def test_a_change_that_others_make_needless_is_left_out():
    def outcome(refused):
        said = Recording(refused=refused) if refused else Recording()
        return autofix.Outcome(said, 0, None, empty(), "")

    class Sheets(Patch):
        def set(self, changes):
            self.now = list(changes)

    def run(patch, *, shown, compare_steps):
        return outcome(() if "needed" in patch.now else refused)

    refused = healed_refusals()
    problems = []
    for name in ("needless", "needed"):
        problem = Problem((name,), changes={"birth": [name]})
        problem.chosen, problem.tried = "birth", {"call"}
        problems.append(problem)
    repair = autofix.Repair(run, Sheets(), list(problems))
    repair._pruned(outcome(()), 9)
    assert [p.key for p in repair.problems] == [("needed",)] and repair.patch.now == ["needed"]


KEPT = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.feed = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = x + self.mix(x)
        return x + self.feed(x.to(self.feed.weight.dtype))


model = nn.Sequential(nn.Embedding(30, 8), Block(), Block(), nn.Linear(8, 2)).bfloat16()
for block in model[1:3]:
    block.feed.float()
print(model(torch.tensor([[1, 2]])).dtype)
"""


def test_only_what_the_first_refusal_needs_is_changed_where_that_is_enough(tmp_path):
    """After the first refusal, healing goes on with dtypes that a repaired program does not have."""
    added, said = fixed(tmp_path, KEPT)
    assert added == ["return (x + self.feed(x.to(self.feed.weight.dtype))).to(torch.bfloat16)"]
    assert "changed, too" not in said


def test_lines_that_later_refusals_need_are_named_with_the_change(tmp_path):
    text = """
def step(net, mask):
    first = net(mask + 1)
    return first, net(mask * 2)


net = nn.Linear(4, 2).half()
table = torch.ones(1, 4, requires_grad=True)
optimizer = torch.optim.SGD([table], lr=0.1)
a, b = step(net, table)
(a.float().sum() + b.float().sum()).backward()
optimizer.step()
"""
    added, said = fixed(tmp_path, text)
    assert len(added) == 2 and re.search(r"program\.py:\d+\); program\.py:\d+ is changed, too", said), said


def test_one_value_that_is_refused_in_several_calls_is_cast_in_each_at_once(tmp_path):
    text = """
def step(net, x):
    first = net[0](x)
    return first, net[1](x)


net = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)]).half()
print(sum(part.float().sum() for part in step(net, nn.Linear(4, 4).float()(torch.ones(1, 4)))))
"""
    added, said = fixed(tmp_path, text)
    assert len(added) == 2 and "run 3" not in said, said


def healed_refusals():
    from dtypetrace.records import Refused

    return (Refused("linear", None, "forward", "", -1, (), "RuntimeError", "", "", "DT101", "agree", healed=True),)


def test_two_runs_are_compared_by_their_largest_relative_difference():
    a = [{"value": 1.0, "norm": 2.0}, {"value": float("nan"), "norm": None}]
    assert compare(a, a) == 0
    assert compare(a, [{"value": 1.0, "norm": 1.0}]) == 0.5
    assert compare(a, [{"value": float("inf"), "norm": 2.0}]) == float("inf")
    assert compare(a, []) is None and compare([{"value": 0.0, "norm": 0.0}], [{"value": 0.0, "norm": 0.0}]) == 0


def test_the_words_of_a_repair_name_safety_and_alternatives(tmp_path):
    p = healed(tmp_path, "import torch\nnet = nn.Linear(4, 2).half()\nx = torch.ones(1, 4)\nnet(x)")
    patch = Patch()
    (problem,) = gather(p.with_text, patch)
    problem.choose_next()
    first, second, *others = autofix.describe(problem)
    assert first == "DT101: `x` is float32, refused in `linear`"
    assert second.startswith("  change: ") and any(line.startswith("  or: ") for line in others)


def test_a_cast_in_another_refused_call_is_no_alternative(tmp_path):
    """One cause, two refusals: a buffer that a write does not fit, and what is then computed from it."""
    text = """import torch
net = nn.Linear(4, 4).half()
def step(x):
    out = torch.zeros(2, 4)
    out[torch.tensor([0])] = x[:1]
    return out
net(step(torch.ones(2, 4).half()))"""
    (problem,) = gather(healed(tmp_path, text).with_text, Patch())
    problem.choose_next()
    offered = [problem.fixes[name].place.line for name in problem.remaining()]
    assert len(problem.findings) == 2 and {5, 7} <= set(offered)
    (other,) = problem.alternatives
    assert other.endswith("(program.py:5)")


def test_what_the_program_gets_after_the_refused_call_is_not_cast(tmp_path):
    text = "import torch\ndef main():\n    net = nn.Linear(4, 2).half()\n    return net(torch.ones(1, 4))\n"
    edited = {}
    for last in ("y = main()", "main()"):
        patch = Patch()
        (problem,) = gather(healed(tmp_path, text + last).with_text, patch)
        originals = {c.file: patch.patched_files[c.file].original for cs in problem.changes.values() for c in cs}
        pieces = [(c.file, p) for cs in problem.changes.values() for c in cs for p in c.pieces]
        edited[last] = {originals[file].count("\n", 0, p.start) + 1 for file, p in pieces}
    assert edited == {"y = main()": {3, 4}, "main()": {3, 4}}


def test_a_dtype_read_from_another_tensor_is_followed_while_healing(tmp_path):
    text = "net = nn.Linear(4, 2).half()\nwide = torch.ones(1, 4)\nx = torch.ones(1, 4, dtype=torch.float32).to(wide.dtype)\nnet(x)"
    plain, mended = programs.run(tmp_path, text), healed(tmp_path, text)
    assert mended.only.culprit.origin.line == plain.only.culprit.origin.line == 2


@pytest.mark.parametrize(
    "cast", ["x.to(torch.float32)", "x.float()", "x.type(torch.float32)", "x.to(x.device, x.dtype)"]
)
def test_a_cast_that_changes_nothing_decides_while_healing_too(cast, tmp_path):
    """The caller of the call is the program, not healing's own mode around it."""
    text = f"net = nn.Linear(4, 2).half()\nx = torch.ones(1, 4)\ny = {cast}\nnet(y)"
    plain, mended = programs.run(tmp_path, text), healed(tmp_path, text)
    born = 2 if "dtype" in cast else 3
    assert mended.only.culprit.origin.line == plain.only.culprit.origin.line == born
