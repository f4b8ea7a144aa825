"""Recordings made by hand, without torch: of a few lines, large ones, one with every kind of finding, hostile ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dtypetrace.records import (
    Edit,
    Event,
    Finding,
    Fix,
    FlowStep,
    Frame,
    Input,
    Op,
    Operand,
    Origin,
    Parameter,
    Place,
    Raised,
    Read,
    Recording,
    Refused,
    Sources,
    Witness,
)  # fmt: skip
from dtypetrace.records.text import ProgramText
from dtypetrace.source.facts import with_facts

KINDS = (
    "collision promotion downcast round-trip zero-gradient lost-update underflow overflow gradient-dtype plan".split()
)
HOSTILE = (
    "</script><script>hit=1</script>",
    "--><!--<script>",
    "<!--",
    "]]>",
    "\"'><img src=x onerror=hit=2>",
    "'{{ 7 * 7 }}{% raw %}${hit=3}",
    "\U0001f525\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627",
    "\u202eevil\u202c",
    "\x00\x1b[31m\x7f",
    "\udcff",
    "&lt;b&gt;&amp;",
    "x" * 10_000,
)


def frame(
    file: str = "/p/train.py", line: int = 3, user: bool = True, column: int | None = 5, end: int | None = 12
) -> Frame:
    return Frame(file, line, "train", user, column, line, end)


def many(count: int, *, findings: int = 3) -> tuple[Recording, tuple[Finding, ...]]:
    """A trace of so many distinct ops, as a large model's would be: a place for four of them, a module for seven."""
    places = tuple(
        Place(
            (
                Frame(f"/site-packages/lib/models/block_{n % 40}.py", 10 + n, "forward", False, 9, 10 + n, 40),
                frame(line=3 + n % 90),
            )
        )
        for n in range(count // 4 + 1)
    )
    modules = tuple(
        f"model.layers.{n // 12}.{('attention', 'mlp', 'norm')[n % 3]}.part_{n % 12}" for n in range(count // 7 + 1)
    )
    names = "linear conv2d layer_norm add mul view transpose softmax gelu to matmul cat".split()
    dtypes = ("float32", "bfloat16", "float16", "int64")
    ops = tuple(
        Op(
            names[n % 12], f"{names[n % 12]}.default", ("forward", "backward", "optimizer")[min(2, 5 * n // (2 * count))], modules[n // 7], n // 4,
            (Input(dtypes[n % 3], n % 50, n - 1 if n else -1), Input(dtypes[n // 3 % 4], n % 50, -1, holder="parameter")),
            (dtypes[n // 5 % 4],), 1 + n % 13,
        )
        for n in range(count)
    )  # fmt: skip
    events = tuple(Event("factory", "ones", 0, "", (), "float32") for _ in range(50))
    parameters = tuple(Parameter(f"{name}.weight", dtypes[n % 3], 4096, n % 50) for n, name in enumerate(modules))
    meta = {"torch": "2.13.0", "python": "3.11.7", "ops": sum(o.count for o in ops), "steps": 1}
    recording = Recording(
        places,
        events,
        ops,
        (),
        modules,
        parameters,
        ("other threads of the program",),
        meta,
        sources=Sources({"/p/train.py": SOURCE}),
    )
    return recording, tuple(finding("collision", line=3 + n) for n in range(findings))


SOURCE = {str(n): f"    x = torch.ones({n}, 4) + noise" for n in range(1, 100)}


def finding(kind: str = "collision", *, line: int = 3, severity: str = "error") -> Finding:
    """A finding with all that it can hold."""
    born, site = Place((frame(line=line),)), Place((frame(line=line + 4), frame("/p/main.py", 1)))
    culprit = Operand(0, "input", "float32", (2, 4), "cpu", None, Origin("factory", None, "ones", born))
    weight = Operand(
        1,
        "layer.weight",
        "float16",
        (4, 4),
        "cpu",
        "parameter",
        Origin("cast", None, "half", Place((frame(line=1),)), True),
    )
    flow = (
        FlowStep(born, "ones", "", "float32", "float32", "value"),
        FlowStep(Place((frame(line=line + 2),)), "add", "", "float16 + float32", "float32", "promotion"),
        FlowStep(site, "linear", "model.layers.0", "float32", "float16", "value"),
    )
    fix = Fix(
        "dtype",
        born,
        (Edit("/p/train.py", (line, 5), (line, 6), "x", "y"),),
        True,
        "give it dtype=torch.float16",
        ("cast x at the call",),
    )
    return Finding(
        "DT101", kind, severity, "the two operands of a matmul have different dtypes", "forward", "linear", "addmm.default",
        "model.layers.0", 1, False, site, (culprit, weight), culprit, flow, fix, Raised("RuntimeError", "no"), ("a fact about float16",),
    )  # fmt: skip


def bare(kind: str) -> Finding:
    """A finding with nothing but its text: no operands, no culprit, no places, no flow, no fix."""
    return Finding(
        "DT401",
        kind,
        "note",
        "autocast is on and the model is float16",
        "",
        "",
        None,
        "",
        1,
        False,
        Place(),
        (),
        None,
        (),
        None,
        None,
    )


def hostile(text: str) -> tuple[Recording, tuple[Finding, ...]]:
    """The same text as module, file, source, operand, title, note, exception and reason."""
    recording, (base,) = many(60, findings=1)
    file = f"/p/{text}.py"
    own = Place((frame(file, 3), frame("/p/main.py", 1, False)))
    culprit = replace(base.culprit, name=text, origin=Origin("factory", text, text, own))
    flow = tuple(replace(s, place=own, op=text, module=f"model.{text}", via=text) for s in base.flow)
    edit = Edit(file, (3, 1), (3, 2), text, text)
    found = replace(
        base, title=f"it is {text}", module=f"model.{text}", op=text, site=own, operands=(culprit, *base.operands[1:]), culprit=culprit, flow=flow,
        notes=(text,), exception=Raised(text, text), fix=replace(base.fix, place=own, edits=(edit,), why=text, alternatives=(text,)),
    )  # fmt: skip
    modules = (f"model.{text}", *recording.modules)
    ops = tuple(replace(o, module=modules[0], op=text) if n % 3 else o for n, o in enumerate(recording.ops))
    parameters = (Parameter(f"model.{text}.weight", "float16", 8, 0), *recording.parameters)
    places = (own, *recording.places[1:])
    sources = Sources({file: {str(n): f"{text}  # {n}" for n in range(1, 9)}, **recording.sources.lines})
    shown = replace(
        recording,
        places=places,
        ops=ops,
        modules=modules,
        parameters=parameters,
        not_seen=(text,),
        sources=sources,
        meta={**recording.meta, "torch": text},
    )
    return shown, (found,)


# ---------------------------------------------------------------- recordings of a few lines


@dataclass(frozen=True)
class Made:
    """A tensor of a recording in the making: its dtype, the event that decided it, the op that made it."""

    dtype: str
    event: int
    producer: int = -1
    name: str = ""
    holder: str | None = None
    shape: tuple[int, ...] = (4, 4)
    trained: bool = False
    changed: bool = False
    codes: bool = False

    def as_parameter(self, name: str, *, trained: bool = False, changed: bool = False) -> Made:
        return replace(self, name=name, holder="parameter", trained=trained, changed=changed)


class RecordingBuilder:
    """Makes a recording line by line: every event stands on a line of its own of one program.

    An event's ``text`` is its line of the program, with the expression that ran between « and ».

    >>> b = RecordingBuilder()
    >>> x, w = b.made("float32"), b.made("float16", "cast", explicit=True).as_parameter("weight")
    >>> b.refused("linear", x, w)
    >>> [w.dtype for w in b.recording.refused[0].witnesses]
    ['float32', 'float16']
    """

    def __init__(self, file: str = "/p/train.py") -> None:
        self.file = file
        self.lines: list[str] = []
        self.places: list[Place] = []
        self.events: list[Event] = []
        self.ops: list[Op] = []
        self.refusals: list[Refused] = []
        self.parameters: list[Parameter] = []
        self.meta: dict[str, object] = {"torch": "2.13.0", "steps": 1}

    def line(self, text: str = "«pass»", *, library: str = "", same: bool = False, below: int = -1) -> int:
        """A new place, or the last one again; in a library's function that the program's line calls, where one is named.

        ``below``: the number of the place whose call the program is in.
        """
        if same and self.places:
            return len(self.places) - 1
        self.lines.append(text.replace("«", "").replace("»", ""))
        number, begin, end = len(self.lines), text.index("«") + 1, text.index("»")
        own = Frame(self.file, number, "<module>", True, begin, number, end)
        inner = (Frame(f"/site-packages/{library}.py", 7, library, False, 1, 7, 9),) if library else ()
        outer = self.places[below].stack[-1:] if below >= 0 else ()
        self.places.append(Place((*inner, *(outer if library and outer else (own, *outer)))))
        return len(self.places) - 1

    def made(
        self, dtype: str, how: str = "factory", op: str = "", *, of: Made | None = None, explicit: bool = False, module: str = "",
        library: str = "", below: int = -1, reads: tuple[Read, ...] = (), default: int = -1, shape: tuple[int, ...] = (4, 4),
        text: str = "«pass»", name: str = "",
    ) -> Made:  # fmt: skip
        """A tensor whose dtype is decided here; ``of``: the tensor that it is made from."""
        names = {"factory": "ones", "cast": "to", "conversion": "from_numpy", "parameter": "Linear", "load": "load"}
        place = self.line(text, library=library, below=below)
        source = (of.dtype,) if of is not None else ()
        parents = (of.event,) if of is not None and how in ("promotion", "form") else ()
        event = Event(
            how, op or names.get(how, how), place, module, source, dtype, parents, reads, name, default, explicit
        )
        self.events.append(event)
        return Made(dtype, len(self.events) - 1, shape=shape)

    def widened(self, narrow: Made, wide: Made, op: str = "mul", text: str = "«pass»") -> Made:
        """What an op makes of two dtypes: the wider one, by promotion."""
        place = self.line(text)
        self.events.append(
            Event("promotion", op, place, "", (narrow.dtype, wide.dtype), wide.dtype, (narrow.event, wide.event))
        )
        inputs = tuple(Input(m.dtype, m.event, m.producer, m.name, m.holder, m.shape) for m in (narrow, wide))
        self.ops.append(Op(op, f"{op}.Tensor", "forward", "", place, inputs, (wide.dtype,), 1, shape=narrow.shape))
        return Made(wide.dtype, len(self.events) - 1, len(self.ops) - 1)

    def ran(
        self, op: str, *operands: Made, out: str = "", module: str = "", phase: str = "forward", autocast: str = "", aten: str = "",
        count: int = 1, same: bool = False, of: int = -1, at: int | None = None, text: str = "«pass»",
    ) -> Made:  # fmt: skip
        """A call that ran; ``same``: on the line before; ``at``: on the line of that number; ``out``: its result's dtype."""
        place = self.line(text, same=same) if at is None else at
        inputs = tuple(Input(m.dtype, m.event, m.producer, m.name, m.holder, m.shape) for m in operands)
        made = out or (operands[0].dtype if operands else "float32")
        self.ops.append(
            Op(
                op, aten or f"{op}.default", phase, module, place, inputs, (made,), count, autocast, of, operands[0].shape if operands else (4, 4)
            )
        )  # fmt: skip
        event = next((m.event for m in operands if m.dtype == made), operands[0].event if operands else -1)
        return Made(made, event, len(self.ops) - 1)

    def refused(
        self, op: str, *operands: Made, code: str = "DT101", wants: str = "agree", module: str = "net", phase: str = "forward",
        arguments: tuple[str, ...] = ("input", "weight", "bias"), model: tuple[Parameter, ...] = (), run: Mapping[str, int] | None = None,
        autocast: str = "", left: bool = True, at: int | None = None, library: str = "", below: int = -1, text: str = "«pass»", **more: Any,
    ) -> None:  # fmt: skip
        """The call that is refused, on the last line; ``more`` is what else a :class:`Refused` has."""
        place = self.line(text, library=library, below=below) if at is None else at
        witnesses = tuple(
            Witness(
                n, arguments[n] if n < len(arguments) else f"operand {n}", m.dtype, m.shape, "cpu", m.event, m.producer, m.name, m.holder,
                changed=m.changed, trained=m.trained, codes=m.codes,
            )
            for n, m in enumerate(operands)
        )  # fmt: skip
        values = {"aten": f"{op}.default", "exception": "RuntimeError", "message": "no", "pattern": "p", **more}
        self.refusals.append(
            Refused(
                op=op, phase=phase, module=module, place=place, witnesses=witnesses, code=code, wants=wants, autocast=autocast, left=left, model=model,
                run=tuple((run or {}).items()), after=len(self.ops), **values,
            )
        )  # fmt: skip

    @property
    def recording(self) -> Recording:
        """The recording with the lines as its program's text, and with the facts of that text."""
        text = ProgramText({self.file: [f"{line}\n" for line in self.lines]})
        bare = Recording(
            tuple(self.places),
            tuple(self.events),
            tuple(self.ops),
            tuple(self.refusals),
            parameters=tuple(self.parameters),
            meta=self.meta,
            text=text,
        )
        return with_facts(bare)

    @property
    def swapped(self) -> Recording:
        """The same recording with the two sides of the last refused call swapped: each stands where the other stood."""
        return swapped(self.recording)


def swapped(recording: Recording) -> Recording:
    """A recording whose last refused call has its first two operands swapped, with all that they are."""
    refused = recording.refused[-1]
    one, other, *rest = refused.witnesses
    places = [
        replace(other, index=one.index, argument=one.argument),
        replace(one, index=other.index, argument=other.argument),
    ]
    return replace(recording, refused=(*recording.refused[:-1], replace(refused, witnesses=(*places, *rest))))
