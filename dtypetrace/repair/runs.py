"""Healed runs of a program, each in its own process: starts one, and reads how it went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

from .. import saved
from ..program import interpreter_options
from ..records import Recording
from ..records.ledger import Ledger
from ..records.text import ProgramText
from ..source.patch import Patch
from . import children
from .clock import Clock, OutOfTime, in_words


class Ended(TypedDict):
    """The exception that a run ended with; ``frames`` are file and line, innermost first."""

    type: str
    message: str
    frames: list[tuple[str, int]]


@dataclass(frozen=True)
class Outcome:
    """How one healed run of the program went."""

    recording: Recording
    status: int
    error: Ended | None
    ledger: Ledger
    root: str
    """The folder that holds the user's own code; empty where nothing was watched."""

    @property
    def left(self) -> bool:
        """Whether a refusal that could not be healed ended it."""
        return any(r.left for r in self.recording.refused)

    @property
    def refused(self) -> bool:
        return any(r.healed or r.left for r in self.recording.refused)

    @property
    def place(self) -> tuple[str, int] | None:
        """File and line of the user's code where its exception came from; None where it ended without one."""
        frames = self.error["frames"] if self.error is not None else []
        own = (f for f in frames if self.root and os.path.realpath(f[0]).startswith(os.path.join(self.root, "")))
        return next(own, None) or next(iter(frames), None)

    @property
    def ending(self) -> str:
        """How it ended, in words: ``exit status 0``, ``KeyError at train.py:12``."""
        if self.error is None or self.error["type"] == "SystemExit":
            return f"exit status {self.status}"
        at = f" at {os.path.basename(self.place[0])}:{self.place[1]}" if self.place is not None else ""
        return f"{self.error['type']}{at}"


def same_error(one: Ended | None, other: Ended | None) -> bool:
    """Whether two runs ended in the same way: with the same exception, or both with none."""
    if one is None or other is None:
        return one is other
    return (one["type"], one["message"]) == (other["type"], other["message"])


class RunFailed(RuntimeError):
    """A run that returned no answer. The text says why."""


@dataclass
class Runner:
    """Starts the program in its own process. ``words`` and ``as_module`` are the arguments of ``dtypetrace run``."""

    words: list[str]
    as_module: bool = False
    steps: int | None = None
    source: str | None = None
    clock: Clock = field(default_factory=Clock)

    def __call__(
        self,
        patch: Patch,
        *,
        shown: bool,
        compare_steps: int = 0,
        compiled: bool = False,
        keep: Sequence[str] | None = None,
    ) -> Outcome:
        """Runs it with a patch.

        ``shown``: its output goes to stderr, else nowhere. ``compare_steps``: optimizer steps that are compared with
        the same steps in higher precision.
        ``compiled``: compiled functions run compiled. ``keep``: nothing is healed; the run has a reference in higher
        precision, and these modules compute in float32. Raises RunFailed where the run returns no answer, OutOfTime
        where the clock ends it.
        """
        with tempfile.TemporaryDirectory(prefix="dtypetrace-") as folder:
            request, answer, trace = (Path(folder, name) for name in ("request.json", "answer.json", "trace"))
            asked = {
                "compare_steps": compare_steps,
                "compiled": compiled,
                "keep": keep,
                "words": self.words,
                "as_module": self.as_module,
                "steps": self.steps,
                "source": self.source,
                "texts": patch.texts,
                "encodings": {file: patch.patched_files[file].encoding for file in patch.texts},
                "answer": str(answer),
                "trace": str(trace),
            }
            request.write_text(json.dumps(asked), "utf-8")
            try:
                status = self._status(request, shown)
            except subprocess.TimeoutExpired:
                raise OutOfTime(self.clock.over) from None
            if not answer.exists():
                raise RunFailed(
                    f"the run ended without an answer (exit status {status}), as when a program ends its own process"
                )
            return _outcome(json.loads(answer.read_text("utf-8")), trace, patch)

    def _status(self, request: Path, shown: bool) -> int:
        """Runs it and returns the exit status; the run writes its answer to the file that the request names."""
        left = self.clock.left
        sys.stderr.flush()
        told = not shown and sys.stderr.isatty()  # what the program prints would mix with it
        try:
            return children.run(
                [sys.executable, *interpreter_options(), "-m", "dtypetrace.commands.healed_run", str(request)],
                max(left, 0.0) if left is not None else None,
                _tell if told else None,
                stdin=subprocess.DEVNULL,
                stdout=2 if shown else subprocess.DEVNULL,
                stderr=None if shown else subprocess.DEVNULL,
                env={"PYTHONHASHSEED": "0", **os.environ},
            )
        finally:
            if told:
                print("\r" + " " * _TOLD + "\r", end="", file=sys.stderr, flush=True)


_TOLD = 24
"""Columns of the line that says how long a run takes."""


def _tell(seconds: float) -> None:
    """Says on a terminal how long the run has taken; the next line takes the place of it."""
    print(f"\r  {in_words(seconds)} ...".ljust(_TOLD), end="", file=sys.stderr, flush=True)


def _outcome(answer: dict[str, Any], trace: Path, patch: Patch) -> Outcome:
    """The answer of a run. Raises RunFailed where dtypetrace itself failed in it."""
    if answer["failure"]:
        raise RunFailed(f"internal error; please report this:\n{answer['failure']}")
    recording = _with_text(saved.load(trace).recording, patch) if trace.exists() else Recording()
    return Outcome(
        recording,
        answer["status"],
        answer["error"],
        answer["ledger"],
        answer.get("root", ""),
    )


def _with_text(recording: Recording, patch: Patch) -> Recording:
    """The recording of a patched run with the text that it ran: patched files with their patched text, others as they
    are."""
    files = {frame.file for place in recording.places for frame in place.stack}
    return replace(recording, text=ProgramText.taken(files, patched=patch.texts))
