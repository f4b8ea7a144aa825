"""What can be asked of a trace, open, closed or loaded from a file: every output is a view of its recording."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

from .records import Chain, Finding, Recording

# graph, report and rules are imported when they are asked: networkx and rich would otherwise be loaded while a
# script's own folder comes first in sys.path, where a file of the same name may lie


class View(ABC):
    """The outputs of a trace. Subclasses provide ``recording`` and ``findings``."""

    @property
    @abstractmethod
    def recording(self) -> Recording:
        """The plain data that was recorded."""

    @property
    @abstractmethod
    def findings(self) -> tuple[Finding, ...]:
        """The one that ended the run first, then by severity and reach."""

    def to_networkx(self) -> Any:
        """The flow graph, a ``networkx.MultiDiGraph`` with dtypes on its edges (see ``dtypetrace.graph.build``)."""
        from . import graph

        return graph.build(self.recording)

    def to_json(self, path: str | os.PathLike) -> None:
        """Writes the JSON report, schema 1, whole or not at all."""
        from . import report

        report.write_json(path, self.recording, self.findings)

    @property
    def fixes(self) -> tuple[Any, ...]:
        """What ``autofix=True`` inserted, where, why and how often; see ``dtypetrace.autofix.Inserted``."""
        from . import autofix

        return autofix.fixes(self.recording)

    def diff(self) -> str:
        """What was healed as a source patch, a unified diff that nothing has proven; ``dtypetrace fix`` does."""
        from . import autofix

        return autofix.diff(self.recording)

    def why(self, target: Any) -> Why:
        """How a module's, parameter's or tensor's dtype came about: its origin and the steps since.

        target: a dotted name (``"unet.conv_in"``, ``"unet.conv_in.weight"``; the first part may be
        left out), or a tensor while the block is open. Raises ValueError for what was not seen.

        >>> t.why("unet.time_embedding")    # doctest: +SKIP
        """
        from . import graph

        if isinstance(target, str):
            return Why(self.recording, graph.why(self.recording, target))
        step, dtype = self._step_of(target)
        recording = self.recording
        return Why(recording, (graph.chain(recording, "tensor", dtype, step),))

    def _step_of(self, tensor: Any) -> tuple[int, str]:
        raise ValueError("a saved trace holds no tensors; ask why() for a module or parameter by name")

    def save(self, path: str | os.PathLike, *, source: bool = True) -> None:
        """Writes the whole trace for :func:`dtypetrace.load`. ``source=False`` leaves the program's text out."""
        from . import saved

        saved.save(path, self.recording, self.findings, source=source)

    def __repr__(self) -> str:
        from . import report

        return report.text(self.recording, self.findings)


class Why:
    """The answer of ``why``: ``chains``, one for each tensor meant; its repr is the text."""

    def __init__(self, recording: Recording, chains: tuple[Chain, ...]) -> None:
        self._recording = recording
        self.chains = chains

    def __repr__(self) -> str:
        from . import report

        return report.why_text(self.chains)


class SavedTrace(View):
    """A trace that was loaded from a file; torch is not needed to look at it."""

    def __init__(self, recording: Recording, findings: tuple[Finding, ...]) -> None:
        self._recording = recording
        self._findings = findings

    @property
    def recording(self) -> Recording:
        return self._recording

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self._findings


def load(path: str | os.PathLike) -> SavedTrace:
    """Opens a trace that ``save`` wrote.

    Raises ``dtypetrace.saved.TraceFileError`` (a ValueError) for a file that is none, is damaged or
    was written by a newer version; OSError where it cannot be read.
    """
    from . import saved

    return SavedTrace(*saved.load(path))
