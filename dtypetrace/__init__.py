"""dtypetrace: which line made this tensor the wrong dtype, where does it hurt, what do I change?

>>> import dtypetrace
>>> with dtypetrace.trace(model) as t:      # doctest: +SKIP
...     model(x).sum().backward()
>>> t.findings                              # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .commands.explain import explain
    from .commands.preflight import preflight
    from .commands.retrain_lora import retrain_lora
    from .tracing import Trace, trace
    from .view import load

__version__ = "0.2.0"
__all__ = ["Trace", "explain", "load", "preflight", "retrain_lora", "trace"]

_HOMES = {
    "Trace": "tracing",
    "trace": "tracing",
    "load": "view",
    "explain": "commands.explain",
    "preflight": "commands.preflight",
    "retrain_lora": "commands.retrain_lora",
}


def __getattr__(name: str) -> Any:
    """Imports the public names when they are first used: importing the package imports no torch."""
    if name in _HOMES:
        import importlib

        value = globals()[name] = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        return value
    raise AttributeError(f"module 'dtypetrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, without what only this file uses."""
    return sorted([*__all__, "__version__", "load_ipython_extension"])


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext dtypetrace`` in a notebook: makes ``%%dtypetrace`` known."""
    from .commands.magic import register

    register(ipython)
