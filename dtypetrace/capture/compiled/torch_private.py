"""What the watching of compiled code uses of Dynamo and AOTAutograd, which document none of it.

Dynamo is never imported from here: that takes most of a second, so it is looked up where the program has imported it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.fx.node import map_aggregate as map_aggregate
from torch.fx.node import map_arg

from ..offered import offered
from ..private import TorchDispatchMode

HOME = "torch._dynamo.eval_frame"
REGIONS = "torch.compile: regions of compiled code, which ran eagerly"
BACKWARDS = "torch.compile: backward passes of compiled code, in which the watching stays on"
_GRAPH = "do not trace Dynamo-compiled graph"
"""The reason that Dynamo gives where it keeps out of the graphs that it has compiled."""
_RESULT = "result"
_EVENTS = ("set_eval_frame", "_maybe_set_eval_frame", "_callback_from_stance")
"""In ``HOME``: a region calls the first as it begins, the third before its code runs, the second last of all."""


def imported() -> Any:
    """Dynamo's module ``HOME``, None where it is not imported, or not completely."""
    home = sys.modules.get(HOME)
    return home if hasattr(home, "DisableContext") else None


def is_watchable() -> bool:
    """Whether this torch has what tells where compiled regions begin and end."""
    return _region_code() is not None and all(offered(HOME, name, REGIONS, None) is not None for name in _EVENTS)


def _region_code() -> CodeType | None:
    """The code of every function that ``torch.compile`` returns: one for all, since they are closures."""
    return _calling(offered(HOME, "_TorchDynamoContext.__call__", REGIONS, None))


def _disabled_code() -> CodeType | None:
    """The code of every function that Dynamo leaves alone: those of ``torch.compiler.disable``, and its own graphs."""
    return _calling(offered(HOME, "DisableContext.__call__", REGIONS, None))


def _calling(outer: Any) -> CodeType | None:
    constants = getattr(getattr(outer, "__code__", None), "co_consts", ())
    return next((c for c in constants if isinstance(c, CodeType) and {*_EVENTS} <= {*c.co_names}), None)


# ---------------------------------------------------------------- where regions begin and end


class Entry:
    """A call of a compiled function, or inside one of a function that Dynamo leaves alone, that is running."""

    __slots__ = ("frame", "code", "prior", "activating", "closed")

    def __init__(self, frame: FrameType, prior: Any) -> None:
        self.frame = id(frame)
        self.code = frame.f_code
        self.prior = prior  # what evaluated Python's frames around it
        self.activating = False
        self.closed = False


class Door:
    """Says in every thread where compiled code is entered and left.

    begins: called before anything of a region runs; the flag says whether it is a region, or a function inside a region
    that Dynamo leaves alone; where it returns True, nothing is said of what that calls. ends: called after the last of
    it. Both with the frame of torch's that they are called in.
    While they run no frame is compiled. It acts from :meth:`install` to :meth:`remove`; a region that is running then
    still gets its end.
    """

    def __init__(self, begins: Callable[[FrameType, bool], bool], ends: Callable[[FrameType, bool], None]) -> None:
        self.begins = begins
        self.ends = ends
        self._home: Any = None
        self._entries: dict[int, list[Entry]] = {}
        self._old: tuple[Any, ...] = ()
        self._new: tuple[Any, ...] = ()
        self._leaving = False

    def install(self) -> None:
        """Begins to act; where it acts already, goes on. Regions that this thread is running begin now."""
        self._leaving = False
        home = imported()
        if self._home is not None or home is None:
            return
        self._home, self._region, self._disabled = home, _region_code(), _disabled_code()
        self._old = tuple(getattr(home, name) for name in _EVENTS)
        self._new = self._replacements()
        for name, new in zip(_EVENTS, self._new):
            setattr(home, name, new)
        for frame in reversed([*_frames(sys._getframe(1))]):
            if frame.f_code is self._region:
                self._begin(frame, None)

    def remove(self) -> None:
        """Ends to act, at once or when the last region that is running has ended."""
        self._leaving = True
        if self._home is not None and not any(self._entries.values()):
            for name, old, new in zip(_EVENTS, self._old, self._new):
                if getattr(self._home, name) is new:
                    setattr(self._home, name, old)
            self._home = None

    def _replacements(self) -> tuple[Any, ...]:
        set_frames, set_maybe, chosen = self._old
        region, disabled = self._region, self._disabled
        entries = self._entries

        def set_eval_frame(callback: Any) -> Any:
            prior = set_frames(callback)
            if callback is None:
                frame = sys._getframe(1)
                # only inside a region does such a function concern us, and only there torch says where it ends
                if frame.f_code is region or frame.f_code is disabled and callable(prior):
                    known = entries.get(get_ident())
                    if not known or known[-1].frame != id(frame):
                        self._begin(frame, prior)
            return prior

        def _maybe_set_eval_frame(callback: Any) -> Any:
            known = entries.get(get_ident())
            if known:
                frame = sys._getframe(1)
                top = known[-1]
                if top.frame == id(frame):
                    if top.activating:
                        top.activating = False
                    elif top.code is region or callback is top.prior:
                        self._end(frame, known)
            return set_maybe(callback)

        def _callback_from_stance(callback: Any) -> Any:
            known = entries.get(get_ident())
            if known and known[-1].code is region and known[-1].frame == id(sys._getframe(1)):
                known[-1].activating = True
            return chosen(callback)

        skip(set_eval_frame)  # the only one that is called while frames are compiled
        return set_eval_frame, _maybe_set_eval_frame, _callback_from_stance

    def _begin(self, frame: FrameType, prior: Any) -> None:
        known = self._entries.setdefault(get_ident(), [])
        # an interrupt may have left some before torch came to their ends
        while known and all(id(f) != known[-1].frame for f in _frames(frame)):
            known.pop()
            self.ends(frame, False)
        if known and known[-1].closed:
            return
        entry = Entry(frame, prior)
        known.append(entry)
        entry.closed = self.begins(frame, frame.f_code is self._region)

    def _end(self, frame: FrameType, known: list[Entry]) -> None:
        top = known.pop()
        self.ends(frame, top.code is self._region)
        if not known:
            self._entries.pop(get_ident(), None)
            if self._leaving:
                self.remove()


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def runs_graph(frame: FrameType) -> bool:
    """Whether a function that Dynamo leaves alone is a graph that it has compiled. ``frame``: that of torch's."""
    return getattr(frame.f_locals.get("self"), "msg", None) == _GRAPH


def function_in(frame: FrameType) -> Any:
    """The function that a frame of torch's calls: what was given to ``torch.compile``, or left alone."""
    return frame.f_locals.get("fn")


class Call(NamedTuple):
    """A call of a compiled function."""

    function: Any
    """What was given to ``torch.compile``; for a module, its bound ``__call__``."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    """None while it runs, where it raised, and where this torch does not keep it."""


def shows_results(frame: FrameType) -> bool:
    """Whether a region's frame keeps its result, as from torch 2.12 on."""
    return _RESULT in frame.f_code.co_varnames


def call_in(frame: FrameType) -> Call:
    """The call that a region's frame makes; its result is known when it ends."""
    names = frame.f_locals
    return Call(names["fn"], names["args"], names["kwargs"], names.get(_RESULT))


# ---------------------------------------------------------------- functions that become a graph and do not run

EXPORTS = "torch._dynamo.functional_export"
_CAPTURES = "dynamo_graph_capture_for_export", "_dynamo_graph_capture_for_export"


def captures() -> list[tuple[Any, str]]:
    """The module ``EXPORTS``, and the names of its functions that give what makes a graph of a function."""
    home = sys.modules.get(EXPORTS)
    return [(home, name) for name in _CAPTURES if hasattr(home, name)]


# ---------------------------------------------------------------- a call that is refused while it is compiled


def refused_node(error: BaseException) -> Any:
    """The node of Dynamo's graph whose call raised, None where Dynamo was not trying one."""
    return next((f.f_locals.get("node") for f in _raised_in(error) if f.f_code.co_name == "get_fake_value"), None)


def _raised_in(error: BaseException) -> Iterator[FrameType]:
    tb = error.__traceback__
    while tb is not None:
        yield tb.tb_frame
        tb = tb.tb_next


def given(error: BaseException) -> dict[str, torch.Tensor]:
    """The program's tensors that come into the graph that Dynamo was making, by the names of their nodes.

    Dynamo has dropped them by then, but a node has the name of where its tensor came from (``L['x']``), spelled with
    letters only.
    """
    names = next((f.f_locals for f in _raised_in(error) if f.f_code.co_name == "_compile"), {})
    code, found = names.get("code"), names.get("globals", {})
    scopes = {"L": names.get("locals", {}), "G": {n: found[n] for n in getattr(code, "co_names", ()) if n in found}}
    tensors = (
        one
        for scope, values in scopes.items()
        for n, value in values.items()
        for one in _inside(f"{scope}[{n}]", value)
    )
    return {re.sub("[^a-zA-Z0-9]+", "_", name + "]").lower(): tensor for name, tensor in tensors}


def _inside(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        for path, module in value.named_modules():
            above = "".join(f"_modules[{part}]" for part in path.split(".") if part)
            yield from ((f"{name}{above}_parameters[{n}", p) for n, p in module.named_parameters(recurse=False))
            yield from ((f"{name}{above}_buffers[{n}", b) for n, b in module.named_buffers(recurse=False))
    elif isinstance(value, (list, tuple, dict)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _inside(f"{name}[{key}]", one)


def mapped(arguments: Any, value: Callable[[Any], Any]) -> Any:
    """A node's arguments with values in place of nodes."""
    return map_arg(arguments, value)


# ---------------------------------------------------------------- what is never compiled


def skip(function: Any, *, inside: bool = False) -> bool:
    """Keeps Dynamo from compiling a function of ours that is called while it compiles the program's frames. ``inside``:
    what that function calls neither. Returns whether this torch can do that."""
    home = imported()
    if home is None or not hasattr(home, "set_code_exec_strategy"):
        return False
    action = home.FrameAction
    strategy = home.FrameExecStrategy(action.SKIP, action.SKIP if inside else action.DEFAULT)
    home.set_code_exec_strategy(function.__code__, strategy)
    return True


CALLED_ANYWHERE: list[Any] = []
"""Functions of ours that Python may call at any time, as those for dead weak references: they are skipped, too."""


def leaves_modes_on() -> bool:
    """Whether this torch compiles as without one while a dispatch mode is on that says ``ignore_compile_internals``."""
    return hasattr(TorchDispatchMode, "ignore_compile_internals")


# ---------------------------------------------------------------- backward


def compiled_autograd() -> bool:
    """Whether backward passes are compiled as a whole."""
    home = sys.modules.get("torch._dynamo.compiled_autograd")
    config = sys.modules.get("torch._dynamo.config")
    return getattr(home, "compiled_autograd_enabled", False) or getattr(config, "compiled_autograd", False)


BackwardNode: Any = offered("torch.autograd.function", "BackwardCFunction", BACKWARDS, object)
BACKWARD_CALLS = tuple(name for name in ("apply", "apply_boxed") if hasattr(BackwardNode, name))
"""In ``BackwardNode``: what the engine calls for the backward of each function written in Python."""


# ---------------------------------------------------------------- instead: eager


def force_eager(ran: Callable[[], None]) -> Callable[[], None]:
    """Runs compiled functions eagerly; returns the function that restores the stance.

    Under a dispatch mode they might run eagerly anyway, but torch would remember that and never compile them again
    (pytorch issue 190286); with this stance it does not. ``ran`` is called for each call of a compiled function.
    Compiling one is not enough: libraries do that when they are imported.
    """
    home = imported()
    prior, look_up = home._set_stance(home.DynamoStance("force_eager")), home._callback_from_stance

    def callback_from_stance(callback: Any) -> Any:
        chosen = look_up(callback)
        if callback is not None and chosen is None and callable(callback):
            ran()
        return chosen

    home._callback_from_stance = callback_from_stance

    def restore() -> None:
        if home._callback_from_stance is callback_from_stance:
            home._callback_from_stance = look_up
        home._set_stance(prior)

    return restore


@contextmanager
def stance_off() -> Iterator[None]:
    """The default stance during a block."""
    home = imported()
    prior = home._set_stance(home.DynamoStance("default"))
    try:
        yield
    finally:
        home._set_stance(prior)
