"""Errors wait for the gradient of the result that they are in: the product is their first-order effect on the loss.

Backward runs the node that an op made with the gradient of that op's result. So the error of each op is kept under the
number of its node, until an operator runs in that node and takes a gradient of the result's shape. An addition's node
runs no operator: it hands the gradient on unchanged. Its error waits for a node to which it hands it, if nothing else
does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ..capture import private
from .calls import tensors_of
from .engine import Followed
from .errors import Errors
from .samples import SIZE, sample
from .shadows import Shadows

Tensor = torch.Tensor
_HANDS_ON = {"add": 2, "sub": 1}
"""By operator, to how many of its operands, the first ones, it hands the gradient on unchanged."""
_SUMS = frozenset({id(torch.ops.aten.add.Tensor), id(torch.ops.aten.add_.Tensor)})
"""How autograd adds up what several nodes hand on to one; the node that just did is the current one then. By id:
hashing an operator runs Python code."""
_MOST = 1 << 16
"""Errors that wait at once."""


class _Waiting(NamedTuple):
    op: int
    error: Tensor
    """A sample."""
    shape: torch.Size
    share: float
    """How many elements each one of the sample represents."""


class Adjoints:
    """The errors of one run that wait for their gradients."""

    def __init__(self, errors: Errors, shadows: Shadows) -> None:
        self._errors = errors
        self._shadows = shadows
        self._nodes: dict[int, _Waiting] = {}
        self._through: dict[int, int] = {}
        """A node, and the one that hands its gradient on to it unchanged."""
        self._handing: set[int] = set()
        """The nodes that hand their gradient on."""
        self._taken: dict[int, int] = {}
        """How many nodes take the result of a node, and so add to its gradient."""
        self._known: dict[int, int] = {}
        self._of_call: _Waiting | None = None
        self._task = self._begun = -1
        self._risen = 0

    def clear(self) -> None:
        """Drops every tensor."""
        self._nodes.clear()
        self._through.clear()
        self._taken.clear()
        self._handing.clear()
        self._of_call = None

    def begins(self) -> None:
        """A call begins whose error is not known yet."""
        self._of_call = None

    def saw(self, number: int, first: Followed) -> None:
        """The result of the call that runs now, with its reference."""
        if torch.is_grad_enabled() and first.before is None and not first.made.is_complex():
            error = sample(first.made).to(first.local.dtype) - sample(first.local)
            self._of_call = _Waiting(number, error, first.made.shape, max(1.0, first.made.numel() / SIZE))

    def awaits(self, func: Any, args: tuple[Any, ...]) -> None:
        """Keeps the error of the call just followed, if autograd made a node for it."""
        risen = private.next_sequence_number()
        if risen != self._risen:
            self._made(risen - 1, func, args)
        self._risen = risen

    def _made(self, node: int, func: Any, args: tuple[Any, ...]) -> None:
        """Autograd made a node for the call just followed, whose error may not be known: that of a view is not."""
        waiting = self._of_call
        if waiting is not None:
            self._nodes[node] = waiting
            if len(self._nodes) > _MOST:
                self._nodes.pop(next(iter(self._nodes)))
        if len(self._taken) > _MOST:
            self._taken.clear()
            self._through.clear()
            self._handing.clear()
        hands_on = self._hands_on(func) if waiting is not None else 0
        if hands_on:
            self._handing.add(node)
        for index, a in enumerate(args):
            for t in (a,) if isinstance(a, Tensor) else tensors_of(a) if type(a) in (list, tuple) else ():
                if t.requires_grad and (giver := _node(t)) >= 0:
                    self._taken[giver] = self._taken.get(giver, 0) + 1
                    if index < hands_on and waiting is not None and t.shape == waiting.shape:
                        self._through[giver] = node

    def _hands_on(self, func: Any) -> int:
        """To how many of an operator's first operands its node hands the gradient on."""
        known = self._known.get(id(func))  # by id: hashing an operator runs Python code
        if known is None:
            packet = getattr(func, "overloadpacket", None)
            known = self._known[id(func)] = _HANDS_ON.get(packet.__name__, 0) if packet is not None else 0
        return known

    def meets(self, func: Any, args: tuple[Any, ...]) -> None:
        """A call of backward: its operand may be the gradient that an error waits for."""
        if not self._nodes or (node := private.current_autograd_node()) is None:
            return
        at: int = node._sequence_nr()
        task = private.current_graph_task_id()
        if task != self._task:  # tensors that have a reference now were made before this backward
            self._task, self._begun = task, self._shadows.serial
        if id(func) in _SUMS:
            if at not in self._handing:
                return
            args = args[1:]  # the first is the sum so far
        while at >= 0:
            if (waiting := self._nodes.get(at)) is not None and self._weighed(waiting, args):
                del self._nodes[at]
            at = self._through.get(at, -1) if self._taken.get(at) == 1 else -1

    def _weighed(self, waiting: _Waiting, args: tuple[Any, ...]) -> bool:
        """Whether a gradient of the waiting shape is among the operands; then the two are multiplied."""
        for a in args:
            if isinstance(a, Tensor) and a.shape == waiting.shape and a.dtype.is_floating_point:
                shadow = self._shadows.shadow(a)
                if shadow is not None and shadow.serial >= self._begun:
                    with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowInplaceOrView():
                        gradient = sample(self._shadows.view(shadow, a))
                        self._errors.weigh(waiting.op, gradient, waiting.error, waiting.share)
                    return True
        return False


def _node(tensor: Tensor) -> int:
    """The number of the autograd node that made a tensor, -1 for none. Not asked of a view of something written to:
    autograd would make a new node."""
    if tensor._is_view() and tensor._version:
        return -1
    node = tensor.grad_fn
    return int(node._sequence_nr()) if node is not None else -1
