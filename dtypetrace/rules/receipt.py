"""The receipt of a run: for every part that has a dtype, what was asked for beside what ran, worked out from a
recording alone. The table, the JSON, the contract and the findings about it are views of these rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import prod
from typing import Any

from .. import graph
from ..records import FORWARD, Declared, Event, Input, Op, Origin, Parameter, ReceiptRow, Recording, StateTensors
from ..tables.dtypes import FLOATING, bytes_of
from ..tables.operators import destination, flops, is_cast, is_move, name_of, result_bytes, tagged, writes
from . import master_weights, patterns

_MOST_PATTERNS = 4
COLLECTIVES = ("c10d.", "_c10d_functional.")
"""The libraries of the operators that send tensors between ranks."""


def rows(recording: Recording) -> tuple[ReceiptRow, ...]:
    """The receipt, part by part in the order of a step."""
    parts: tuple[Callable[[Recording], Iterable[ReceiptRow]], ...] = (
        _parameters, _packed, _master, _copies, _compute, _saved, _gradients, _reduction, _state, _scaler, _checkpoints,
    )  # fmt: skip
    return tuple(row for part in parts for row in part(recording))


_OF_MODULES = ("parameters", "frozen parameters", "buffers", "quantised weights", "master weights", "gradients")
"""Parts whose ``what`` says where they are."""


def facts(recording: Recording) -> dict[str, dict[str, Origin | None]]:
    """The receipt as ``contract`` keeps it and ``diff`` compares it: for each part its dtypes with the event behind
    each, and what was asked for where that is another one."""
    found: dict[str, dict[str, Origin | None]] = {}
    for row in rows(recording):
        name = row.what if row.part == "compute" else row.part
        if row.part != "compute" and row.part not in _OF_MODULES:
            name = f"{row.part} {row.what}".strip()
        name = re.sub(r"[^\w ]", "_", name)
        found.setdefault(name, {})[row.dtype] = row.cause
        if row.differs:
            found.setdefault(f"{name} asked for", {})[row.asked] = row.cause
    found.setdefault("loss scaler", {"off": None})
    return found


@dataclass
class _Sum:
    """What the rows of one key add up to."""

    count: int = 0
    bytes: int = 0
    work: int = 0
    names: dict[str, None] = field(default_factory=dict)
    causes: dict[Any, int] = field(default_factory=dict)
    """How many bytes each cause decided, in the order in which they were met."""

    def add(self, count: int, size: int, cause: Any = None, name: str = "", work: int = 0) -> None:
        self.count, self.bytes, self.work = self.count + count, self.bytes + size, self.work + work
        self.names |= {name: None} if name else {}
        self.causes[cause] = self.causes.get(cause, 0) + size

    @property
    def cause(self) -> Any:
        """The one that decided most."""
        return max(self.causes, key=self.causes.__getitem__, default=None)


_Key = tuple[str, str, str, str, str]
"""Part, what, dtype, what was asked for, and by whom."""


def _rows(
    sums: dict[_Key, _Sum], cause: Callable[[Any], Origin | None], measure: Callable[[_Sum], int] = lambda s: s.bytes
) -> Iterator[ReceiptRow]:
    """A row for each key; ``measure``: of what the shares are."""
    wholes: dict[tuple[str, str], int] = defaultdict(int)
    for (part, what, *_), one in sums.items():
        wholes[part, what] += measure(one)
    for (part, what, dtype, asked, by), one in sums.items():
        whole = wholes[part, what]
        shown = what or ("all" if sum(key[0] == part for key in sums) == 1 else _named(one.names))
        share = measure(one) / whole if whole else 0.0
        yield ReceiptRow(part, shown, dtype, one.count, one.bytes, share, asked, by, cause(one.cause))


def _named(names: Iterable[str]) -> str:
    """A few patterns of names."""
    found = list(patterns.collapsed(names))
    more = f" and {len(found) - _MOST_PATTERNS} more" if len(found) > _MOST_PATTERNS else ""
    return ", ".join(found[:_MOST_PATTERNS]) + more


def born(recording: Recording, event: int | None) -> Origin | None:
    """The event that decided a dtype; None where it was not seen."""
    return graph.origin(recording, event) if event is not None and event >= 0 else None


def ran(recording: Recording, number: int | None) -> Origin | None:
    """The op of a number as what decided a dtype."""
    return graph.ran(recording, recording.ops[number]) if number is not None and number >= 0 else None


# ---------------------------------------------------------------- what is held


def declarations(recording: Recording) -> tuple[Declared, ...]:
    """What classes, configurations and constructors say about the dtypes of parameters."""
    said = tuple(d for d in recording.declared if d.part == "parameters")
    return (*said, *_constructed(recording))


def _constructed(recording: Recording) -> Iterator[Declared]:
    """Modules whose constructors were told ``dtype=torch.float32`` while most were not, and that a cast of more than
    them made narrower."""
    told: dict[str, Event] = {}
    for event in recording.events:
        if event.how == "parameter" and event.explicit and event.to == "float32" and event.assigned:
            told.setdefault(event.assigned[-1], event)
    numbers: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for p in recording.parameters:
        numbers[p.event][not told.keys().isdisjoint(p.name.split("."))] += p.size
    for name, event in told.items():
        held = {p.event for p in recording.parameters if name in p.name.split(".")}
        frame = graph.place_of(recording, event.place).user_frame
        if frame is not None and held and all(numbers[e][0] > numbers[e][1] for e in held):
            by = f"the constructor of {name} (dtype=torch.float32)"
            yield Declared("", (name,), "float32", by, file=frame.file, line=frame.line)


def asked_of(said: Sequence[Declared], p: Parameter) -> Declared | None:
    """What was declared for a parameter or buffer: by its name, else for the whole model."""
    mine = [d for d in said if _about(d, p.name)]
    named = (d for d in mine if d.names and (not d.instead_of or p.dtype in d.instead_of))
    return next(named, next((d for d in mine if not d.names), None))


def _about(declared: Declared, name: str) -> bool:
    """Whether a declaration is about a parameter: a library looks for its names between the dots."""
    if declared.module and not f"{name}.".startswith(f"{declared.module}."):
        return False
    below = name[len(declared.module) :] if declared.module else name
    return not declared.names or any(re.search(rf"(^|\.){re.escape(n)}($|\.)", below) for n in declared.names)


def _parameters(recording: Recording) -> Iterator[ReceiptRow]:
    root = patterns.root(recording)
    trains = any(p.trained for p in recording.parameters) and bool(recording.updates)
    said = declarations(recording)
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    for p in recording.parameters:
        part = "buffers" if p.holder == "buffer" else "frozen parameters" if trains and not p.trained else "parameters"
        asked = asked_of(said, p)
        key = part, "", p.dtype, asked.dtype if asked else "", asked.by if asked else ""
        module = patterns.shown(p.name.rpartition(".")[0], root)
        sums[key].add(1, p.size * bytes_of(p.dtype), p.event, module)
    order = ("parameters", "frozen parameters", "buffers")
    yield from sorted(_rows(sums, partial(born, recording)), key=lambda r: (order.index(r.part), -r.bytes))


def _packed(recording: Recording) -> Iterator[ReceiptRow]:
    """Quantised weights, as the products of forward read them: integers that hold several numbers each, perhaps."""
    root = patterns.root(recording)
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for op in recording.ops:
        for i in op.inputs if op.phase in FORWARD and op.module else ():
            if i.holder == "parameter" and i.dtype not in FLOATING:
                size = prod(i.shape) * bytes_of(i.dtype)
                found[i.dtype][patterns.shown(op.module, root)] = size
    for dtype, sizes in found.items():
        yield ReceiptRow("quantised weights", _named(sizes), dtype, len(sizes), sum(sizes.values()), 1.0)


def _copies(recording: Recording) -> Iterator[ReceiptRow]:
    """Tensors beside the model that the program writes from trained weights outside of steps: averages of them, and
    copies for other uses."""
    ops, steps = recording.ops, max(1, int(recording.meta.get("steps", 0)))
    begins = recording.step_ends[0][1] if recording.step_ends else len(ops)
    found: dict[tuple[str, str, str], list[Op]] = defaultdict(list)
    for op in ops[begins:]:
        at = destination(op) if op.phase == "other" and writes(op) and op.inputs else -1
        if at != 0 or op.inputs[0].dtype not in FLOATING:
            continue
        weight = next((w for i in op.inputs[1:] if (w := _weight_behind(ops, i))), "")
        if weight:
            what = "copies" if name_of(op).removeprefix("_foreach_") == "copy" else "averages"
            found[what, op.inputs[0].dtype, weight].append(op)
    for (what, dtype, weight), members in found.items():
        asked = (weight, "the weights") if what == "averages" else ("", "")
        cause = ran(recording, ops.index(members[0]))
        count = max(1, sum(op.count for op in members) // steps)
        yield ReceiptRow("copies of weights", what, dtype, count, 0, 1.0, *asked, cause)


_NEAR = 4
"""How many ops an average makes of a weight before it is written: a difference, its share."""


def _weight_behind(ops: Sequence[Op], operand: Input) -> str:
    """The dtype of the trained weight that an operand is, or was made of; empty where there is none."""
    waiting = [(operand, 0)]
    while waiting:
        i, depth = waiting.pop()
        if i.holder == "parameter":
            return i.dtype
        made = ops[i.producer] if 0 <= i.producer < len(ops) and depth < _NEAR else None
        if made is not None and made.phase == "other":
            waiting += [(above, depth + 1) for above in made.inputs]
    return ""


def _master(recording: Recording) -> Iterator[ReceiptRow]:
    dtype, where = master_weights.copy(recording)
    weights = master_weights.trained(recording)
    if dtype:
        size = sum(p.size for p in weights) * (bytes_of(dtype) if where else 0)
        yield ReceiptRow("master weights", where or "no wide copy", dtype, len(weights) if where else 0, size, 1.0)


def _gradients(recording: Recording) -> Iterator[ReceiptRow]:
    root = patterns.root(recording)
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    for u in {u.name: u for u in recording.updates}.values():
        if u.gradient_dtype:
            key = "gradients", "", u.gradient_dtype, u.dtype, "the weights"
            module = patterns.shown(u.name.rpartition(".")[0], root)
            sums[key].add(1, prod(u.shape) * bytes_of(u.gradient_dtype), u.gradient_event, module)
    yield from _rows(sums, partial(born, recording))


def _state(recording: Recording) -> Iterator[ReceiptRow]:
    """An optimizer that was made anew keeps rows of its own; what was loaded into it was asked for by the file."""
    loaded = {(t.optimizer, t.group, t.dtype): t for t in recording.transfers if t.kind == "state loaded"}
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    for s in recording.state:
        source = loaded.get((s.optimizer, s.name, s.dtype))
        told = next((d for d in recording.declared if d.part == "optimizer state" and _about_state(d, s)), None)
        asked, by = (told.dtype, told.by) if told is not None else ("", "")
        if source is not None:
            asked, by = source.source, f"the state loaded{_at(recording, source.place)}"
        key = "optimizer state", f"{s.optimizer} {s.name}", s.dtype, asked, by
        cause = born(recording, s.event) if source is None else _load(recording, source.place)
        sums[key].add(s.tensors, s.size * bytes_of(s.dtype), cause)
    yield from _rows(sums, lambda cause: cause)


_MEANS = {"momentum": "exp_avg", "variance": "exp_avg_sq"}
"""What optimizers' arguments call the entries of Adam's state."""


def _about_state(told: Declared, s: StateTensors) -> bool:
    """Whether an argument of an optimizer names the dtype of an entry of its state."""
    (word,) = told.names
    named = _MEANS.get(word) == s.name if word in _MEANS else word in s.name
    return told.by.startswith(f"{s.optimizer}(") and named


def _load(recording: Recording, place: int) -> Origin:
    return Origin("load", None, "load_state_dict", graph.place_of(recording, place))


def _at(recording: Recording, place: int) -> str:
    frame = graph.place_of(recording, place).user_frame
    return f" in line {frame.line}" if frame is not None else ""


# ---------------------------------------------------------------- what ran

PRODUCTS = ("matmuls", "router", "head")


def _class_of(op: Op, number: int, named: Mapping[int, str]) -> str:
    """The class of operators that an op is shown in; empty for others. ``named``: products with a name of their own."""
    name = name_of(op)
    if flops(op):
        return named.get(number, "matmuls")
    if "loss" in op.op or "cross_entropy" in op.op:
        return "loss" if not is_cast(op) and not is_move(op) else ""
    if tagged(name, "softmax", "log_softmax"):
        return "softmax"
    return "norms" if tagged(name, "norm") or tagged(op.op, "norm") and not (is_cast(op) or is_move(op)) else ""


def _head(recording: Recording) -> int:
    """The last product with weights in forward of a module; -1 where a program has fewer than two modules with them."""
    found = [n for n, op in enumerate(recording.ops) if op.module and op.phase == "forward" and flops(op)]
    last = found[-1] if found else -1
    return last if len({recording.ops[n].module for n in found}) > 1 else -1


def _routers(recording: Recording) -> Iterator[int]:
    """The products whose result a module chooses from: the scores of a router. A choice that is only compared is none:
    it is counted as right or wrong."""
    ops = recording.ops
    takes = lambda op: [i.producer for i in op.inputs]
    same = lambda op: is_cast(op) or is_move(op) or op.effect == "view"
    used = chain.from_iterable(takes(op) for op in ops if not (same(op) or tagged(name_of(op), "compare", "equal")))
    for number in sorted(set(graph.ops_above(ops, used, lambda op: op.inputs if same(op) else ()))):
        op = ops[number]
        if op.phase in FORWARD and op.module and name_of(op) in ("topk", "argmax") and op.inputs:
            above = graph.first_operands(recording.ops, op.inputs[0].producer) if op.inputs[0].producer >= 0 else ()
            scores = next((n for n in above if flops(recording.ops[n])), -1)
            if scores >= 0 and recording.ops[scores].phase in FORWARD:
                yield scores


def _compute(recording: Recording) -> Iterator[ReceiptRow]:
    told = {name: d for d in recording.declared if d.part == "compute" for name in d.names}
    whole = next((d for d in recording.declared if d.part == "compute" and not d.names), None)
    policy = next((s for plan in recording.plans for s in plan.shared if s.computes), None)
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    named = {**dict.fromkeys(_routers(recording), "router"), _head(recording): "head"}
    for number, op in enumerate(recording.ops):
        what = _class_of(op, number, named) if op.phase in FORWARD and op.outputs else ""
        dtype = op.outputs[0] if op.outputs else ""
        if not what or dtype not in FLOATING:
            continue
        asked, by = "", ""
        if what in told:
            asked, by = told[what].dtype, told[what].by
        elif what in PRODUCTS:
            if op.autocast:
                asked = op.autocast.partition(":")[2]
                by = whole.by if whole is not None and whole.dtype == asked else "autocast"
            elif policy is not None:
                asked, by = policy.computes, policy.by
            elif whole is not None:
                asked, by = whole.dtype, whole.by
        sums["compute", what, dtype, asked, by].add(
            op.count, result_bytes(op) * op.count, number, op.module, flops(op) * op.count
        )
    said = [(policy.computes, policy.by)] if policy is not None else [(whole.dtype, whole.by)] if whole else []
    for asked, by in said if not recording.ops else ():  # before step 1
        yield ReceiptRow("compute", "matmuls", "", 0, 0, 0.0, asked, by)
    order = ("matmuls", "router", "norms", "softmax", "head", "loss")
    found = _rows(sums, partial(ran, recording), lambda s: s.work or s.bytes)
    yield from sorted(found, key=lambda r: (order.index(r.what), -r.bytes))


def _saved(recording: Recording) -> Iterator[ReceiptRow]:
    """What backward reads of what forward made: bytes of a step, by the shapes of first calls."""
    steps = max(1, int(recording.meta.get("steps", 0)))
    ops, seen = recording.ops, set[int]()
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    for op in ops:
        for i in op.inputs if op.phase == "backward" else ():
            made = graph.unmoved(ops, i.producer) if i.producer >= 0 and i.holder is None else -1
            if made >= 0 and made not in seen and ops[made].phase in FORWARD and ops[made].outputs:
                seen.add(made)
                if (dtype := ops[made].outputs[0]) in FLOATING and dtype == i.dtype:
                    calls = max(1, ops[made].count // steps)
                    sums["saved for backward", "activations", dtype, "", ""].add(
                        calls, result_bytes(ops[made]) * calls, made
                    )
    yield from _rows(sums, partial(ran, recording))


def _reduction(recording: Recording) -> Iterator[ReceiptRow]:
    """What ranks send each other in a step: gradients, gathered weights, activations of tensor parallelism. DDP sends
    its buckets where no operator is seen; their dtype is known from it."""
    policies = tuple(dict.fromkeys(s for plan in recording.plans for s in plan.shared))
    gathers = [(s.computes, s.by) for s in policies if s.computes and not s.built]
    told = [(s.reduces, s.by) for s in policies if s.reduces]
    told += [(d.dtype, d.by) for d in recording.declared if d.part == "reduction"]
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    steps = max(1, int(recording.meta.get("steps", 0)))
    for number, op in enumerate(recording.ops):
        dtype = next((i.dtype for i in op.inputs if i.dtype in FLOATING), "")
        what = sends(recording, op) if dtype else ""
        asks = told if what == "gradients" else gathers if what == "weights gathered" else []
        # modules may have policies of their own: the one that was kept, else the first
        asked, by = next((one for one in asks if one[0] == dtype), next(iter(asks), ("", "")))
        if what and (gathers or what != "weights gathered"):
            calls = max(1, op.count // steps)
            size = prod(op.inputs[0].shape) * bytes_of(dtype) * calls
            sums["reduction", what, dtype, asked, by].add(calls, size, number)
    if not any(what == "gradients" for _, what, *_ in sums):
        for s in policies:
            for dtype in s.built and ((s.reduces,) if s.reduces else s.built):
                size = sum(prod(u.shape) for u in recording.updates if u.gradient_dtype) * bytes_of(dtype)
                sums["reduction", "gradients", dtype, s.reduces, s.by if s.reduces else ""].add(1, size)
    yield from _rows(sums, partial(ran, recording))


def sends(recording: Recording, op: Op) -> str:
    """What an op sends between ranks; empty for all others."""
    if not op.aten.startswith(COLLECTIVES) or not op.inputs:
        return ""
    if "gather" in op.aten:
        return "weights gathered"
    if "broadcast" in op.aten or "send" in op.aten:
        sent = op.inputs[0]
        held = 0 <= sent.event < len(recording.events) and recording.events[sent.event].how in ("parameter", "cast")
        return "weights sent" if sent.holder == "parameter" or held and not op.module else ""
    made = graph.unmoved(recording.ops, op.inputs[0].producer) if op.inputs[0].producer >= 0 else -1
    backward = op.phase == "backward" or made >= 0 and recording.ops[made].phase == "backward"
    return ("gradients" if backward else "activations" if op.module else "") if "reduce" in op.aten else ""


def _scaler(recording: Recording) -> Iterator[ReceiptRow]:
    if recording.updates or recording.plans or graph.has_scaler(recording):
        check = graph.scaler_check(recording)
        cause = graph.ran(recording, check) if check is not None else None
        yield ReceiptRow("loss scaler", "", "on" if graph.has_scaler(recording) else "off", 1, 0, 1.0, cause=cause)


# ---------------------------------------------------------------- checkpoints


def _checkpoints(recording: Recording) -> Iterator[ReceiptRow]:
    for t in recording.transfers:
        if t.kind != "state loaded":
            weights = trained_as(recording, t.names) or trained_as(recording, t.names, frozen=True)
            dtype = weights.dtype if weights is not None else ""
            cause = Origin("op", None, t.kind, graph.place_of(recording, t.place))
            size = t.size * bytes_of(t.source)
            trains = weights is not None and weights.trained and bool(recording.updates)
            by = "the weights that train" if trains else "the weights" if weights is not None else ""
            yield ReceiptRow(f"checkpoint {t.kind}", t.group, t.source, t.tensors, size, 1.0, dtype, by, cause)


def trained_as(recording: Recording, names: Iterable[str], frozen: bool = False) -> Parameter | None:
    """A trained parameter that has one of these names in a checkpoint; with ``frozen``, any parameter that has."""
    held = (p for p in recording.parameters if p.holder == "parameter" and (p.trained or frozen))
    root = patterns.root(recording)
    below = {patterns.below(patterns.starred(p.name), root): p for p in held}
    # peft leaves the adapter's name out of its files: `lora_A.default.weight` is `lora_A.weight`
    below = {re.sub(r"(lora_\w+)\.[^.]+\.", r"\1.", name): p for name, p in below.items()} | below
    for name in names:
        parts = name.split(".")
        for start in range(len(parts)):
            # one part alone (`weight`) names a model of one layer, and half of the tensors of any other
            found = below.get(".".join(parts[start:])) if start < len(parts) - 1 or start < 2 else None
            if found is not None:
                return found
    return None
