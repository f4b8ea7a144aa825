"""Programs that are wrong only when compiled are named with line and kind; healthy ones get no warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import programs
import pytest
import torch

HERE = Path(__file__).parent / "compiled"
SICK = sorted((HERE / "sick").glob("*.py"))
QUICK = ("fake_quantise",)
"""The sample that is not exhaustive: compiling costs seconds."""
HEALTHY = re.findall(r"^@program\ndef (\w+)", (HERE / "healthy.py").read_text("utf-8"), re.M)


def _sampled(names, quick):
    marks = lambda name: () if name in quick else pytest.mark.exhaustive
    return [pytest.param(name, marks=marks(name)) for name in names]


@pytest.fixture(autouse=True)
def settings():
    threads = torch.get_num_threads()
    torch._dynamo.reset()
    yield
    torch.set_num_threads(threads)


EMULATED = 'options={"emulate_precision_casts": True}'
LEFT_OUT = {
    "drawn_from_two_dtypes": "torch.compiler.disable(torch.normal)(mean, deviation)",
    "fake_kernel": "torch.compiler.disable(scaled)(x)",
    "positions": "torch.compiler.disable(ones.cumsum)(1, dtype=torch.float16)",
    "second_result": "torch.compiler.disable(normalised)(x)",
    "token_mixing": 'torch.compiler.disable(torch.einsum)("bnc,nm->bmc", hidden.float(), self.weights)',
    "inner_autocast": "torch.compiler.disable(self.head)(hidden.float())",
    "drawn_in_default": "torch.compiler.disable(torch.randn)(8)",
    "lists_with_compensation": "torch.compiler.disable(torch._foreach_add_)(weights, rests)",
    "loss_with_weight": "",
    "mixed_huber": "torch.compiler.disable(self.loss)(self.value(x), target)",
    "scaled_by_power": "torch.compiler.disable(torch.ldexp)(blocks, exponents)",
}
"""The call that runs eagerly after fix, where compiled code with the roundings of eager has another dtype still."""
BY_FLOAT64 = {"nearest_code": "but half of its results are within 12.79% of float64, in eager within 16.07%"}
"""Programs whose compiled sums are rounded less often even so: at ties other codes are the nearest."""
NOT_FIXED = ("lists_with_compensation", "loss_with_weight")
"""The eager run of the first has findings that fix takes first; by its numbers the second does no harm."""
FIXED = [p.stem for p in SICK if "kind: accepted-mismatch" not in p.read_text("utf-8") and p.stem not in NOT_FIXED]


@pytest.mark.slow
@pytest.mark.parametrize("name", _sampled(FIXED, ()))
def test_fix_proves_the_edit_by_compiling_again(name, tmp_path):
    file = tmp_path / "example.py"
    file.write_text((HERE / "sick" / f"{name}.py").read_text("utf-8"), "utf-8")
    command = [sys.executable, "-m", "dtypetrace", "fix", "--write", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    proven = next(line for line in done.stderr.splitlines() if line.startswith("proven: "))
    assert proven.startswith("proven: compiled again, the finding is gone; its values ")
    assert BY_FLOAT64.get(name, "those of the program run eagerly") in proven
    assert LEFT_OUT.get(name, EMULATED) in file.read_text("utf-8")
    alone = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=280, check=True)
    assert float(alone.stdout.split()[-1]) <= 0.01, alone.stdout


def test_there_are_enough_of_both():
    assert len(SICK) >= 12 and len(HEALTHY) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("name", _sampled([p.stem for p in SICK], QUICK))
def test_a_sick_program_is_named_with_line_and_kind(name, tmp_path):
    text = (HERE / "sick" / f"{name}.py").read_text("utf-8")
    lines = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith(("# LINE", "# KEPT"))]
    kind = re.search(r"^kind: (\S+)$", text, re.M)[1]
    program = programs.run(tmp_path, text, name="example.py", numerics=True)
    assert program.error is None
    found = [f for f in program.findings if f.code in ("DT206", "DT207", "DT406") and f.kind != "kept-wide"]
    assert [f.kind for f in found] == [kind]
    assert found[0].site.line in lines and found[0].culprit.origin.line in lines
    assert found[0].severity == ("note" if kind == "accepted-mismatch" else "warning")
    assert not program.recording.modules or found[0].module in program.recording.modules, "the module tree marks it"


@pytest.mark.slow
@pytest.mark.parametrize("name", _sampled([p.stem for p in SICK if "DTYPE, HEALTHY" in p.read_text("utf-8")], ()))
def test_a_sick_program_is_sick_only_when_compiled(name, tmp_path):
    """And, where a rounding is left out, healthy with the option that the finding advises."""
    path = HERE / "sick" / f"{name}.py"
    names = {"__name__": name}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), names)
    dtype, measure = names["DTYPE"], names["measure"]
    assert measure(False, dtype) <= names["HEALTHY"]
    assert measure(True, dtype) >= names["SICK"]
    if re.search(r"^kind: (kept-wide|elided|saved)", names["__doc__"], re.M) and name not in LEFT_OUT:
        torch._dynamo.reset()
        with torch._inductor.config.patch(emulate_precision_casts=True):
            assert measure(True, dtype) <= names["HEALTHY"]


@pytest.mark.slow
@pytest.mark.parametrize("name", _sampled(HEALTHY, ("activations_bfloat16",)))
def test_a_healthy_program_gets_no_warning_from_the_ledger(name, tmp_path):
    text = (HERE / "healthy.py").read_text("utf-8").replace('__name__ == "__main__"', "True")
    text = text.replace("PROGRAMS[sys.argv[1]]()", f"PROGRAMS[{name!r}]()")
    program = programs.run(tmp_path, text, name="example.py", numerics=True)
    assert program.error is None
    assert any(g.phase == "forward" for r in program.recording.regions for g in r.graphs)
    found = [f for f in program.findings if f.code in ("DT206", "DT207", "DT406")]
    assert [f for f in found if f.severity != "note"] == [] and len(found) <= 2


@pytest.mark.slow
def test_compiled_code_that_refuses_as_eager_does_is_not_said_to_run(tmp_path):
    text = (
        "import torch\n"
        "weight = torch.ones(8, 8)\n"
        "mixed = torch.compile(lambda x: torch.matmul(weight, x * 2))\n"
        "mixed(torch.ones(8, 16, dtype=torch.bfloat16))\n"
    )
    program = programs.run(tmp_path, text, name="example.py", numerics=True)
    assert program.error is not None and [f.code for f in program.findings] == ["DT101"]
