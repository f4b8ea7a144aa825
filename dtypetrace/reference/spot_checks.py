"""Spot checks: a reference for small tensors only, in the first steps that compute in 16 bits; on with ``numerics``.

It measures the same as a whole reference (:mod:`.follow`), where that costs little: the number of calls, the size of
their tensors and the memory are bounded, however large the program is. So probabilities, losses, schedules,
coordinates and small models are checked; the activations of a large model are not, and what is computed from those
begins again with the program's own values. Backward and the optimizer are not followed; what backward does in 16 bits
is kept for the trials at the run's end.

Ops in 16 bits are checked wherever they run, and with them what is computed from their results. Ops in float32, of
which there are many more and few lose anything, are checked only on lines of the user's own: what a library computes
in float32 was tried by many.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from ..capture import private, searched_frames
from ..capture.calls import LIFT_FRESH, NARROW_FLOATS, TO_COPY, are_numbers, given_numbers, readable, version_of
from ..capture.increments import Lost
from ..capture.marks import Ref
from ..capture.ops import is_narrow
from ..capture.recorder import Recorder
from ..capture.running import ARGS, FUNCTION, KWARGS
from ..records import FORWARD
from ..tables.operators import tagged
from .calls import Done, plain, tensors_of
from .engine import EVERY, Followed, Written
from .follower import Follower
from .operators import RERUN, VIEW

Tensor = torch.Tensor
STEPS = 2
"""Optimizer steps with ops to check that are checked."""
ROUNDS = 3
"""How often such steps are checked: again from the first op on that had not run before, such as in sampling."""
CALLS = 3000
"""Calls that are checked in a run: each costs a few tenths of a millisecond on a CPU."""
CALLS_IN_FLOAT32 = 2000
"""The same for those in float32 that compute with no reference."""
PASSED_IN_FLOAT32 = 20_000
"""Calls of a program without 16 bits after which its checks end, however few of them were checked."""
AFTER_SUM, _SUMS = 200, 8
"""Calls in float32 that are checked, and pass, after one takes a long sum when these checks are done; how often."""
_NARROW, _OWN, _OTHER = range(3)
"""An op in 16 bits; another of the forward pass on a line of the user's own; the rest."""
CALLS_OF_ONE = 256
"""Calls of one op that are checked, so that a loop leaves some for what comes after it."""
_CALLS_OF_GROWING = 6000
"""Further calls of ops whose error grows with each of theirs, or is large."""
_MOST_FEEDING = 16
"""Ops above such an op that are checked with it."""
_GROWS, _MUCH, _SPOILT = 1.6, 2.0**-6, 2.0**-4
"""The error after the last such call grows if it is so many times that after half as many calls (what is random grows
by the root of two), and is not small. If it is large then, the calls are also checked to their end: what is computed
from them may have lost more."""
LARGEST = 1 << 18
"""Elements of the largest tensor that is checked."""
LARGEST_OWN, LARGE_ELEMENTS = 1 << 24, 1 << 26
"""The same on lines of the user's own, and how many elements all calls with such tensors may have: a million take some
milliseconds."""
LARGEST_GIVEN, _MOST_GIVEN = 1 << 14, 64
"""Numbers of the longest list that is read a second time, and how many lists are kept for later steps."""
_MUCH_OF = 2.0**-12
"""How much of what a tensor's numbers differ by a cast must have changed, so that they are its reference."""
LARGEST_PRODUCT = 1 << 23
"""Multiplications of the largest matmul or convolution that is checked: a few milliseconds."""
LARGEST_OWN_PRODUCT, LARGE_PRODUCTS = 1 << 26, 1 << 28
"""The same on lines of the user's own, and how many all such products may have: a tenth of a second."""
MOST_BYTES = 1 << 27
"""Memory of all references."""


class SpotChecks(Follower):
    """Checks the small ops of one run. recorder: its ops are checked, from number ``first`` on."""

    called_in_report = "spot checks"

    def __init__(self, recorder: Recorder, *, first: int = 0) -> None:
        super().__init__(recorder)
        self._first = first
        self._of: dict[int, int] = {}
        """By op: ``_NARROW``, ``_OWN`` or ``_OTHER``."""
        self.narrow = False
        """Whether an op in 16 bits has run."""
        self._writing: dict[int, bool] = {}
        self._calls: dict[int, int] = {}
        self._left, self._large_left, self._large_writes = CALLS, LARGE_ELEMENTS, LARGE_ELEMENTS
        self._products_left = LARGE_PRODUCTS
        self._wide_left, self._wide_passed = CALLS_IN_FLOAT32, PASSED_IN_FLOAT32
        self._sums_left = _SUMS
        self._given: list[_Given] = []
        self._any_shared = False
        """Whether any shares its memory with NumPy."""
        self._growing_left = _CALLS_OF_GROWING
        self._halfway: dict[int, Tensor] = {}
        """By op: the error after half of its calls."""
        self._growing: set[int] = set()
        """Ops whose error had grown since when all of them were made, or was large, and those above them."""
        self._bytes = 0
        """Bytes of the references that were given since they were last counted."""
        self._steps = self._wide_steps = self._rounds = 0
        self._met = self._wide_met = False
        """Whether an op of this step was checked, in 16 bits and in float32."""

    def begins_with(self, op: Any, inputs: Sequence[Tensor]) -> bool:
        """Whether an op is the first to check."""
        if self.on and not self._wide() and any(map(self._lost_in, inputs)) and self._is_own(op):
            self._begin_after_sum()
        begins = self.on and (is_narrow(op) or self._wide() and self._is_own(op))
        if begins and self._given:
            self._forget()
        return begins

    # ------------------------------------------------------------ every operator

    def _writes(self, func: Any) -> bool:
        writes = self._writing.get(id(func))  # by id: hashing an operator runs Python code
        if writes is None:
            writes = self._writing[id(func)] = bool(self._engine.kind(func).written)
        return writes and private.current_graph_task_id() == -1

    def _wanted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        wide = not self.narrow and self._wide() and not self._recorder.running_steps
        return (wide or self._concerned((args, kwargs))) and self._fits_to_write((args, kwargs))

    def after(self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> None:
        """After a call that was recorded under op ``number``."""
        if not self.on:
            return
        kind = self._of.get(number)
        if kind is None:
            kind = self._of[number] = self._kind_of(self._recorder.ops[number])
        if not self.narrow:
            self._wide_passed -= 1
            self._rest()
        if kind == _OTHER and not len(self._shadows):
            return
        written, self._written = self._written, None
        call = Done(number, func, args, kwargs or {}, out)
        try:
            if self._recorder.ops[number].phase == "backward":
                self._keep_backward(call, kind)
            known = written is not None or not self._engine.kind(func).written
            if written is None and known and self._calls.get(number, 0) < CALLS_OF_ONE:
                self._join_sums(call)
            if known and self._due(call, kind):
                self._follow(call, written)
                if func is LIFT_FRESH and kind != _OTHER:
                    self._know_given(call)
                elif func is TO_COPY and kind != _OTHER:
                    self._know_cast(call)
            else:
                self._engine.forget_written(func, args, call.kwargs)
                if self._recorder.ops[number].phase in FORWARD:
                    self._engine.untie(call)
        except Exception as error:
            self._fail(error)

    def _lost_in(self, tensor: Tensor) -> list[Lost]:
        """What sums in float32 have lost in a tensor's memory, of which each call is looked at."""
        values = self._recorder.values
        small = values is not None and readable(tensor) and self._small(tensor)
        return values.increments.lost_in(tensor, self._recorder.origins.of(tensor)) if values and small else []

    def _begin_after_sum(self) -> None:
        """What is computed from a long sum is checked, too."""
        if self._sums_left > 0:
            self._sums_left -= 1
            self._wide_left, self._wide_passed = (
                max(self._wide_left, AFTER_SUM),
                max(self._wide_passed, AFTER_SUM),
            )

    def _join_sums(self, call: Done) -> None:
        """The operands of a call that are sums get what they have lost as their references."""
        for t in tensors_of(call[2:4]):
            if t.dtype is not torch.float32 or not plain(t) or self._shadows.shadow(t) is not None:
                continue
            lost = self._lost_in(t) if self.narrow or self._wide() else []
            if lost and call.number not in {one.op for one in lost}:
                with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowInplaceOrView():
                    self._join(t, lost)

    def _join(self, tensor: Tensor, lost: list[Lost]) -> None:
        shadow = self._shadows.adopt(tensor)
        shadow.makers = tuple(dict.fromkeys(one.op for one in lost))
        for one in lost:
            exact = shadow.flat.as_strided(one.size, one.stride, one.offset)
            made = exact.clone()
            same = True if one.last is None else (one.last.reshape(one.size) == made).all()
            exact += torch.where(torch.as_tensor(same), one.error.reshape(one.size), 0.0)
            super()._saw(one.op, [Followed(made, exact, exact, None)])

    def _know_given(self, call: Done) -> None:
        """The numbers from which the program made a tensor are its reference."""
        made, frame = call.out, self._recorder.places.outside(sys._getframe(1))
        if not made.dtype.is_floating_point or made.numel() > LARGEST_GIVEN and made.dtype is torch.float64:
            return
        calls = self._recorder.thread_state().calls
        running = calls[-1] if calls else None
        if running is not None:
            data = given_numbers(running[FUNCTION], running[ARGS], running[KWARGS])
        else:
            data = searched_frames.constructed_from(self._recorder, frame)
            data = data if are_numbers(data) else None
        wider = searched_frames.wider_than(self._recorder, call.number, made, running, frame)
        if wider is not None:
            much = wider.dtypes[-1].is_floating_point and _lost_much(wider.numbers, made)
            data = wider.numbers if much else None
        elif made.numel() > LARGEST_GIVEN:
            data = None
        if data is None:
            return
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowInplaceOrView():
            wide = self._shadows.wide_of(made.dtype)
            exact = torch.as_tensor(data, dtype=wide).to(made.device, copy=True)
            if exact.shape == made.shape:
                self._keep_exact(made, exact, call.number, shared=wider is not None)
                self._shadows.give(made, exact.clone()).makers = (call.number,)
                self._saw(call.number, [Followed(made, exact, exact, None)])

    def _know_cast(self, call: Done) -> None:
        """What the program casts to fewer digits may be used long after the cast, such as a table of noise levels."""
        made, given = call.out.dtype, call.args[0].dtype
        narrows = made.is_floating_point and given.is_floating_point and made.itemsize < given.itemsize
        if narrows and call.out.numel() <= LARGEST_GIVEN:
            exact = self._shadows.of(call.out)
            if exact is not None:
                with private.DisableTorchFunction(), private.DisableTorchDispatch():
                    self._keep_exact(call.out, exact.clone(), call.number)

    def _keep_exact(self, tensor: Tensor, exact: Tensor, number: int, shared: bool = False) -> None:
        alive = [known for known in self._given if known.tensor() is not None][1 - _MOST_GIVEN :]
        room = MOST_BYTES - exact.nbytes
        while sum(known.exact.nbytes for known in alive) > room:
            del alive[0]
        made = tensor.detach().clone() if shared else None
        self._given = [*alive, _Given(Ref(tensor), version_of(tensor), exact, number, made)]
        self._any_shared = any(known.made is not None for known in self._given)

    def _forget(self) -> None:
        """Drops the references, but for those of numbers that the program gave and that have not changed since."""
        self._shadows.clear()
        for known in self._given if self.on else ():
            tensor = known.tensor()
            if tensor is not None and known.is_of(tensor):
                self._shadows.give(tensor, known.exact.clone()).makers = (known.number,)

    def _follow(self, call: Done, written: Written | None) -> None:
        if self._any_shared:
            self._look_at_shared(call)
        super()._follow(call, written)

    def _look_at_shared(self, call: Done) -> None:
        """Drops the references of tensors into whose memory NumPy has written since."""
        memory = {t.untyped_storage()._cdata for t in tensors_of(call[2:4])}
        for known in [known for known in self._given if known.made is not None]:
            tensor = known.tensor()
            if tensor is None or tensor.untyped_storage()._cdata not in memory:
                continue
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
                if version_of(tensor) == known.version and not known.is_of(tensor):
                    self._shadows.forget(tensor)
                    self._given = [other for other in self._given if other is not known]

    def _keep_backward(self, call: Done, kind: int) -> None:
        """A small op in 16 bits of the backward pass is kept on the tape, unfollowed: only trials make it again."""
        how, value = self._engine.kind(call.func), call[2:]
        plain = kind == _NARROW and how.how is RERUN and not how.written
        if plain and not self.tape.full and self._small(value) and _work(call) <= LARGEST_PRODUCT:
            self.tape.after(call, ())

    def _kind_of(self, op: Any) -> int:
        if is_narrow(op):
            self.narrow = True
            return _NARROW
        return _OWN if op.phase in FORWARD and self._is_own(op) else _OTHER

    def _is_own(self, op: Any) -> bool:
        """Whether an op runs on a line of the user's own."""
        codes = self._recorder.places.codes_between(op.place, -1)
        return bool(codes) and self._recorder.user(codes[0].co_filename)

    def _due(self, call: Done, kind: int) -> bool:
        """Whether a call is checked: it is in forward, small, not one of too many, and of a kind that is checked, or
        computes with references."""
        number = call.number
        if number < self._first or self._recorder.ops[number].phase not in FORWARD:
            return False
        if self._engine.kind(call.func).how is VIEW:
            return True
        narrow = kind == _NARROW or self.narrow and self._concerned(call[2:4])
        if not narrow and (kind == _OTHER or not self._wide()):
            return False
        if not self._fits(call) or self._full(call.out):
            return False
        calls = self._calls[number] = self._calls.get(number, 0) + 1
        if calls > CALLS_OF_ONE:
            return self._goes_on(number)
        if not narrow:
            self._wide_met = True
            self._wide_left -= 1
            return True
        self._left -= 1
        self._met = True
        if self._left < 0:
            self.stop()
        return self._left >= 0

    def _saw(self, number: int, followed: list[Followed]) -> None:
        super()._saw(number, followed)
        calls = self._calls.get(number, 0)
        if calls <= CALLS_OF_ONE and -calls % (CALLS_OF_ONE // 2) < EVERY:
            made, reference = followed[0].made, followed[0].reference
            error = (made - reference).norm() / reference.norm()
            early = self._halfway.setdefault(number, error)
            # this waits for the device
            goes_on = (error > _MUCH) & (error >= _GROWS * early) | (error >= _SPOILT)
            if calls > CALLS_OF_ONE // 2 and bool(goes_on):
                self._growing |= self._feeding(number)

    def _goes_on(self, number: int) -> bool:
        """Whether an op is checked beyond its usual calls: its error grows, or it feeds one whose error does."""
        grows = number in self._growing
        self._growing_left -= grows
        return grows and self._growing_left >= 0

    def _feeding(self, number: int) -> set[int]:
        """The checked ops from which an op's operands came in any of its calls, and those above them."""
        found, waiting = {number}, [number]
        while waiting and len(found) < _MOST_FEEDING:
            new = self._engine.above.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    def _wide(self) -> bool:
        """Whether ops in float32 are still checked."""
        return self._wide_left > 0 and self._wide_passed > 0 and self._wide_steps < STEPS

    def _rest(self) -> None:
        """Detaches the checks of a program in float32 until its first op in 16 bits, if they are done."""
        if not self.narrow and not self._wide() and self._recorder.unfollowed(self):
            self._shadows.clear()

    def _concerned(self, value: Any) -> bool:
        """Whether any tensor of a call has 16 bits or a reference."""
        return any(
            t.dtype in NARROW_FLOATS or len(self._shadows) and readable(t) and self._shadows.of_memory(t) is not None
            for t in tensors_of(value)
        )

    def _fits(self, call: Done) -> bool:
        """Whether the tensors of a call are small enough, and its products, or it is one of few larger ones on lines of
        the user's own."""
        small = self._small(call[2:])
        if not small and not self._small(call[2:], LARGEST_OWN):  # nested tensors have no sizes, and so no work
            return False
        work = _work(call)
        if small and work <= LARGEST_PRODUCT:
            return True
        if not small and self._large_left <= 0 or not self._is_own(self._recorder.ops[call.number]):
            return False
        if work > min(LARGEST_OWN_PRODUCT, self._products_left):
            return False
        self._products_left -= work if work > LARGEST_PRODUCT else 0
        # what is picked is read alone
        read = call.out if tagged(str(call.func), "picks") else call[2:]
        self._large_left -= max((t.numel() for t in tensors_of(read)), default=0) if not small else 0
        return True

    def _fits_to_write(self, value: Any) -> bool:
        """The same before a call that writes, whose op is not known yet."""
        if self._small(value):
            return True
        if self._large_writes <= 0 or not self._small(value, LARGEST_OWN):
            return False
        self._large_writes -= max(t.numel() for t in tensors_of(value))
        return True

    def _small(self, value: Any, largest: int = LARGEST) -> bool:
        """Whether all tensors of a call, with all of their memory, are small, and none is being captured in a graph."""
        for t in tensors_of(value):
            if t.numel() > largest or not readable(t) or t.untyped_storage().nbytes() > largest * t.dtype.itemsize:
                return False
            if t.is_cuda and torch.cuda.is_current_stream_capturing():
                return False
        return True

    def _full(self, out: Any) -> bool:
        """Whether the references would need too much memory."""
        self._bytes += sum(8 * t.numel() for t in tensors_of(out))
        if self._bytes > MOST_BYTES:
            self._bytes = self._shadows.nbytes
        return self._bytes > MOST_BYTES

    # ------------------------------------------------------------ steps

    def step_begins(self, optimizer: Any, place: int) -> None:
        """What the step changes is not followed."""
        self._forget()

    def step_ends(self, optimizer: Any) -> None:
        """Counts the steps in which something was checked."""
        self._forget()
        self._steps += self._met
        self._wide_steps += self._wide_met
        self._met = self._wide_met = False
        if self._steps >= STEPS or not self.narrow and self._wide_steps >= STEPS:
            self._pause()
        self._rest()

    def _pause(self) -> None:
        """Checks nothing more until an op runs that had not run before."""
        self._rounds += 1
        if self._rounds >= ROUNDS:
            self.stop()
            return
        self._first, self._steps, self._wide_steps = len(self._recorder.ops), 0, 0
        self._shadows.clear()
        self._recorder.unfollowed(self)

    def stop(self) -> None:
        super().stop()
        self._recorder.unfollowed(self)


class _Given(NamedTuple):
    """A tensor that the program made from its numbers or by a cast, and what is known of it since."""

    tensor: Ref
    version: int
    exact: Tensor
    number: int
    """The op that made it."""
    made: Tensor | None
    """Its numbers, where NumPy may change them unseen."""

    def is_of(self, tensor: Tensor) -> bool:
        """Whether the tensor has the numbers that it was made with."""
        return version_of(tensor) == self.version and (
            self.made is None or bool(((tensor == self.made) | (tensor != tensor)).all())
        )


def _lost_much(numbers: Tensor, made: Tensor) -> bool:
    """Whether a cast changed numbers by much of what they differ by: by less, nothing shows that is computed from
    them."""
    with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
        true, changed = numbers.double(), made.detach().double()
        columns = true.dim() == 2 and true.shape[1] < true.shape[0]
        true, changed = (t if columns else t.reshape(-1, 1) for t in (true, changed))
        apart = torch.minimum(true.std(0), true.diff(dim=0).abs().mean(0))
        return bool(((changed - true).abs().mean(0) > _MUCH_OF * apart).any())


def _work(call: Done) -> int:
    """About the multiplications of a matmul, a convolution or an attention; 0 for other ops."""
    func, made = call.func, tensors_of(call.out)
    name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else ""
    sizes = [t.shape for t in tensors_of(call.args) if t.dim() > 1]
    if not tagged(name, "matmul", "addmm", "convolution", "attention") or len(sizes) < 2 or not made:
        return 0
    left, right = sizes[-2:]
    if tagged(name, "attention"):  # each result is a sum over the keys, as each score is one over the width
        return 2 * made[0].numel() * sizes[1][-2]
    return made[0].numel() * (prod(right[1:]) if "conv" in name else left[-1])
