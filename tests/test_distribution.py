"""What `make dist` builds has all files of the package, and a file that is missing is noticed."""

from __future__ import annotations

import tarfile
import zipfile

import pytest

from tools import distribution

pytest.importorskip("setuptools")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return distribution.build(tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("scratch"))


def test_both_have_all_that_they_need(built):
    source, wheel = built
    assert distribution.problems(source, wheel) == []
    inside = set(zipfile.ZipFile(wheel).namelist())
    for name in ("py.typed", "tables/refusals.json", "tables/report.schema.json", "tables/code_pages/DT101.md"):
        assert f"dtypetrace/{name}" in inside
    assert any(name.startswith("dtypetrace/render/templates/") and name.endswith(".js") for name in inside)
    packed = {name.partition("/")[2] for name in tarfile.open(source).getnames()}
    assert {"tests/conftest.py", "constraints.txt", "CHANGELOG.md", "LICENSE", "docs/start.md"} <= packed


def test_a_missing_or_foreign_file_is_noticed(built, tmp_path):
    source, wheel = built
    spoilt = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(spoilt, "w") as new:
        for name in old.namelist():
            if name != "dtypetrace/py.typed":
                new.writestr(name, old.read(name))
        new.writestr("dtypetrace/left_over.py", "")
    assert distribution.problems(source, spoilt) == [
        "the wheel lacks dtypetrace/py.typed",
        "the wheel has dtypetrace/left_over.py, which is no file of the package",
    ]


def test_a_backend_that_fails_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(distribution, "ROOT", tmp_path)
    (tmp_path / "setup.cfg").write_text("[metadata]\nname = dtypetrace\nversion = not a version\n")
    with pytest.raises(distribution.Broken, match="^build_sdist failed: [^\n]+$"):
        distribution.build(tmp_path / "dist", tmp_path / "scratch")
