"""A callback for the Trainer of transformers: ``Trainer(..., callbacks=[DtypeTraceCallback()])``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

from transformers import Trainer, TrainerCallback

from ..capture.stacks import variables
from .accelerate import autocast_of
from .watching import FirstSteps


class DtypeTraceCallback(TrainerCallback):
    """Checks the settings before step 1 as ``dtypetrace.preflight`` does, watches the steps
    while they show something new, and sleeps in between; with ``first=N``, the first N steps only.

    Rank 0 prints. The report and the trace are in ``args.output_dir`` (``dtypetrace.html``, ``dtypetrace.trace``); the
    counts of findings are logged as ``dtypetrace/errors`` and so on. fail_on, ignore, precision, every and
    compile are those of ``dtypetrace.integrations.watching.FirstSteps``.

    >>> Trainer(model, args, train_dataset=data, callbacks=[DtypeTraceCallback(first=2)])    # doctest: +SKIP
    """

    def __init__(
        self,
        first: int | None = None,
        *,
        fail_on: str | None = None,
        ignore: Sequence[str] = (),
        precision: str = "values",
        every: int | str | None = None,
        compile: str | None = None,
    ) -> None:
        self.steps = FirstSteps(first, fail_on, ignore, precision, every, compile)
        self._wrapped: tuple[Any, str] | None = None

    @property
    def trace(self) -> Any:
        """The trace of the watched steps, with all its views."""
        return self.steps.trace

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The trainer calls no callback at an exception, so its ``train`` is wrapped in a function that does."""
        trainer = _trainer()
        if trainer is not None:
            self._through(trainer, "train")

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before step 1: the model is on its device and wrapped, the optimizer exists."""
        trainer = _trainer()
        if trainer is not None and "train" not in vars(trainer):  # the callback was added after the trainer was made
            self._through(trainer, "training_step")
            self._wrapped = trainer, "training_step"
        optimizer = kwargs.get("optimizer")
        accelerator = getattr(trainer, "accelerator", None)
        self.steps.begin(
            kwargs["model"],
            optimizer=getattr(optimizer, "optimizer", optimizer),
            scaler=getattr(accelerator, "scaler", None),
            autocast_dtype=autocast_of(accelerator) if accelerator is not None else None,
            rank=args.process_index,
            folder=args.output_dir,
            log=trainer.log if trainer is not None else None,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.step_done()
        if not self.steps.watching:
            self._unwrap()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A run that is shorter than ``first``."""
        self.steps.end()
        self._unwrap()

    def _through(self, trainer: Any, name: str) -> None:
        method = getattr(trainer, name)

        @functools.wraps(method)
        def through(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except BaseException as error:
                self.steps.end(error)
                raise

        setattr(trainer, name, through)

    def _unwrap(self) -> None:
        if self._wrapped is not None:
            trainer, name = self._wrapped
            delattr(trainer, name)
            self._wrapped = None


def _trainer() -> Any:
    """The trainer that called: callbacks are not given it."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        owner = variables(frame).get("self")
        if isinstance(owner, Trainer):
            return owner
        frame = frame.f_back
    return None
