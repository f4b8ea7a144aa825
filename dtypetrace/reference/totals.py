"""Named sums by key: added up on the device where they are made, and read once, at the end."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

import torch

Tensor = torch.Tensor
Key = TypeVar("Key", bound=Hashable)


def kind_on(device: torch.device) -> torch.dtype:
    """The dtype in which sums are kept on a device."""
    return torch.float32 if device.type == "mps" else torch.float64


class Totals(Generic[Key]):
    """Rows of sums that have the same columns."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns
        self._rows: dict[torch.device, dict[Key, Tensor]] = {}

    def add(self, key: Key, row: Tensor) -> None:
        """Adds a row, of one dimension, to that of a key."""
        rows = self._rows.setdefault(row.device, {})
        known = rows.get(key)
        rows[key] = row if known is None else known + row

    def read(self) -> dict[Key, dict[str, float]]:
        """All rows, by key and column. Waits for each device once."""
        found: dict[Key, dict[str, float]] = {}
        for rows in self._rows.values():
            for key, row in zip(rows, torch.stack(list(rows.values())).tolist()):
                known = found.get(key)
                found[key] = {c: v + (known[c] if known else 0.0) for c, v in zip(self.columns, row)}
        return found


def ratio(row: Mapping[str, float], part: str, of: str, none: float = 0.0) -> float:
    """One sum relative to another; ``none`` where that is zero."""
    return row[part] / row[of] if row[of] else none
