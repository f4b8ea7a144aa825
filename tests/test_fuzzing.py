"""Files changed at random: saved traces, their bytes, and the sources of programs.

A damaged trace is refused in one line, or every view shows it; a damaged source costs what it would have shown, never the
report. No mutation takes ten seconds of the processor or 500 MB. Each has a number; ``DTYPETRACE_SEED`` chooses others and
``make fuzz`` makes more of them.
"""

from __future__ import annotations

import io
import json
import linecache
import os
import re
import traceback
from dataclasses import replace
from pathlib import Path

import mutations
import pytest
import torch
from test_moved_sources import KINDS, Sources
from torch import nn

import dtypetrace
from dtypetrace import report
from dtypetrace.errors import TraceFileError
from dtypetrace.records import Recording
from dtypetrace.records.text import ProgramText
from dtypetrace.render import html_report
from dtypetrace.results import conclude
from dtypetrace.saved import load
from dtypetrace.source.facts import with_facts
from dtypetrace.tracing import Trace
from dtypetrace.view import SavedTrace, View

PARTS = 4
SHARES = {"data": 0.6, "bytes": 0.1, "sources": 0.3}
"""Of all mutations, by what is changed."""


def numbers(kind: str, part: int) -> range:
    return range(part, int(mutations.COUNT * SHARES[kind]), PARTS)


def message(faults: list[str]) -> str:
    return "\n".join([f"{len(faults)} mutations end badly", *faults[:10]])


def fault(kind: str, number: int, error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(last.filename)}:{last.lineno}"
    return f"{kind} {number} of seed {mutations.SEED}: {type(error).__name__}: {str(error)[:200]} at {where}"


# ---------------------------------------------------------------- traces


def trained(**options) -> Trace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)).half()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6)
    trace = dtypetrace.trace(model, **options)
    try:
        with trace:
            for _ in range(2):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = model(torch.randn(3, 4).half()).float().pow(2).sum()
                loss.backward()
                optimizer.step()
            model(torch.randn(3, 4).half() * torch.ones(3, 4))
    except RuntimeError:
        pass
    return trace


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> list[tuple[str, object, list]]:
    """Saved traces of several kinds: as text, as data, with the paths to their values."""
    folder = tmp_path_factory.mktemp("traces")
    made = [trained(numerics=True), trained(reference=True), trained(autofix=True)]
    made += [Sources(folder).run(kind) for kind in KINDS]
    found = []
    for number, trace in enumerate(made):
        path = folder / f"{number}.json"
        trace.save(path)
        data = json.loads(path.read_text())
        found.append((path.read_text(), data, list(mutations.ways(data))))
    return found


def whole(text: str) -> None:
    """A text for a terminal has no control characters."""
    steering = re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]", re.sub(r"\x1b\[[0-9;]*m", "", text))
    assert steering is None, f"{steering.group()!r} goes to the terminal raw"


def look(trace: View, number: int) -> None:
    """Asks for the console text and, in turn, for every other view."""
    screen = io.StringIO()
    report.console(trace, file=screen, program="train.py")
    whole(screen.getvalue())
    recording, findings = trace.recording, trace.findings
    others = (
        lambda: json.dumps(report.to_json(recording, findings)).encode(),
        lambda: html_report.render(recording, findings).encode(),
        lambda: whole(report.operators_text(recording)),
        lambda: [trace.to_dataframe(of).to_csv() for of in ("ops", "casts")],
        lambda: [trace.to_dataframe(of).to_csv() for of in ("parameters", "gradients")],
        lambda: _why(trace),
        trace.to_networkx,
        lambda: trace._repr_html_().encode(),
        lambda: ([f._repr_html_() for f in findings], list(map(str, trace.fixes)), trace.diff(), repr(trace)),
    )
    others[number % len(others)]()


def _why(trace: View) -> None:
    for name in trace.recording.modules[:3]:
        try:
            whole(repr(trace.why(name)))
        except ValueError:  # a module of which nothing was seen
            pass


def opened(path: Path, number: int) -> bool:
    """Whether the file could be opened; then all of it can be shown and saved again."""
    try:
        trace = load(path)
    except TraceFileError as error:
        assert "\n" not in str(error) and len(str(error)) < 400 + len(str(path)), f"not one line: {error!r}"
        whole(str(error))
        return False
    shown = SavedTrace(trace)
    look(shown, number)
    shown.save(path)
    return True


@pytest.mark.parametrize("part", range(PARTS))
def test_a_trace_with_changed_values_is_refused_or_shown(part, traces, tmp_path):
    faults, shown, path = [], 0, tmp_path / "t.json"
    for number in numbers("data", part):
        rnd = mutations.random_of("data", number)
        _, data, known = rnd.choice(traces)
        path.write_text(json.dumps(mutations.plain(data, known, rnd)))
        try:
            with mutations.limits():
                shown += opened(path, number)
        except BaseException as error:
            faults.append(fault("data", number, error))
    assert not faults, message(faults)
    assert shown, "nothing was tested beyond the loading"


@pytest.mark.parametrize("part", range(PARTS))
def test_a_trace_with_changed_bytes_is_refused_or_shown(part, traces, tmp_path):
    faults, path = [], tmp_path / "t.json"
    for number in numbers("bytes", part):
        rnd = mutations.random_of("bytes", number)
        path.write_bytes(mutations.coded(mutations.text(rnd.choice(traces)[0], rnd), rnd))
        try:
            with mutations.limits():
                opened(path, number)
        except BaseException as error:
            faults.append(fault("bytes", number, error))
    assert not faults, message(faults)


# ---------------------------------------------------------------- sources


@pytest.fixture(scope="module")
def programs_run(tmp_path_factory) -> list[tuple[Recording, dict[str, str]]]:
    """Recordings that are still to be judged, each with the texts of its program."""
    found = []
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        trace = Sources(folder).run(kind)
        files = {str(file): file.read_text() for file in sorted(folder.rglob("*.py"))}
        recorded = trace._recorded
        assert recorded is not None and recorded.text is not None
        found.append((recorded, files))
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_a_changed_source_costs_no_report(part, programs_run, tmp_path):
    """What the trace finds on disk when it ends need not be what ran: the files were edited, or are in no encoding."""
    faults = []
    for number in numbers("sources", part):
        rnd = mutations.random_of("sources", number)
        recording, files = rnd.choice(programs_run)
        changed = {file: mutations.text(text, rnd) for file, text in files.items()}
        data = {file: mutations.coded(text, rnd) for file, text in changed.items()}
        try:
            with mutations.limits():
                judged(recording, data, number)
        except BaseException as error:
            faults.append(fault("sources", number, error))
        finally:
            for file, text in files.items():
                Path(file).write_text(text)
    assert not faults, message(faults)


def judged(recording: Recording, data: dict[str, bytes], number: int) -> None:
    """The trace ends with these bytes on disk: it is judged, shown, and every edit that it offers fits the text."""
    for file, content in data.items():
        Path(file).write_bytes(content)
        linecache.cache.pop(file, None)
    text = ProgramText.taken(data, raw=data)
    found = conclude(with_facts(replace(recording, text=text)))
    assert found.findings or not recording.refused
    look(SavedTrace(found), number)
    for finding in found.findings:
        for edit in finding.fix.edits if finding.fix else ():
            assert between(text, edit) == edit.before, f"an edit of {edit.before!r} does not fit"


def between(text: ProgramText, edit) -> str:
    (first, begin), (last, end) = edit.start, edit.end
    lines = list(text.lines(edit.file))[first - 1 : last]
    lines[-1] = lines[-1][: end - 1]
    lines[0] = lines[0][begin - 1 :]
    return "".join(lines)
