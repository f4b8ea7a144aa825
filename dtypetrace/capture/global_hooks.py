"""Global hooks that only watched threads see.

torch's global hooks run in every thread, and torch iterates over their tables while hooks run. If a table changes
during that, torch raises "OrderedDict mutated during iteration", perhaps in a thread that has nothing to do with the
trace. So no table is changed: while a trace is open, a :class:`HookTable` replaces each of them. torch looks it up for
each call and finds the program's hooks, then those of the trace that watches the calling thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from . import private, threads

KEY = "dtypetrace"
_ROLES = {
    "_global_forward_hooks_always_called": "always_called",  # exceptions and checkpoint's early stop also end a forward
    "_global_forward_pre_hooks": "enter",
    "_global_forward_hooks": "leave",
    "_global_parameter_registration_hooks": "registered",
    "_global_buffer_registration_hooks": "registered",
    "_global_module_registration_hooks": "joined",
    "_global_optimizer_pre_hooks": "step_begins",
    "_global_optimizer_post_hooks": "step_ends",
}
"""torch's tables, and the hook of a Watch that is called for each."""

_CALLS = "_global_forward_pre_hooks"
_TABLES = private.module_internals.__dict__
_HAS_ANY: Any = getattr(private.module_internals, private.ANY_GLOBAL_HOOK, None)

_made: dict[int, HookTable] = {}
"""By the id of the program's table, which its replacement keeps."""


class HookTable(OrderedDict[Any, Any]):
    """Replaces one of torch's tables of global hooks.

    Reading gives copies. Writing goes to the program's own table, which exists before and after the trace. So a handle
    that removes a hook works no matter when it was made, as long as this table lives; it is kept and used again.
    """

    def __init__(self, program: OrderedDict[Any, Any], name: str) -> None:
        self.program = program
        self.role = _ROLES.get(name, "")
        # for each call, torch asks whether a table is empty: with one entry, it gets the answer without running Python
        super().__setitem__(KEY, None)

    def _ours(self) -> tuple[tuple[str, Any], ...]:
        watch = threads.here()
        if watch is not None:
            return ((KEY, getattr(watch.hooks, self.role)),)
        counter = threads.counter()
        if counter is not None and (hook := getattr(counter, self.role, None)) is not None:
            return ((KEY, hook),)
        if self.role == "enter" and private.current_graph_task_id() == -1:
            for other in threads.everyone():
                other.hooks.elsewhere()
        return ()

    def items(self) -> Any:
        ours = self._ours()
        return (*self.program.items(), *ours) if self.program else ours

    def values(self) -> Any:
        return [hook for _, hook in self.items()]

    def keys(self) -> Any:
        return [key for key, _ in self.items()]

    def __iter__(self) -> Any:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key == KEY or key in self.program

    def __getitem__(self, key: Any) -> Any:
        return dict(self._ours())[key] if key == KEY else self.program[key]

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self.keys() else default

    def __setitem__(self, key: Any, hook: Any) -> None:
        self.program[key] = hook

    def __delitem__(self, key: Any) -> None:
        del self.program[key]


def _for_the_program(name: str) -> Callable[..., Any]:
    def method(self: HookTable, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.program, name)(*args, **kwargs)

    method.__name__ = name
    return method


for _name in (
    "clear",
    "copy",
    "move_to_end",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "__reversed__",
    "__eq__",
    "__repr__",
    "__reduce__",
):
    setattr(HookTable, _name, _for_the_program(_name))
HookTable.__hash__ = None  # dictionaries cannot be hashed


def settle() -> None:
    """Replaces those of torch's tables by ours that the Watches need, and restores the others. Can be called twice."""
    watched = bool(threads.everyone()) and not _aside
    for module, name in _PLACES:
        wanted = watched or not _aside and _asked(name)
        current = getattr(module, name)
        if wanted and not isinstance(current, HookTable):
            table = _made.get(id(current))
            if table is None:
                table = _made[id(current)] = HookTable(current, name)
            setattr(module, name, table)
        elif not wanted and isinstance(current, HookTable):
            setattr(module, name, current.program)
    if _HAS_ANY is not None:
        listens = not _aside and any(c.listens for c in threads.counters())
        setattr(private.module_internals, private.ANY_GLOBAL_HOOK, _program_has_any if watched or listens else _HAS_ANY)


def _asked(name: str) -> bool:
    """Whether a Watch that is detached has a hook for one of torch's tables."""
    role = _ROLES[name]
    return any(c.armed if role == "enter" else hasattr(c, role) for c in threads.counters())


def listens() -> bool:
    """Whether calls of modules are heard by anyone."""
    return type(_TABLES.get(_CALLS)) is HookTable


def arm(on: bool) -> None:
    """Like :func:`settle`, after a Watch that is detached has begun or ended to listen for calls of modules: only the
    table for that changes, which happens twice in each step."""
    with threads.lock():
        current: Any = _TABLES.get(_CALLS)
        if on is (type(current) is HookTable):
            return
        if not on:
            if threads.deaf():
                _TABLES[_CALLS] = current.program
        elif (table := _made.get(id(current))) is None or _aside:
            settle()
        else:
            _TABLES[_CALLS] = table


def put_aside(aside: bool) -> None:
    """Restores all of torch's tables while ``aside`` holds: code that Dynamo compiles must find them as they are
    without a trace."""
    global _aside
    _aside = aside
    settle()


_aside = False


def of_the_program(name: str) -> Any:
    """One of torch's tables, without what dtypetrace adds to it."""
    table = getattr(private.module_internals, name, ())
    return table.program if isinstance(table, HookTable) else table


def _program_has_any() -> bool:
    """Replaces torch's function of that kind: compiled modules ask it whether to warn about global hooks."""
    return any(map(of_the_program, _HAS_ANY.__code__.co_names))


_PLACES = [
    (module, name)
    for name in _ROLES
    for module in (private.optimizer_internals if "optimizer" in name else private.module_internals,)
    if private.offered(module.__name__, name, f"the calls of the hooks in {name}", None) is not None
]
