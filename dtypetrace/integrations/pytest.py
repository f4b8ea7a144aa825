"""The pytest plugin: ``pytest --dtypetrace`` watches each test and puts its findings into the test's report.

pytest loads this file wherever dtypetrace is installed. Until a test asks for a trace, it imports only pytest.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..commands.run import ScriptWatch
    from ..tracing import Trace

_SECTION = "dtypetrace"
_LEVELS = ("note", "warning", "error")
_Hook = Generator[None, object, object]


@dataclass(frozen=True)
class _Watched:
    """The trace of one test, and what it was asked to do with the findings."""

    watch: ScriptWatch
    fail_on: str | None


_WATCHED = pytest.StashKey[_Watched]()
_TITLES = pytest.StashKey[list[str]]()


# ---------------------------------------------------------------- options


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--dtypetrace``, ``--dtypetrace-fail-on`` and the setting ``dtypetrace`` of the configuration file."""
    group = parser.getgroup("dtypetrace", "dtypetrace: which line made a tensor the wrong dtype")
    group.addoption("--dtypetrace", action="store_true", help="watch each test, and report its findings with it")
    group.addoption(
        "--dtypetrace-fail-on", choices=_LEVELS[::-1], help="fail a watched test with a finding this severe or more"
    )
    group.addoption("--dtypetrace-compile", choices=["eager"], help="run compiled functions eagerly in watched tests")
    parser.addini("dtypetrace", "watch each test, as --dtypetrace does", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "dtypetrace(fail_on=None, ignore=()): watch this test; fail it with a finding that is as severe as fail_on "
        "('note', 'warning', 'error') or more; ignore: codes to leave out",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raises pytest.UsageError for a marker that cannot be meant so, before any test runs."""
    for item in items:
        if item.get_closest_marker("dtypetrace") is not None:
            _settings(item)


def _settings(item: pytest.Item) -> tuple[str | None, frozenset[str]]:
    """The severity at which a test fails, and the codes that it ignores."""
    fail_on: str | None = item.config.getoption("dtypetrace_fail_on")
    marker = item.get_closest_marker("dtypetrace")
    if marker is None:
        return fail_on, frozenset()
    wrong = sorted({*marker.kwargs} - {"fail_on", "ignore"})
    if marker.args or wrong:
        given = wrong[0] if wrong else repr(marker.args[0])
        raise pytest.UsageError(f"{item.nodeid}: the marker dtypetrace takes fail_on= and ignore=, not {given}")
    fail_on = marker.kwargs.get("fail_on", fail_on)
    if fail_on not in (None, *_LEVELS):
        raise pytest.UsageError(f"{item.nodeid}: fail_on is one of {', '.join(_LEVELS)}, not {fail_on!r}")
    return fail_on, frozenset(_codes(item, marker.kwargs.get("ignore", ())))


def _codes(item: pytest.Item, ignore: Sequence[str]) -> Sequence[str]:
    from ..tables.codes import TITLES

    codes = [ignore] if isinstance(ignore, str) else list(ignore)
    for code in codes:
        if code not in TITLES:
            raise pytest.UsageError(f"{item.nodeid}: ignore= has {code!r}, and there is no such finding")
    return codes


# ---------------------------------------------------------------- one test


def _asked(item: pytest.Item) -> bool:
    config = item.config
    return bool(
        config.getoption("dtypetrace")
        or config.getini("dtypetrace")
        or "dtypetrace" in getattr(item, "fixturenames", ())
        or item.get_closest_marker("dtypetrace") is not None
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> _Hook:
    """Begins to watch before the fixtures are made; one of a wider scope belongs to the first test that uses it."""
    if not _asked(item):
        return (yield)
    from ..commands.run import ScriptWatch

    fail_on, ignore = _settings(item)
    compiled = item.config.getoption("dtypetrace_compile")
    watch = ScriptWatch(source=item.config.rootpath, ignore=ignore, numerics=True, compile=compiled)
    item.stash[_WATCHED] = _Watched(watch, fail_on)
    watch.arm()
    try:
        return (yield)
    except BaseException as error:
        watch.stop(error)
        _add_section(item, "setup", watch)
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> _Hook:
    """Ends the trace with the test: the exception gets the notes of the finding that ended it."""
    watched = item.stash.get(_WATCHED, None)
    if watched is None:
        return (yield)
    try:
        result = yield
    except BaseException as error:
        watched.watch.stop(error)
        _add_section(item, "call", watched.watch)
        raise
    watched.watch.stop(None)
    findings = _add_section(item, "call", watched.watch)
    _fail(findings, watched.fail_on)
    return result


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> _Hook:
    """Forgets the test's trace."""
    try:
        return (yield)
    finally:
        if _WATCHED in item.stash:
            item.stash[_WATCHED].watch.stop(None)  # a test that was skipped in its setup by another plugin
            del item.stash[_WATCHED]


def _add_section(item: pytest.Item, when: str, watch: ScriptWatch) -> Sequence[Any]:
    """Adds the findings to the test's report, and returns them."""
    if watch.failure is not None:
        item.add_report_section(when, _SECTION, f"dtypetrace: internal error, please report it: {watch.failure!r}")
    trace = watch.trace
    if trace is None or watch.failure is not None:
        return ()
    from .. import report

    findings = trace.findings
    if findings:
        item.add_report_section(when, _SECTION, report.text(trace.recording, findings))
        item.stash[_TITLES] = [f"{f.severity}[{f.code}]: {f.title}" for f in findings]
    return findings


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """The titles go with the test's report, as its sections do: from the workers of xdist, too."""
    made = yield
    made.dtypetrace = item.stash.get(_TITLES, [])
    return made


def _fail(findings: Sequence[Any], level: str | None) -> None:
    from ..commands.arguments import reaches

    if reaches(findings, level):
        from .. import report

        severe = [f for f in findings if reaches([f], level)]
        lines = [f"dtypetrace: {len(severe)} finding{'s' if len(severe) != 1 else ''} of severity {level} or higher"]
        lines += report.notes_for(severe[0])
        pytest.fail("\n".join(lines), pytrace=False)


@pytest.fixture(name="dtypetrace")
def _dtypetrace(request: pytest.FixtureRequest) -> Iterator[Trace]:
    """The open trace of this test (``dtypetrace.Trace``): its ``findings`` so far, ``why`` and all other views."""
    import torch  # noqa: F401 -- the trace begins when torch is imported

    watch = request.node.stash[_WATCHED].watch
    if watch.failure is not None:
        raise watch.failure
    yield watch.trace


# ---------------------------------------------------------------- the end of the session


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Lists the tests that have findings, because pytest does not show the sections of a test that passed."""
    found: dict[str, list[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if titles := getattr(report, "dtypetrace", ()):
                found[report.nodeid] = titles
    if found:
        terminalreporter.section("dtypetrace", sep="=")
        for test, titles in found.items():
            terminalreporter.line(test)
            for title in titles:
                terminalreporter.line(f"  {title}")
        terminalreporter.line("whole reports of tests that passed: pytest -rP")
