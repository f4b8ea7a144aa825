"""What a model holds and what its classes and configuration declare about dtypes, read when it first runs and when an
optimizer first steps: a model that a function made is gone when the trace ends."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from ..records import Declared
from . import private
from .calls import dtype_name
from .holders import parameter_record
from .module_names import Root, clean_name
from .session import Session

_KEPT = ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")
"""Attributes of transformers' and diffusers' model classes."""
_ONLY_FLOAT16 = ("PreTrainedModel", "_keep_in_fp32_modules")
"""transformers keeps these in float32 where the rest is float16, and lets them be bfloat16 with it."""
_UNINITIALISED = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
_DTYPES = ("dtype", "torch_dtype")
_PRECISIONS = {"bf16": "bfloat16", "fp16": "float16", "no": "float32"}


def take(recorder: Session, root: Root) -> None:
    """Reads a model."""
    module = root.ref()
    # tracing writes down every read of a parameter
    if module is None or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return
    root.read = root.ref
    with private.DisableTorchFunction(), private.DisableTorchDispatch():
        root.held = tuple(
            (id(one.tensor), parameter_record(one, recorder.event_of(one.tensor)))
            for one in recorder.modules.tensors(module)
            if one.tensor.dtype.is_floating_point and not isinstance(one.tensor, _UNINITIALISED)
        )
        root.declared = tuple(_declared(module))


def _declared(root: nn.Module) -> Iterator[Declared]:
    config = getattr(root, "config", None)
    asked = next((d for name in _DTYPES if isinstance(d := getattr(config, name, None), torch.dtype)), None)
    if asked is not None:
        yield Declared("", (), dtype_name(asked), f"{type(config).__name__}.dtype")
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


def launchers() -> Iterator[Declared]:
    """What a launcher was told about the whole run: accelerate's, which transformers' Trainer uses, too."""
    state = getattr(sys.modules.get("accelerate.state"), "AcceleratorState", None)
    asked = getattr(state, "_shared_state", {}).get("_mixed_precision")
    if asked in _PRECISIONS:
        yield Declared("", (), _PRECISIONS[asked], f"Accelerator(mixed_precision={str(asked)!r})", "compute")
