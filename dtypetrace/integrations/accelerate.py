"""A block around a training loop of accelerate: ``with watch(accelerator):``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .watching import FirstSteps

_AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}


def autocast_of(accelerator: Any) -> torch.dtype | None:
    """The dtype of an accelerator's autocast; None where it has none, as for float16 on a CPU."""
    return _AUTOCAST.get(accelerator.mixed_precision) if accelerator.native_amp else None


@contextmanager
def watch(
    accelerator: Any,
    first: int | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    fail_on: str | None = None,
    ignore: Sequence[str] = (),
    precision: str = "values",
    every: int | str | None = None,
    compile: str | None = None,
) -> Iterator[FirstSteps]:
    """Checks the settings as ``dtypetrace.preflight`` does, watches the steps of the block
    while they show something new, and sleeps in between; with ``first=N``, the first N steps only.

    Open it after ``accelerator.prepare``. Rank 0 prints. folder: where the report goes (default: the accelerator's
    ``project_dir``; without one, none is written). The counts of findings go to the accelerator's trackers. The others
    are those of ``dtypetrace.integrations.watching.FirstSteps``. Raises ValueError where no model was prepared.

    >>> with watch(accelerator):    # doctest: +SKIP
    ...     for batch in loader:
    ...         train(batch)
    """
    models, optimizers = accelerator._models, accelerator._optimizers
    if not models:
        raise ValueError("watch(accelerator): no model was prepared; open the block after accelerator.prepare(...)")

    def log(values: Mapping[str, float]) -> None:
        accelerator.log(dict(values))

    steps = FirstSteps(first, fail_on, ignore, precision, every, compile)
    steps.begin(
        accelerator.unwrap_model(models[0]),
        optimizer=optimizers[0].optimizer if len(optimizers) == 1 else None,
        scaler=accelerator.scaler,
        autocast_dtype=autocast_of(accelerator),
        rank=accelerator.process_index,
        folder=folder or accelerator.project_dir,
        log=log,
    )

    def between(*_: Any) -> None:
        steps.report_if_over()
        if steps.first_steps_over:
            hook.remove()

    # the trace counts steps itself; its report waits until no step is running
    hook = models[0].register_forward_pre_hook(between)
    try:
        yield steps
    except BaseException as error:
        steps.end(error)
        raise
    finally:
        hook.remove()
    steps.end()
