"""What repeats a program's operators in higher precision: a whole reference (:mod:`.follow`) or spot checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..capture.calls import readable, version_of
from ..capture.compiled.ledger import Repeats
from ..capture.recorder import Recorder
from ..records import Compared, Precision
from .calls import Done
from .engine import Engine, Followed, Written
from .errors import Errors
from .operators import RERUN
from .shadows import floating
from .tape import Tape

Tensor = torch.Tensor
_EXPORTS = frozenset({Tensor.numpy, Tensor.__array__, Tensor.__dlpack__, Tensor.share_memory_})


class Follower:
    """Follows the ops of a recorder."""

    whole = False
    called_in_report = "references"

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._errors = Errors()
        self._engine = Engine(self._saw, self._errors.chose)
        self._shadows = self._engine.shadows
        self._written: Written | None = None
        self.tape = Tape()
        """The calls that were followed; it outlives the follower."""
        self.on = True

    @property
    def regions(self) -> Repeats | None:
        """See :class:`~dtypetrace.capture.protocols.Reference`."""
        return None

    # ------------------------------------------------------------ what differs

    def _writes(self, func: Any) -> bool:
        """Whether something must be known before calls of an operator."""
        raise NotImplementedError

    def _wanted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call of such an operator is followed."""
        return True

    def _saw(self, number: int, followed: list[Followed]) -> None:
        self._errors.saw(number, followed)

    def begins_with(self, op: Any, inputs: Sequence[Tensor]) -> bool:
        """See :class:`~dtypetrace.capture.session.Reference`, also for what follows."""
        return False

    def outermost(self, module: torch.nn.Module) -> None:
        """Nothing is done to modules."""

    # ------------------------------------------------------------ every operator

    def _follow(self, call: Done, written: Written | None) -> None:
        """A call that has run and is followed."""
        if self._engine.kind(call.func).how is RERUN:
            self.tape.after(call, written.tensors if written is not None else ())
        self._engine.after(call, written)

    def around(self, func: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel, with what must be known before a call that writes."""
        if not self.on or not self._writes(func):
            return kernel

        def followed(*args: Any, **kwargs: Any) -> Any:
            self._written = None
            try:
                if self._wanted(args, kwargs):
                    self.tape.before(args, kwargs)
                    self._written = self._engine.before(func, args, kwargs)
            except Exception as error:
                self._fail(error)
            try:
                return kernel(*args, **kwargs)
            except BaseException:  # nobody knows how much it wrote
                written, self._written = self._written, None
                for t in written.tensors if written is not None else ():
                    self._shadows.forget(t)
                raise

        return followed

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> None:
        """After a torch function: memory that is shared with code outside torch has no reference."""
        if self.on and func in _EXPORTS and floating(args[0].dtype) and readable(args[0]):
            self._shadows.export(args[0])

    def unseen(self, tensors: Iterable[Tensor]) -> Callable[[], None]:
        """Something is about to run that may write to tensors and is not seen. Returns what to call after it."""
        looked_at = tensors if self.on and len(self._shadows) else ()
        known = (t for t in looked_at if readable(t) and self._shadows.of_memory(t) is not None)
        held = [(t, version_of(t)) for t in known]

        def after() -> None:
            for tensor, version in held:
                if version < 0 or version_of(tensor) != version:
                    self._shadows.forget(tensor)

        return after

    def made_unseen(self, tensors: Iterable[Tensor]) -> None:
        """See :meth:`~dtypetrace.reference.shadows.Shadows.untie`."""
        for tensor in tensors if self.on and len(self._shadows) else ():
            if readable(tensor) and self._shadows.of_memory(tensor) is None:
                self._shadows.untie(tensor)

    def _fail(self, error: Exception) -> None:
        """An error of ours ends the references, not the run."""
        failed = f"{self.called_in_report}, after an internal error: {type(error).__name__}: {error}"
        self._recorder.not_seen[failed] = None
        self.stop()

    # ------------------------------------------------------------ the end

    def stop(self) -> None:
        """Stops following; drops every tensor."""
        self.on = False
        self._shadows.clear()
        self._written = None

    def close(self) -> None:
        """The trace ends."""
        self.stop()

    def read(self) -> tuple[tuple[Precision, ...], tuple[Compared, ...]]:
        """The errors, by op. This waits for the device."""
        return self._errors.read(self._engine.above), ()
