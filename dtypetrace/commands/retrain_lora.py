"""The public door to the experiment on a model's adapters, and what it returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from .. import report
from ..lora.retrain import retrain
from ..lora.verdict import Retraining
from ..records import Recording
from ..render import curves, retraining


def retrain_lora(
    model: nn.Module,
    compute_loss: Callable[..., torch.Tensor],
    *,
    make_optimizer: Callable[..., Any],
    steps: int = 20,
    autocast_dtype: torch.dtype | None = None,
    scaler: Any = None,
    seed: int = 0,
    keep: bool = False,
) -> RetrainingResult:
    """Trains the adapters of a model twice from the same start and seed, as they are and in float32, and says whether
    they learn and what kept them from it.

    model: the module that holds the adapters: PEFT's, any with ``lora_down`` and ``lora_up`` or ``lora_A`` and
    ``lora_B``, or trainable weights beside frozen ones; ``nn.ModuleList([base, adapters])`` where they lie outside
    the base. compute_loss: ``compute_loss(model)`` gives the scalar loss of one step; it is called ``3 * steps``
    times, each time with random numbers seeded by the step, and should draw the same batch for the same seed.
    make_optimizer: ``make_optimizer(parameters)`` gives an optimizer over a list of trainable parameters; any object
    with ``param_groups``, ``state`` and ``step()``. Both may leave their argument out. steps: at least 2, since in
    the first a LoRA's down matrix rightly gets no gradient. autocast_dtype: what the program's autocast computes in,
    for both runs; without it the run as they are has no autocast, and the float32 one computes in the base's dtype by
    autocast. scaler: the program's GradScaler, of which each run gets a copy; without it the float32 run gets one
    where it computes in float16. keep: leave the adapters in float32 and trained, instead of restoring everything
    (weights, dtypes, gradients, buffers, modes, random numbers).

    Returns a ``RetrainingResult``: ``confirmed``, ``why``, ``adapters`` with their verdicts ``before`` and ``after``,
    ``to_dataframe()``. An error that ends only one of the runs is told there, one that ends both is raised; the state
    is restored then, too. Raises ValueError where there are no adapters or too few steps, TypeError for what cannot
    be called or is no loss.

    The float32 run confirms that the adapters learn when in each of them half or more of the numbers that had a
    gradient moved, otherwise than by weight decay alone (a suitable dtype moves all but a few per cent, an unsuitable
    one few); when at least two steps were taken, with finite gradients that are zero throughout for no matrix (in the
    first step the down matrix's is); and when the loss, over the later half of the steps, is not above that of the
    same batches with untrained weights, by more than two standard errors of the difference plus four roundings of the
    compute dtype.

    >>> dtypetrace.retrain_lora(unet, lambda m: loss_of(m, batch), make_optimizer=torch.optim.AdamW)    # doctest: +SKIP
    """
    made = retrain(
        model,
        compute_loss,
        make_optimizer=make_optimizer,
        steps=steps,
        autocast_dtype=autocast_dtype,
        scaler=scaler,
        seed=seed,
        keep=keep,
    )
    return RetrainingResult(**{f.name: getattr(made, f.name) for f in fields(made)})


class RetrainingResult(Retraining):
    """The result of ``retrain_lora``: do the adapters learn, as they are and in float32, and what keeps them from
    it?"""

    __slots__ = ()

    @property
    def why(self) -> str:
        """The facts behind ``confirmed``, a sentence a line."""
        return "\n".join(retraining.why(self))

    def to_dataframe(self) -> Any:
        """Two rows for each adapter, ``before`` and ``after``, as a pandas DataFrame."""
        return retraining.frame(self)

    def svg(self) -> str:
        """The picture of both runs: how far a step moves the weights against their dtype's resolution, and the
        losses."""
        return curves.curves(self)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes verdict, picture and table as one HTML file that opens anywhere and loads nothing."""
        report.write_html(path, Recording(), (), retraining=self)

    def __repr__(self) -> str:
        return retraining.text(self)

    def _repr_html_(self) -> str:
        return retraining.html(self)
