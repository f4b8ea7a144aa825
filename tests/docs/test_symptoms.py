"""The index of symptoms agrees with `dtypetrace explain`, and the page about other tools with the benchmarks' results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dtypetrace.commands.explain import explain
from dtypetrace.tables.codes import TITLES

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "symptoms.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(.+?)` \| .*? \| \[(DT\d{3})\]\(.*?\) \|$", TEXT, re.M)


@pytest.mark.parametrize(("message", "code"), ROWS, ids=lambda value: value[:40])
def test_a_message_leads_to_the_page_that_explain_shows(message, code):
    assert f"\n# {code}: " in f"\n{explain(message)}"


def test_the_index_is_long_enough_to_be_one():
    assert len(ROWS) >= 25
    for symptom in ("My loss is NaN in fp16", "LoRA does not learn", "Everything is float32 though I asked for bf16"):
        assert f"### {symptom}\n" in TEXT


def test_codes_without_an_error_are_reached_by_a_symptom():
    """Somebody whose run does not fail has no message to look up."""
    silent = {code for code in TITLES if code > "DT200"}
    assert silent - set(re.findall(r"DT\d{3}", TEXT)) <= {"DT306"}  # a note that says what torch refuses later


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda p: p.name)
def test_a_link_to_a_code_names_the_code_it_leads_to(page):
    for shown, target in re.findall(r"\[(DT\d{3})\]\([^)]*/(\w+)\.md\)", page.read_text("utf-8")):
        assert shown == target


def test_figures_about_other_tools_are_those_of_the_benchmarks():
    page = (ROOT / "docs" / "comparison.md").read_text("utf-8")
    results = "\n".join(file.read_text("utf-8") for file in (ROOT / "benchmarks" / "results").glob("*.txt"))
    figures = re.findall(r"\d[\d.]*x\b|1/\d[\d.]*\d|\d[\d.]* us\b|\d+ ops", page)
    assert len(figures) >= 10
    for figure in figures:
        assert figure in results, figure
