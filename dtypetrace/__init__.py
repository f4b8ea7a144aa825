"""dtypetrace: which line made this tensor the wrong dtype, where does it hurt, what do I change?

>>> import dtypetrace
>>> with dtypetrace.trace(model) as t:      # doctest: +SKIP
...     model(x).sum().backward()
>>> t.findings                              # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._explain import explain
    from ._preflight import preflight
    from ._retrain import retrain_lora
    from ._trace import Trace, trace
    from ._view import load

__version__ = "0.1.0"
__all__ = ["Trace", "explain", "load", "preflight", "retrain_lora", "trace"]

_HOMES = {"Trace": "_trace", "trace": "_trace", "load": "_view", "explain": "_explain", "preflight": "_preflight", "retrain_lora": "_retrain"}


def __getattr__(name: str) -> Any:
    """Imports the public names when they are first used: importing the package imports no torch."""
    if name in _HOMES:
        import importlib

        value = globals()[name] = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        return value
    raise AttributeError(f"module 'dtypetrace' has no attribute {name!r}")


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext dtypetrace`` in a notebook: makes ``%%dtypetrace`` known."""
    from ._magic import register

    register(ipython)
