"""Runs calls, and notes for each torch function and each operator what it was given and what came of it."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, get_testing_overrides
from torch.utils._python_dispatch import TorchDispatchMode

from dtypetrace.capture.calls import dtype_name
from dtypetrace.dryrun.prediction import describe, tensors_in
from dtypetrace.tables.refusals import recognise
from dtypetrace.tables.rule_language import Call

_GETTERS = ("__get__", "__set__", "__delete__")


@dataclass(frozen=True)
class Seen:
    """One call of a function or an operator: what it was given, and its result's dtypes or the message it raised."""

    name: str
    call: Call
    dtypes: tuple[str, ...] = ()
    code: str = ""
    message: str = ""
    """Of the exception that it raised."""
    usual: bool = True
    """Whether every operand of the sample was of its usual kind: only precisions were changed."""
    lists: bool = False
    """Whether it takes lists of tensors: their number says nothing."""

    @property
    def clear(self) -> bool:
        """Whether it ran, or was refused because of a dtype."""
        return bool(self.code) or not self.message


def function_name(function: Any) -> str:
    """The name that dtypetrace records for a torch function."""
    name = getattr(function, "__name__", None) or str(function)
    packet = getattr(function, "overloadpacket", None)
    if packet is not None:
        name = packet.__name__
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name


def _plain(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return all(
        t.layout is torch.strided and not t.is_quantized and not t.is_nested and not t.is_meta
        for t in tensors_in((*args, *kwargs.values()))
    )


class _Notes:
    """Where both modes write what they saw."""

    def __init__(self, usual: bool) -> None:
        self.seen: list[Seen] = []
        self.usual = usual

    def run(
        self,
        name: str,
        mutable: bool,
        outs: Sequence[str],
        names: Sequence[str],
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        # before the call: it may write into its arguments
        call = describe(args, kwargs, outs, names) if _plain(args, kwargs) else None
        lists = any(isinstance(a, (list, tuple)) and any(isinstance(t, torch.Tensor) for t in a) for a in args)
        try:
            out = func(*args, **kwargs)
        except Exception as error:
            if call is not None:
                text = str(error)
                meaning = recognise(text, type(error).__name__, name)
                said = f"{type(error).__name__}: {text}"
                self.seen.append(Seen(name, call, (), meaning.code if meaning else "", said, self.usual, lists))
            raise
        made = tuple(dtype_name(t.dtype) for t in tensors_in(out))
        if call is not None and (made or mutable):
            self.seen.append(Seen(name, call, made, "", "", self.usual, lists))
        return out


class Functions(_Notes, TorchFunctionMode):
    """Notes the outermost torch functions."""

    def __init__(self, usual: bool = True) -> None:
        _Notes.__init__(self, usual)
        TorchFunctionMode.__init__(self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _GETTERS:
            return func(*args, **(kwargs or {}))
        name = function_name(func)
        return self.run(
            f"{name}(out)" if kwargs and kwargs.get("out") is not None else name,
            name.endswith("_"),
            ("out",),
            argument_names(func),
            func,
            args,
            kwargs or {},
        )


class Operators(_Notes, TorchDispatchMode):
    """Notes the operators that reach the dispatcher."""

    def __init__(self, usual: bool = True) -> None:
        _Notes.__init__(self, usual)
        TorchDispatchMode.__init__(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(
            str(func).removeprefix("aten."),
            func._schema.is_mutable,
            _outs(func),
            argument_names(func),
            func,
            args,
            kwargs or {},
        )


@cache
def argument_names(function: Any) -> tuple[str, ...]:
    """The names of a function's positional arguments: an operator's from its schema, a function's from torch's own
    list."""
    if hasattr(function, "_schema"):
        return tuple(a.name for a in function._schema.arguments)
    stand_in = _stand_ins().get(function)
    if stand_in is None:
        return ()
    parameters = inspect.signature(stand_in).parameters.values()
    return tuple(p.name for p in itertools.takewhile(lambda p: p.kind is p.POSITIONAL_OR_KEYWORD, parameters))


@cache
def _stand_ins() -> dict[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these attributes are deprecated, and reading them warns
        return get_testing_overrides()


@cache
def _outs(operator: Any) -> tuple[str, ...]:
    """The keyword arguments that an operator writes its results into."""
    arguments = operator._schema.arguments if hasattr(operator, "_schema") else ()
    return tuple(a.name for a in arguments if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write)


def watch(action: Callable[[], Any], usual: bool = True) -> list[Seen]:
    """What every function and operator did in a call, which may raise: that is what is measured."""
    functions, operators = Functions(usual), Operators(usual)
    with contextlib.suppress(Exception), functions, operators:
        action()
    return [*functions.seen, *operators.seen]
