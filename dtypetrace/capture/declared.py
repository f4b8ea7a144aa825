"""What a model holds and what its classes and configuration declare about dtypes, read when it first runs and when an
optimizer first steps: a model that a function made is gone when the trace ends."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from torch import nn

from ..records import Declared
from ..tables.dtypes import FLOATING
from . import private
from .calls import dtype_name
from .holders import parameter_record
from .module_names import Root, clean_name
from .session import Session
from .stacks import variables

_KEPT = ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")
"""Attributes of transformers' and diffusers' model classes."""
_ONLY_FLOAT16 = ("PreTrainedModel", "_keep_in_fp32_modules")
"""transformers keeps these in float32 where the rest is float16, and lets them be bfloat16 with it."""
_UNINITIALISED = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
_DTYPES = ("dtype", "torch_dtype")
_PRECISIONS = {"bf16": "bfloat16", "fp16": "float16"}
"""``no``, and Lightning's ``32-true``, ask for nothing: the weights may have any dtype."""
_LIGHTNING = {
    **{f"bf16-{kind}": "bfloat16" for kind in ("mixed", "true")},
    **{f"16-{kind}": "float16" for kind in ("mixed", "true")},
    "64-true": "float64",
}
_PARTS = {"router": "router", "gate": "router", "head": "head", "logits": "head", "loss": "loss"}
"""Words in the names of a configuration's attributes, and the part of compute that they are about."""
_WIDE = ("fp32", "float32")


def take(recorder: Session, root: Root) -> None:
    """Reads a model."""
    module = root.ref()
    # tracing writes down every read of a parameter
    if module is None or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return
    first = root.read is not root.ref
    root.read = root.ref
    with private.DisableTorchFunction(), private.DisableTorchDispatch():
        root.held = tuple(
            (id(one.tensor), parameter_record(one, recorder.event_of(one.tensor)))
            for one in recorder.modules.tensors(module)
            if one.tensor.dtype.is_floating_point and not isinstance(one.tensor, _UNINITIALISED)
        )
        if first:
            root.declared = tuple(_declared(module))


def _declared(root: nn.Module) -> Iterator[Declared]:
    config = getattr(root, "config", None)
    asked = next((d for name in _DTYPES if isinstance(d := getattr(config, name, None), torch.dtype)), None)
    if asked is not None:
        yield Declared("", (), dtype_name(asked), f"{type(config).__name__}.dtype")
    yield from _computes(config)
    quantised = getattr(config, "quantization_config", None)
    computes = getattr(quantised, "bnb_4bit_compute_dtype", None)
    if isinstance(computes, torch.dtype):
        by = f"{type(quantised).__name__}(bnb_4bit_compute_dtype=)"
        yield Declared("", (), dtype_name(computes), by, "compute")
    seen: set[tuple[type, str]] = set()
    for name, module in root.named_modules():
        for attribute in _KEPT:
            names = getattr(type(module), attribute, None)
            if isinstance(names, (list, tuple, set)) and names and (type(module), attribute) not in seen:
                seen.add((type(module), attribute))
                yield _kept(clean_name(name, root), type(module), attribute, names)


def _computes(config: Any) -> Iterator[Declared]:
    """What a configuration says of the router, the head or the loss: ``router_dtype``, ``fp32_lm_head``."""
    for name, told in vars(config).items() if hasattr(config, "__dict__") else ():
        words = name.split("_")
        part = next((_PARTS[word] for word in words if word in _PARTS), "")
        dtype = str(told).removeprefix("torch.") if "dtype" in words else ""
        if told is True and any(word in _WIDE for word in words):
            dtype = "float32"
        if part and dtype in FLOATING:
            yield Declared("", (part,), dtype, f"{type(config).__name__}.{name}", "compute")


def _kept(name: str, kind: type, attribute: str, names: Iterable[Any]) -> Declared:
    """The declaration of the class of a module in ``kind``'s inheritance that has the attribute."""
    owner = next(base for base in kind.__mro__ if attribute in vars(base))
    milder = attribute == _ONLY_FLOAT16[1] and any(base.__name__ == _ONLY_FLOAT16[0] for base in kind.__mro__)
    file, line = _line(owner, attribute)
    ruled_out = ("float16",) if milder else ()
    by = f"{owner.__name__}.{attribute}"
    return Declared(name, tuple(sorted(map(str, names))), "float32", by, "parameters", ruled_out, file, line)


def _line(owner: type, attribute: str) -> tuple[str, int]:
    """Where a class body assigns an attribute; an empty file where that is not seen."""
    file = getattr(sys.modules.get(owner.__module__), "__file__", None) or ""
    inside = False
    for number, text in enumerate(linecache.getlines(file) if file else (), 1):
        if text.startswith("class "):
            inside = text.startswith((f"class {owner.__name__}(", f"class {owner.__name__}:"))
        elif inside and text.lstrip().startswith(attribute):
            return file, number
    return "", 0


def launchers(by_trainer: bool = False) -> Iterator[Declared]:
    """What accelerate was told about the whole run; ``by_trainer``: by transformers' Trainer, which uses it."""
    state = getattr(sys.modules.get("accelerate.state"), "AcceleratorState", None)
    asked = getattr(state, "_shared_state", {}).get("_mixed_precision")
    if asked in _PRECISIONS:
        by = f"TrainingArguments({asked}=True)" if by_trainer else f"Accelerator(mixed_precision={str(asked)!r})"
        yield Declared("", (), _PRECISIONS[asked], by, "compute")


def of_step(optimizer: Any, frame: FrameType | None) -> Iterator[Declared]:
    """What the trainers that call an optimizer's step from above a frame were told, and the dtypes that the optimizer's
    own arguments name."""
    by_trainer = prepared = False
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        by_trainer |= name == "transformers.trainer"
        prepared |= name == "accelerate.optimizer"
        for caller, told in _CALLERS.items() if "self" in frame.f_code.co_varnames else ():
            if name.startswith(caller):
                with suppress(Exception):  # of a property of theirs
                    yield from tuple(told(variables(frame).get("self")))
        frame = frame.f_back
    if by_trainer or prepared:  # a process has one such setting, also for what accelerate was never given
        yield from launchers(by_trainer)
    for name, given in getattr(optimizer, "defaults", {}).items():
        if isinstance(given, torch.dtype):
            by = f"{type(optimizer).__name__}({name}=)"
            yield Declared("", (name.removesuffix("_dtype"),), dtype_name(given), by, "optimizer state")


def _of_lightning(plugin: Any) -> Iterator[Declared]:
    yield from _precision(plugin, "Trainer")


def _of_fabric(wrapper: Any) -> Iterator[Declared]:
    yield from _precision(wrapper._strategy.precision, "Fabric")


def _precision(plugin: Any, maker: str) -> Iterator[Declared]:
    if plugin.precision in _LIGHTNING:
        yield Declared("", (), _LIGHTNING[plugin.precision], f"{maker}(precision={plugin.precision!r})", "compute")


def _of_deepspeed(engine: Any) -> Iterator[Declared]:
    """Of DeepSpeed's json, as its engine reads it."""
    for section, asks in (("bf16", "bfloat16_enabled"), ("fp16", "fp16_enabled")):
        told = getattr(engine, asks, None)
        if callable(told) and told():
            yield Declared("", (), _PRECISIONS[section], f"DeepSpeed's {section}.enabled", "compute")
    sent = getattr(engine, "communication_data_type", None)
    if isinstance(sent, torch.dtype):
        yield Declared("", (), dtype_name(sent), "DeepSpeed's communication_data_type", "reduction")


_CALLERS: dict[str, Callable[[Any], Iterator[Declared]]] = {
    "lightning.pytorch.plugins.precision": _of_lightning,
    "pytorch_lightning.plugins.precision": _of_lightning,
    "lightning.fabric.wrappers": _of_fabric,
    "lightning_fabric.wrappers": _of_fabric,
    "deepspeed.": _of_deepspeed,
}
"""By module: what an object of it, whose method calls an optimizer's step, says."""
