"""Recordings made by hand, for the tests of what is shown: large ones, one with every kind of finding, hostile ones."""

from __future__ import annotations

from dataclasses import replace

from dtypetrace.records import (
    Edit,
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
    Recording,
    Step,
)  # fmt: skip

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
    steps = tuple(Step("factory", "ones", 0, "", (), "float32") for _ in range(50))
    parameters = tuple(Parameter(f"{name}.weight", dtypes[n % 3], 4096, n % 50) for n, name in enumerate(modules))
    meta = {"torch": "2.13.0", "python": "3.11.7", "ops": sum(o.count for o in ops), "steps": 1}
    recording = Recording(
        places,
        steps,
        ops,
        (),
        modules,
        parameters,
        ("other threads of the program",),
        meta,
        sources={"/p/train.py": SOURCE},
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
        "DT101", kind, severity, "the two operands of a matmul disagree about their dtype", "forward", "linear", "addmm.default",
        "model.layers.0", 1, False, site, (culprit, weight), culprit, flow, fix, Raised("RuntimeError", "no"), ("a fact about float16",),
    )  # fmt: skip


def bare(kind: str) -> Finding:
    """A finding with nothing but its words: no operands, no culprit, no places, no flow, no fix."""
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
    sources = {file: {str(n): f"{text}  # {n}" for n in range(1, 9)}, **recording.sources}
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
