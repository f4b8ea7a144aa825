"""How the reference follows each operator: run it again in higher precision, use the program's decisions, or follow the
write.

Only what is known to have no effect outside its results is run again (``capture.repeats``). This file names single
operators only for what schemas do not say: which results are decisions, and which write to arguments that their schema
calls read-only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..capture.repeats import repeatable

_aten = torch.ops.aten

RERUN, VIEW, TAKEN, STRANGE = "rerun", "view", "taken", "strange"
"""rerun: called again with references. view: shares memory, nothing to do. taken: not called again; the program's
values are the references of what it makes and writes to. strange: the same, and it may write to any of its
arguments."""

_DECISIONS = frozenset({_aten._amp_update_scale_, _aten.histc})
_DECISIONS |= {_aten._histogramdd_from_bin_cts, _aten._histogramdd_from_bin_tensors, _aten.unique_dim}
"""Floating results that are decisions: other numbers would give others. A histogram counts in which bin each lies; rows
that are ordered by their first numbers change places where these are rounded."""
_MASKED = frozenset({_aten.native_dropout})
"""Random operators that the reference computes from what the program drew."""
# operators that write to arguments that their schema calls read-only: positions of those arguments, and of the argument
# that says whether they do
_UNDECLARED_WRITES = {
    _aten.native_batch_norm: ((3, 4), 5),
    _aten._batch_norm_impl_index: ((3, 4), 5),
    _aten.cudnn_batch_norm: ((3, 4), 5),
    _aten.miopen_batch_norm: ((3, 4), 5),
    _aten.batch_norm: ((3, 4), 5),
    _aten.instance_norm: ((3, 4), 5),
}
_KEPT_ARGUMENTS = frozenset({"state_steps", "found_inf", "inv_scale", "grad_scale"})
"""Arguments whose kernels take only float32: counts, flags and powers of two, which are exact."""
_OVERWRITES = {_aten.copy_, _aten.zero_, _aten.fill_, _aten._foreach_zero_, _aten._foreach_copy_}
_CHOOSES = {_aten.argmax, _aten.argmin, _aten.topk, _aten.sort, _aten.max, _aten.min, _aten.kthvalue}
_CHOOSES |= {_aten.gt, _aten.ge, _aten.lt, _aten.le}
"""Operators that give the places of numbers along a dimension, alone or behind the numbers, or compare numbers."""
_REINTERPRETS = {_aten.view.dtype}
_FREE = {_aten._linalg_eigh: (1,), _aten.linalg_eig: (0, 1), _aten._linalg_svd: (0, 2)}
"""Results that are right with either sign, and any basis of what belongs to equal eigenvalues; of ``eig`` in any order:
a rounding chooses other ones, which are as good."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument that an operator writes to: its position, or its name where it is keyword-only."""

    position: int
    name: str


@dataclass(frozen=True, slots=True)
class Kind:
    """How one operator is followed."""

    how: str
    written: tuple[Argument, ...] = ()
    """The arguments that it writes to."""
    outs: bool = False
    """Whether those are for its results (``out=``); if not, it changes them."""
    overwrites: bool = False
    """Whether none of the old values stay."""
    picks: bool = False
    """Whether its first result is picked from its first argument by its second, along ``dim``."""
    pools: int = 0
    """The same, along this many last dimensions, flattened."""
    undeclared: int = -1
    """Position of the argument that switches on a write that the schema does not mention, -1 for none."""
    kept: frozenset[int] = frozenset()
    """Positions of arguments that are passed as the program has them."""
    kept_names: frozenset[str] = frozenset()
    dropout: int = -1
    """Position of a dropout probability, for which it draws random numbers; -1 for none."""
    widens: bool = True
    """Whether dtypes among its arguments are widened."""
    names_dtype: bool = False
    """Whether it takes a ``dtype=`` and uses a default where none is passed."""
    pointwise: bool = False
    counts: bool = False
    """Whether it may make integers from floating numbers."""
    chooses: bool = False
    """Whether it gives the places of some of its first argument's numbers."""
    free: tuple[int, ...] = ()
    """Results that may be others and as right: the program's are taken."""


def kind_of(func: Any) -> Kind:
    """How an operator is followed; worked out once for each."""
    packet = getattr(func, "overloadpacket", None)
    if packet is None:  # a higher-order operator
        return Kind(STRANGE)
    schema = func._schema
    written = tuple(
        Argument(-1 if a.kwarg_only else i, a.name)
        for i, a in enumerate(schema.arguments)
        if a.alias_info is not None and a.alias_info.is_write
    )
    outs = any(a.is_out for a in schema.arguments)
    undeclared = -1
    if packet in _UNDECLARED_WRITES and not outs:
        positions, undeclared = _UNDECLARED_WRITES[packet]
        written = tuple(Argument(i, schema.arguments[i].name) for i in positions)
    if not written and func.namespace != "aten" and packet.__name__.endswith("_"):  # a collective, as ``broadcast_``
        written = tuple(Argument(i, a.name) for i, a in enumerate(schema.arguments) if "Tensor" in str(a.type))
    kept = frozenset(i for i, a in enumerate(schema.arguments) if a.name in _KEPT_ARGUMENTS)
    dropout = next((i for i, a in enumerate(schema.arguments) if a.name in ("dropout_p", "dropout")), -1)
    names = [r.name for r in schema.returns]
    picks = names[:2] == ["values", "indices"] and any(a.name == "dim" for a in schema.arguments) and not outs
    return Kind(
        _how(func, packet, schema),
        written,
        outs,
        packet in _OVERWRITES,
        picks,
        _POOLS.get(packet.__name__, 0),
        undeclared,
        kept,
        _KEPT_ARGUMENTS & {a.name for a in schema.arguments},
        dropout,
        func not in _REINTERPRETS,
        any(a.name == "dtype" and a.kwarg_only for a in schema.arguments),
        torch.Tag.pointwise in func.tags,
        packet is _aten._to_copy,
        packet in _CHOOSES and not outs,
        _FREE.get(packet, ()),
    )


def _how(func: Any, packet: Any, schema: Any) -> str:
    known = repeatable(func)
    if not known and func.namespace != "aten" or _writes_both(packet, schema):
        return STRANGE
    if func.is_view and packet is not _aten.view_as or torch.Tag.inplace_view in func.tags:
        return VIEW
    decides = packet in _DECISIONS or not schema.is_mutable and not any("Tensor" in str(r.type) for r in schema.returns)
    return RERUN if (known or packet in _MASKED) and not decides else TAKEN


def _writes_both(packet: Any, schema: Any) -> bool:
    """Whether an operator puts results into ``out=`` and also changes another argument: ``native_batch_norm.out``."""
    outs = [a.is_out for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return any(outs) and (not all(outs) or packet in _UNDECLARED_WRITES)


_POOLS = {
    "max_pool1d_with_indices": 1,
    "max_pool2d_with_indices": 2,
    "max_pool3d_with_indices": 3,
    "adaptive_max_pool2d": 2,
    "adaptive_max_pool3d": 3,
    "fractional_max_pool2d": 2,
    "fractional_max_pool3d": 3,
}
