"""What optimizer steps did to the weights: did they move, could they move, and what is in the optimizer's state?

A sample of each parameter's elements is compared before and after a step, on its own device. The judgement follows from
what happened, not from the optimizer's name. The sums are read once, at the end.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from ..records import Rehearsed, State, StateTensors, Update
from ..tables.dtypes import DTYPES, FLOATING
from . import private
from .calls import HALVES, dtype_name, readable, shape_of, version_of
from .marks import Ref
from .rehearsal import Bare, Kept, rehearsed, settings

Tensor = torch.Tensor
_SAMPLE = 1024
"""Elements of a parameter that are sampled: enough to distinguish 1% from none."""
_SCHEDULE = ((8, 1), (32, 2))
"""Until the eighth step each is measured, until the 32nd every second: what did not move in those cannot move."""
_LATER = 16
"""After that, every sixteenth."""
_STATE_FIRST, _STATE_EACH = 4, 8
"""Steps after which the optimizer's state is examined: what is lost or infinite there stays so."""
_FACTS_ONLY = 3
"""Steps that are measured without numerics: dtypes seldom change after the first."""
_MOST_CHANGES = 64
"""Steps that may begin with new parameters: a program that makes them anew in each step has no end of them."""
_TOO_MANY = f"an optimizer's new parameters, after {_MOST_CHANGES} steps that each began with new ones"
_REHEARSED = 4
"""The step of which is kept what is needed to take it again in float32, at the end of the run; the last step of a run
that takes fewer."""
_MOVED, _STATE_LOST = 0.5, 0.05
"""A weight of which a smaller share moves, or of whose state a larger share is zero where the gradient is not, may not
learn (``rules.mechanisms``)."""
SMALLEST_NORMAL_HALF = DTYPES["float16"].smallest_normal
_OFF = 0.1
"""How far a change may be from that of weight decay alone, relative to it, and still count as decay."""


class _Tracked:
    """One parameter: what is known about it on the host."""

    def __init__(self, parameter: Tensor, group: dict[str, Any], name: str, event: int) -> None:
        self.ref: Callable[[], Tensor | None] = Ref(parameter)
        self.group = _settings(group)
        self.name, self.event = name, event
        self.dtype, self.size, self.shape = parameter.dtype, parameter.numel(), shape_of(parameter)
        self.absent = 0
        self.gradient: torch.dtype | None = None
        self.gradient_event = -1
        self.declared = False
        self.written = False
        self.version = 0

    def again(self, parameter: Any) -> bool:
        """Whether this is that parameter; if it was only known by its id between watched steps, it is from now on."""
        if self.ref is _resting and (parameter.dtype, shape_of(parameter)) == (self.dtype, self.shape):
            self.ref = Ref(parameter)
        return self.ref() is parameter and self.dtype is getattr(parameter, "dtype", None)


def _resting() -> None:
    """Replaces the reference to a parameter between watched steps; see :class:`marks.Resting`."""


class Facts(NamedTuple):
    """What is known of tensors: the event that decided a dtype, the parameters' names, by id, and what is not seen."""

    event_of: Callable[[Tensor], int] = lambda tensor: -1
    names: Callable[[], dict[int, str]] = dict
    not_seen: Callable[[str], None] = lambda what: None


class Updates:
    """Watches the steps of every optimizer. numerics: whether to measure values, or only dtypes. facts: what is known
    of tensors."""

    def __init__(self, numerics: bool, facts: Facts | None = None) -> None:
        self._facts = facts or Facts()
        self._numerics = numerics
        self._optimizers: list[_Optimizer] = []
        self._each = False
        self.written: set[int] = set()
        """Start addresses of the memory that the running step wrote to."""

    def begins(self, optimizer: Any, place: int, closure: bool = False) -> None:
        """Before a step. closure: the step itself computes the gradients, so those that exist now are older."""
        watched = self._of(optimizer)
        if watched is None:
            watched = _Optimizer(optimizer, place, self._facts, self._numerics)
            self._optimizers.append(watched)
        if watched.due(self._each):
            self.written.clear()
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
                watched.begins(optimizer, closure)

    def _of(self, optimizer: Any) -> _Optimizer | None:
        return next((w for w in self._optimizers if w.ref() is optimizer), None)

    def steps_of(self, optimizer: Any) -> int:
        """How many steps an optimizer has begun."""
        watched = self._of(optimizer)
        return watched.steps if watched is not None else 0

    def ends(self, optimizer: Any, known: bool = False) -> None:
        """After a step. known: its ops were not seen, and the tensors of its state are those of steps before."""
        watched = self._of(optimizer)
        if watched is not None:
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
                watched.ends(optimizer, self.written, known)

    def was_none(self, optimizer: Any) -> None:
        """What seemed to be a step was none."""
        watched = self._of(optimizer)
        if watched is not None:
            watched.steps, watched.measuring = watched.steps - 1, False

    def rest(self) -> None:
        """Drops the references to tensors. From now on few steps are watched, and each of them is measured."""
        self._each = True
        self.written.clear()
        for watched in self._optimizers:
            watched.rest()

    def read(self) -> tuple[Update, ...]:
        """What the steps did, by parameter. Waits for the device."""
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            return tuple(update for watched in self._optimizers for update in watched.read())

    def rehearsed(self) -> tuple[Rehearsed, ...]:
        """What float32 steps do to 16-bit weights that do not learn: for each optimizer and dtype, one weight.
        Waits for the device."""
        with private.DisableTorchFunction(), private.DisableTorchDispatch():
            for watched in self._optimizers:
                optimizer = watched.ref()
                if optimizer is not None and watched.steps < _REHEARSED:
                    watched.keep(optimizer)
            return tuple(one for watched in self._optimizers for one in rehearsed(watched.lost()))

    def state(self) -> tuple[StateTensors, ...]:
        """What the optimizers keep for their parameters, as it was when it was last looked at."""
        return tuple(one for watched in self._optimizers for one in watched.held)


def state_of(optimizer: Any, place: int, event_of: Callable[[Tensor], int]) -> tuple[StateTensors, ...]:
    """The tensors and numbers of an optimizer's state by name and dtype."""
    states = getattr(optimizer, "state", None)
    found: dict[tuple[str, torch.dtype, torch.dtype], tuple[int, int, Tensor]] = {}
    for parameter, entries in states.items() if isinstance(states, dict) else ():
        for name, value in entries.items() if isinstance(entries, dict) else ():
            if isinstance(value, Tensor) and isinstance(parameter, Tensor):
                key = str(name), value.dtype, parameter.dtype
                tensors, size, first = found.get(key, (0, 0, value))
                found[key] = tensors + 1, size + value.numel(), first
    kind = type(optimizer).__name__
    return tuple(
        StateTensors(kind, place, name, dtype_name(dtype), dtype_name(of), tensors, size, event_of(one))
        for (name, dtype, of), (tensors, size, one) in found.items()
    )


class _Optimizer:
    def __init__(self, optimizer: Any, place: int, facts: Facts, numerics: bool) -> None:
        self.ref = weakref.ref(optimizer)
        self.kind = type(optimizer).__name__
        self.place = place
        self.facts = facts
        self.numerics = numerics
        self.known: dict[int, _Tracked] = {}
        self.samples: list[_Samples] = []
        self.steps = 0
        self.learned = 0
        """Steps that began with new parameters."""
        self.measuring = False
        self.closure = False
        self.unnamed: list[_Tracked] = []
        self.held: tuple[StateTensors, ...] = ()
        self.kept: tuple[_Steps, ...] = ()

    def rest(self) -> None:
        self.measuring = False
        for tracked in self.known.values():
            tracked.ref = _resting
        for samples in self.samples:
            samples.before = samples.gradients = None

    def due(self, each: bool) -> bool:
        """Counts a step, and returns whether it is measured; ``each``: whether each step is, with numerics."""
        self.steps += 1
        if each and self.numerics:
            return True
        if not self.numerics:
            return self.steps <= _FACTS_ONLY
        apart = next((apart for last, apart in _SCHEDULE if self.steps <= last), _LATER)
        return self.steps % apart == 0

    def begins(self, optimizer: Any, closure: bool) -> None:
        """Before a step that is measured."""
        self._learn(optimizer)
        self.measuring, self.closure = True, closure
        for tracked in self.known.values():
            parameter = tracked.ref()
            if parameter is not None:
                tracked.version = version_of(parameter)
                if not closure:
                    self._gradient(tracked, parameter)
        for samples in self.samples:
            samples.begins(closure)

    def _gradient(self, tracked: _Tracked, parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is None:
            tracked.absent += parameter.requires_grad
            return
        tracked.gradient = gradient.dtype
        tracked.gradient_event = self.facts.event_of(gradient)
        # only a leaf has grad_dtype; where gradients flow through the optimizer, the parameters are not leaves
        declared = getattr(parameter, "grad_dtype", parameter.dtype) if parameter.is_leaf else parameter.dtype
        tracked.declared = declared is not parameter.dtype and declared is gradient.dtype

    def _learn(self, optimizer: Any) -> None:
        """Adds parameters that are new since the last step."""
        new: dict[tuple[torch.device, torch.dtype], list[tuple[_Tracked, Tensor]]] = {}
        for number, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                known = self.known.get(id(parameter))
                if known is not None and known.again(parameter):
                    known.group = _settings(group)
                    continue
                if not isinstance(parameter, Tensor) or not parameter.dtype.is_floating_point or parameter.is_meta:
                    continue
                if self.learned >= _MOST_CHANGES:
                    self.facts.not_seen(_TOO_MANY)
                    continue
                name = f"param_groups[{number}]['params'][{index}]"
                tracked = _Tracked(parameter, group, name, self.facts.event_of(parameter))
                self.known[id(parameter)] = tracked
                self.unnamed.append(tracked)
                local = _local(parameter)
                if local is not None:
                    new.setdefault((local.device, local.dtype), []).append((tracked, parameter))
        self.learned += bool(self.unnamed)
        if self.numerics:
            self.samples += [_Samples(*key, pairs) for key, pairs in new.items()]

    def _name(self) -> None:
        """Gives new parameters their names in the models that ran; at the end of a step, because a closure may run the
        models."""
        names = self.facts.names() if self.unnamed else {}
        for tracked in self.unnamed:
            tracked.name = names.get(id(tracked.ref())) or tracked.name
        self.unnamed = []

    def ends(self, optimizer: Any, written: set[int], known: bool) -> None:
        """After a step that was measured."""
        if not self.measuring:
            return
        self.measuring = False
        self._name()
        for tracked in self.known.values():
            parameter = tracked.ref()
            if parameter is None:
                continue
            if self.closure:
                self._gradient(tracked, parameter)
            elif tracked.gradient is None and parameter.grad is not None:  # computed inside the step without a closure
                tracked.absent -= 1
                self._gradient(tracked, parameter)
            local = _local(parameter)
            if local is not None and (local.data_ptr() in written or version_of(parameter) != tracked.version):
                tracked.written = True
        state = self.steps <= _STATE_FIRST or self.steps % _STATE_EACH == 0
        if state and not (known and self.held):
            self.held = state_of(optimizer, self.place, self.facts.event_of)
        for samples in self.samples:
            samples.ends(optimizer, state)
        if self.steps == _REHEARSED:  # the optimizer may be gone when the run has ended
            self.keep(optimizer)

    def keep(self, optimizer: Any) -> None:
        """Keeps copies of a few numbers of 16-bit weights, with which a step can be taken again."""
        try:
            self.kept = tuple(found for samples in self.samples if (found := samples.kept(optimizer)) is not None)
        except Exception:  # the settings are the program's own objects, and they may not be copied
            self.kept = ()

    def lost(self) -> Iterator[Kept]:
        """Of what was kept, the weights that did not learn. Waits for the device."""
        for steps in self.kept:
            yield from steps.first_lost()

    def _state(self, measured: tuple[State, ...], of: str) -> tuple[State, ...]:
        """What was measured of the state of a parameter in dtype ``of``, with the events of its entries, and the single
        numbers in it."""
        held = {s.name: s for s in self.held if s.weights == of and s.dtype in FLOATING}
        found = [replace(s, event=held[s.name].event) if s.name in held else s for s in measured]
        known = {s.name for s in measured}
        return (
            *found,
            *(State(n, s.dtype, 0.0, event=s.event) for n, s in held.items() if measured and n not in known),
        )

    def read(self) -> list[Update]:
        """What the steps did to each parameter."""
        measured = {id(t): row for samples in self.samples for t, row in zip(samples.tracked, samples.read())}
        found = []
        for t in self.known.values():
            lr, eps = t.group["lr"], t.group["eps"]
            lr = lr.item() if isinstance(lr, Tensor) and lr.numel() == 1 else lr
            known: dict[str, Any] = {
                "name": t.name,
                "dtype": dtype_name(t.dtype),
                "shape": t.shape,
                "event": t.event,
                "place": self.place,
                "optimizer": self.kind,
                "lr": float(lr) if isinstance(lr, (int, float)) else -1.0,
                "eps": float(eps) if isinstance(eps, (int, float)) else None,
                "gradient_dtype": dtype_name(t.gradient) if t.gradient else "",
                "gradient_event": t.gradient_event,
                "absent": t.absent,
                "written": t.written,
                "gradient_declared": t.declared,
            }
            row = measured.get(id(t), {})
            found.append(Update(**known, **(row | {"state": self._state(row.get("state", ()), dtype_name(t.dtype))})))
        return found


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """The entries of a parameter group that decide how its parameters move."""
    decay = group.get("weight_decay")
    return {"lr": group.get("lr"), "eps": group.get("eps"), "decay": decay if isinstance(decay, (int, float)) else 0.0}


@dataclass(frozen=True)
class _Steps:
    """One step of an optimizer's 16-bit parameters, by row of their samples: none of it belongs to the program."""

    optimizer: Bare
    names: Sequence[str]
    groups: Sequence[dict[str, Any]]
    sizes: Sequence[int]
    before: Tensor
    gradients: Tensor
    lost: Tensor
    """Which had a gradient and did not learn, on their device."""

    def first_lost(self) -> Iterator[Kept]:
        """The first one that did not learn. Waits for the device."""
        for row in [row for row, lost in enumerate(self.lost.tolist()) if lost][:1]:
            before, gradient = (part[row, : self.sizes[row]] for part in (self.before, self.gradients))
            yield Kept(self.optimizer, self.names[row], self.groups[row], before, gradient)


_SUMS = "steps", "zero", "broken_gradient", "subnormal", "nonzero", "change"
"""Sums for each parameter: its usable steps, those in which its gradient was zero and broken, numbers of its gradients,
and the changes of its samples."""
_COUNTS = "steps", "zero", "broken_gradient", "reached", "moved", "own", "broken"
_COLUMNS = *_SUMS, "gradient_peak", "magnitude", "reached", "moved", "own", "broken"
"""What is measured of each parameter, named as in :class:`records.Update`."""


class _Samples:
    """The samples of an optimizer's parameters that have one dtype and one device: a row for each parameter.

    Shorter samples are filled up with zeros, so that a sum over a parameter is one over a row, which costs a tenth of
    adding by index. A zero that fills up never counts: its gradient is zero, and it does not change.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, pairs: Sequence[tuple[_Tracked, Tensor]]) -> None:
        self.device, self.dtype = device, dtype
        self.tracked = [t for t, _ in pairs]
        self.sizes = [min(t.size, _SAMPLE) if (local := _local(p)) is None else len(sample(local)) for t, p in pairs]
        self.width = max(1, *self.sizes)
        padding = torch.zeros(self.width, dtype=dtype, device=device)
        self.padding = [padding[n:] for n in self.sizes]
        self.wide_padding = [part.float() for part in self.padding]
        self.reached = torch.zeros(len(pairs), self.width, dtype=torch.bool, device=device)
        self.moved = torch.zeros_like(self.reached)
        self.broken = torch.zeros_like(self.reached)
        self.own = torch.zeros_like(self.reached)
        wide = torch.float64 if device.type != "mps" else torch.float32
        self.sums = torch.zeros(len(_SUMS), len(pairs), dtype=wide, device=device)
        self.peak = torch.zeros(len(pairs), dtype=torch.float32, device=device)
        self.magnitude: Tensor | None = None
        self.before: Tensor | None = None
        self.gradients: _Gradients | None = None
        self.states: dict[tuple[str, torch.dtype], Tensor] = {}
        self.last: tuple[Tensor, Tensor] | None = None
        """Of 16-bit parameters: the numbers before the last step in which they were finite and had a gradient, and that
        gradient."""

    def kept(self, optimizer: Any) -> _Steps | None:
        """``last``, of 16-bit parameters, and which of them had a gradient and did not learn."""
        if self.last is None:
            return None
        reached = self.reached.sum(1)
        lost = ((self.moved & self.reached).sum(1) < _MOVED * reached) | self.broken.any(1)
        for seen in self.states.values():
            lost |= seen[0] > _STATE_LOST
        copied = [(group, settings(group)) for group in optimizer.param_groups]
        of = {id(p): found for group, found in copied for p in group["params"]}
        groups = [of.get(id(tracked.ref()), copied[0][1]) for tracked in self.tracked]
        names = [tracked.name for tracked in self.tracked]
        return _Steps(Bare(optimizer), names, groups, self.sizes, *self.last, lost & (reached > 0))

    def _keep(self, before: Tensor, gradients: Tensor, hit: Tensor) -> None:
        usable = (hit.any(1) & torch.isfinite(before).all(1))[:, None]
        old = self.last or (torch.zeros_like(before), torch.zeros_like(gradients))
        self.last = torch.where(usable, before, old[0]), torch.where(usable, gradients, old[1])

    def _values(self) -> Tensor | None:
        """The samples as they are now, None where a parameter was freed or has a new shape."""
        parts = [sample(p) if (p := _local(t.ref())) is not None else None for t in self.tracked]
        return self._rows(parts, self.padding) if all(map(_fits, parts, self.sizes)) else None

    def _rows(self, parts: Iterable[Tensor | None], padding: Iterable[Tensor]) -> Tensor:
        """Samples as the rows of one tensor."""
        filled = [part for pair in zip(parts, padding) for part in pair if part is not None and part.numel()]
        return torch.cat(filled).view(-1, self.width)

    def begins(self, closure: bool) -> None:
        """Before a step."""
        self.before = self._values()
        if self.before is None:
            return
        if self.magnitude is None:
            sizes = self._there(self.sizes)
            self.magnitude = torch.nan_to_num(self.before.float().abs()).sum(1) / sizes
        self.gradients = None if closure else self._gradients()

    def _gradients(self) -> _Gradients | None:
        """The gradients as they are now, None where there are none."""
        samples, low, high, there = [], [], [], []
        for tracked, size in zip(self.tracked, self.sizes):
            parameter = tracked.ref()
            gradient = _local(parameter.grad) if parameter is not None else None
            if gradient is not None and not (gradient.dtype.is_floating_point and gradient.numel()):
                gradient = None
            part = sample(gradient) if gradient is not None else None
            there.append(_fits(part, size))
            if part is None or not there[-1]:
                samples.append(torch.zeros(size, dtype=torch.float32, device=self.device))
                low.append(samples[-1].new_zeros(()))
                high.append(low[-1])
                continue
            samples.append(part.float())
            assert gradient is not None
            least, greatest = torch.aminmax(gradient)
            low.append(least.float())
            high.append(greatest.float())
        if not any(there):
            return None
        rows = self._rows(samples, self.wide_padding)
        return _Gradients(rows, torch.stack(low), torch.stack(high), self._there(there))

    def _there(self, values: Iterable[Any]) -> Tensor:
        """Numbers from the host, on the device."""
        return torch.tensor(list(values)).to(self.device, non_blocking=True)

    def ends(self, optimizer: Any, state: bool) -> None:
        """After a step; ``state``: whether the optimizer's state is examined, too."""
        before, self.before = self.before, None
        known, self.gradients = self.gradients, None
        if before is None:
            return
        gradients = known or self._gradients()
        after = self._values()
        if gradients is None or after is None:
            return
        samples, low, high, there = gradients
        rates = [t.group["lr"] for t in self.tracked]
        live = self._there(not isinstance(r, (int, float)) or r != 0 for r in rates)
        finite = torch.isfinite(low) & torch.isfinite(high)
        zero = there & (low == 0) & (high == 0)
        usable = there & live & finite & ~zero
        hit = (samples != 0) & usable[:, None]
        self.reached |= hit
        if self.dtype in HALVES:
            self._keep(before, samples, hit)
        changed = after != before
        self.moved |= changed & usable[:, None]
        self.own |= changed & usable[:, None] & ~self._decayed(before, after)
        self.broken |= (after * 0 != 0) & (before * 0 == 0) & (there & finite)[:, None]  # 0 times infinity is NaN
        size = samples.abs()
        small = (size < SMALLEST_NORMAL_HALF) & (size != 0)
        change = torch.nan_to_num((after.float() - before.float()).abs(), 0.0, 0.0, 0.0)
        rows = [usable, zero, there & ~finite, *(v.sum(1) for v in (small, size != 0, change))]
        self.sums += torch.stack([r.to(self.sums.dtype) for r in rows])
        self.peak = torch.maximum(self.peak, torch.where(finite, torch.maximum(-low, high), 0.0))
        if state:
            self._look_at_state(optimizer, hit)

    def _decayed(self, before: Tensor, after: Tensor) -> Tensor:
        """Which elements moved as weight decay alone moves them: towards zero, each by the same share of its size.

        The share is fitted to the parameter's elements, and is at most lr * weight_decay.
        """
        decays = [
            t.group["decay"] * (t.group["lr"] if isinstance(t.group["lr"], (int, float)) else 1.0) for t in self.tracked
        ]
        if self.dtype.itemsize < 4 or not any(decays):  # a narrow dtype rounds such a small share away
            return torch.zeros_like(self.moved)
        change = torch.nan_to_num(after - before, 0.0, 0.0, 0.0)
        sizes, changes, both = (v.sum(1) for v in (before * before, change * change, before * change))
        share = both / sizes.clamp(min=torch.finfo(self.dtype).tiny)
        most = torch.tensor(decays, dtype=before.dtype).to(self.device, non_blocking=True)
        decay = (share < 0) & (share > -most * (1 + _OFF)) & (share * share * sizes > changes / 2)
        expected = share[:, None] * before
        rounding = torch.finfo(self.dtype).eps * before.abs()
        return decay[:, None] & (before != 0) & ((change - expected).abs() <= _OFF * expected.abs() + rounding)

    def _look_at_state(self, optimizer: Any, hit: Tensor) -> None:
        """Finds the floating tensors of the state that are zero where the gradient is not."""
        for key, parts in self._state_of(optimizer).items():
            chosen = [i for i, _ in parts]
            some = slice(None) if len(chosen) == len(self.tracked) else self._there(chosen)
            padding = self.wide_padding if key[1] is torch.float32 else [p.to(key[1]) for p in self.wide_padding]
            values = self._rows((v for _, v in parts), [padding[i] for i in chosen])
            here = hit[some]
            zeros = ((values == 0) & here).sum(1) / here.sum(1).clamp(min=1)
            seen = torch.zeros(3, len(self.tracked), dtype=torch.float32, device=self.device)
            broken = (~torch.isfinite(values)).any(1)
            # a quotient of counts has the program's default dtype
            seen[:, some] = torch.stack([part.to(seen.dtype) for part in (zeros, broken, torch.ones_like(zeros))])
            # keep the worst of all steps: after the first NaN everything is NaN
            self.states[key] = torch.maximum(self.states[key], seen) if key in self.states else seen

    def _state_of(self, optimizer: Any) -> dict[tuple[str, torch.dtype], list[tuple[int, Tensor]]]:
        """Samples of the state by name and dtype, each with its parameter's index."""
        found: dict[tuple[str, torch.dtype], list[tuple[int, Tensor]]] = {}
        states = getattr(optimizer, "state", {})
        for index, (tracked, size) in enumerate(zip(self.tracked, self.sizes)):
            state = states.get(tracked.ref()) if hasattr(states, "get") else None
            for name, value in state.items() if isinstance(state, dict) else ():
                local = _local(value) if isinstance(value, Tensor) and value.dim() else None
                if local is None or not local.dtype.is_floating_point or local.device != self.device:
                    continue
                part = sample(local)
                if _fits(part, size):
                    found.setdefault((str(name), local.dtype), []).append((index, part))
        return found

    def read(self) -> list[dict[str, Any]]:
        """What was measured for each parameter, under the names of :class:`records.Update`."""
        marks = (self.reached, self.moved & self.reached, self.own & self.reached, self.broken)
        magnitude = self.magnitude if self.magnitude is not None else torch.zeros_like(self.peak)
        others = torch.stack([self.peak, magnitude, *(m.sum(1).float() for m in marks)])
        table = dict(zip(_COLUMNS, torch.cat([self.sums.float(), others]).tolist()))
        states = [(name, dtype_name(dtype), *rows.tolist()) for (name, dtype), rows in self.states.items()]
        found = []
        for i, size in enumerate(self.sizes):
            row: dict[str, Any] = {name: column[i] for name, column in table.items()}
            row["subnormal"] /= max(row.pop("nonzero"), 1.0)
            row["change"] /= max(size * row["steps"], 1.0)
            row |= {name: int(row[name]) for name in _COUNTS}
            row["state"] = tuple(
                State(n, dtype, zeros[i], not bad[i]) for n, dtype, zeros, bad, has in states if has[i]
            )
            found.append(row)
        return found


class _Gradients(NamedTuple):
    """Each parameter's samples, their smallest and greatest gradient value, and which parameters have a gradient."""

    samples: Tensor
    low: Tensor
    high: Tensor
    there: Tensor


def _fits(part: Tensor | None, size: int) -> bool:
    return part is not None and part.numel() == size


def _local(tensor: Any) -> Tensor | None:
    """The plain tensor that holds the values: for a DTensor, its local part.

    None for other wrappers and for tensors without memory.
    """
    if tensor is None:
        return None
    plain = type(tensor) is torch.nn.Parameter or type(tensor) is Tensor
    if not plain:
        tensor = getattr(tensor, "_local_tensor", tensor)
        plain = type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
    return tensor.detach() if plain and readable(tensor) else None


def sample(tensor: Tensor) -> Tensor:
    """Up to ``_SAMPLE`` elements, evenly spread."""
    flat, each = tensor.reshape(-1), tensor.numel() // _SAMPLE
    if each > 1:
        flat = flat[::each]
    return flat[:_SAMPLE] if tensor.numel() > _SAMPLE else flat
