"""What an exception's text says about dtypes: which rule was broken, by which dtypes, at which argument.

torch refuses a dtype in about two hundred wordings, which differ by operator, device and release. Exceptions about
other things (shapes, devices, Python types) have similar texts. :func:`recognise` maps the wording to one
:class:`Refusal`, or to None where the text is about something else. Where operands were seen, believe them rather than
the text; use the text where nothing was seen.

The texts come from torch 1.4 to 2.13 (torch's own operator database, run with one operand of another dtype, and the
strings in its libraries) and from public bug reports. Standard library only: nothing here needs torch.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .english import listed


@dataclass(frozen=True)
class Refusal:
    """What a message says. Equal calls of :func:`recognise` return the same object: do not change its ``dtypes``.

    ``wants`` is ``agree`` (the operands must agree), ``kernel`` (the operands of dtype ``dtypes["found"]``, where the
    text names it, have no kernel), ``integer``, ``bool``, ``float`` or ``complex`` (an argument must be of that kind),
    ``fits`` (a Python scalar does not fit ``dtypes["type"]``) or ``other``. ``argument`` is the one that the text calls
    wrong.

    >>> recognise("expected m1 and m2 to have the same dtype, but got: float != c10::Half").dtypes
    {'m1': 'float32', 'm2': 'float16'}
    """

    pattern: str
    code: str
    wants: str
    dtypes: dict[str, str]
    argument: str | None


_NO_NAMES = frozenset({"a", "b", "got", "was", "type", "other", "desired", "result"})
"""Names in ``refusals.json`` for dtypes to which the text gives no name."""


def in_words(dtypes: Mapping[str, str]) -> str:
    """The dtypes that a message names, with the names that it gives them.

    >>> in_words({"mat1": "float32", "mat2": "float16"}), in_words({"expected": "float16", "found": "float32"})
    ('mat1 float32 and mat2 float16', 'float16 (expected) and float32 (found)')
    >>> in_words({"found": "bfloat16"})
    'bfloat16'
    """
    if {"expected", "found"} <= dtypes.keys():
        named = [f"{dtype} ({name})" for name, dtype in dtypes.items()]
    else:
        named = [
            dtype if name in _NO_NAMES or name in ("expected", "found") else f"{name} {dtype}"
            for name, dtype in dtypes.items()
        ]
    return listed(named)


# ---------------------------------------------------------------- names of dtypes

_SPELLINGS = {  # as C++, Python, triton and libraries print them; `canonical` removes prefixes and suffixes
    "float32": "float Float fp32 FP32",
    "float16": "half Half fp16 FP16",
    "bfloat16": "BFloat16 bf16 BF16",
    "float64": "double Double fp64 FP64",
    "int64": "long Long int64_t __int64",
    "int32": "int Int int32_t",
    "int16": "short Short int16_t",
    "int8": "Char int8_t",
    "uint8": "Byte uint8_t",
    "bool": "Bool boolean Boolean",
    "uint16": "UInt16 uint16_t",
    "uint32": "UInt32 uint32_t",
    "uint64": "UInt64 uint64_t",
    "complex32": "chalf ComplexHalf complex<Half>",
    "complex64": "cfloat ComplexFloat complex<float>",
    "complex128": "cdouble ComplexDouble complex<double>",
    "float4_e2m1fn_x2": "Float4_e2m1fn_x2",
    "float8_e4m3fn": "Float8_e4m3fn",
    "float8_e4m3fnuz": "Float8_e4m3fnuz",
    "float8_e5m2": "Float8_e5m2",
    "float8_e5m2fnuz": "Float8_e5m2fnuz",
    "float8_e8m0fnu": "Float8_e8m0fnu",
    "qint8": "QInt8",
    "quint8": "QUInt8",
    "qint32": "QInt32",
}
_CANONICAL = {s: name for name, others in _SPELLINGS.items() for s in (name, *others.split())} | {
    "long int": "int64",
    "long long": "int64",
    "signed char": "int8",
    "unsigned char": "uint8",
}
_TYPE_NAMES = sorted(_CANONICAL, key=len, reverse=True)
_DTYPE = r"(?:struct )?(?:long int|long long|signed char|unsigned char|(?:\w+::)*\w+(?:\.\w+)*(?:<[\w:]+>)?)"


@functools.lru_cache(maxsize=1024)
def canonical(spelling: str) -> str | None:
    """The dtype's name as in ``torch.<name>``, or None where the spelling names no dtype.

    >>> canonical("struct c10::Half"), canonical("torch.cuda.LongTensor"), canonical("CPUBFloat16Type")
    ('float16', 'int64', 'bfloat16')
    """
    name = re.sub(r"\bstruct |\b(?:c10|at|std|torch|ScalarType)::", "", spelling.strip()).removeprefix("torch.")
    if name.endswith("Tensor"):  # legacy tensor types: torch.HalfTensor, torch.cuda.HalfTensor
        name = name.rpartition(".")[2].removesuffix("Tensor")
    elif name.endswith("Type"):  # the same as C++ prints them: CPUBFloat16Type, CUDAComplexFloatType
        name = next((s for s in _TYPE_NAMES if name.removesuffix("Type").endswith(s)), "")
    return _CANONICAL.get(name)


# ---------------------------------------------------------------- families of operators

_FAMILIES = (  # the code for operands that disagree, where the text does not name the operation; the first wins
    ("DT116", r"_amp_\w+|unscale"),
    (
        "DT115",
        r"_foreach_\w+|_(?:single|multi)_tensor_\w+|_group_tensors\w*"
        r"|\w*(?:adam(?:w|ax)?|sgd|adagrad|adafactor|rmsprop|muon)",
    ),
    ("DT117", r"_?all_?(?:reduce|gather|to_?all)\w*|_?reduce_?scatter\w*|_?broadcast"),
    ("DT103", r"\w*attention\w*|flash_attn\w*"),
    ("DT105", r"\w*(?:lstm|gru|rnn)\w*"),
    ("DT104", r"\w*(?:layer|group|batch|instance|rms)_?norm\w*"),
    ("DT102", r"\w*conv(?:olution|_?transpose|_depthwise|_tbc|\d?d)\w*"),
    ("DT113", r"\w*loss\w*|\w*cross_?entropy\w*|kl_?div"),
    ("DT107", r"_?index_?(?:put|add|copy|reduce)\w*|\w*scatter\w*|put|__setitem"),
    ("DT101", r"(?:\w*_)?(?:baddb|addb|add|b)?mm|\w*matmul|_?linear|\w*dot|inner|outer|einsum|(?:add)?mv|addr"),
)
_DECORATION = re.compile(r"(?:_?backward\d*|_forward|_out|_)+$")


@functools.lru_cache(maxsize=1024)
def _family(op: str) -> str | None:
    """The code of operands that disagree in ``op``: ``conv2d``, ``aten::mm``, ``addmm.default``, ``AddmmBackward0``."""
    for part in re.split(r"[.:]+", op.lower()):
        part = _DECORATION.sub("", part.removeprefix("_thnn").removeprefix("_th"))
        for code, names in _FAMILIES:
            if part and re.fullmatch(names, part):
                return code
    return None


# ---------------------------------------------------------------- the table


class _Row(NamedTuple):
    """One wording, as in ``refusals.json``.

    The wording is literal text. In it, ``<name>`` is a dtype in any spelling, ``<argument>`` and ``<op>`` are words
    that name those, ``<_>`` is any word, and ``{...}`` is a regular expression. An empty code marks a text that
    resembles a refusal but is not one. DT106 (the operands of some operation) becomes the code of the operation's
    family, and DT101 becomes DT105 in a recurrent layer, whose gates are matmuls.
    """

    pattern: str
    code: str
    wants: str
    wording: str
    argument: str | None = None
    op: str = ""
    """The row applies only to operations whose name matches this regular expression."""


_ROWS = tuple(  # each with its longest literal text: to search for it first avoids compiling nearly all rows
    (_Row(*cells), max(re.split(r"\{[^{}]*\}|<\w+>", cells[3]), key=len))
    for section in json.loads(Path(__file__).with_name("refusals.json").read_text("utf-8")).values()
    for cells in section
)


@functools.cache
def _regex(wording: str) -> re.Pattern[str]:
    parts = re.split(r"\{([^{}]*)\}", wording)
    parts[::2] = map(re.escape, parts[::2])
    return re.compile(re.sub(r"(?<!\?P)<(\w+)>", _placeholder, "".join(parts)))


def _placeholder(name: re.Match[str]) -> str:
    if name[1] == "_":
        return r"\w+"
    return rf"(?P<{name[1]}>\w+)" if name[1] in ("argument", "op") else rf"(?P<{name[1]}>{_DTYPE})"


# ---------------------------------------------------------------- recognising

_NEVER = frozenset(  # exceptions whose text may name a dtype without refusing one
    [
        "AttributeError",
        "NameError",
        "KeyError",
        "ImportError",
        "ModuleNotFoundError",
        "OSError",
        "FileNotFoundError",
        "SyntaxError",
        "OutOfMemoryError",
        "ValidationError",
        "KeyboardInterrupt",
        "SystemExit",
    ]
)
_LONGEST = 20_000
_LONGEST_UNKNOWN = 2_000
"""Characters of a message that no row knows and that is still read for dtypes."""


@functools.lru_cache(maxsize=1024)
def recognise(message: str, exception: str = "RuntimeError", op: str = "") -> Refusal | None:
    """What the text of an exception says about dtypes, or None where it is not about a dtype.

    ``exception`` is the name of its class and ``op`` the function that raised it (``conv2d``, ``addmm.default``); if
    the text names no operation, the code follows from ``op``.

    >>> recognise("expected scalar type Half but found Float", op="conv2d").code
    'DT102'
    >>> recognise("mat1 and mat2 shapes cannot be multiplied (4x4 and 5x3)") is None
    True
    """
    if exception in _NEVER or exception.endswith("Warning"):
        return None
    if len(message) > _LONGEST:  # a worker's whole traceback, or a compiler's graph: the message is at its ends
        message = message[: _LONGEST // 2] + message[-_LONGEST // 2 :]
    for row, literal in _ROWS:
        if literal not in message or not re.search(row.op, op):
            continue
        found = _regex(row.wording).search(message)
        if found is None:
            continue
        if not row.code:
            return None
        groups = {name: text for name, text in found.groupdict().items() if text is not None}
        argument = groups.pop("argument", row.argument)
        code = _refined(row.code, op or groups.get("op", ""))
        groups.pop("op", None)
        dtypes = {name: dtype for name, text in groups.items() if (dtype := canonical(text))}
        if len(dtypes) < len(groups):  # the words match, but they are not about a dtype
            continue
        if row.wants in ("agree", "integer") and len(dtypes) > 1 and len(set(dtypes.values())) == 1:
            return None  # torch.cuda.HalfTensor and torch.HalfTensor: the same words, but about a device
        return Refusal(row.pattern, code, row.wants, dtypes, argument)
    return _generic(message, op)


def _refined(code: str, op: str) -> str:
    """The code, made more precise by the operation that refused; see :class:`_Row`."""
    family = _family(op)
    if family and (code == "DT106" or (code, family) == ("DT101", "DT105")):
        return family
    return code


# ---------------------------------------------------------------- texts that match no row

# Conservative, because a missed refusal costs less than a wrong one: the text has to name a dtype with certainty (a
# lone `int` or `float` may be Python's), to say something about it, and not to be about shapes, devices or Python
# types.

_DTYPE_NAMED = re.compile(
    r"\btorch\.(?:cuda\.)?(?:b?float\d+\w*|half|double|complex\d+|u?int\d+|bool|[A-Z]\w+Tensor)\b"
    r"|\b(?:c10|at)::(?:ScalarType::)?k?[A-Z]\w+|\b(?:BFloat16|Float8_\w+|Complex(?:Half|Float|Double))\b"
    r"|\b(?:CPU|CUDA|MPS|XPU|HIP|HPU)\w+Type\b|\b(?:bfloat16|float(?:16|32|64)|u?int(?:8|16|32|64)|complex(?:64|128))\b"
    r"|\b(?:[Dd]types?|[Ss]calar ?[Tt]ypes?|[Dd]ata ?types?)[:=]?(?: (?:of|is|was|to be|in))? ['\"`(]?"
    r"(?:Half|Float|Double|Long|Int|Short|Char|Byte|Bool|half|float|double|long|int|bool|bf16|fp16|fp32|fp64)\b"
    r"|\b(?:Half|Float|Double|Long|Int|Byte|Bool) (?:[Tt]ensor|dtype)|\b[Tt]ypes? (?:bf16|fp16|fp32|Half)\b"
)
_TYPE = r"(?:[Dd]?types?|scalar ?types?|data ?types?)"
_DISAGREE = re.compile(
    r"\b(?:same|identical|matching|uniform|different|inconsistent|incompatible|mixed|mismatch\w*(?: of| in)?)"
    rf" {_TYPE}\b"
    rf"|\b{_TYPE} (?:mismatch"
    r"|(?:do|does|did|must|should|to|don't|doesn't) (?:not )?(?:match|agree|be the same|be equal))"
)
_UNSUPPORTED = re.compile(
    r"not (?:yet |currently )?(?:supported|implemented)|[Uu]nsupported|[Nn]ot a supported"
    r"|(?:does not|doesn't|cannot) support"
    r"|[Oo]nly (?:support|accept|implement|work|handle)|[Ii]nvalid d(?:ata ?)?type"
)
_EXPECTED = re.compile(r"(?:[Ee]xpect\w*|must|should|requires?)\b.*\b(?:got|found|but|received|instead|not|is)\b", re.S)
_SPEAKS_OF_TYPES = re.compile(r"\b(?:d?[Tt]ypes?|Dtypes?|[Tt]ensors?)\b|torch\.\w")
_GOT = re.compile(
    rf"\b(?:got|found|received|but (?:is|was)|supported for|for dtype):? (?:dtype |a tensor of )?['\"(]?({_DTYPE})"
)
_OTHER_REASON = re.compile(
    r"argument '\w+' (?:\(position \d+\) )?must be|invalid combination of arguments|has no attribute"
    r"|object is not|ufunc"
    r"|unexpected keyword|Expected a value of type|operand type\(s\)|JSON|failed to match any schema|expected Tensor as"
    r"|\bshapes?\b|\bsizes?\b|dimension|\b\dD\b|out of (?:range|bounds|memory)|in range|between \d|negative|non-zero"
    r"|(?:same|supported|different) devices?|on device|device type|backend|not (?:available|compiled|installed)"
    r"|No such file|state_dict|[Cc]annot assign|pickle|stride|\blayout\b|contiguous|requires?_grad|inplace operation"
    r"|instance of|<class|object of type|subscript|iterable"
)


def _generic(message: str, op: str) -> Refusal | None:
    """A refusal that matches no row, with the dtypes in its text: ``a`` and ``b``, or ``found``."""
    text = message
    if "Traceback (most recent call last)" in text:  # from a worker: its source lines name dtypes too
        text = text.strip().rpartition("\n")[2]
    if len(text) > _LONGEST_UNKNOWN or not _DTYPE_NAMED.search(text) or _OTHER_REASON.search(text):
        return None
    named = [name for name in map(canonical, re.findall(_DTYPE, text)) if name]
    distinct = list(dict.fromkeys(named))
    only = distinct[0] if len(distinct) == 1 else None
    found = next((name for name in map(canonical, _GOT.findall(text)) if name), only)
    unsupported = _UNSUPPORTED.search(text)
    if only and len(named) > 1 and not unsupported:
        return None  # the same dtype twice: the difference is something else
    if _DISAGREE.search(text):
        both = dict(zip("ab", distinct)) if len(distinct) == 2 else {}
        return Refusal("generic", _family(op) or "DT106", "agree", both, None)
    if not _SPEAKS_OF_TYPES.search(text):
        return None
    dtypes = {"found": found} if found else {}
    if unsupported:
        return Refusal("generic", "DT109", "kernel", dtypes, None)
    if _EXPECTED.search(text):
        return Refusal("generic", "DT121", "other", dtypes, None)
    return None
