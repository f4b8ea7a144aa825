"""Builds the wheel and the source distribution, installs them in an environment of their own, and tests them there.

    python -m tools.distribution [--folder dist] [--jobs N] [--only EXPRESSION] [--verbose] [--keep]

The source distribution is built from a copy of the checkout, without what earlier builds left there, and the wheel
from the unpacked source distribution, so a file that is missing in one is missing in the other. The tests are those of
the source distribution. They run outside the checkout, with the package that pip installed from the wheel. The
temporary folder, which takes some GB with torch, is removed at the end.
"""

from __future__ import annotations

import argparse
import email
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = (".*", "__pycache__", "*.egg-info", "build", "dist", "*.pyc")
PARTS = ("benchmarks", "docs", "dtypetrace", "examples", "notebooks", "skills", "tests", "tools")
"""The folders that a source distribution must have."""


class Broken(Exception):
    """A step that failed, in one line."""


def build(folder: Path, scratch: Path) -> tuple[Path, Path]:
    """Builds both into a folder and returns the source distribution and the wheel. Raises Broken."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("dtypetrace-*"):
        old.unlink()
    copy = scratch / "copy"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
    source = folder.resolve() / _backend("build_sdist", folder, copy)
    wheel = folder.resolve() / _backend("build_wheel", folder, unpacked(source, scratch / "unpacked"))
    return source, wheel


def _backend(what: str, folder: Path, where: Path) -> str:
    """The name of the file that setuptools built in a folder."""
    code = f"from setuptools import build_meta; print(build_meta.{what}({str(folder.resolve())!r}))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=where, capture_output=True, text=True)
    if done.returncode:
        raise Broken(f"{what} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout.strip().splitlines()[-1]


def unpacked(source: Path, where: Path) -> Path:
    """Unpacks a source distribution and returns its only folder."""
    with tarfile.open(source) as archive:
        archive.extractall(where, filter="data")
    (top,) = where.iterdir()
    return top


def package_files(root: Path = ROOT) -> set[str]:
    """The files of the package in a checkout, relative to it."""
    return {
        file.relative_to(root).as_posix()
        for file in (root / "dtypetrace").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def problems(source: Path, wheel: Path) -> list[str]:
    """What is wrong with the contents of both, a sentence each."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name.split("/")[0] for name in names if ".dist-info/" in name)
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        entries = archive.read(f"{info}/entry_points.txt").decode()
    inside = {name for name in names if not name.startswith(f"{info}/")}
    found += [f"the wheel lacks {name}" for name in sorted(package_files() - inside)]
    found += [f"the wheel has {name}, which is no file of the package" for name in sorted(inside - package_files())]
    if f"{info}/licenses/LICENSE" not in names and f"{info}/LICENSE" not in names:
        found.append("the wheel lacks the license")
    found += [
        f"the wheel lacks the entry point {e}" for e in ("dtypetrace.__main__:main", "pytest11") if e not in entries
    ]
    if not any(requirement.split(";")[0].strip() == "torch" for requirement in metadata.get_all("Requires-Dist", [])):
        found.append("the wheel does not require torch without a version")
    with tarfile.open(source) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tracked = {f.relative_to(ROOT).as_posix() for part in PARTS for f in _files(ROOT / part)}
    found += [f"the source distribution lacks {name}" for name in sorted(tracked - packed)]
    return found


def _files(folder: Path) -> list[Path]:
    return [f for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts and f.suffix != ".pyc"]


def _run(words: Sequence[str | Path], where: Path, what: str) -> None:
    surroundings = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([str(word) for word in words], cwd=where, env=surroundings)
    if done.returncode:
        raise Broken(f"{what} failed with exit status {done.returncode}")


def install_and_test(source: Path, wheel: Path, scratch: Path, options: argparse.Namespace) -> None:
    """Installs the wheel where nothing else is, and runs the quick tests of the source distribution. Raises Broken."""
    home = scratch / "environment"
    python = home / "bin" / "python"
    _run([sys.executable, "-m", "venv", home], scratch, "making an environment")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _say("installing the wheel with torch and what the tests need; this takes a few minutes")
    _run([*pip, "--constraint", ROOT / "constraints.txt", f"{wheel}[models,test]"], scratch, "installing the wheel")
    _run([home / "bin" / "dtypetrace", "--version"], scratch, "dtypetrace --version")
    _run(
        [*pip, "--no-deps", "--target", scratch / "from_source", source], scratch, "installing the source distribution"
    )
    if missing := package_files() - package_files(scratch / "from_source"):
        raise Broken(f"installed from the source distribution, the package lacks {', '.join(sorted(missing))}")
    tests = unpacked(source, scratch / "tests")
    installed = next(home.glob("lib/python*/site-packages/dtypetrace"))
    shutil.rmtree(tests / "dtypetrace")
    (tests / "dtypetrace").symlink_to(installed)  # some tests read the package's files; these are the installed ones
    _say(f"running the quick tests in {tests}, with the package in {installed}")
    words = [python, "-m", "pytest", "-v" if options.verbose else "-q", "-p", "no:cacheprovider"]
    words += ["-m", "not slow and not exhaustive", *(["-n", str(options.jobs)] if options.jobs > 1 else [])]
    _run([*words, *(["-k", options.only] if options.only else [])], tests, "a quick test")


def _say(text: str) -> None:
    print(f"make dist: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "dist", metavar="F", help="where both are written")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that run the tests")
    parser.add_argument("--only", default="", metavar="EXPRESSION", help="run only these tests, as pytest -k does")
    parser.add_argument("-v", "--verbose", action="store_true", help="name each test")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="dtypetrace-dist-"))
    try:
        source, wheel = build(options.folder, scratch)
        for file in (source, wheel):
            _say(f"built {os.path.relpath(file)} ({file.stat().st_size / 1024:.0f} KB)")
        if found := problems(source, wheel):
            raise Broken("; ".join(found))
        install_and_test(source, wheel, scratch, options)
    except Broken as failure:
        print(f"make dist: {failure}", file=sys.stderr)
        return 1
    finally:
        if not options.keep:
            shutil.rmtree(scratch, ignore_errors=True)
    _say("both install, and the quick tests pass with the installed package")
    return 0


if __name__ == "__main__":
    sys.exit(main())
