"""The ``%%dtypetrace`` magic: watches one cell of a notebook and shows the findings."""

from __future__ import annotations

import ast
from typing import Any

from ..tracing import trace


def register(ipython: Any) -> None:
    """Registers ``%%dtypetrace``; called by ``%load_ext dtypetrace``."""

    def dtypetrace(line: str, cell: str) -> None:
        """Watch this cell and show what dtypetrace found. ``%%dtypetrace NAME`` keeps the trace under that name."""
        __tracebackhide__ = "__ipython_bottom__"  # IPython: this frame and its callers are not the user's
        _watch_cell(ipython, line.strip(), cell)

    ipython.register_magic_function(dtypetrace, "cell", "dtypetrace")


def _watch_cell(ipython: Any, name: str, cell: str) -> None:
    __tracebackhide__ = True
    from IPython.core.error import UsageError
    from IPython.display import display

    if name and not name.isidentifier():
        raise UsageError(f"%%dtypetrace {name}: give a variable's name for the trace, or nothing")
    # the empty line replaces the magic's own line, so that line numbers are right
    text = "\n" + ipython.transform_cell(cell)
    running = getattr(ipython.displayhook.exec_result, "execution_count", None)
    file = ipython.compile.cache(text, running or ipython.execution_count, raw_code=text)
    body = ast.parse(text, file).body
    shown = body.pop() if body and isinstance(body[-1], ast.Expr) and not text.rstrip().endswith(";") else None
    watched = trace()
    try:
        with watched:
            exec(ipython.compile(ast.Module(body, []), file, "exec"), ipython.user_ns)
            if shown is not None:
                exec(ipython.compile(ast.Interactive([shown]), file, "single"), ipython.user_ns)
    finally:
        if name:
            ipython.user_ns[name] = watched
        display(watched)
