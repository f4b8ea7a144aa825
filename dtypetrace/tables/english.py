"""Small parts of English sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..records import Finding, Operand, Place
from .dtypes import DTYPES, FLOATING


def listed(names: Sequence[str]) -> str:
    """Several names in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"]), listed([])
    ('a', 'a and b', 'a, b and c', '')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def some(names: Sequence[str], most: int) -> str:
    """The first of several names, and how many more there are.

    >>> some(["a", "b", "c", "d"], 2), some(["a", "b"], 2)
    ('a, b and 2 more', 'a, b')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def capitalised(text: str) -> str:
    """A sentence of its own. Names of the program's and of dtypes, with which it may begin, stay as they are: only what
    consists of letters is a word.

    >>> capitalised("an indexed write"), capitalised("linear_1 got"), capitalised("`up` got"), capitalised("float32 x")
    ('An indexed write', 'linear_1 got', '`up` got', 'float32 x')
    """
    return text[:1].upper() + text[1:] if text.partition(" ")[0].rstrip(",:").isalpha() else text


def quoted(name: str) -> str:
    """A name or an expression of the program's as it stands in a sentence: in backticks where it could be read as words
    or a number of it.

    >>> quoted("up"), quoted("proj_in"), quoted("0.weight"), quoted("self.up(x)"), quoted("100 * x")
    ('`up`', 'proj_in', '0.weight', 'self.up(x)', '`100 * x`')
    """
    expression = " " in name and _OPERATOR.search(name) is not None and "`" not in name
    return f"`{name}`" if name.isalpha() or name.isdecimal() or expression else name


_OPERATOR = re.compile(r"[-+*/@%&|^~<>=(\[]")


def called(operand: Operand, op: str, phase: str, site: Place) -> tuple[str, str]:
    """What an operand is called in a sentence, and what a library calls it: ``("value", " (`z` in Model.decode())")``.
    The second part is empty for the program's own names, of which one may be the same.

    ``site``: the call that the name was read from. The gradient that the engine hands on has no name in any text, and
    the value of an indexed write none that it is known by.
    """
    name, frame = quoted(operand.shown), site.stack[0] if site.stack else None
    if operand.holder is not None or operand.handed:
        return name, ""
    if operand.written:
        return ("value", f" ({name} in {frame.function}())") if frame is not None and not frame.user else (name, "")
    if op == "setitem" and operand.name == "value":
        return "value", ""
    if phase != "backward":
        return name, ""
    if operand.name.startswith("grad_output"):
        return "gradient", ""
    return name, f" of {op.removesuffix('_backward')}()" if op.endswith("_backward") and name.startswith("`") else ""


def subject(operand: Operand, op: str, phase: str, site: Place) -> str:
    """The same as the subject of a sentence."""
    name, owner = called(operand, op, phase, site)
    return f"{'the ' if name.isalpha() else ''}{name}{owner}"


def rival(f: Finding) -> Operand | None:
    """The operand that the culprit disagrees with, of the same kind if there is one: beside a number to be written, the
    index does not count."""
    if f.culprit is None:
        return None
    kind = _kind(f.culprit.dtype)
    others = [o for o in f.operands if o.dtype != f.culprit.dtype and not o.dtype.startswith("python")]
    return next((o for o in others if _kind(o.dtype) == kind), others[0] if others else None)


def _kind(dtype: str) -> str:
    name = dtype.removeprefix("python ")
    return "float" if name in FLOATING else DTYPES[name].kind if name in DTYPES else name


def percent(share: float) -> str:
    """A share as text; below a hundredth of a per cent as a power of ten."""
    return "nothing" if share == 0 else f"{share:.2%}" if share >= 1e-4 else f"{share:.0e}"


def share(part: float) -> str:
    """A share in whole per cent."""
    return "less than 1%" if 0 < part < 0.005 else f"{part:.0%}"
