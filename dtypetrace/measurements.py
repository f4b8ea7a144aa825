"""What was measured and what was set: values, optimizer steps, precision plans. Part of :mod:`records`, which names
them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parameter:
    """One floating parameter at the time of a refusal, for judging what is out of line."""

    name: str
    dtype: str
    size: int
    step: int = -1
    trained: bool = False
    """Whether it requires a gradient."""


@dataclass(frozen=True, slots=True)
class Value:
    """What the values of one distinct op did, summed over the calls that were measured (``numerics=True``)."""

    op: int
    measured: int
    """Outputs measured."""
    made: int
    """Outputs that held an infinity or NaN although every operand was finite and none was asked for."""
    first: int
    """Serial number of the first such output, -1 for none: the least of a recording made the first of all."""
    made_nan: int
    nans: int
    """Outputs that held a NaN, whoever made it."""
    bad: int
    """Outputs that held an infinity or a NaN."""
    peak: float
    """The greatest magnitude among finite outputs."""
    nonzero: int = 0
    """Of a cast to float16, or a product of gradients in it: elements that went in and were not zero."""
    flushed: int = 0
    """How many of them came out as zero."""
    rows: int = 0
    """Entries along the first dimension that were not all zeros."""
    lost_rows: int = 0
    """How many of them came out as all zeros."""
    due: int = 0
    """Of a call that changes a narrow tensor again and again: sampled numbers that it should have changed."""
    done: int = 0
    """How many of those it did."""
    kept: int = 0
    """Which of the operands of such a call is the one that is kept, by its index."""
    vanished: float = 0.0
    """A Python scalar among its operands that is not zero, and zero in the dtype of the result."""


@dataclass(frozen=True, slots=True)
class State:
    """One tensor of an optimizer's state for a parameter; zeros is the share of its elements that are zero although the
    gradient there never was."""

    name: str
    dtype: str
    zeros: float
    finite: bool = True


@dataclass(frozen=True, slots=True)
class Update:
    """What the optimizer's steps did to one parameter, over all steps measured. Shares are of a sample of its
    elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    step: int
    """The step that decided the parameter's dtype."""
    place: int
    """Where the optimizer's step was called."""
    optimizer: str
    steps: int
    """Steps in which it had a finite gradient and a learning rate other than zero."""
    lr: float
    eps: float | None
    gradient_dtype: str
    gradient_step: int
    """The step that decided the dtype of its last gradient."""
    absent: int
    """Steps in which it had no gradient at all."""
    zero: int
    """Steps in which its whole gradient was zero."""
    broken_gradient: int
    """Steps in which its gradient held an infinity or NaN."""
    gradient_peak: float
    subnormal: float
    """Share of the nonzero gradients below float16's normal range."""
    reached: int
    """Sampled elements whose gradient was not zero in some step."""
    moved: int
    """How many of those any step changed."""
    written: bool
    """Whether any step wrote to the parameter at all, be it the value that was there."""
    broken: int
    """Sampled elements that a step made infinite or NaN from a finite weight and a finite gradient."""
    magnitude: float
    """Mean magnitude of the sampled weights before the first step."""
    change: float
    """Mean change of a sampled element in a step."""
    gradient_declared: bool = False
    """Whether the program declared that gradients of this dtype are meant (``Tensor.grad_dtype``)."""
    state: tuple[State, ...] = ()
    own: int = -1
    """How many of the reached elements a step moved otherwise than weight decay alone would, -1 where nothing says."""
    frozen: bool = False
    held: bool = True
    """Whether an optimizer holds it."""
    skipped: int = 0
    """Steps that a loss scaler left out, since gradients were infinite at its scale, and that scale after the last
    step."""
    scale: float = 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What an optimizer did to a copy of a few numbers of one parameter, in a rehearsal of its step."""

    name: str
    dtype: str
    outcome: str
    """A mechanism's name (``rules.mechanisms``)."""
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shared:
    """What DDP or FSDP was told of dtypes for one module; a dtype is empty where it was told none."""

    module: str
    by: str
    """The wrapper's class, or ``fully_shard``."""
    computes: str = ""
    reduces: str = ""
    """What gradients are averaged over the ranks in."""
    built: tuple[str, ...] = ()
    """The dtypes of the buckets that DDP made for gradients when it was built."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings that decide in which dtypes a run will compute, before it does."""

    place: int
    model: str
    """The model's class."""
    parameters: tuple[Parameter, ...] = ()
    """Its floating parameters."""
    trained: tuple[str, ...] = ()
    """Names of those that require a gradient."""
    quantised: tuple[str, ...] = ()
    """Modules whose weights are no floating numbers."""
    adapted: bool = False
    """Whether a trainable matrix lies beside a quantised weight."""
    autocast: str = ""
    """The dtype that autocast will compute in, empty for none or unknown."""
    scaler: bool = False
    trials: tuple[Trial, ...] = ()
    stale: tuple[str, ...] = ()
    """Parameters that the optimizer holds and the model no longer has, by their shapes."""
    asked: bool = False
    """Whether the program asked for a judgement; else it is given only where the run trains."""
    shared: tuple[Shared, ...] = ()
    """What averages its gradients over several ranks."""
    cast_gradients: tuple[str, ...] = ()
    """Parameters that hold a gradient of another dtype than their own."""


@dataclass(frozen=True, slots=True)
class Precision:
    """What one distinct op lost of what higher precision would have kept, over the calls that were followed beside it.

    Introduced is what the op's own result is off from the same op in higher precision on the same operands; total what
    it is off from the reference, inherited errors included. Errors are root mean squares relative to what they should
    be; shares are of a sample of the elements.
    """

    op: int
    calls: int
    elements: int
    """Elements looked at."""
    size: float
    """Root mean square of the reference."""
    introduced: float
    total: float
    lost: float
    """Share of its elements, other than zero, of which the op itself lost half or more."""
    lost_in_all: float
    """Share of its elements that are half or more off from the reference."""
    flushed: float
    """Share of its elements that the op made zero, where they are not."""
    infinite: int
    """Elements that the op made infinite or NaN, where they are finite."""
    spoiled: int
    """Elements that are infinite or NaN, where the reference is finite."""
    lost_calls: int
    """Calls in which at least half of the elements are half or more off from the reference."""
    arrived: float = -1.0
    """Of an op that changes a tensor in place: how much of the change arrives, along it; -1 where it changes none."""
    changed: float = -1.0
    """Share of the elements due to change that do; -1 likewise."""
    merged: float = 0.0
    """Of neighbouring elements that differ in the reference, the share that the program does not tell apart."""
    effect: float = 0.0
    """First-order effect of what it introduced on what backward began from, in units of that."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A parameter's gradients, updates, or a tensor of its optimizer's state, beside their references, over all steps
    compared."""

    name: str
    what: str
    """``gradient``, ``update``, or the state's name (``exp_avg``)."""
    dtype: str
    shape: tuple[int, ...]
    place: int
    """Where the optimizer's step was called."""
    step: int
    """The step that decided its dtype."""
    op: int
    """The op that made it, of a gradient; -1 where that is not known."""
    steps: int
    """Optimizer steps in which the reference was not zero."""
    zero: int
    """In how many of those the program's was zero, all of it."""
    size: float
    """Root mean square of the reference."""
    error: float
    """Root mean square of the difference, relative to it."""
    arrived: float
    """How much of the reference the program's holds, along it."""
    lost: float
    """Share of its elements, other than zero, that are half or more off."""
    flushed: float
    """Share of its elements that are zero where the reference's are not."""
    spoiled: int
    """Elements that are infinite or NaN where the reference's are finite."""
