"""Every code has a page; its failing program gets that code, the repaired one nothing; its console text is compared.

`tests/golden/` holds the console block of every failing program, compared to the letter. After a change that is meant:

    DTYPETRACE_GOLDEN=1 pytest tests/commands/test_explain.py

and read what `git diff tests/golden` shows as a user reads it whose run has just failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import programs
import pytest
import torch
import validated

import dtypetrace
from dtypetrace.__main__ import main
from dtypetrace.commands import explain
from dtypetrace.records import Frame, Place, Recording, Refused
from dtypetrace.tables.codes import TITLES

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parents[1] / "golden"
CODES = sorted(TITLES)
REFUSED = [code for code in CODES if code < "DT2"]
KINDS = {
    "precision-loss",
    "promotion",
    "downcast",
    "round-trip",
    "zero-gradient",
    "lost-update",
    "underflow",
    "overflow",
    "gradient-dtype",
    "plan",
    "kept-wide-discontinuous",
    "other-dtype",
    "autocast-backward",
}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """In an empty folder, whose name no report shows, and without a process group afterwards."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    yield
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@dataclass(frozen=True)
class CodePage:
    """The explanation of one code. ``fails`` and ``fixed`` are programs, the rest is Markdown."""

    code: str
    title: str
    meaning: str
    fails: str
    why_fixed: str
    fixed: str
    field: str


PARTS = re.compile(
    r"# (?P<code>DT\d+): (?P<title>[^\n]+)\n+(?P<meaning>.+?)\n\n## Fails\n\n```python\n(?P<fails>.+?)```\n\n"
    r"## Fixed\n\n(?P<why_fixed>.+?)\n\n```python\n(?P<fixed>.+?)```\n\n## In the field\n\n(?P<field>.+?)\n",
    re.DOTALL,
)


def parts(code: str) -> CodePage:
    found = PARTS.fullmatch(explain.page(code))
    assert found is not None, "a paragraph, ## Fails, ## Fixed and ## In the field, in this order"
    return CodePage(**found.groupdict())


MEASURED = {text for page in [parts("DT308")] for text in (page.fails, page.fixed)}
"""Programs whose damage is found with higher precision beside them alone."""


def watched(text: str) -> programs.Program:
    program = programs.run(Path.cwd(), text, name="example.py", numerics=True, reference=text in MEASURED)
    assert not program.trace._watch.recorder.broken, program.recording.not_seen
    return program


# ---------------------------------------------------------------- the pages


def test_there_is_a_page_for_every_code_and_no_other():
    assert {path.stem for path in explain.PAGES.iterdir()} == set(TITLES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_its_parts(code):
    page, text = parts(code), explain.page(code)
    assert text.isascii()
    assert "\n\n" not in page.meaning and "\n\n" not in page.field
    assert max(map(len, text.splitlines()[1:])) <= 100
    for program in (page.fails, page.fixed):
        assert 8 <= len(program.splitlines()) <= 20
    assert page.fails != page.fixed


@pytest.mark.parametrize("code", REFUSED)
def test_the_failing_program_gets_the_code(code):
    program = watched(parts(code).fails)
    assert program.error is not None
    found = program.only
    assert (found.code, found.kind, found.severity) == (code, "collision", "error")
    assert (
        found.culprit.dtype in found.title or found.culprit.shown in found.title
    )  # the page of this code, not of its family
    assert found.site.file == program.file
    origin = found.culprit.origin
    assert origin.file == program.file and origin.line != found.site.line
    assert found.fix is not None
    shows_the_golden_block(code, program)


@pytest.mark.parametrize("code", [code for code in CODES if code not in REFUSED])
def test_the_damaging_program_gets_the_code(code):
    program = watched(parts(code).fails)
    assert program.error is None
    found = program.only
    assert found.code == code and found.kind in KINDS and found.severity in ("error", "warning")
    assert found.site.file == program.file
    assert found.fix is not None
    shows_the_golden_block(code, program)


@pytest.mark.parametrize("code", CODES)
def test_the_repaired_program_gets_nothing(code):
    program = watched(parts(code).fixed)
    assert program.error is None
    assert program.findings == ()


def shows_the_golden_block(code, program):
    validated.check(program.recording, program.findings)
    block, _, _ = repr(program.trace).partition("\n\n")
    file = GOLDEN / f"{code}.txt"
    if os.environ.get("DTYPETRACE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(block + "\n", "utf-8")
    assert block + "\n" == file.read_text("utf-8")


def test_every_golden_block_is_some_code_s():
    assert {path.stem for path in GOLDEN.iterdir()} == set(TITLES)


# ---------------------------------------------------------------- asking


def test_a_code_is_found_however_it_is_written():
    page = explain.page("DT101")
    for written in (
        "DT101",
        "dt101",
        "101",
        " DT101\n",
        "error[DT101]: the two operands of a matmul have different dtypes",
    ):
        assert dtypetrace.explain(written) == page
    assert page.startswith(f"# DT101: {TITLES['DT101']}\n\n{parts('DT101').meaning}\n\n## Fails\n")


def test_nothing_asked_lists_all_codes():
    assert dtypetrace.explain().splitlines() == [f"{code}  {TITLES[code]}" for code in CODES]


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [
        ("mat1 and mat2 must have the same dtype, but got Float and Half", "DT101", "mat1 float32 and mat2 float16, which have to agree"),
        ("expected scalar type Half but found Float", "DT106", "float16 (expected) and float32 (found), which have to agree"),
        ("value cannot be converted to type c10::Half without overflow", "DT110", "float16, which cannot hold the number"),
        ("\"linalg_svd_cpu\" not implemented for 'Half'", "DT109", "float16, for which the operation has no kernel"),
        ("Expected floating point type for target with class probabilities, got Long", "DT113", "int64 for target, where a floating dtype is wanted"),
        ("RuntimeError: Expected BFloat16, got Float", "DT117", "bfloat16 (expected) and float32 (found), which have to agree"),
        ("could not create a primitive descriptor for the LSTM forward propagation primitive", "DT105", "The message names no dtype"),
    ],
)  # fmt: skip
def test_a_message_is_explained_by_its_code(message, code, says):
    lead, _, rest = dtypetrace.explain(message).partition("\n\n")
    assert says in lead
    assert rest == explain.page(code)


def test_packed_weights_are_not_to_be_cast():
    for given in ("BFloat16 and Byte", "Half and Char", "Byte and Float"):
        assert "a cast gives wrong results" in dtypetrace.explain(
            f"mat1 and mat2 must have the same dtype, but got {given}"
        )
    for given in ("BFloat16 and Float", "Float and Long"):
        assert "a cast gives wrong" not in dtypetrace.explain(
            f"mat1 and mat2 must have the same dtype, but got {given}"
        )
    assert "a cast gives wrong" not in dtypetrace.explain("Input type (Byte) and bias type (float) should be the same")


def test_two_tensors_on_one_device_are_a_matter_of_dtypes():
    same_device = "Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same"
    assert "input float32 and weight float16" in dtypetrace.explain(same_device)


@pytest.mark.parametrize("before", ["", "[rank1]: ", "E   ", "> ", "\x1b[31m"])
def test_a_whole_pasted_traceback_is_understood(before):
    pasted = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    y = a @ b\n'
        "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half"
    )
    pasted = "\n".join(before + line for line in pasted.splitlines())
    assert "mat1 float32 and mat2 float16" in dtypetrace.explain(pasted)


def test_a_traceback_shows_the_operation():
    frame = '  File "conv.py", line 553, in _conv_forward\n    return F.conv2d(input, weight, bias, self.stride)\n           ~~~~~~~~^^^^\n'
    traceback = f"Traceback (most recent call last):\n{frame}RuntimeError: expected scalar type Half but found Float\n"
    assert explain.page("DT102") in dtypetrace.explain(traceback)
    with pytest.raises(LookupError):
        dtypetrace.explain(
            traceback.replace("expected scalar type Half but found Float", "shapes cannot be multiplied")
        )
    warned = "UserWarning: mat1 and mat2 must have the same dtype, but got Float and Half"
    with pytest.raises(LookupError):
        dtypetrace.explain(warned)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("DT130", "no such code: DT130. The nearest is DT122; dtypetrace explain lists them all"),
        ("99", "no such code: DT99. The nearest is DT101; dtypetrace explain lists them all"),
        ("matmul", "no such code: matmul. Codes look like DT101; dtypetrace explain lists them all"),
        ("sizes of tensors must match", "dtypetrace knows no dtype error with this message. Paste the last lines of the traceback as they are; dtypetrace explain lists all codes"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_said_in_one_line(asked, answer, capsys):
    with pytest.raises(LookupError, match=re.escape(answer)):
        dtypetrace.explain(asked)
    with pytest.raises(SystemExit) as ended:
        main(["explain", asked])
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", f"dtypetrace: error: {answer}\n")


def test_the_command_prints_the_page(capsys):
    for words, asked in (
        (["DT110"], "DT110"),
        ([], ""),
        (["expected", "scalar", "type", "Half", "but", "found", "Float"],) * 2,
    ):
        with pytest.raises(SystemExit) as ended:
            main(["explain", *words])
        assert not ended.value.code
        assert capsys.readouterr() == (
            dtypetrace.explain(asked if isinstance(asked, str) else " ".join(asked)).rstrip("\n") + "\n",
            "",
        )


def test_explain_needs_neither_torch_nor_pandas():
    command = [sys.executable, "-X", "importtime", "-m", "dtypetrace", "explain", "DT101"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, explain.page("DT101"))
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ended.stderr.splitlines()}
    assert "dtypetrace" in imported
    assert not imported & {"torch", "pandas", "numpy", "networkx", "rich"}


# ---------------------------------------------------------------- operands that nothing saw


def test_a_refusal_without_operands_shows_what_its_message_says():
    message = "expected scalar type Half but found Float"
    place = Place((Frame("/somewhere/train.py", 3, "<module>", True),))
    refused = Refused("", None, "other", "", 0, (), "RuntimeError", message, "scalar.expected_found", "DT106", "agree",
                      (("expected", "float16"), ("found", "float32")), left=True)  # fmt: skip
    from dtypetrace import report, rules

    recording = Recording((place,), refused=(refused,))
    (found,) = rules.find(recording)
    assert (found.code, found.culprit) == ("DT106", None)
    text = report.text(recording, (found,))
    assert "its tensors were not seen; the message names float16 (expected) and float32 (found)" in text
    assert "dtypetrace explain DT106" in text


def test_it_starts_without_torch_and_pandas():
    root = Path(dtypetrace.__file__).parents[1]
    for what in ("DT101", "mat1 and mat2 must have the same dtype, but got Float and Half"):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "dtypetrace", "explain", what],
            capture_output=True,
            text=True,
            cwd=root,
            timeout=60,
        )
        imported = {
            line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")
        }
        assert done.returncode == 0 and "DT101: the two operands" in done.stdout
        assert len(imported) > 50 and not imported & {"torch", "pandas", "numpy", "networkx"}


def test_an_error_is_looked_up_as_its_message_is():
    message = "expected m1 and m2 to have the same dtype, but got: float != c10::Half"
    assert dtypetrace.explain(RuntimeError(message)) == dtypetrace.explain(message)


@pytest.mark.parametrize("what", [None, 101, ["DT101"]])
def test_what_is_neither_code_nor_message_gets_one_clear_line(what):
    with pytest.raises(
        TypeError,
        match=rf'explain\(\) takes a code, as in explain\("DT101"\), or an error message, not {type(what).__name__}$',
    ):
        dtypetrace.explain(what)
