"""The outputs of a trace, whether open, closed or loaded from a file: each is a view of its recording."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .records import Chain, Finding, Inserted, ReceiptRow, Recording, Results

if TYPE_CHECKING:
    from .foresight import Forecast
    from .rules.precision_plan import PrecisionPlan

# graph, report and rules are imported on first use: otherwise networkx and rich would be loaded while the script's own
# folder is first in sys.path, and it may hold a file of the same name


class View(ABC):
    """The outputs of a trace. Subclasses provide ``results``, worked out once."""

    _FOR_USERS: tuple[str, ...] = (
        "diff", "findings", "fixes", "operators", "precision_plan", "receipt", "recording", "report", "save", "show",
        "to_dataframe", "to_json", "to_networkx", "what_if", "why",
    )  # fmt: skip
    """What ``dir()`` and completion show; the other names are for dtypetrace itself."""

    def __dir__(self) -> list[str]:
        return sorted(self._FOR_USERS)

    @property
    @abstractmethod
    def results(self) -> Results:
        """What was recorded and what was judged from it: everything that views show."""

    @property
    def recording(self) -> Recording:
        """The plain data that was recorded."""
        return self.results.recording

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings: what ended the run comes first, then by severity and reach."""
        return self.results.findings

    @property
    def fixes(self) -> tuple[Inserted, ...]:
        """The casts that ``autofix=True`` inserted: what, where, why and how often; see
        ``dtypetrace.autofix.Inserted``."""
        return self.results.fixes

    @property
    def _shown(self) -> tuple[Recording, tuple[Finding, ...]]:
        """What most renderings need, taken from one judgement: while a trace is open, each access judges again."""
        results = self.results
        return results.recording, results.findings

    def diff(self) -> str:
        """The source patch for the casts that autofix inserted, as a unified diff.

        It is not proven; ``dtypetrace fix`` proves one.
        """
        return self.results.diff

    def to_networkx(self) -> Any:
        """The flow graph, a ``networkx.MultiDiGraph`` with dtypes on its edges (see ``dtypetrace.graph.build``)."""
        from . import graph

        return graph.build(self.recording)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The JSON report, schema 1 (see ``dtypetrace.report.to_json``), as a string; with a path it is written there,
        whole or not at all, and None returned. Raises OSError where it cannot be written."""
        from . import report

        if path is None:
            return report.json_text(*self._shown)
        report.write_json(path, *self._shown)
        return None

    def report(self, path: str | os.PathLike[str], *, source: bool = True) -> None:
        """Writes the HTML report: one file that opens anywhere and loads nothing. ``source=False`` leaves the program's
        text out. Raises OSError where it cannot be written."""
        from . import report

        report.write_html(path, *self._shown, source=source)

    def show(self, *, source: bool = True) -> None:
        """Displays the whole HTML report below a notebook's cell. Raises RuntimeError outside a notebook."""
        from .render import html_report, notebook

        notebook.show(html_report.render(*self._shown, source=source))

    def operators(self) -> list[dict[str, Any]]:
        """Calls of each operator by dtype, what autocast did to it, what ran outside autocast, what has no kernel.

        The rows' keys are the fields of ``dtypetrace.render.census.OperatorRow``, the costliest operator comes first.

        >>> t.operators()[0]["bf16"]    # doctest: +SKIP
        """
        from .render import census

        return census.plain(self.recording)

    def to_dataframe(self, of: str = "ops") -> Any:
        """A ``pandas.DataFrame`` with one row for each distinct op, or, with ``of``, for each of the
        ``casts``, ``parameters`` or ``gradients``. ``dtypetrace.render.frames.frame`` lists
        the columns. Raises ValueError for another name."""
        from .render import frames

        return frames.frame(self.recording, of)

    def precision_plan(self, tolerance: float = 0.05, *, step: Callable[[], Any] | None = None) -> PrecisionPlan:
        """The smallest set of modules to keep in float32 so that results, gradients and updates stay within
        ``tolerance`` of the reference, relative to it. The trace needs a reference (``precision="reference"``).

        ``step`` runs the step again, from the same state and random numbers: then every choice is run and measured, and
        the plan is verified. Without it, the plan follows from the measured effects. ``dtypetrace plan script.py`` runs
        the script itself.

        Raises ValueError for a trace without a reference and for a tolerance that is no share between 0 and 1.

        >>> t.precision_plan(tolerance=0.02).apply(model)    # doctest: +SKIP
        """
        from .rules import precision_plan

        if not (isinstance(tolerance, (int, float)) and 0 < tolerance < 1):
            raise ValueError(f"tolerance is a share between 0 and 1, such as 0.05, got {tolerance!r}")
        if step is None:
            return precision_plan.foretold(self.recording, tolerance)
        return precision_plan.search(self.recording, self._runs_with(step), tolerance)

    def _runs_with(self, step: Callable[[], Any]) -> Callable[[tuple[str, ...]], Recording]:
        raise ValueError("a saved trace cannot run anything; leave step out, or use dtypetrace plan script.py")

    def what_if(self, changes: Mapping[str, Any], *, autocast: Any = None) -> WhatIf:
        """What the run would have done with other dtypes: refused calls, widened results, memory and work by dtype.

        changes: names to dtypes, ``{"vae": torch.bfloat16, "mask": "fp16"}``. A name is a module's, a parameter's, that
        of a variable on the line that gave a tensor its dtype, or ``file.py:12``. autocast, which may also be one of
        the names: the dtype that autocast computes in, ``"off"`` for no autocast, None for what was recorded.

        Nothing is run: the dtypes are carried through the recorded ops by the measured rules of the operators. Raises
        ``UnknownNameError`` for a name that was not recorded, ``UnknownDtypeError`` for what is no floating dtype
        (both are ValueErrors), TypeError for what is no mapping of names.

        >>> t.what_if({"vae": torch.bfloat16, "autocast": "off"})    # doctest: +SKIP
        """
        from . import foresight

        return WhatIf(foresight.what_if(self.recording, changes, autocast))

    def receipt(self) -> Receipt:
        """For every part of the run that has a dtype, what was asked for beside what ran: weights, compute, gradients,
        their reduction, the optimizer's state, checkpoints.

        >>> t.receipt()    # doctest: +SKIP
        """
        from .rules import receipt

        return Receipt(receipt.rows(self.recording))

    def why(self, target: Any) -> Why:
        """How the dtype of a module, parameter or tensor was decided: its origin and the steps since.

        target: a name as :meth:`what_if` takes it: a module or parameter (``"unet.conv_in"``, ``"conv_in.weight"``), a
        variable on the line that gave a tensor its dtype, or ``"train.py:12"``; or a tensor while the block is open.
        Raises UnknownNameError (a ValueError) for a name that was not recorded, ValueError for a tensor that cannot be
        asked for, TypeError for anything else.

        >>> t.why("unet.time_embedding")    # doctest: +SKIP
        """
        from . import graph

        if isinstance(target, str):
            return Why(graph.why(self.recording, target))
        step, dtype = self._event_of(target)
        return Why((graph.chain(self.recording, "tensor", dtype, step),))

    def _event_of(self, tensor: Any) -> tuple[int, str]:
        raise ValueError("a saved trace holds no tensors; ask why() for a module or parameter by name")

    def save(self, path: str | os.PathLike[str], *, source: bool = True) -> None:
        """Writes the whole trace for :func:`dtypetrace.load`. ``source=False`` leaves the program's text out. Raises
        OSError where it cannot be written."""
        from . import saved

        saved.save(path, self.results, source=source)

    def __repr__(self) -> str:
        from . import report

        return report.text(*self._shown)

    def _repr_html_(self) -> str:
        from .render import notebook

        return notebook.trace_html(*self._shown)


def _finding_html(finding: Finding) -> str:
    from .render import notebook

    return notebook.finding_html(finding)


def _finding_text(finding: Finding, printer: Any, cycle: bool) -> None:
    from .render import console
    from .render.layout import Display

    shown = console.block(Display(), Recording(sources=finding.sources), finding)
    printer.text("\n".join(line for line, _ in shown))


# how IPython shows a finding; set here because records do not know how they are shown
setattr(Finding, "_repr_html_", _finding_html)  # noqa: B010 -- records do not declare it
setattr(Finding, "_repr_pretty_", _finding_text)  # noqa: B010


class _Answer:
    """An answer whose repr is its text, in a notebook, too."""

    def _repr_html_(self) -> str:
        from .render import notebook

        return notebook.text_html(repr(self))


class Why(_Answer):
    """The answer of ``why``. Its repr is the text, ``chains`` has one chain for each tensor."""

    def __init__(self, chains: tuple[Chain, ...]) -> None:
        self.chains = chains

    def __repr__(self) -> str:
        from . import report

        return report.why_text(self.chains)


class Receipt(_Answer):
    """The answer of ``receipt``. Its repr is the table, ``rows`` are the data (``records.ReceiptRow``)."""

    def __init__(self, rows: tuple[ReceiptRow, ...]) -> None:
        self.rows = rows

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with one row for each part and dtype: part, what, dtype, count (tensors or calls),
        bytes, share (of the part), asked (dtype), by (what asked), differs, file, line (where the dtype was decided).
        """
        from .render import frames

        return frames.receipt(self.rows)

    def __repr__(self) -> str:
        from .render import receipts

        return receipts.text(self.rows)


class WhatIf(_Answer):
    """The answer of ``what_if``. Its repr is the text, ``forecast`` the data (``dtypetrace.foresight.Forecast``)."""

    def __init__(self, forecast: Forecast) -> None:
        self.forecast = forecast

    @property
    def clean(self) -> bool:
        """Whether nothing would be refused, as far as the rules say."""
        return self.forecast.clean

    def __repr__(self) -> str:
        from .render import forecasts

        return forecasts.text(self.forecast)


class SavedTrace(View):
    """A finished trace, loaded from a file or made by ``preflight``; torch is not needed to look at it."""

    def __init__(self, results: Results) -> None:
        self._results = results

    @property
    def results(self) -> Results:
        return self._results


def load(path: str | os.PathLike[str]) -> SavedTrace:
    """Opens a trace that ``save`` wrote.

    Raises ``dtypetrace.errors.TraceFileError`` (a ValueError) for a file that is not a trace, is damaged or was written
    by a newer version; OSError where it cannot be read.
    """
    from . import saved

    return SavedTrace(saved.load(path))
