"""The documentation site: it is built strictly, opens from disk, loads nothing from elsewhere, and has a page for
everything that has a name."""

from __future__ import annotations

import html.parser
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from browser import Visit, launched, missing
from filelock import FileLock

from dtypetrace.tables.codes import TITLES

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec("material") is None:
        missing("mkdocs-material is not installed")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=root, env=dict(os.environ, PYTHONPATH=str(root), NO_MKDOCS_2_WARNING="1"),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=240,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the built site: made once, whichever process of this session comes first."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with FileLock(folder / "site.lock"):
        if not (folder / "site" / "index.html").exists():
            built = build(ROOT, folder / "site")
            assert built.returncode == 0, built.stdout
            assert "WARNING" not in built.stdout, built.stdout
    return folder / "site"


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and which anchors it has."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag in ("script", "img", "iframe", "link", "source") and (found.get("src") or found.get("href")):
            self.loaded.append(found.get("src") or found["href"])


def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}


def test_every_link_leads_somewhere(site):
    found = pages(site)
    assert len(found) > len(TITLES)
    for file, page in found.items():
        for link in page.links + page.loaded:
            if re.match(r"[a-z]+:", link):  # the web, an editor
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (file.parent / path).resolve() if path else file
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{file.name}: {link}"
            if anchor and target in found:
                assert anchor in found[target].anchors, f"{file.name}: {link}"


def test_nothing_is_loaded_from_elsewhere(site):
    for file, page in pages(site).items():
        assert [url for url in page.loaded if ":" in url or url.startswith("//")] == [], file.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"""(?:@import|url\(["']?)\s*["']?(?:https?:)?//""", sheet.read_text("utf-8")), sheet.name


def test_everything_with_a_name_has_its_place(site):
    import dtypetrace
    from dtypetrace.__main__ import COMMANDS

    found = {file.relative_to(site).as_posix(): page for file, page in pages(site).items()}
    assert {f"codes/{code}.html" for code in TITLES} <= set(found)
    for page in ROOT.glob("docs/**/*.md"):
        assert page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() in found
    assert {f"dtypetrace{name.lower()}" for name in dtypetrace.__all__ if name != "errors"} <= found["api.html"].anchors
    views = {name for name in vars(dtypetrace.Trace.__mro__[1]) if not name.startswith("_")}
    assert "why" in views
    assert {f"trace{name}" for name in views} <= found["api.html"].anchors
    assert {f"dtypetrace-{name}" for name in COMMANDS} <= found["commands.html"].anchors
    assert "DT101" in (site / "files" / "report.html").read_text("utf-8")
    assert any(link.endswith("files/report.html") for link in found["start.html"].links)
    schema = json.loads((ROOT / "dtypetrace" / "tables" / "report.schema.json").read_text("utf-8"))
    assert {name.lower() for name in schema["$defs"]} <= found["schema.html"].anchors


@pytest.mark.exhaustive
def test_a_mistake_in_a_page_fails_the_build(tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(
        ROOT, root, ignore=shutil.ignore_patterns(".*", "tests", "build", "dist", "__pycache__", "*.egg-info")
    )
    start = root / "docs" / "start.md"
    start.write_text(start.read_text("utf-8") + "\n[x](nowhere.md) [y](guide.md#no-such-heading)\n", "utf-8")
    (root / "docs" / "forgotten.md").write_text("# Forgotten\n", "utf-8")
    settings = root / "mkdocs.yml"
    settings.write_text(settings.read_text("utf-8") + "      - Gone: gone.md\n", "utf-8")
    built = build(root, tmp_path / "site")
    assert built.returncode != 0
    for word in ("nowhere.md", "no-such-heading", "forgotten.md", "gone.md"):
        assert word in built.stdout, word


def test_nothing_generated_is_in_the_repository():
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a checkout")
    command = ["git", "ls-files", "build", "docs/codes", "docs/api.md", "docs/commands.md", "docs/schema.md", "*.html"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8").stdout.split()
    assert [name for name in listed if "templates/" not in name and not name.startswith("tests/")] == []


@pytest.mark.slow
def test_the_search_works_from_disk(site):
    """The words of a message lead to the page of its code, without a server and without a network."""
    with (
        launched() as browser,
        Visit(browser, site / "index.html", ready=False) as visit,
    ):
        visit.page.locator("input.md-search__input").first.click()
        visit.page.keyboard.type("unscale")  # it listens to keys
        visit.page.wait_for_selector("a.md-search-result__link")
        links = visit.page.locator("a.md-search-result__link").evaluate_all("found => found.map(each => each.href)")
        assert any("DT116.html" in link for link in links), links
        assert any("symptoms.html" in link for link in links), links
        assert all(url.startswith(("file:", "blob:", "data:")) for url in visit.asked), visit.asked
        assert visit.reported == []
