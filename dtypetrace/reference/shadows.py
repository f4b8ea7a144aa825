"""References: the values that each tensor would have in higher precision, one flat shadow for each storage.

References belong to storages. So a reference survives views, in-place writes, saved tensors that come back as other
objects, ``.data`` and lists of tensors. It is dropped together with the storage, and where the storage is resized, read
as another dtype, or written from outside.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch

from ..capture.compiled import torch_private

Tensor = torch.Tensor

WIDE: dict[torch.dtype, torch.dtype] = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.float8_e4m3fnuz: torch.float32,
    torch.float8_e5m2fnuz: torch.float32,
    torch.float32: torch.float64,
    torch.float64: torch.float64,
}
"""The dtype of each real dtype's reference."""

COMPONENT: dict[torch.dtype, torch.dtype] = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""The real dtype that a complex one consists of."""

COMPLEX: dict[torch.dtype, torch.dtype] = {torch.float32: torch.complex64, torch.float64: torch.complex128}


def _dead(table: dict[int, Shadow], key: int, reference: weakref.ref[Any]) -> None:
    """A storage is gone; another one may have its address by now."""
    shadow = table.get(key)
    if shadow is not None and shadow.alive is reference:
        del table[key]


torch_private.CALLED_ANYWHERE.append(_dead)


def real_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the real numbers that a tensor's memory holds."""
    return COMPONENT.get(dtype, dtype)


def floating(dtype: torch.dtype) -> bool:
    """Whether tensors of a dtype have references."""
    return COMPONENT.get(dtype, dtype) in WIDE


class Shadow:
    """One storage's reference: its numbers in higher precision, in the storage's order. Complex numbers are pairs of
    real ones."""

    __slots__ = ("alive", "flat", "dtype", "writer", "version", "serial", "makers")

    def __init__(self, alive: weakref.ref[Any], flat: Tensor, dtype: torch.dtype, serial: int) -> None:
        self.alive = alive
        self.flat = flat
        self.dtype = dtype
        """The real dtype of the program's numbers."""
        self.serial = serial
        """How many shadows of this run were made before it."""
        self.writer = 0
        """id of the parameter through which the program last wrote, and its version then."""
        self.version = -1
        self.makers: tuple[int, ...] = ()
        """The numbers of the ops that wrote what it holds, as far as they are known."""


class Shadows:
    """The references of all live tensors of a run."""

    def __init__(self) -> None:
        self.wide = WIDE
        self.serial = 0
        self._table: dict[int, Shadow] = {}
        self._exported: dict[int, weakref.ref[Any]] = {}
        self._untied: dict[int, weakref.ref[Any]] = {}

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Size of all references in bytes."""
        return sum(s.flat.nbytes for s in list(self._table.values()))

    def clear(self) -> None:
        """Resets every reference: from now on the program's value is the reference."""
        self._table.clear()
        self._untied.clear()

    def wide_of(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of a tensor's reference, complex for complex."""
        component = COMPONENT.get(dtype)
        return self.wide[dtype] if component is None else COMPLEX[self.wide[component]]

    def shadow(self, tensor: Tensor) -> Shadow | None:
        """The shadow that holds a tensor's reference, None where the program's value is the reference."""
        storage = tensor.untyped_storage()
        shadow = self._table.get(storage._cdata)
        if shadow is None:
            return None
        dtype = COMPONENT.get(tensor.dtype, tensor.dtype)
        if (
            shadow.dtype is not dtype
            or shadow.flat.numel() * dtype.itemsize != storage.nbytes()
            or shadow.writer == id(tensor)
            and self._outside(shadow, tensor)
        ):
            del self._table[storage._cdata]
            return None
        return shadow

    def _outside(self, shadow: Shadow, tensor: Tensor) -> bool:
        """Whether something unwatched wrote to the tensor through which the program last wrote. A watched write raises
        the version by one after we saw it."""
        if tensor.is_inference():
            return False
        return tensor._version not in (shadow.version, shadow.version + 1)

    def of(self, tensor: Tensor) -> Tensor | None:
        """A tensor's reference, a view of its shadow; None where the program's value is the reference."""
        shadow = self.shadow(tensor)
        return None if shadow is None else self.view(shadow, tensor)

    @staticmethod
    def view(shadow: Shadow, tensor: Tensor) -> Tensor:
        """The part of a shadow that belongs to a tensor."""
        if tensor.dtype.is_complex:
            pairs = torch.view_as_complex(shadow.flat.view(-1, 2))
            seen = pairs.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
            seen = seen.conj() if tensor.is_conj() else seen
        else:
            seen = shadow.flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return seen._neg_view() if tensor.is_neg() else seen

    def adopt(self, tensor: Tensor) -> Shadow:
        """A shadow for a tensor that is about to be written, filled with the program's values."""
        known = self.shadow(tensor)
        if known is not None:
            return known
        shadow = self.blank(tensor)
        stored = tensor.new_empty(0, dtype=shadow.dtype).set_(tensor.untyped_storage(), 0, (shadow.flat.numel(),), (1,))
        shadow.flat.copy_(stored)
        return shadow

    def blank(self, tensor: Tensor) -> Shadow:
        """A shadow whose numbers have still to be written, all of them."""
        dtype = real_of(tensor.dtype)
        flat = torch.empty(
            tensor.untyped_storage().nbytes() // dtype.itemsize, dtype=self.wide[dtype], device=tensor.device
        )
        return self._keep(tensor, flat, dtype)

    def give(self, tensor: Tensor, reference: Tensor) -> Shadow:
        """Sets the reference of a tensor that the program has just made, for all of its storage; uses the reference's
        own memory where possible."""
        dtype = real_of(tensor.dtype)
        count = tensor.untyped_storage().nbytes() // dtype.itemsize
        wide = self.wide_of(tensor.dtype)
        if reference.dtype is not wide:
            reference = reference.to(wide)
        taken = None
        begins = tensor.storage_offset() == 0 and reference.storage_offset() == 0
        plain = begins and not reference.is_conj() and not reference.is_neg()
        whole = reference.untyped_storage().nbytes() == count * self.wide[dtype].itemsize
        if plain and whole and reference.stride() == tensor.stride():
            reals = torch.view_as_real(reference) if wide.is_complex else reference
            taken = reals.as_strided((count,), (1,), 0)
        if taken is not None:
            return self._keep(tensor, taken, dtype)
        gaps = tensor.numel() * (2 if wide.is_complex else 1) < count
        shadow = self.adopt(tensor) if gaps else self.blank(tensor)
        self.view(shadow, tensor).copy_(reference)
        return shadow

    def follows(self, tensor: Tensor) -> bool:
        """Whether tensors of this tensor's dtype have references."""
        return real_of(tensor.dtype) in self.wide

    def of_memory(self, tensor: Tensor) -> Shadow | None:
        """The shadow of a floating tensor; None for other tensors too."""
        return self.shadow(tensor) if real_of(tensor.dtype) in self.wide else None

    def anchor(self, tensor: Tensor) -> None:
        """The program wrote values to a tensor that are right by definition (random numbers): they become its
        reference."""
        shadow = self.of_memory(tensor)
        if shadow is not None:
            if tensor.numel() * tensor.dtype.itemsize == tensor.untyped_storage().nbytes():
                self.forget(tensor)
            else:
                self.view(shadow, tensor).copy_(tensor)

    def untie(self, tensor: Tensor) -> None:
        """A tensor was computed unseen from others that have references: that it has none does not mean that it goes
        with theirs. Two that were to be equal would differ by their rounding."""
        storage = tensor.untyped_storage()
        self._untied[storage._cdata] = weakref.ref(storage)

    def is_untied(self, tensor: Tensor) -> bool:
        """Whether that holds for a tensor."""
        if not self._untied:
            return False
        storage = tensor.untyped_storage()
        known = self._untied.get(storage._cdata)
        return known is not None and known() is storage

    def export(self, tensor: Tensor) -> None:
        """A tensor's memory is passed to code that writes unseen (numpy): from now on the program's value is its
        reference."""
        storage = tensor.untyped_storage()
        self._exported[storage._cdata] = weakref.ref(storage)
        self._table.pop(storage._cdata, None)

    def forget(self, tensor: Tensor) -> None:
        """From now on the program's value is the tensor's reference."""
        self._table.pop(tensor.untyped_storage()._cdata, None)

    def written(self, shadow: Shadow, tensor: Tensor) -> None:
        """Records the version at which the program has just written. Only for weights: the ids of other tensors are
        soon used again."""
        if isinstance(tensor, torch.nn.Parameter) and not tensor.is_inference():
            shadow.writer, shadow.version = id(tensor), tensor._version

    def _keep(self, tensor: Tensor, flat: Tensor, dtype: torch.dtype) -> Shadow:
        storage = tensor.untyped_storage()
        table, key = self._table, storage._cdata
        shadow = Shadow(weakref.ref(storage, partial(_dead, table, key)), flat, dtype, self.serial)
        self.serial += 1
        exported = self._exported.get(key)
        if exported is None or exported() is None:  # others may write to it unseen: kept for one call only
            table[key] = shadow
        return shadow
