"""The project's own files are what their readers expect: workflows that run commands which exist, issue forms, a citation.

What only a code host can show is not tested: that an action or a team exists, and that a job ends well.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import dtypetrace

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
if not GITHUB.exists():
    pytest.skip("the source distribution has no .github", allow_module_level=True)
WORKFLOWS = {file.name: yaml.safe_load(file.read_text("utf-8")) for file in GITHUB.glob("workflows/*.yml")}
FORMS = {file.name: yaml.safe_load(file.read_text("utf-8")) for file in GITHUB.glob("ISSUE_TEMPLATE/*.yml")}
JOBS = [(file, name, job) for file, flow in WORKFLOWS.items() for name, job in flow["jobs"].items()]


def commands() -> list[str]:
    """Each line that a workflow runs, with the values of its matrix as they stand."""
    return [line for *_, job in JOBS for step in job["steps"] for line in step.get("run", "").splitlines()]


def test_what_the_workflows_run_exists():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.M)[1].split())
    made = [line.split() for line in commands() if line.startswith("make ")]
    assert {words[1] for words in made} >= {"docs", "dist", "matrix"}
    for words in made:
        assert words[1] in targets, words
        for variable in (re.sub(r"\$\{\{.*?\}\}", "", word).partition("=")[0] for word in words if "=" in word):
            assert re.search(rf"^{variable} \?=", makefile, re.M), variable
    for script in (line for line in commands() if line.startswith(".")):
        assert os.access(ROOT / script, os.X_OK), script
    assert all(line.startswith(("make ", ".ci/run", "test ")) for line in commands()), "a command that nothing checks"


def test_the_matrix_is_the_one_of_the_page():
    rows = re.findall(r"^\| (3\.\d+) \| ([\d.]+) \|", (ROOT / "docs" / "install.md").read_text("utf-8"), re.M)
    matrix = WORKFLOWS["ci.yml"]["jobs"]["matrix"]["strategy"]["matrix"]["include"]
    assert [(one["python"], one["torch"]) for one in matrix] == rows
    pinned = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), re.M)[1]
    assert {torch for python, torch in rows if python != "3.11"} == {pinned}
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "setup.cfg").read_text("utf-8"))
    assert classifiers == sorted({python for python, _ in rows})


def test_jobs_have_an_end_and_only_the_rights_they_need():
    for file, flow in WORKFLOWS.items():
        assert flow["permissions"] == {"contents": "read"}, file
        assert flow[True], f"{file}: nothing starts it"  # YAML 1.1 reads `on` as true
    for file, name, job in JOBS:
        assert job["timeout-minutes"] <= 120, (file, name)
        assert ("permissions" in job) == (name == "publish"), (file, name)
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), (file, name, step)
            assert "@" in step.get("uses", "@"), step
    publish = WORKFLOWS["release.yml"]["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"} and publish["needs"] == "build" and publish["environment"]
    assert not any("checkout" in step.get("uses", "") or "run" in step for step in publish["steps"])
    assert "secrets." not in (GITHUB / "workflows" / "release.yml").read_text("utf-8")


@pytest.mark.parametrize("name", sorted(set(FORMS) - {"config.yml"}))
def test_a_form_is_one_and_asks_for_a_trace(name):
    form = FORMS[name]
    assert form["name"] and form["description"] and form["body"]
    kinds = {"markdown": "value", "textarea": "label", "input": "label", "dropdown": "options", "checkboxes": "options"}
    for field in form["body"]:
        assert kinds[field["type"]] in field["attributes"]
        assert field["type"] == "markdown" or re.fullmatch(r"[a-z_-]+", field["id"])
    ids = [field["id"] for field in form["body"] if "id" in field]
    assert len(ids) == len(set(ids))
    (trace,) = (field["attributes"] for field in form["body"] if field.get("id") == "trace")
    assert "dtypetrace run --save run.trace" in trace["description"]


def test_their_commands_and_options_exist():
    from dtypetrace.__main__ import parser

    known = {name: sub.format_help() for name, sub in parser()._subparsers._group_actions[0].choices.items()}
    for file in (*GITHUB.glob("ISSUE_TEMPLATE/*.yml"), *ROOT.glob("skills/**/*.md")):
        text = file.read_text("utf-8")
        for command, rest in re.findall(r"`dtypetrace (\w+)([^`]*)`", text):
            assert all(option in known[command] for option in re.findall(r"--[a-z-]+", rest)), (file.name, rest)


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert str(citation["version"]) == dtypetrace.__version__
    assert f"license = {citation['license']}\n" in (ROOT / "setup.cfg").read_text("utf-8")


def test_a_skill_has_the_head_that_agents_read():
    for file in ROOT.glob("skills/*/SKILL.md"):
        head = yaml.safe_load(file.read_text("utf-8").split("---\n")[1])
        assert head["name"] == file.parent.name and 50 < len(head["description"]) <= 1024


def test_owners_are_named_for_everything():
    rows = [line.split() for line in (GITHUB / "CODEOWNERS").read_text("utf-8").splitlines() if line[:1] not in "#"]
    assert rows[0][0] == "*" and all(owner.startswith("@") for row in rows for owner in row[1:])
    for pattern in (row[0].strip("/") for row in rows[1:]):
        assert (ROOT / pattern).exists(), pattern
