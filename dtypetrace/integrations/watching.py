"""What the callbacks share: the settings checked before step 1, steps watched while they show something new, a report
in the run's folder."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import report
from ..commands import rank_parts
from ..commands.arguments import codes, reaches
from ..commands.preflight import preflight
from ..commands.rank_parts import Job
from ..compare.ranks import merge
from ..errors import FoundError
from ..records import SEVERITIES, Finding, Place
from ..tracing import FIRST_STEPS, NEW, Trace, check_watch_every

Log = Callable[[Mapping[str, float]], None]
"""The trainer's own way to log metrics."""


class FirstSteps:
    """Watches a training run while its steps show something new, as ``dtypetrace.trace`` does.

    first: only so many optimizer steps are watched, and then nothing is left installed. every: one step in so many is
    watched after the first ones; 1: each step. fail_on: ``"note"``, ``"warning"`` or ``"error"``: raise
    :class:`FoundError` for a finding this severe or more; None never ends the run. ignore: codes to leave out.
    precision, compile: as in ``dtypetrace.trace``, ``"reference"`` excepted. A failure of dtypetrace's own is printed
    and ends the watching, never the run. Raises ValueError for a severity or a code that does not exist, and for fewer
    steps than one.
    """

    def __init__(
        self,
        first: int | None = None,
        fail_on: str | None = None,
        ignore: Sequence[str] = (),
        precision: str = "values",
        every: int | str | None = None,
        compile: str | None = None,
    ) -> None:
        if precision not in ("off", "values"):
            raise ValueError(f'precision is "off" or "values", got {precision!r}')
        if fail_on not in (None, *SEVERITIES):
            raise ValueError(f"fail_on is one of {', '.join(SEVERITIES)}, not {fail_on!r}")
        if first is not None and first < 1:
            raise ValueError(f"first needs to be at least 1, not {first}")
        check_watch_every(every, autofix=False, reference=False, dry=False)
        self.first = first if first or not compile or every else FIRST_STEPS
        self.every = every if every is not None or self.first else NEW
        self._fail_on = fail_on
        self._ignore = frozenset(codes(",".join(ignore))) if ignore else frozenset()
        self._numerics, self._compile = precision != "off", compile
        self.trace: Trace | None = None
        """The trace of the watched steps; closed when the last one is over."""
        self.plan: tuple[Finding, ...] = ()
        """What was found before the first step."""
        self._done = 0
        self._reported: list[tuple[str, Place]] | None = None
        """What the report of the first steps found."""
        self._has_receipt = False
        self._job: Job | None = None
        self._rank = 0
        self._folder: Path | None = None
        self._log: Log | None = None

    @property
    def watching(self) -> bool:
        """Whether it watches, or will again."""
        return self.trace is not None and self.trace.is_open

    @property
    def first_steps_over(self) -> bool:
        """Whether the first steps were watched and reported."""
        return self._reported is not None

    def begin(
        self,
        model: Any,
        *,
        optimizer: Any = None,
        scaler: Any = None,
        autocast_dtype: Any = None,
        rank: int = 0,
        folder: str | os.PathLike[str] | None = None,
        log: Log | None = None,
    ) -> None:
        """Checks the settings, then watches. ``optimizer`` and the others are as in ``dtypetrace.preflight``."""
        if self.watching:
            return
        self._rank, self._folder, self._log = rank, Path(folder) if folder else None, log
        self._done, self._reported, self._has_receipt = 0, None, False
        self._ours(lambda: self._begin(model, optimizer, scaler, autocast_dtype))
        self._judge(self.plan)

    def _begin(self, model: Any, optimizer: Any, scaler: Any, autocast_dtype: Any) -> None:
        judged = preflight(model, optimizer=optimizer, scaler=scaler, autocast_dtype=autocast_dtype)
        self.plan = tuple(f for f in judged.findings if f.code not in self._ignore)
        if self.plan:
            self._say(repr(judged))
        if reaches(self.plan, self._fail_on):
            return
        self.trace = Trace(
            model,
            ignore=self._ignore,
            numerics=self._numerics,
            trace_steps=self.first,
            watch_every=self.every,
            compile=self._compile,
        )
        self.trace.start()
        job = rank_parts.job()
        if job is not None:
            # a folder of its own: the whole script may be watched, too
            self._job = replace(job, folder=job.folder.with_name(f"{job.folder.name}-trainer"))
            self._job.begin()

    def step_done(self) -> None:
        """An optimizer step is over. The trace counts steps itself; after the first ones, they are reported."""
        self._done += 1
        self.report_if_over()

    def report_if_over(self) -> None:
        """Reports the first steps if they are over; to be called outside of a step."""
        trace = self.trace
        if trace is None or self._reported is not None:
            return
        windows = trace.windows
        if self._done > (self.first or FIRST_STEPS) and windows is not None and not windows.steps:
            self.end()  # an optimizer that is none of torch's calls no hooks
        elif not trace.is_attached and windows is not None and windows.watched:
            self._conclude(trace)

    def end(self, error: BaseException | None = None) -> None:
        """Ends the trace: the report is printed by rank 0, written and logged. ``error``: what ended the run, if
        anything; it gets the notes of the finding behind it. Can be called twice."""
        trace = self.trace
        if trace is None or not trace.is_open and self._reported is not None:
            return
        self._ours(lambda: trace.stop(error))
        self._conclude(trace, error)

    def _conclude(self, trace: Trace, error: BaseException | None = None) -> None:
        findings: list[Finding] = []
        self._ours(lambda: findings.extend(trace.findings))
        found = [(f.code, f.site) for f in findings]
        whole, self._reported = found != self._reported, found
        self._ours(lambda: self._report(trace, whole))
        if not trace.is_open:
            self._ours(lambda: self._compare(trace))
        if error is None:
            self._judge(findings)

    def _report(self, trace: Trace, whole: bool) -> None:
        """Prints, writes and logs. ``whole``: False where the last report found the same, so that one line says all."""
        self._say(repr(trace) if whole else report.summary(trace.recording, trace.findings))
        if not self._has_receipt:
            self._has_receipt = True
            self._say(repr(trace.receipt()))
        if self._log is not None:
            counts = {level: sum(f.severity == level for f in trace.findings) for level in SEVERITIES[::-1]}
            self._log({f"dtypetrace/{level}s": float(count) for level, count in counts.items()})
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            trace.save(self._folder / (f"dtypetrace.rank{self._rank}.trace" if self._rank else "dtypetrace.trace"))
            if self._rank == 0:
                trace.report(self._folder / "dtypetrace.html")
                self._say(f"dtypetrace: {self._folder / 'dtypetrace.html'}")

    def _compare(self, trace: Trace) -> None:
        """The last rank of this machine says what its ranks disagree about. No rank waits for another one."""
        job, self._job = self._job, None
        if job is None:
            return
        job.add(trace.results, stopped=False)
        parts = job.take()
        if parts:
            apart = [f for f in merge(parts, job.world).findings if f.kind == "rank-disagreement"]
            if apart:
                print(report.text(trace.recording, apart), file=sys.stderr)

    def _judge(self, findings: Sequence[Finding]) -> None:
        if reaches(findings, self._fail_on):
            severe = next(f for f in findings if reaches([f], self._fail_on))
            raise FoundError(f"dtypetrace {severe.code}: {severe.title} (fail_on={self._fail_on!r})")

    def _say(self, text: str) -> None:
        if self._rank == 0:
            print(text, file=sys.stderr)

    def _ours(self, work: Callable[[], None]) -> None:
        """Does work of dtypetrace's own; if it fails, the run goes on unwatched."""
        try:
            work()
        except Exception:
            self._say("dtypetrace: internal error; the run goes on. Please report this:\n" + traceback.format_exc())
            if self.trace is not None:
                self.trace.stop()
