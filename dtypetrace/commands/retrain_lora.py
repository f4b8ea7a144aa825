"""The public function for the experiment on a model's adapters, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from ..lora.retrain import retrain
from ..lora.verdict import Retraining
from ..render import notebook, retraining


def retrain_lora(
    model: nn.Module,
    compute_loss: Callable[..., torch.Tensor],
    *,
    make_optimizer: Callable[..., Any],
    steps: int = 20,
    autocast_dtype: torch.dtype | str | None = None,
    scaler: Any = None,
    seed: int = 0,
    keep: bool = False,
) -> RetrainingResult:
    """Trains the adapters of a model twice from the same start and seed, as they are and in float32, and reports
    whether they learn and what kept them from it.

    model: the module that holds the adapters: PEFT's, any with ``lora_down`` and ``lora_up`` or ``lora_A`` and
    ``lora_B``, or trainable weights next to frozen ones; ``nn.ModuleList([base, adapters])`` if they are outside the
    base. compute_loss: ``compute_loss(model)`` returns the scalar loss of one step. It is called ``3 * steps`` times
    (for each step in both runs, and for each step again with untrained weights), each time with random numbers seeded
    by the step, and should draw the same batch for the same seed. make_optimizer: ``make_optimizer(parameters)``
    returns an optimizer for a list of trainable parameters; any object with ``param_groups``, ``state`` and ``step()``.
    Both functions can also be written without a parameter. steps: at least 2, because in the first step a LoRA's down
    matrix rightly gets no gradient. autocast_dtype: the dtype that the program's autocast computes in, for both runs.
    Without it, the first run, with the adapters as they are, has no autocast, and the float32 run computes in the
    base's dtype by autocast. scaler: the program's GradScaler; each run gets a copy. Without it, the float32 run gets
    one if it computes in float16. keep: leave the adapters in float32 and trained, instead of restoring everything
    (weights, dtypes, gradients, buffers, modes, random numbers).

    Returns a ``RetrainingResult``: ``confirmed`` (whether the adapters were measured to learn in float32; whether they
    learn as they are is each adapter's ``before.verdict``), ``why``, ``adapters`` (each with its verdict in both runs:
    ``before`` as it is, ``after`` in float32), ``to_dataframe()``. An error that ends only one of the runs is reported
    in the result; one that ends both is raised, after the state is restored. Raises ValueError where there are no
    adapters or too few steps, TypeError for what cannot be called or is not a loss.

    The float32 run confirms that the adapters learn if three things are true. In each adapter, at least half of the
    numbers whose gradient is not zero moved, and not only by weight decay (with a suitable dtype all but a few per cent
    move, with an unsuitable one few do). At least two steps were taken, all gradients were finite, and each matrix had
    a gradient that is not zero in at least one step (in the first step the down matrix's is zero). Over the later half
    of the steps, the loss is no higher than that of the same batches with untrained weights; two standard errors of the
    difference plus four times the eps of the compute dtype are allowed.

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
    """The result of ``retrain_lora``: whether the adapters learn, as they are and in float32, and what keeps them from
    it."""

    __slots__ = ()

    @property
    def why(self) -> str:
        """The facts behind ``confirmed``, one sentence on each line."""
        return "\n".join(retraining.why(self))

    def to_dataframe(self) -> Any:
        """Two rows for each adapter, ``before`` and ``after``, as a pandas DataFrame."""
        return retraining.frame(self)

    def __repr__(self) -> str:
        return retraining.text(self)

    def _repr_html_(self) -> str:
        return notebook.text_html(retraining.text(self))
