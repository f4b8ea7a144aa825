"""The pytest plugin: findings in the report of the test that has them, and nothing at all until it is asked."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

# what a run inside this process imports first, pytester makes it import again in the next one
import torch

import dtypetrace.commands.run
import dtypetrace.integrations.pytest as plugin
import dtypetrace.tracing
from dtypetrace import report  # noqa: F401
from dtypetrace.results import conclude  # noqa: F401

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
INSTALLED = any(p.name == "dtypetrace" for p in importlib.metadata.entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "dtypetrace.integrations.pytest")
QUIET = ("-p", "no:cacheprovider", "-p", "no:randomly")

DIES = """
    import torch

    def blank(rows):
        return torch.zeros(rows, 4)

    def test_dies():
        torch.nn.Linear(4, 4).bfloat16()(blank(2))
"""
WIDENS = """
    import torch, pytest

    def make():
        return torch.ones(256, 256)

    {mark}
    def test_widens({fixture}):
        x = torch.ones(256, 256, dtype=torch.bfloat16)
        w = torch.nn.Parameter(torch.ones(256, 256, dtype=torch.bfloat16))
        for _ in range(3):
            y = (x * make()).float() @ w.float()
        {check}
"""


assert torch, dtypetrace.commands.run


@pytest.fixture
def ran(pytester, monkeypatch):
    """Runs a file of tests in this process, with the plugin on."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "120")

    def run(text, *options, process=False):
        pytester.makepyfile(text)
        start = pytester.runpytest_subprocess if process else pytester.runpytest_inprocess
        return start(*PLUGIN, *QUIET, *options)

    return run


def widens(mark="", fixture="", check=""):
    return WIDENS.format(mark=mark, fixture=fixture, check=check)


# ---------------------------------------------------------------- on


def test_a_failing_test_shows_the_birth_in_its_failure(ran):
    result = ran(DIES, "--dtypetrace")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E  *RuntimeError: mat1 and mat2 must have the same dtype*",
            "E  *dtypetrace: *.py:4: float32 is born here*",
            "*Captured dtypetrace call*",
            "error[[]DT101]: *",
            "*zeros(rows, 4)*",
        ]
    )
    assert "integrations/pytest.py:" not in result.stdout.str()  # none of our frames in the traceback


def test_a_setting_of_the_project_turns_it_on(ran, pytester):
    pytester.makeini("[pytest]\ndtypetrace = true\n")
    assert "is born here" in ran(DIES).stdout.str()


def test_a_passing_test_has_its_findings_in_its_section_and_in_the_summary(ran):
    result = ran(widens(), "--dtypetrace", "-rP")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*Captured dtypetrace call*", "*[[]DT20*", "*= dtypetrace =*", "*::test_widens", "  *[[]DT20*"]
    )


def test_a_test_without_findings_has_no_section(ran):
    result = ran("import torch\ndef test_fine():\n    torch.nn.Linear(2, 2)(torch.ones(1, 2))\n", "--dtypetrace", "-rP")
    result.assert_outcomes(passed=1)
    assert "Captured dtypetrace" not in result.stdout.str() and "= dtypetrace =" not in result.stdout.str()


def test_what_a_fixture_made_is_seen(ran):
    text = DIES.replace(
        "def test_dies():",
        "import pytest\n    @pytest.fixture\n    def x():\n        return blank(2)\n\n    def test_dies(x):",
    )
    result = ran(text.replace("(blank(2))", "(x)"), "--dtypetrace")
    result.stdout.fnmatch_lines(["*.py:4: float32 is born here*"])


def test_a_failing_fixture_is_reported_too(ran):
    text = DIES.replace("def test_dies():", "import pytest\n    @pytest.fixture\n    def net():")
    result = ran(text + "\n    def test_uses(net):\n        pass\n", "--dtypetrace")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*.py:4: float32 is born here*", "*Captured dtypetrace setup*"])


def test_severe_findings_fail_where_asked(ran):
    result = ran(widens(), "--dtypetrace", "--dtypetrace-fail-on", "note")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["dtypetrace: 1 finding of severity note or higher", "dtypetrace DT20*", "dtypetrace: *.py:4: *"]
    )


# ---------------------------------------------------------------- marker and fixture


def test_a_marker_watches_and_fails_its_test(ran):
    ran(widens('@pytest.mark.dtypetrace(fail_on="note")')).assert_outcomes(failed=1)


def test_a_marker_ignores_codes(ran):
    found = set(re.findall(r"DT\d{3}", ran(widens(), "--dtypetrace", "-rP").stdout.str()))
    assert found
    ran(widens(f'@pytest.mark.dtypetrace(fail_on="note", ignore={sorted(found)})')).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ('fail_on="fatal"', "fail_on is one of note, warning, error, not 'fatal'"),
        ('ignore=["DT999"]', "ignore= has 'DT999', and there is no such finding"),
        ("level=1", "the marker dtypetrace takes fail_on= and ignore=, not level"),
        ('"error"', "the marker dtypetrace takes fail_on= and ignore=, not 'error'"),
    ],
)
def test_a_marker_that_cannot_be_meant_is_one_line(ran, marker, says):
    result = ran(widens(f"@pytest.mark.dtypetrace({marker})"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *::test_widens: {says}"])


def test_the_fixture_is_the_open_trace_with_and_without_the_option(ran):
    text = widens(
        fixture="dtypetrace", check="assert dtypetrace.is_open and dtypetrace.findings and dtypetrace.recording.ops"
    )
    ran(text).assert_outcomes(passed=1)
    ran(text, "--dtypetrace").assert_outcomes(passed=1)


def test_a_trace_in_a_watched_test_works(ran):
    text = "import torch, dtypetrace\ndef test_it():\n    with dtypetrace.trace() as t:\n        torch.ones(2).half()\n    assert t.recording.ops\n"
    ran(text, "--dtypetrace").assert_outcomes(passed=1)


def test_a_test_may_be_skipped_or_fail_for_another_reason(ran):
    text = "import pytest\ndef test_skips():\n    pytest.skip('no')\ndef test_fails():\n    assert 0\n@pytest.mark.skip\ndef test_never():\n    pass\n"
    ran(text, "--dtypetrace").assert_outcomes(skipped=2, failed=1)
    assert not dtypetrace.tracing._open


# ---------------------------------------------------------------- off, and in many processes


def test_without_the_option_it_imports_and_does_nothing(pytester):
    """Neither torch nor the capture is imported; the hooks of a test return at once."""
    pytester.makepyfile(
        """
        import sys
        def test_nothing(request):
            assert "dtypetrace.integrations.pytest" in sys.modules
            assert not {"torch", "dtypetrace.capture", "dtypetrace.tracing", "dtypetrace.commands", "rich", "networkx"} & set(sys.modules)
            assert sys.meta_path[0].__class__.__name__ != "AfterImport"
        """
    )
    command = [sys.executable, "-m", "pytest", *PLUGIN, *QUIET, "-q"]
    ended = subprocess.run(
        command,
        cwd=pytester.path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_torch_may_be_imported_by_the_test_itself(ran):
    text = "def test_late():\n    import torch\n    torch.nn.Linear(4, 4).half()(torch.ones(2, 4))\n"
    result = ran(text, "--dtypetrace", process=True)
    result.stdout.fnmatch_lines(["*.py:3: *is born here*"])


@pytest.mark.slow
def test_findings_come_back_from_the_workers_of_xdist(ran):
    pytest.importorskip("xdist")
    result = ran(DIES + widens().replace("import torch, pytest", ""), "--dtypetrace", "-n", "2", process=True)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*.py:4: float32 is born here*", "*= dtypetrace =*"])
    listed = result.stdout.str().partition("= dtypetrace =")[2]
    assert "::test_dies" in listed and "::test_widens" in listed


def test_the_entry_point_is_declared():
    declared = ConfigParser()  # setuptools writes setup.cfg anew in a source distribution, with tabs
    declared.read(ROOT / "setup.cfg", "utf-8")
    assert declared["options.entry_points"]["pytest11"].strip() == "dtypetrace = dtypetrace.integrations.pytest"
    assert plugin.__doc__
