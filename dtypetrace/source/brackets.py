"""Brackets that are missing: ``a == b & c > d`` compares with ``b & c``, because ``&`` binds closer than ``==``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import Edit, Frame
from ..records.text import ParsedFile, ProgramText
from .expressions import expression_at

_SIGNS = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}


def around_comparisons(text: ProgramText, frame: Frame, bare: int) -> Edit | None:
    """The edit that puts each comparison into brackets where the frame ran ``&``, ``|`` or ``^`` between the values
    that they compare. None where it is not so, or where more than ``bare`` of the sides would then be no comparison."""
    file, node = text.parsed(frame.file), expression_at(text, frame)
    above = file.parents.get(node) if file is not None and node is not None else None
    while file is not None and isinstance(above, ast.BinOp) and type(above.op) in _SIGNS:
        above = file.parents.get(above)
    if file is None or not isinstance(above, ast.Compare):
        return None
    cuts = [cut for value in (above.left, *above.comparators) for cut in _cuts(file, above, value)]
    if node not in [found for found, _, _ in cuts]:
        return None
    written, begin, sides, signs = file.segment(above), 0, list[str](), list[str]()
    for _, at, sign in cuts:
        sides.append(written[begin:at].strip())
        signs.append(sign)
        begin = at + len(sign)
    sides.append(written[begin:].strip())
    compares = [isinstance(ast.parse(f"({side})", mode="eval").body, ast.Compare) for side in sides]
    if compares.count(False) > bare:
        return None
    bracketed = [f"({side})" if compared else side for side, compared in zip(sides, compares)]
    after = bracketed[0] + "".join(f" {sign} {side}" for sign, side in zip(signs, bracketed[1:]))
    return file.replaced(above, after)


def _cuts(file: ParsedFile, whole: ast.Compare, value: ast.expr) -> Iterator[tuple[ast.expr, int, str]]:
    """The operators between the values of a comparison that stand in no brackets, with their positions in its text."""
    if not isinstance(value, ast.BinOp) or type(value.op) not in _SIGNS:
        return
    before, sign = file.between(file.start(whole), file.start(value)), _SIGNS[type(value.op)]
    if before.count("(") != before.count(")"):
        return
    yield from _cuts(file, whole, value.left)
    at = len(file.between(file.start(whole), file.end(value.left)))
    yield value, at + file.between(file.end(value.left), file.start(value.right)).index(sign), sign
    yield from _cuts(file, whole, value.right)
