"""``dtypetrace explain``: the meaning of a finding's code or of an error message.

Standard library only.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ..errors import UnknownCodeError
from ..tables.codes import TITLES
from ..tables.dtypes import REAL
from ..tables.refusals import Refusal, in_words, recognise

__all__ = ["ExplainCommand", "explain"]


class ExplainCommand:
    """Explain a finding's code, with a program that fails and the repaired program.

    Without a code, list them all. An error message is looked up too:

      dtypetrace explain DT101
      dtypetrace explain 'mat1 and mat2 must have the same dtype, but got Float and Half'
    """

    name = "explain"
    usage = "dtypetrace explain [CODE | MESSAGE]"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", nargs="*", metavar="CODE", help="a finding's code, or the text of an exception")

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        print(explain(" ".join(options.words)).rstrip("\n"), flush=True)
        return SystemExit(0)


def explain(what: str | BaseException = "") -> str:
    """What a finding's code means, as Markdown. An error, or its message, is looked up. Without an argument: all codes.

    Raises UnknownCodeError (a LookupError) for a code that does not exist and a message that is not about a dtype,
    TypeError for any other type.

    >>> explain("DT110").splitlines()[0]
    '# DT110: a Python scalar does not fit into the dtype of the tensor'
    >>> explain("expected m1 and m2 to have the same dtype, but got: float != c10::Half")[:65]
    'The message names m1 float32 and m2 float16, which have to agree.'
    """
    if not isinstance(what, (str, BaseException)):
        raise TypeError(
            f'explain() takes a code, as in explain("DT101"), or an error message, not {type(what).__name__}'
        )
    what = str(what).strip()
    if not what:
        return listing()
    if re.fullmatch(r"\d{1,4}|[A-Za-z]+\d*", what):
        return page(what.upper() if what.upper().startswith("DT") else f"DT{what}" if what.isdecimal() else what)
    if code := re.search(r"\bDT\d{3}\b", what):  # a finding's title, a note of ours in a traceback
        return page(code[0])
    refusal = _recognised(_DECORATION.sub("", what).strip())
    if refusal is None:
        raise UnknownCodeError(
            "dtypetrace knows no dtype error with this message. Paste the last lines of the traceback as they are; "
            "dtypetrace explain lists all codes"
        )
    return f"{_said(refusal)}\n\n{page(refusal.code)}"


# ---------------------------------------------------------------- messages

_DECORATION = re.compile(
    r"\x1b\[[0-9;]*m"  # colours
    r"|^(?:\[rank\d+\]:|\[default\d+\]:|E  |>) ?",  # what torchrun, pytest and mail programs put before each line
    re.MULTILINE,
)
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Warning|Interrupt))(?:: ?|$)", re.MULTILINE)
_CALLED = re.compile(r"\b(\w+)\(")


def _recognised(text: str) -> Refusal | None:
    """The refusal that a message is about. It may be the message alone, with its exception's name, or a whole
    traceback."""
    raised = max(_RAISED.finditer(text), key=lambda match: match.start(), default=None)
    if raised is None:
        return recognise(text)
    before, message = text[: raised.start()].rstrip().splitlines(), text[raised.end() :].strip()
    source = next((line for line in reversed(before) if line.strip(" ^~")), "")  # the line that raised
    for op in (*_CALLED.findall(source), ""):
        refusal = recognise(message, raised[1], op)
        if refusal is None or not op or refusal != recognise(message, raised[1]):
            return refusal
    return refusal


_ASKED = {
    "agree": ", which have to agree",
    "kernel": ", for which the operation has no kernel",
    "integer": ", where integers are wanted",
    "bool": ", where booleans are wanted",
    "float": ", where a floating dtype is wanted",
    "fits": ", which cannot hold the number",
}


def _said(refusal: Refusal) -> str:
    """What the message says: the dtypes that it names, and what the operation wants."""
    several = len(refusal.dtypes) > 1
    if not refusal.dtypes:
        return "The message names no dtype. Which operand has which: dtypetrace run script.py"
    said = in_words(refusal.dtypes)
    if refusal.argument and not several:
        said += f" for {refusal.argument}"
    asked = (
        ", and not what it disagrees with"
        if refusal.wants == "agree" and not several
        else _ASKED.get(refusal.wants, "")
    )
    return (
        f"The message names {said}{asked}. {_CODES if _packed(refusal) else ''}"
        f"Which line decided {'them' if several else 'it'}: dtypetrace run script.py"
    )


_CODES = (
    "Eight-bit integers in a matmul are mostly a quantised weight: codes, and not the numbers that they stand for, so "
    "a cast gives wrong results. Call the module itself, which dequantises them, and not a function with its weight. "
)


def _packed(refusal: Refusal) -> bool:
    """Whether a matmul met floating numbers and bytes: 4-bit weights are packed in uint8, others are int8."""
    given = set(refusal.dtypes.values())
    return refusal.code == "DT101" and not given.isdisjoint({"uint8", "int8"}) and not given.isdisjoint(REAL)


# ---------------------------------------------------------------- the page of a code


PAGES = Path(__file__).parents[1] / "tables" / "code_pages"


def page(code: str) -> str:
    """The page of a code such as ``"DT101"``, as Markdown. Raises UnknownCodeError."""
    if code not in TITLES:
        number = code.removeprefix("DT")
        nearest = (
            min(TITLES, key=lambda known: abs(int(known.removeprefix("DT")) - int(number)))
            if number.isdecimal()
            else ""
        )
        hint = f"The nearest is {nearest}" if nearest else "Codes look like DT101"
        raise UnknownCodeError(f"no such code: {code}. {hint}; dtypetrace explain lists them all")
    text = PAGES.joinpath(f"{code}.md").read_text("utf-8").rstrip("\n")
    return f"# {code}: {TITLES[code]}\n\n{text}\n"


def listing() -> str:
    """All codes with their titles, one on each line."""
    return "\n".join(f"{code}  {title}" for code, title in sorted(TITLES.items()))
