"""The rules' answer for healing: which operands of a refused call to cast, and to which dtype."""

from __future__ import annotations

from .. import graph
from ..records import Recording, Refused, Ruling
from . import coded, culprits
from .findings import cause


def ruling(recording: Recording, refused: Refused) -> Ruling:
    """The ruling on one refusal: the same that its finding will state."""
    expected = culprits.verdict(recording, refused).expected
    culprit = culprits.culprit(refused, expected)
    if culprit is not None and coded.holds_codes(recording, culprit):
        culprit = None  # cast codes are other numbers
    causes = {
        w.index: cause(graph.origin(recording, w.event, expected, w.name or None), w.name) for w in refused.witnesses
    }
    blamed = causes.get(culprit.index) if culprit is not None else None
    return Ruling(
        culprit,
        expected,
        frozenset(w.dtype for w in culprits.contenders(refused)),
        frozenset(index for index, owed in causes.items() if owed == blamed),
    )
