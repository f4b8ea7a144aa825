"""The object that users hold: it is opened, closed and asked for findings. Every output is a view of its recording."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from torch import nn

from .capture.calls import dtype_name
from .capture.held_signals import Leaving, held
from .capture.protocols import MakeHealer, Opened
from .capture.recorder import Recorder
from .capture.snapshot import ending, snapshot
from .capture.stacks import UserCode
from .hooks import Watch
from .records import Recording, Results
from .source.facts import with_facts
from .view import View

if TYPE_CHECKING:
    from .dryrun.session import DryRun
    from .rules.precision_plan import StepError

_open: dict[int, Trace] = {}


class Trace(View):
    """Watches a block of code. Made by :func:`dtypetrace.trace` or by ``dtypetrace run``.

    model, autofix, numerics and reference are as in :func:`trace`. The others are for the command line. whole_script:
    traces in the program become views of this one. script and source: where the user's own files are. ignore: codes to
    leave out. The program ends after ``steps`` optimizer steps; watching ends after ``trace_steps``. dry:
    large tensors have no values, and every refusal is a prediction.

    Raises TypeError for a model that is not a module, RuntimeError for a second open trace in one thread.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        whole_script: bool = False,
        script: str | os.PathLike[str] | None = None,
        source: str | os.PathLike[str] | None = None,
        ignore: frozenset[str] = frozenset(),
        autofix: bool | MakeHealer = False,
        steps: int | None = None,
        trace_steps: int | None = None,
        numerics: bool = False,
        reference: bool = False,
        reference_steps: int | None = None,
        keep_wide: tuple[str, ...] = (),
        dry: bool = False,
    ) -> None:
        if model is not None and not isinstance(model, nn.Module):
            raise TypeError(
                f"dtypetrace.trace(model): got {type(model).__name__}, not a torch.nn.Module; pass the "
                f"module or nothing"
            )
        self._ignore = frozenset(ignore)
        self._whole_script = whole_script
        self._watch = Watch(
            model,
            user=UserCode(script, source),
            healing=_healing() if autofix is True else autofix or None,
            steps=steps if trace_steps is None else trace_steps,
            on_enough=None if trace_steps is None else self.stop,
            numerics=numerics,
            reference=_reference(reference_steps, keep_wide) if reference or keep_wide else None,
        )
        self.dry_run = _dry_run(self._watch.recorder) if dry else None
        self._watch.recorder.predicts = dry
        self._outer: Trace | None = None
        self._recording: Recording | None = None
        self._ending: Callable[[], Recording] | None = None
        """Makes the recording of a closed trace when it is first asked for."""
        self._results: Results | None = None
        self._thread: int | None = None
        self.guard: weakref.ref[Any] | None = None
        self._opened_at = ""

    # ------------------------------------------------------------ life

    def start(self) -> None:
        """Begins to watch the calling thread. Under ``dtypetrace run``, a trace in the script is a view of the outer
        one."""
        try:
            with held():
                self._start()
        except BaseException:  # also what a signal's handler raised that was held
            self.stop()
            raise

    def _start(self) -> None:
        ident = threading.get_ident()
        other = _open.get(ident)
        if other is not None:
            if not other._whole_script:
                raise RuntimeError(
                    f"a dtypetrace trace is already open in this thread (opened at {other._opened_at}); "
                    "close it first, or watch both with one trace"
                )
            self._outer = other
            return
        if self._recorded is not None:
            raise RuntimeError("this trace was already used; make a new one with dtypetrace.trace()")
        opened_in = _caller()
        self._opened_at = f"{opened_in.f_code.co_filename}:{opened_in.f_lineno}" if opened_in else "?"
        opened = Opened(id(opened_in), opened_in.f_code, opened_in.f_lineno) if opened_in is not None else None
        self._thread = ident
        _open[ident] = self
        try:
            if self.dry_run is not None:
                self.dry_run.start()  # its modes are below ours: they act in place of kernels
            self._watch.start(opened)
        except BaseException:
            self._close(None)
            raise

    def stop(self, error: BaseException | None = None) -> None:
        """Stops watching and restores the process. ``error`` is the exception that leaves the block, if any. Can be
        called twice."""
        if self._thread is None:
            return
        recorder = self._watch.recorder
        try:
            self._last_look(recorder, error)
        finally:
            try:
                with held():
                    self._close(error)
            except BaseException:  # an interrupt that came first, or was held
                self._close(error)
                raise
        if error is not None:
            _unlink_own_frames(error)
            try:
                self._add_notes(error)
            except Exception:  # the program's exception goes on even if we fail
                recorder.fail("the notes for an exception")
        if self._ending is None and self._recording is None or recorder.broken:
            self._recording = replace(self._recorded or Recording(), not_seen=tuple(recorder.not_seen))
            if self._results is not None:
                self._results = replace(self._results, recording=self._recording)

    def _last_look(self, recorder: Recorder, error: BaseException | None) -> None:
        """Records what only the end of the block shows."""
        if error is not None:
            try:
                recorder.leaves(error)
            except Exception:  # what was recorded before is still worth showing
                recorder.fail("the exception that ended the block")
        try:
            for note in self.dry_run.notes(recorder.user) if self.dry_run is not None else ():
                self.not_seen(note)
            self._ending = ending(recorder)  # while the tensors are still known
        except Exception:
            recorder.fail("the end of the trace")

    def _close(self, error: BaseException | None) -> None:
        """Removes everything. May be called again where an interrupt ended it."""
        self._watch.stop(error)
        if self.dry_run is not None:
            self.dry_run.stop()
        for ident in [ident for ident, trace in list(_open.items()) if trace is self]:
            del _open[ident]
        self._thread = None

    @property
    def is_open(self) -> bool:
        """Whether it watches at this moment."""
        return self._thread is not None

    def not_seen(self, what: str) -> None:
        """Notes a limit of this trace, shown under ``not seen``."""
        self._watch.recorder.not_seen[what] = None

    def _add_notes(self, error: BaseException) -> None:
        from . import report

        if self.findings and self.findings[0].severity == "error":
            for note in report.notes_for(self.findings[0]):
                if note not in getattr(error, "__notes__", ()):
                    error.add_note(note)

    def __enter__(self) -> Trace:
        self.start()
        return self

    def _leave(self, kind: type | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop(error)
        self.guard = None

    __exit__ = Leaving(_leave)

    # ------------------------------------------------------------ views

    @property
    def results(self) -> Results:
        """What was recorded and what was judged from it.

        Worked out once for a closed trace; while it is open, from what was seen so far.
        """
        if self._outer is not None:
            return self._outer.results
        if self._results is not None:
            return self._results
        from .results import conclude

        found = conclude(self.unjudged, self._ignore)
        if self._recording is not None:
            self._results = found
            self._recording = found.recording
        return found

    @property
    def recording(self) -> Recording:
        """The plain data: what was seen so far while the block is open, all of it afterwards."""
        trace = self._outer or self
        return trace.unjudged if trace._recorded is None else trace.results.recording

    @property
    def unjudged(self) -> Recording:
        """The recording with the facts from its text and, until it is judged, the text itself."""
        recorded = self._recorded
        return with_facts(recorded if recorded is not None else snapshot(self._watch.recorder))

    @property
    def _recorded(self) -> Recording | None:
        """The recording of a closed trace, None while it is open."""
        if self._recording is None and self._ending is not None:
            try:
                self._recording = self._ending()
            except Exception:
                self._watch.recorder.fail("the end of the trace")
                self._recording = Recording(not_seen=tuple(self._watch.recorder.not_seen))
            self._ending = None
        return self._recording

    @property
    def root(self) -> Path:
        """The folder that holds the user's own code."""
        return self._watch.recorder.user.root

    def is_users(self, file: str) -> bool:
        """Whether a file is the user's own."""
        return self._watch.recorder.user(file)

    def _runs_with(self, step: Callable[[], Any]) -> Callable[[tuple[str, ...]], StepError]:
        from .rules.precision_plan import step_error

        def measured(keep: tuple[str, ...]) -> StepError:
            again = Trace(reference=True, keep_wide=keep)
            with again:
                step()
            return step_error(again.recording)

        return measured

    def _event_of(self, tensor: Any) -> tuple[int, str]:
        recorder = (self._outer or self)._watch.recorder
        if (self._outer or self)._thread is None:
            raise ValueError(
                "why(tensor) asks a live trace; ask inside the with block, or for a module or parameter by name"
            )
        mark = recorder.origins.of(tensor)
        if mark is None:
            raise ValueError("this tensor took part in nothing that was watched")
        return mark.event, dtype_name(tensor.dtype)


def _healing() -> MakeHealer:
    from .healing.healer import Healer
    from .rules.healing import ruling  # this imports the rules

    return partial(Healer, judge=ruling)


def _dry_run(recorder: Recorder) -> DryRun:
    from .dryrun.session import DryRun

    return DryRun(lambda: recorder.steps_done)


def _reference(steps: int | None, keep: tuple[str, ...]) -> Callable[[Recorder], Any]:
    from .reference.follow import STEPS, Reference

    return partial(Reference, steps=STEPS if steps is None else steps, keep=keep)


def trace(
    model: nn.Module | None = None, *, autofix: bool = False, numerics: bool = False, reference: bool = False
) -> Trace:
    """Watches the block and finds the line that gave a tensor the wrong dtype.

    ``model`` is only used to name the modules; all code that runs in the block is watched. ``autofix``: each call that
    would fail because of a dtype is repeated with the right cast, and the block goes on; see ``fixes`` and ``diff``.
    ``numerics`` measures values too: what became infinite or was flushed to zero, and which weights no optimizer step
    could move. ``reference`` runs each operator a second time in higher precision and measures the error of each; the
    program's own values do not change.

    >>> import torch, dtypetrace
    >>> model = torch.nn.Linear(2, 2)
    >>> with dtypetrace.trace(model) as t:
    ...     model(torch.ones(1, 2)).sum().backward()
    >>> t.findings
    ()
    """
    return Trace(model, autofix=autofix, numerics=numerics, reference=reference)


def open_recorder() -> Recorder | None:
    """The recorder of the trace that is open in this thread."""
    trace = _open.get(threading.get_ident())
    return trace._watch.recorder if trace is not None else None


def _caller() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    own = str(Path(__file__).parent)
    while frame is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return frame


def _unlink_own_frames(error: BaseException) -> None:
    """Takes dtypetrace's frames out of the tracebacks of an exception and of the exceptions that led to it."""
    own = str(Path(__file__).parent) + os.sep
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        chain = waiting.pop()
        if chain is None or id(chain) in seen:
            continue
        seen.add(id(chain))
        waiting += (chain.__cause__, chain.__context__)
        kept = []
        tb = chain.__traceback__
        while tb is not None:
            if not tb.tb_frame.f_code.co_filename.startswith(own):
                kept.append(tb)
            tb = tb.tb_next
        for tb, following in zip(kept, [*kept[1:], None]):
            if tb.tb_next is not following:
                tb.tb_next = following
        chain.__traceback__ = kept[0] if kept else None
