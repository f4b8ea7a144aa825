"""Named sums by key: added up on the device where they are made, some hundred rows at once, and read at the end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import torch

from . import private

Tensor = torch.Tensor
Key = TypeVar("Key", bound=Hashable)
_BATCH = 512
"""Rows that are added together: few calls for the device, and little memory."""
_LEAST_ROOM = 256
"""Rows of the first table of a device; each growth doubles them."""
_REDUCES: dict[str, tuple[float, Callable[[float, float], float]]] = {
    "sum": (0, lambda a, b: a + b),
    "amax": (0, max),
    "amin": (1 << 62, min),
}
"""How the rows of a key become one: what an empty one holds, and how those of two devices are joined."""


def kind_on(device: torch.device) -> torch.dtype:
    """The dtype in which sums are kept on a device."""
    return torch.float32 if device.type == "mps" else torch.float64


class Totals(Generic[Key]):
    """Rows of sums that have the same columns.

    whole: the columns are integers. reduce: ``sum``, or ``amax`` or ``amin`` to keep the greatest or smallest of each
    column. more: what to make of a batch of rows before it is added up.
    """

    def __init__(
        self,
        *columns: str,
        whole: bool = False,
        reduce: str = "sum",
        more: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.columns = columns
        self._whole, self._reduce, self._more = whole, reduce, more
        self._waiting: dict[torch.device, list[tuple[Key, tuple[Tensor, ...]]]] = {}
        self._tables: dict[torch.device, tuple[dict[Key, int], Tensor]] = {}

    def add(self, key: Key, *row: Tensor) -> None:
        """Adds a row to that of a key: one tensor of one dimension, or one without dimensions for each column."""
        waiting = self._waiting.setdefault(row[0].device, [])
        waiting.append((key, row))
        if len(waiting) >= _BATCH:
            self._fold(row[0].device)

    def add_rows(self, keys: Iterable[Key], rows: Tensor) -> None:
        """The same for many keys; ``rows``: of two dimensions."""
        device = rows.device
        with private.InferenceMode(True):  # tensors made in inference mode cannot be written to outside it
            if device not in self._tables:
                self._tables[device] = {}, self._empty(_LEAST_ROOM, device)
            places, table = self._tables[device]
            at = torch.tensor([places.setdefault(key, len(places)) for key in keys])
            if len(places) > len(table):
                table = torch.cat([table, self._empty(2 * len(places) - len(table), device)])
            self._tables[device] = places, table
            at, rows = at.to(device, non_blocking=True), rows.to(table.dtype)
            if self._reduce == "sum":
                table.index_add_(0, at, rows)
            else:
                table.scatter_reduce_(0, at[:, None].expand_as(rows), rows, self._reduce)

    def _empty(self, rows: int, device: torch.device) -> Tensor:
        kind = torch.long if self._whole else kind_on(device)
        return torch.full((rows, len(self.columns)), _REDUCES[self._reduce][0], dtype=kind, device=device)

    def _fold(self, device: torch.device) -> None:
        """Adds the rows of a device that wait."""
        waiting, self._waiting[device] = self._waiting[device], []
        if waiting:
            with private.InferenceMode(True):
                parts = [part for _, row in waiting for part in row]
                rows = torch.stack(parts).view(len(waiting), -1)
                self.add_rows([key for key, _ in waiting], self._more(rows) if self._more is not None else rows)

    def read(self, having: str = "") -> dict[Key, dict[str, float]]:
        """All rows, by key and column; ``having``: only those in which that column, a count, is not zero. Waits for
        each device once, with ``having`` twice."""
        found: dict[Key, dict[str, float]] = {}
        join = _REDUCES[self._reduce][1]
        for device in list(self._waiting):
            self._fold(device)
        for places, table in self._tables.values():
            keys, rows = list(places), table[: len(places)]
            if having:
                chosen = rows[:, self.columns.index(having)].nonzero()[:, 0]
                keys, rows = [keys[n] for n in chosen.tolist()], rows[chosen]
            for key, row in zip(keys, rows.tolist()):
                known = found.get(key)
                found[key] = {c: join(v, known[c]) if known else v for c, v in zip(self.columns, row)}
        return found


def ratio(row: Mapping[str, float], part: str, of: str, none: float = 0.0) -> float:
    """One sum relative to another; ``none`` where that is zero."""
    return row[part] / row[of] if row[of] else none
