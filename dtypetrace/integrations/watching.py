"""What the callbacks share: the plan judged before step 1, the first steps watched, a report in the run's folder."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..commands.arguments import codes, reaches
from ..commands.preflight import preflight
from ..records import SEVERITIES, Finding
from ..tracing import Trace

Log = Callable[[Mapping[str, float]], None]
"""The trainer's own way to log metrics."""


class FoundError(RuntimeError):
    """Ends a run that was to end with such findings (``fail_on=``)."""


class FirstSteps:
    """Watches the first optimizer steps of a training run, then leaves nothing installed.

    max_steps: optimizer steps to watch. fail_on: ``"note"``, ``"warning"`` or ``"error"``: raise :class:`FoundError`
    for a finding this severe or more; None never ends the run. ignore: codes to leave out. numerics: measure values,
    too. A failure of dtypetrace's own is printed and ends the watching, never the run. Raises ValueError for a severity
    or a code that does not exist, and for fewer steps than one.
    """

    def __init__(
        self, max_steps: int = 3, fail_on: str | None = None, ignore: Sequence[str] = (), numerics: bool = True
    ) -> None:
        if fail_on not in (None, *SEVERITIES):
            raise ValueError(f"fail_on is one of {', '.join(SEVERITIES)}, not {fail_on!r}")
        if max_steps < 1:
            raise ValueError(f"max_steps needs to be at least 1, not {max_steps}")
        self.max_steps = max_steps
        self._fail_on = fail_on
        self._ignore = frozenset(codes(",".join(ignore))) if ignore else frozenset()
        self._numerics = numerics
        self.trace: Trace | None = None
        """The trace of the first steps; closed when they are over."""
        self.plan: tuple[Finding, ...] = ()
        """What was found before the first step."""
        self._done = 0
        self._rank = 0
        self._folder: Path | None = None
        self._log: Log | None = None

    @property
    def watching(self) -> bool:
        """Whether it watches at this moment."""
        return self.trace is not None and self.trace.is_open

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
        """Judges the plan, then watches. ``optimizer`` and the others are as in ``dtypetrace.preflight``."""
        if self.watching:
            return
        self._rank, self._folder, self._log, self._done = rank, Path(folder) if folder else None, log, 0
        self._ours(lambda: self._begin(model, optimizer, scaler, autocast_dtype))
        self._judge(self.plan)

    def _begin(self, model: Any, optimizer: Any, scaler: Any, autocast_dtype: Any) -> None:
        judged = preflight(model, optimizer=optimizer, scaler=scaler, autocast_dtype=autocast_dtype)
        self.plan = tuple(f for f in judged.findings if f.code not in self._ignore)
        if self.plan:
            self._say(repr(judged))
        if reaches(self.plan, self._fail_on):
            return
        self.trace = Trace(model, ignore=self._ignore, numerics=self._numerics)
        self.trace.start()

    def count(self) -> None:
        """Counts an optimizer step, which may still be running."""
        self._done += 1

    def end_if_enough(self) -> None:
        """Ends the trace after the last step to watch; to be called outside of a step."""
        if self.watching and self._done >= self.max_steps:
            self.end()

    def step_done(self) -> None:
        """An optimizer step is over; after the last one to watch, the trace ends."""
        self.count()
        self.end_if_enough()

    def end(self, error: BaseException | None = None) -> None:
        """Ends the trace: the report is printed by rank 0, written and logged. ``error``: what ended the run, if
        anything; it gets the notes of the finding behind it. Can be called twice."""
        trace = self.trace
        if trace is None or not trace.is_open:
            return
        self._ours(lambda: trace.stop(error))
        findings: list[Finding] = []
        self._ours(lambda: findings.extend(trace.findings))
        self._ours(lambda: self._report(trace))
        if error is None:
            self._judge(findings)

    def _report(self, trace: Trace) -> None:
        self._say(repr(trace))
        if self._log is not None:
            counts = {level: sum(f.severity == level for f in trace.findings) for level in SEVERITIES[::-1]}
            self._log({f"dtypetrace/{level}s": float(count) for level, count in counts.items()})
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            trace.save(self._folder / (f"dtypetrace.rank{self._rank}.trace" if self._rank else "dtypetrace.trace"))
            if self._rank == 0:
                trace.report(self._folder / "dtypetrace.html")
                self._say(f"dtypetrace: {self._folder / 'dtypetrace.html'}")

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
