"""What mkdocs does for our site beside rendering docs/: mkdocs.yml names this file under ``hooks``.

The pages of the repository stay where they are. Those outside docs/ are added under a path on the site, pages that come
from the code are generated, and links between files of the repository are rewritten to links of the site. A linked file
that is no page, such as a notebook, is copied to ``files/``. What no file answers is left as it is, so that the strict
build fails.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # `mkdocs build` without `python -m`
    sys.path.insert(0, str(ROOT))

from mkdocs.structure.files import File, Files, InclusionLevel  # noqa: E402

from tools import site_pages  # noqa: E402

PAGES = {
    "LIMITATIONS.md": "limitations.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "NOTES.md": "notes.md",
    "README.md": "readme.md",
    "benchmarks/README.md": "benchmarks.md",
    "skills/dtypetrace/SKILL.md": "skill.md",
}
"""Pages of the repository outside docs/, and where they stand on the site."""
SCHEMA = "dtypetrace/tables/report.schema.json"
RESULTS = "<!-- what benchmarks/results holds -->"
REPORT = "<!-- the report of this program -->"
_FENCED = re.compile(r"(^(?P<fence>```+|~~~+).*?^(?P=fence)\s*?$)", re.S | re.M)
_LINK = re.compile(r"(\]\()((?!https?://|mailto:|#)[^)\s#]+)(#[^)\s]*)?(\))")

_sources: dict[str, str] = {}
"""The file in the repository of each page of the site."""
_uris: dict[str, str] = {}
"""The page or copy on the site of each file of the repository."""


def on_config(config: Any) -> Any:
    """Lists every code's page in the navigation, where mkdocs.yml names their index."""
    for section in config.nav or ():
        for name, entries in section.items():
            if entries == "codes/index.md":
                listed: list[Any] = [{"All codes": "codes/index.md"}]
                for family, codes in site_pages.families().items():
                    listed.append({family: [{code: f"codes/{code}.md"} for code in codes]})
                section[name] = listed
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages outside docs/, the generated ones, and the files that pages link to."""
    _sources.clear()
    _uris.clear()
    for file in files.documentation_pages():
        _sources[file.src_uri] = Path(file.abs_src_path).relative_to(ROOT).as_posix()
    for source, uri in PAGES.items():
        _sources[uri] = source
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    for uri, text in site_pages.pages().items():
        files.append(File.generated(config, uri, content=text))
    files.append(File.generated(config, "files/report.html", content=_report()))
    _uris.update({source: uri for uri, source in _sources.items()})
    for page in ROOT.glob("dtypetrace/tables/code_pages/DT*.md"):
        _uris[page.relative_to(ROOT).as_posix()] = f"codes/{page.name}"
    wanted = {SCHEMA}
    for source in _sources.values():
        text = (ROOT / source).read_text("utf-8")
        wanted |= {_target(source, link) for _, link, *_ in _LINK.findall(_FENCED.sub("", text))}
    for target in sorted(wanted - set(_uris)):
        if (ROOT / target).is_file():
            _uris[target] = f"files/{target}"
            file = File.generated(config, _uris[target], abs_src_path=str(ROOT / target))
            file.inclusion = InclusionLevel.INCLUDED
            files.append(file)
    return files


def _target(source: str, link: str) -> str:
    """The file of the repository that a link in ``source`` leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Rewrites the links of a page of the repository, and puts the benchmarks' results where a page asks for them."""
    uri = page.file.src_uri
    if uri not in _sources:
        return markdown

    def rewritten(match: re.Match[str]) -> str:
        leads_to = _uris.get(_target(_sources[uri], match[2]))
        if leads_to is None:
            return match[0]
        return f"{match[1]}{posixpath.relpath(leads_to, posixpath.dirname(uri) or '.')}{match[3] or ''}{match[4]}"

    parts = _FENCED.split(markdown)
    # split gives text, block, its fence, text, ...
    text = "".join(_LINK.sub(rewritten, part) if at % 3 == 0 else part for at, part in enumerate(parts) if at % 3 != 2)
    opened = posixpath.relpath("files/report.html", posixpath.dirname(uri) or ".")
    return text.replace(RESULTS, _results()).replace(REPORT, f"[This is the report of the program above]({opened}).")


def _report() -> str:
    """The HTML report of the first program of docs/start.md, as the code makes it now."""
    program = re.search(
        r"^```python\n# train\.py\n(.*?)^```$", (ROOT / "docs" / "start.md").read_text("utf-8"), re.S | re.M
    )
    assert program, "docs/start.md has no program train.py"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(program[1], "utf-8")
        command = [sys.executable, "-m", "dtypetrace", "run", "--quiet", "--html", "report.html", "train.py"]
        before = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": before}, capture_output=True, timeout=120)
        return Path(folder, "report.html").read_text("utf-8")


def _results() -> str:
    """What the benchmarks printed, each file as a block."""
    found = sorted((ROOT / "benchmarks" / "results").glob("*.txt"))
    return "\n\n".join(f"`benchmarks/results/{f.name}`:\n\n```text\n{f.read_text('utf-8').strip()}\n```" for f in found)
