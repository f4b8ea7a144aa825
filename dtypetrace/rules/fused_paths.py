"""Advice for torch's fused paths of attention modules, which do not take every autocast.

Such a path computes one part of its work in autocast's dtype and another part in that of its weights, and refuses
what the two parts give each other although all its operands may agree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import Edit, Fix
from ..source.expressions import last_part
from ..tables.dtypes import HALF
from . import plans
from .advice import advise
from .case import Case

_OFF = "torch.backends.mha.set_fastpath_enabled(False)"
_ENCODER, _NESTS = "TransformerEncoder", "enable_nested_tensor"


def fused_path(case: Case) -> Iterator[Fix]:
    """The fused path is left for the one that autocast reaches, or autocast computes in the dtype of half weights."""
    if case.verdict.principle != "fused path":
        return
    weights, computes = case.culprit.dtype, case.verdict.expected
    if weights in HALF:
        edits = plans.computing_in(case.recording, case.site, weights)
        yield advise(case.site, f"let autocast compute in {weights}, as the weights are", edits=edits, kind="plan")
        return
    nested = _without_nesting(case)
    change = f"make the encoder with {_NESTS}=False"
    why = "nested tensors, which a padding mask leads to, go with no autocast"
    model = f"compute with a copy of the model in {computes}, without autocast"
    yield advise(case.site, change, why, edits=nested, kind="call", others=(f"turn the fused path off: {_OFF}", model))


def _without_nesting(case: Case) -> Edit | None:
    """The edit of the program's one call that makes an encoder; None where there is none, or several."""
    files = {f.file for p in case.recording.places for f in p.stack if f.user}
    parsed = {path: file for path in sorted(files) if (file := case.recording.text.parsed(path)) is not None}
    made = [
        (path, file, node)
        for path, file in parsed.items()
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call) and last_part(node.func) == _ENCODER
    ]
    if len(made) != 1:
        return None
    path, file, call = made[0]
    given = next((k.value for k in call.keywords if k.arg == _NESTS), None)
    if given is not None:
        return Edit(path, file.start(given), file.end(given), file.segment(given), "False")
    if len(call.args) > 3 or any(k.arg is None for k in call.keywords):
        return None
    segment = file.segment(call)
    inside = segment[: segment.rindex(")")].rstrip().removesuffix(",")
    return Edit(path, file.start(call), file.end(call), segment, f"{inside}, {_NESTS}=False)")
