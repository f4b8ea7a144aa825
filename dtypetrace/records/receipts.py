"""What a training run was asked for in dtypes, and what it held: part of :mod:`records`, which names them."""

from __future__ import annotations

from dataclasses import dataclass

from .findings import Origin


@dataclass(frozen=True, slots=True)
class Declared:
    """What a class, a configuration or a launcher says about the dtypes of a model, read before it computes."""

    module: str
    """Whose parameters it is about, qualified; empty for the whole run."""
    names: tuple[str, ...]
    """Parts of their names that it is about (``wo``, ``lm_head``); empty for all."""
    dtype: str
    by: str
    """What says so, as a program would write it: ``T5Model._keep_in_fp32_modules``."""
    part: str = "parameters"
    """``parameters`` or ``compute``."""
    instead_of: tuple[str, ...] = ()
    """The dtypes that it rules out; empty for all others."""
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class StateTensors:
    """The tensors of one name and dtype in an optimizer's state, as they were when it was last looked at."""

    optimizer: str
    place: int
    """Where its step was called."""
    name: str
    dtype: str
    weights: str
    """The dtype of the parameters that they belong to."""
    tensors: int
    size: int
    """Numbers in all of them."""
    event: int = -1
    """The event that decided the dtype of one of them."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Tensors of one dtype that a program wrote to a checkpoint or took from one, in its last call of a line."""

    kind: str
    """``written``, ``read``, or ``state loaded``: taken over by an optimizer's ``load_state_dict``."""
    group: str
    """The key of the checkpoint that holds them (``model``), or the name of an optimizer's state (``exp_avg``)."""
    source: str
    """Their dtype in the checkpoint."""
    dtype: str
    """Their dtype in the program."""
    tensors: int
    size: int
    """Numbers in all of them."""
    place: int
    names: tuple[str, ...] = ()
    """Patterns of their names."""
    resumes: bool = False
    """Whether the checkpoint also holds the state of an optimizer: it is there to go on from."""
    optimizer: str = ""
    """The optimizer's class, of a ``state loaded``."""
    event: int = -1
    """The event that decided the dtype of one of them."""


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """One part of a run that has a dtype: what was asked for beside what ran."""

    part: str
    """``parameters``, ``frozen parameters``, ``buffers``, ``compute``, ``saved for backward``, ``gradients``,
    ``reduction``, ``optimizer state``, ``loss scaler`` or ``checkpoint``."""
    what: str
    """A pattern of module names, a class of operators, the name of an optimizer's state, a checkpoint's key."""
    dtype: str
    """The dtype that was measured, empty before step 1; for the loss scaler ``on`` or ``off``."""
    count: int
    """Tensors; of ``compute`` and ``reduction`` calls."""
    bytes: int
    share: float
    """Of ``compute``: the share of all floating point operations; of the other parts: the share of the part's bytes."""
    asked: str = ""
    """The dtype that was asked for; empty where nobody asked."""
    by: str = ""
    """What asked."""
    cause: Origin | None = None
    """The event that decided the dtype; None where it is not known."""

    @property
    def differs(self) -> bool:
        """Whether another dtype was asked for."""
        return self.dtype != "" and self.asked not in ("", self.dtype)
