"""A callback for Lightning: ``Trainer(callbacks=[DtypeTraceCallback()])``, or ``--trainer.callbacks+=``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .watching import FirstSteps

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the same library under its other name
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment, unused-ignore]

_AUTOCAST = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


class DtypeTraceCallback(Callback):
    """Checks the settings before step 1 as ``dtypetrace.preflight`` does, watches the steps
    while they show something new, and sleeps in between; with ``first=N``, the first N steps only.

    Rank 0 prints. The report and the trace are in the trainer's log folder (``dtypetrace.html``, ``dtypetrace.trace``);
    the counts of findings go to its loggers as ``dtypetrace/errors`` and so on. fail_on, ignore, precision, every and
    compile are those of ``dtypetrace.integrations.watching.FirstSteps``.

    >>> Trainer(precision="bf16-true", callbacks=[DtypeTraceCallback()])    # doctest: +SKIP
    """

    def __init__(
        self,
        first: int | None = None,
        fail_on: str | None = None,
        ignore: Sequence[str] = (),
        precision: str = "values",
        every: int | str | None = None,
        compile: str | None = None,
    ) -> None:
        self.steps = FirstSteps(first, fail_on, ignore, precision, every, compile)
        self._last = 0

    @property
    def trace(self) -> Any:
        """The trace of the watched steps, with all its views."""
        return self.steps.trace

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """After the sanity check of the validation, before step 1."""
        plugin = trainer.precision_plugin
        optimizers = trainer.optimizers
        self._last = trainer.global_step

        def log(values: Mapping[str, float]) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(dict(values), step=trainer.global_step)

        self.steps.begin(
            pl_module,
            optimizer=optimizers[0] if len(optimizers) == 1 else None,
            scaler=getattr(plugin, "scaler", None),
            autocast_dtype=_AUTOCAST.get(str(getattr(plugin, "precision", ""))),
            rank=trainer.global_rank,
            folder=trainer.log_dir or trainer.default_root_dir,
            log=log,
        )

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        for _ in range(trainer.global_step - self._last):
            self.steps.step_done()
        self._last = trainer.global_step

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """A run that is shorter than ``first``."""
        self.steps.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.steps.end(exception)
