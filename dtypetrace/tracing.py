"""The object that users hold: it is opened, closed and asked for findings. Every output is a view of its recording."""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from .capture import unwatched
from .capture.calls import dtype_name
from .capture.held_signals import Leaving, held
from .capture.novelty import Novelty
from .capture.protocols import MakeHealer, Opened
from .capture.recorder import Recorder
from .capture.snapshot import ending, snapshot
from .capture.stacks import UserCode
from .capture.windows import Windows
from .hooks import Watch
from .parts import attempt, collected
from .program import unlink_frames
from .records import PRECISIONS, NotJudged, Recording, Rehearsed, Results

# here and not where they are used: a profiler around the trace keeps the names of code that an import frees
from .reference.follow import STEPS, Reference
from .reference.spot_checks import SpotChecks
from .reference.tape import Tape
from .reference.training import TrainingReference
from .reference.trials import tried
from .source.facts import with_facts
from .view import View

if TYPE_CHECKING:
    from .dryrun.session import DryRun

_open: dict[int, Trace] = {}


class Trace(View):
    """Watches a block of code. Made by :func:`dtypetrace.trace` or by ``dtypetrace run``.

    model, autofix, numerics, reference and watch_every are as in :func:`trace`. The others are for the command line.
    whole_script: this trace watches a whole script; a trace that the script opens shows what this one recorded. script
    and source: where the user's own files are. ignore: codes to leave out. steps: the program ends after so many
    optimizer steps. trace_steps: watching ends after so many; with ``watch_every=n``, later steps whose number is a
    multiple of n and at least ``start`` are still watched. dry: large tensors have no values, and calls that torch
    would refuse are predicted.
    compare_steps: how many optimizer steps are compared with the same steps in higher precision, to prove a patch;
    findings do not use it. notes: whether an exception that leaves gets notes; a report that follows at once says more.

    Raises TypeError for a model that is not a module, ValueError for a ``watch_every`` that is not a number of steps or
    cannot go with the other options, RuntimeError for a second open trace in one thread.
    """

    _FOR_USERS = (*View._FOR_USERS, "is_open", "start", "stop")

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
        watch_every: int | str | None = None,
        start: int = 1,
        numerics: bool = False,
        reference: bool = False,
        reference_steps: int | None = None,
        keep_wide: tuple[str, ...] = (),
        dry: bool = False,
        compare_steps: int = 0,
        compile: str | None = None,
        notes: bool = True,
    ) -> None:
        if model is not None and not isinstance(model, nn.Module):
            raise TypeError(
                f"dtypetrace.trace(model): got {type(model).__name__}, not a torch.nn.Module; pass the "
                f"module or nothing"
            )
        if compile not in (None, "eager", "on"):
            raise ValueError(f'compile is "eager" or None, got {compile!r}')
        check_watch_every(watch_every, autofix=bool(autofix), reference=reference or bool(keep_wide), dry=dry)
        self._ignore = frozenset(ignore)
        self._whole_script = whole_script
        self._notes = notes
        # a tensor that is written to in an unwatched step would keep its old reference
        new = watch_every == NEW
        every = watch_every if isinstance(watch_every, int) and (watch_every > 1 or start > 1) else None
        checks: Any = SpotChecks if numerics and every is None else None
        if checks is not None and compare_steps:
            checks = partial(TrainingReference, steps=compare_steps)
        first = trace_steps or (1 if start > 1 else FIRST_STEPS if every is not None or new else None)
        self._watch = Watch(
            model,
            user=UserCode(script, source),
            healing=_healing() if autofix is True else autofix or None,
            steps=steps,
            windows=Windows(first, every, _stops(self), Novelty(trace_steps) if new else None, start)
            if first
            else None,
            numerics=numerics,
            reference=_reference(reference_steps, keep_wide) if reference or keep_wide else checks,
            # inside compiled code no call can be repeated with casts, and no module computed in another dtype
            eager=compile != "on" and bool(compile or autofix or dry or keep_wide),
        )
        self.dry_run = _dry_run(self._watch.recorder) if dry else None
        self._watch.recorder.predicts = dry
        self._watch.recorder.ledger.asks = _in_eager
        self._outer: Trace | None = None
        self._recording: Recording | None = None
        self._ending: Callable[[], Recording] | None = None
        """Makes the recording of a closed trace when it is first asked for."""
        self._tapes: list[Tape] = []
        self._rehearsed: tuple[Rehearsed, ...] = ()
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
            own = str(Path(__file__).parent) + os.sep
            unlink_frames(error, lambda file: file.startswith(own))
            try:
                self._add_notes(error) if self._notes else None
            except Exception:  # the program's exception goes on even if we fail
                recorder.fail("the notes for an exception")
        if self._ending is None and self._recording is None or recorder.broken:
            self._recording = replace(self._recorded or Recording(), not_seen=tuple(recorder.not_seen))
            if self._results is not None:
                self._results = replace(self._results, recording=self._recording)

    def _last_look(self, recorder: Recorder, error: BaseException | None) -> None:
        """Records what only the end of the block shows."""
        windows = self._watch.windows
        if windows is not None and (windows.every is not None or windows.novelty is not None):
            self._say_unwatched(windows, windows.rounds + (error is not None and not isinstance(error, SystemExit)))
        if error is not None:
            try:
                if windows is None or self.is_attached and not self._watch.skips:
                    recorder.leaves(error)
                else:
                    unwatched.leaves(recorder, error, windows.current)
            except Exception:  # what was recorded before is still worth showing
                recorder.fail("the exception that ended the block")
        try:
            for note in self.dry_run.notes(recorder.user) if self.dry_run is not None else ():
                self.not_seen(note)
            self._tapes = [f.tape for f in (recorder.followed, recorder.checks) if f is not None and f.tape.calls]
            self._rehearsed = recorder.updates.rehearsed()
            self._ending = ending(recorder)  # while the tensors are still known
        except Exception:
            recorder.fail("the end of the trace")

    def _say_unwatched(self, windows: Windows, steps: int) -> None:
        left = windows.rounds - windows.watched
        if windows.novelty is not None:
            self._watch.recorder.watched = windows.novelty.said(steps)
        elif left:
            first = f"the first {windows.first} were" if windows.first > 1 else "the first was"
            each = f"one in {windows.every}" if windows.every != 1 else "each"
            then = f"then {each}" + (f" from {windows.start:,} on" if windows.start > 1 else "")
            self.not_seen(f"{left:,} of {windows.rounds:,} steps: {first} watched, {then}")
        if windows.missed:
            self.not_seen("later steps: watching cannot begin again in an optimizer's step inside a backward pass")

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
        """Whether it watches, or will again (``watch_every``)."""
        return self._thread is not None

    @property
    def is_attached(self) -> bool:
        """Whether it watches the step that is running."""
        return self._watch.attached

    @property
    def windows(self) -> Windows | None:
        """Which steps are watched; None for all."""
        return self._watch.windows

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
        """What the findings are made from: ``recording``, and facts from the program's source code."""
        recorded = self._recorded
        if recorded is None:
            recorded = snapshot(self._watch.recorder)
            self._rest_again()
            if not self.is_open:
                recorded = replace(
                    recorded, not_judged=(NotJudged("anything", "this trace was never opened: with trace():"),)
                )
        return with_facts(recorded)

    def _rest_again(self) -> None:
        """A look at live tensors has marked them; while it is detached, nothing may refer to them."""
        if self.is_open and not self.is_attached:
            self._watch.rest()

    @property
    def _recorded(self) -> Recording | None:
        """The recording of a closed trace, None while it is open."""
        if self._recording is None and self._ending is not None:
            try:
                self._recording = _with_trials(self._ending(), self._tapes, self._rehearsed)
            except Exception:
                self._watch.recorder.fail("the end of the trace")
                self._recording = Recording(not_seen=tuple(self._watch.recorder.not_seen))
            self._ending, self._tapes = None, []
        return self._recording

    @property
    def root(self) -> Path:
        """The folder that holds the user's own code."""
        return self._watch.recorder.user.root

    def is_users(self, file: str) -> bool:
        """Whether a file is the user's own."""
        return self._watch.recorder.user(file)

    def _runs_with(self, step: Callable[[], Any]) -> Callable[[tuple[str, ...]], Recording]:
        def run(keep: tuple[str, ...]) -> Recording:
            again = Trace(reference=True, keep_wide=keep)
            with again:
                step()
            return again.recording

        return run

    def _event_of(self, tensor: Any) -> tuple[int, str]:
        recorder = (self._outer or self)._watch.recorder
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"why() takes a name, as in why('unet.conv_in'), or a tensor inside the with block, "
                f"got {type(tensor).__name__}"
            )
        if (self._outer or self)._thread is None:
            raise ValueError(
                "why(tensor) asks a live trace; ask inside the with block, or for a module or parameter by name"
            )
        event = recorder.event_of(tensor)
        (self._outer or self)._rest_again()
        if event < 0:
            raise ValueError("this tensor took part in nothing that was watched")
        return event, dtype_name(tensor.dtype)


def _healing() -> MakeHealer:
    from .healing.healer import Healer
    from .rules import ruling  # this imports the rules

    return partial(Healer, judge=ruling)


def _dry_run(recorder: Recorder) -> DryRun:
    from .dryrun.session import DryRun

    return DryRun(lambda: recorder.steps_done)


def _in_eager(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    from .dryrun.prediction import Oracle, gives
    from .tables.rule_language import Refuses

    oracle = Oracle()
    said = oracle.ask(func, args, kwargs)
    if isinstance(said, Refuses):
        return "" if oracle.refusal(func, args, kwargs, said) is not None else None
    return next(iter(gives(said, 1)), None) if len(func._schema.returns) == 1 else None


def _stops(trace: Trace) -> Callable[[], None]:
    """Closes a trace, and does not keep it alive: what it owns may call this."""
    ref = weakref.ref(trace)

    def stop() -> None:
        if (known := ref()) is not None:
            known.stop()

    return stop


def _reference(steps: int | None, keep: tuple[str, ...]) -> Callable[[Recorder], Any]:
    return partial(Reference, steps=STEPS if steps is None else steps, keep=keep)


FIRST_STEPS = 3
"""With ``watch_every``: how many steps are watched from the beginning on."""


NEW = "new"
"""``watch_every``: watch while something is new."""


def check_watch_every(every: Any, *, autofix: bool, reference: bool, dry: bool) -> None:
    """Raises ValueError, with one line, for a ``watch_every`` that is no number of steps or cannot go with the rest."""
    if every is None or every == 1 and every is not True:
        return
    if every != NEW and (not isinstance(every, int) or isinstance(every, bool) or every < 1):
        raise ValueError(f"every needs a whole number of optimizer steps of at least 1, got {every!r}")
    other = "autofix" if autofix else "reference" if reference else ""
    if dry or other:
        reason = {"autofix": "mends calls in every step", "reference": "follows every step"}.get(
            other, "runs each step without values"
        )
        raise ValueError(f"every leaves steps unwatched, and {other or 'a dry run'} {reason}: use one of the two")


def trace(
    model: nn.Module | None = None,
    *,
    autofix: bool = False,
    precision: str = "values",
    every: int | str | None = None,
    compile: str | None = None,
    **old: Any,
) -> Trace:
    """Watches the block and finds the line that gave a tensor the wrong dtype.

    ``model`` is only used to name the modules; all code that runs in the block is watched. ``autofix``: each call that
    would fail because of a dtype is repeated with the right cast, and the block goes on; see ``fixes`` and ``diff``.
    ``precision``, what is measured besides dtypes, as under ``run``: ``"off"``, nothing; ``"values"``, what became
    infinite or was flushed to zero, and which weights no optimizer step could move; ``"reference"``, also the error of
    each operator, which runs again in higher precision; the program's own values do not change. Steps are watched while
    they show something new; then it sleeps, and wakes before something new and when the number of steps has
    doubled. ``every=1`` watches each step, ``every=200`` the first three, then each whose number is a multiple of 200.
    ``compile="eager"`` runs compiled functions eagerly, so that each of their operators is seen; by default, and
    without ``autofix``, they run compiled, and each call of one is recorded as one op.
    Raises ValueError for an unknown precision, and if ``every`` is below 1 or is combined with ``autofix`` or
    ``"reference"``. The names of the version before, ``numerics``, ``reference`` and ``watch_every``, go on working.

    >>> import torch, dtypetrace
    >>> model = torch.nn.Linear(2, 2)
    >>> with dtypetrace.trace(model) as t:
    ...     model(torch.ones(1, 2)).sum().backward()
    >>> t.findings
    ()
    """
    for name, now in (("numerics", "precision"), ("reference", "precision"), ("watch_every", "every")):
        if name in old:
            warnings.warn(f"trace({name}=) is now trace({now}=)", DeprecationWarning, stacklevel=2)
    if precision not in PRECISIONS:
        raise ValueError(f'precision is "off", "values" or "reference", got {precision!r}')
    numerics = old.pop("numerics", precision != "off")
    reference = old.pop("reference", precision == "reference")
    every = old.pop("watch_every", every)
    if every is None and not (autofix or reference or compile):
        every = NEW
    if old:
        raise TypeError(f"trace() got an unexpected keyword argument {next(iter(old))!r}")
    return Trace(model, autofix=autofix, numerics=numerics, reference=reference, watch_every=every, compile=compile)


def open_recorder() -> Recorder | None:
    """The recorder of the trace that watches this thread now."""
    trace = _open.get(threading.get_ident())
    return trace._watch.recorder if trace is not None and trace.is_attached else None


def _caller() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    own = str(Path(__file__).parent)
    while frame is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return frame


# ---------------------------------------------------------------- what is tried when a run has ended


def _with_trials(recording: Recording, tapes: Sequence[Tape], steps: tuple[Rehearsed, ...]) -> Recording:
    """A recording of a run that has ended, with what was tried for its damaged results."""
    if steps:
        recording = replace(recording, rehearsed=steps)
    if not tapes:
        return recording
    from .rules.findings import to_try

    def try_all() -> Recording:
        asked = to_try(recording)
        return replace(recording, trials=tuple(trial for tape in tapes for trial in tried(tape, asked)))

    with collected() as failed:  # a rule that fails says so again when it judges
        found = attempt("what is tried when the run has ended", try_all, recording)
    return replace(found, not_seen=tuple(dict.fromkeys([*found.not_seen, *failed])))
