"""dtypetrace: which line made this tensor the wrong dtype, where does it hurt, what do I change?

>>> import dtypetrace
>>> with dtypetrace.trace(model) as t:      # doctest: +SKIP
...     model(x).sum().backward()
>>> t.findings                              # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors as errors
    from .commands.explain import explain as explain
    from .commands.preflight import preflight as preflight
    from .commands.retrain_lora import RetrainingResult as RetrainingResult
    from .commands.retrain_lora import retrain_lora as retrain_lora
    from .errors import DtypetraceError as DtypetraceError
    from .foresight import Forecast as Forecast
    from .records import Edit as Edit
    from .records import Finding as Finding
    from .records import Fix as Fix
    from .records import FlowStep as FlowStep
    from .records import Inserted as Inserted
    from .records import Operand as Operand
    from .records import Origin as Origin
    from .records import Place as Place
    from .rules.precision_plan import PrecisionPlan as PrecisionPlan
    from .tracing import Trace as Trace
    from .tracing import trace as trace
    from .view import Receipt as Receipt
    from .view import SavedTrace as SavedTrace
    from .view import WhatIf as WhatIf
    from .view import Why as Why
    from .view import load as load

__version__ = "0.2.0"
_HOMES = {
    "commands.explain": ("explain",),
    "commands.preflight": ("preflight",),
    "commands.retrain_lora": ("RetrainingResult", "retrain_lora"),
    "errors": ("DtypetraceError",),
    "foresight": ("Forecast",),
    "records": ("Edit", "Finding", "Fix", "FlowStep", "Inserted", "Operand", "Origin", "Place"),
    "rules.precision_plan": ("PrecisionPlan",),
    "tracing": ("Trace", "trace"),
    "view": ("Receipt", "SavedTrace", "WhatIf", "Why", "load"),
}
"""The module that each public name is in."""
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = ["errors", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    """Imports the public names when they are first used: importing the package imports no torch."""
    if name in __all__:
        import importlib

        home = importlib.import_module(f".{_HOME.get(name, name)}", __name__)
        value = globals()[name] = getattr(home, name) if name in _HOME else home
        return value
    raise AttributeError(f"module 'dtypetrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, without what only this file uses."""
    return sorted([*__all__, "__version__", "load_ipython_extension"])


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext dtypetrace`` in a notebook: makes ``%%dtypetrace`` known."""
    from .commands.magic import register

    register(ipython)
