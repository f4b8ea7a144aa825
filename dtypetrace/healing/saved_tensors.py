"""Keeps failed attempts out of a checkpoint.

Where tensors are saved through hooks (checkpointing, offloading), the hooks get a call's tensors only after the call
has succeeded. Otherwise tensors saved by a refused attempt would be counted, but never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..capture import private

Tensor = torch.Tensor
Box = list[Tensor]
"""Holds a saved tensor until its call has succeeded, and then what the program's hook made of it."""


class SavedTensors:
    """The tensors that the running torch functions have saved."""

    def __init__(self) -> None:
        self._saved: list[Box] | None = None
        self._begun: list[int] = []

    def drop(self) -> None:
        """Drops what the running call has saved, because the call was refused."""
        if self._saved is not None:
            _let_go(self._saved[self._begun[-1] :])
            del self._saved[self._begun[-1] :]

    def function_mode(self, base: Any) -> type:
        """A function mode that holds back the tensors that calls save."""
        held = self

        class HealingFunctionMode(base):
            def __torch_function__(
                self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
            ) -> Any:
                if held._saved is None:
                    hooks = private.top_saved_tensors_hooks(False)
                    if hooks:
                        return held._holding(hooks, super().__torch_function__, func, types, args, kwargs)
                    return super().__torch_function__(func, types, args, kwargs)
                held._begun.append(len(held._saved))
                try:
                    return super().__torch_function__(func, types, args, kwargs)
                finally:
                    held._begun.pop()

        return HealingFunctionMode

    def _holding(self, hooks: tuple[Any, Any], call: Callable[..., Any], *what: Any) -> Any:
        pack, unpack = hooks
        saved: list[Box] = []

        def hold(tensor: Tensor) -> Box:
            saved.append([tensor])
            return saved[-1]

        self._saved, self._begun = saved, [0]
        handed_on = 0
        try:
            with torch.autograd.graph.saved_tensors_hooks(hold, lambda box: unpack(box[0])):
                out = call(*what)
            self._saved = None
            for box in saved:
                box[0] = pack(box[0])  # which raises where a checkpoint has recomputed enough
                handed_on += 1
        finally:
            self._saved = None
            _let_go(saved[handed_on:])
        return out


def _let_go(boxes: Iterable[Box]) -> None:
    """Empties boxes that nobody will ask for.

    A node that saves its own result holds it through a box: a circle that the collector does not see.
    """
    for box in boxes:
        box.clear()
