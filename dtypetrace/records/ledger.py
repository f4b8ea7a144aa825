"""What a run of ``dtypetrace fix`` computed, as numbers: two runs of one program are compared by them.

Part of :mod:`records`. Plain dictionaries, because they pass from process to process as JSON.
"""

from __future__ import annotations

from typing import TypedDict


class Pass(TypedDict):
    """One backward pass: the value that it began from, and the norm of all gradients after it."""

    value: float | None
    norm: float | None


class Numbers(TypedDict):
    """A tensor's numbers, from a sample of them: their norm, and their product with a fixed vector of that length.

    Two tensors whose elements differ by a share of their size differ in both by about that share of the norm.
    """

    norm: float
    along: float


class Ledger(TypedDict):
    """Everything that a run computed and that another run can be compared with."""

    passes: list[Pass]
    outputs: list[Numbers]
    """What calls of outermost modules returned without recording a graph: inference."""
    graphed: list[Numbers]
    """What such calls returned with a graph: it counts only where no backward pass runs."""
    variables: dict[str, Numbers]
    """The tensors that the program's own file holds by name at its end."""
    printed: str
    """What it printed, cut after the first 100,000 characters."""


def empty() -> Ledger:
    """A ledger of a run that computed nothing."""
    return {"passes": [], "outputs": [], "graphed": [], "variables": {}, "printed": ""}
