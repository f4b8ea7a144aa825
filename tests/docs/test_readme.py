"""The pages say what is so: README's console block is what the demo prints today, and the tables name what is there.

`DTYPETRACE_REWRITE=1 pytest tests/docs/test_readme.py` writes the block anew.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("skills/**/*.md"), *ROOT.glob(".github/*.md")]
)
BLOCK = re.compile(r"(<!-- what `make demo` prints -->\n```\n)(.*?)(\n```\n)", re.S)
PRINTED = r"^error\[DT\d+\].*?^Fix it: .*?$"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="the example needs diffusers")
def test_the_console_block_is_what_the_demo_prints():
    ended = warm.run(["-m", "dtypetrace", "run", "examples/unet_mask.py"], ROOT, COLUMNS="100")
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout == ""
    found = re.search(PRINTED, ended.stderr, re.S | re.M)
    assert found, ended.stderr
    printed = normalised(found[0])
    page = ROOT / "README.md"
    text = page.read_text("utf-8")
    assert BLOCK.search(text)
    if os.environ.get("DTYPETRACE_REWRITE"):
        page.write_text(BLOCK.sub(lambda m: m[1] + printed + m[3], text), "utf-8")
    assert normalised(BLOCK.search(page.read_text("utf-8"))[2]) == printed


def normalised(text: str) -> str:
    """Without what differs between machines: the path to the checkout and to site-packages, and lines in the latter."""
    text = text.replace(f"{ROOT}{os.sep}", "")
    text = re.sub(r"\S*site-packages/", "", text)
    return "\n".join(line.rstrip() for line in text.splitlines())


# ---------------------------------------------------------------- what the pages name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_headings_that_are_linked_are_there(page):
    def anchors(file: Path) -> set[str]:
        headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.M)
        return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}

    for file, anchor in re.findall(r"\]\(([\w./]*)#([^)\s]+)\)", page.read_text("utf-8")):
        assert anchor in anchors(page.parent / file if file else page), anchor


def test_contributing_draws_each_package_and_says_where_to_change_what():
    """Each package and each file beside them stands in the picture; the table is short, and every path exists."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    picture = re.search(r"^## The house in one picture\n\n```\n(.*?)^```", text, re.S | re.M)[1]
    files = {p.name for p in (ROOT / "dtypetrace").glob("*.py")} - {"__init__.py", "__main__.py"}
    folders = {f"{p.name}/" for p in (ROOT / "dtypetrace").iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert set(re.findall(r"\b\w+(?:/|\.py)", picture)) == files | folders
    table = text.split("## Where do I change ...?")[1].split("\n## ")[0]
    assert len(re.findall(r"^\|", table, re.M)) - 2 <= 25
    for name in re.findall(r"`(\w+/|[\w/]+(?:/|\.py|\.json))`", text):
        above = [ROOT / "dtypetrace", ROOT] + [ROOT / "dtypetrace" / package for package in folders]
        assert any((folder / name).exists() for folder in above), name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_options_exist(page):
    """Every `dtypetrace COMMAND --option` that a page shows is one that the program knows."""
    from dtypetrace.__main__ import COMMANDS, parser

    known = {name: sub.format_help() for name, sub in parser()._subparsers._group_actions[0].choices.items()}
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.S | re.M)
    # in a session only what is typed is a command
    shown = "\n".join(
        "\n".join(re.findall(r"^\$ (.+)$", text, re.M)) if text.startswith("$ ") else text
        for language, text in blocks
        if not language
    )
    for command, rest in re.findall(r"^dtypetrace (\w+)(.*)$", shown, re.M):
        assert command in COMMANDS, command
        for option in re.findall(r"(?<!\S)(--[a-z-]+)", rest.partition(".py")[0]):
            assert option in known[command], f"{command} {option}"


def test_public_names_are_reported():
    import dtypetrace

    assert set(dtypetrace.__all__) <= set(dir(dtypetrace))
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in filter(str.islower, dtypetrace.__all__):  # functions; the types are what they return
        if name == "errors":
            continue
        assert f"dtypetrace.{name}(" in readme, name


def test_the_tested_versions_are_the_pinned_ones():
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M))
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in ("torch", "diffusers", "transformers", "peft", "accelerate"):
        assert re.search(rf"{name} {re.escape(pinned[name])}\b", readme), f"{name} {pinned[name]}"


def test_every_dependency_is_pinned():
    import configparser

    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = declared["options.extras_require"]
    names = " ".join(
        [declared["options"]["install_requires"], extras["test"], extras["models"], extras["docs"]]
    ).split()
    pinned = re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    assert {re.sub(r"[\[<>=!].*", "", n).lower() for n in names} <= {p.lower() for p in pinned}


def test_the_changelog_begins_with_this_version():
    import dtypetrace

    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert first and first[1] == dtypetrace.__version__


def test_the_figures_among_the_limits_are_those_of_the_results():
    """A figure such as 2.05x stands in the row's file of results, with as many digits or more."""
    rows = [
        row.split(" | ") for row in (ROOT / "LIMITATIONS.md").read_text("utf-8").splitlines() if row.startswith("| ")
    ]
    checked = 0
    for row in rows:
        for file in re.findall(r"`(benchmarks/results/\w+\.txt)`", " | ".join(row)):
            printed = [float(n) for n in re.findall(r"(\d+\.\d+)(?:x| s\b)", (ROOT / file).read_text("utf-8"))]
            for figure in re.findall(r"(\d+\.\d+)(?:x| s\b)", row[1]):
                step = 10.0 ** -len(figure.partition(".")[2])
                assert any(abs(float(figure) - n) <= step / 2 + 1e-9 for n in printed), (file, figure)
                checked += 1
    assert checked >= 10


def test_the_limits_are_one_page():
    assert len((ROOT / "LIMITATIONS.md").read_text("utf-8").split()) <= 1500


def test_the_bounds_among_the_limits_are_those_of_the_code():
    from dtypetrace.capture import integers, updates
    from dtypetrace.capture.stacks import Places
    from dtypetrace.reference import spot_checks
    from dtypetrace.render import html_report, module_tree

    said = {
        "docs/values.md": (
            f"samples of up to {updates._SAMPLE:,} numbers",
            f"in the first {integers.CALLS} calls of each op",
            f"in every {integers.EVERY}th call after them",
            f"at most {spot_checks.CALLS:,} calls; small ops in float32",
            f"at most {spot_checks.CALLS_IN_FLOAT32:,} calls; {spot_checks.CALLS_OF_ONE} calls of one op",
            f"tensors of more than {spot_checks.LARGEST:,} elements",
            f"up to {spot_checks.LARGEST_OWN:,} are checked, {spot_checks.LARGE_ELEMENTS:,} in all",
        ),
        "docs/how-it-works.md": (
            f"at most {html_report._DRAWN} findings with their source",
            f"at most about {module_tree._MOST} lines of modules",
        ),
        "LIMITATIONS.md": (
            f"After {Places.most:,} distinct places",
            f"new parameters in {updates._MOST_CHANGES} measured steps",
        ),
    }
    for page, bounds in said.items():
        text = " ".join((ROOT / page).read_text("utf-8").split())
        for bound in bounds:
            assert bound in text, (page, bound)
