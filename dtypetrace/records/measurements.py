"""What was measured and what was set: values, optimizer steps, settings. Part of :mod:`records`, which names
them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Parameter:
    """One floating parameter as it was at a refusal or in ``preflight``, to judge which dtype is wrong."""

    name: str
    dtype: str
    size: int
    event: int = -1
    trained: bool = False
    """Whether it requires a gradient."""
    beside: bool = False
    """Whether its module runs inside the model and is none of its submodules: a cast of the model does not reach it."""
    holder: str = "parameter"
    """``parameter`` or ``buffer``."""


@dataclass(frozen=True, slots=True)
class Value:
    """What the values of one distinct op did, summed over the calls that were measured (``precision="values"``)."""

    op: int
    measured: int
    """Outputs measured."""
    made: int
    """Outputs that held an infinity or NaN although every operand was finite and none was asked for."""
    first: int
    """Serial number of the first such output, -1 for none. The smallest number of a recording is the earliest
    output."""
    made_nan: int
    nans: int
    """Outputs that held a NaN, whichever op made it."""
    bad: int
    """Outputs that held an infinity or a NaN."""
    peak: float
    """The greatest magnitude among finite outputs."""
    nonzero: int = 0
    """In a cast to float16, or a product of gradients in it: input elements that were not zero."""
    flushed: int = 0
    """How many of them came out as zero."""
    rows: int = 0
    """Entries along the first dimension that were not all zeros."""
    lost_rows: int = 0
    """How many of them came out as all zeros."""
    due: int = 0
    """In a call that updates a narrow tensor repeatedly: sampled numbers that the call should have changed."""
    done: int = 0
    """How many of those it did change."""
    kept: int = 0
    """Index of the operand that such a call updates; from the end for a store, which may replace it by anything."""
    vanished: float = 0.0
    """A Python scalar among its operands that is not zero but becomes zero in the result's dtype; or a limit below 1
    that becomes 1."""
    lost_calls: int = 0
    """Calls in which nearly all of the nonzero elements, and more than a few, came out as zero."""
    emptied: int = 0
    """Calls in which all nonzero elements, and more than one, came out as zero."""
    drift: float = 0.0
    """In a call that adds to a narrow tensor repeatedly: the greatest error that its roundings added up to, as root
    mean square relative to the tensor."""
    exact: int = 0
    """Sampled numbers that integer arithmetic, a write of floating numbers to integers or a cast of integers had to
    keep; in a cast, pairs of neighbours that differ."""
    spoilt: int = 0
    """How many of those wrapped, lost a fraction or became equal."""
    stale: int = 0
    """For a cast of a parameter whose result autocast keeps: optimizer steps after which that was used again, although
    the parameter had changed."""
    cut: int = 0
    """In a cast of floating numbers to integers: how many of the sampled numbers lost a fraction, where the fractions
    were a good part of them. In a cast of integers to floating point: how many would not come back as they were. In
    arithmetic of integers that wraps: how many became equal to others."""
    short: int = 0
    """In a cast of floating numbers to integers: how many of the sampled numbers lay so near below a whole one that
    rounding had put them there; the cast makes the whole number before that of them."""
    factor: float = 0.0
    """A Python scalar with which a call multiplies, near 1 and so close that each product is the other factor; of
    several, the closest. 0 for none."""


@dataclass(frozen=True, slots=True)
class State:
    """One tensor of an optimizer's state for a parameter. ``zeros`` is the share of its elements that are zero although
    their gradient never was; of single numbers, such as a step counter, it is 0."""

    name: str
    dtype: str
    zeros: float
    finite: bool = True
    event: int = -1
    """The event that decided its dtype."""


@dataclass(frozen=True, slots=True)
class Update:
    """What the optimizer's steps did to one parameter, over all steps measured. Shares are of a sample of its
    elements. Without a measured step, only what it is called is known."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    event: int = -1
    """The event that decided the parameter's dtype."""
    place: int = -1
    """Where the optimizer's step was called."""
    optimizer: str = ""
    steps: int = 0
    """Steps in which it had a finite gradient and a learning rate other than zero."""
    lr: float = -1.0
    eps: float | None = None
    gradient_dtype: str = ""
    gradient_event: int = -1
    """The event that decided the dtype of its last gradient."""
    absent: int = 0
    """Steps in which it had no gradient at all."""
    zero: int = 0
    """Steps in which its whole gradient was zero."""
    broken_gradient: int = 0
    """Steps in which its gradient held an infinity or NaN."""
    gradient_peak: float = 0.0
    subnormal: float = 0.0
    """Share of the nonzero gradients below float16's normal range."""
    reached: int = 0
    """Sampled elements whose gradient was not zero in some step."""
    moved: int = 0
    """How many of those any step changed."""
    written: bool = False
    """Whether any step wrote to the parameter at all, even if the value stayed the same."""
    broken: int = 0
    """Sampled elements that a step made infinite or NaN from a finite weight and a finite gradient."""
    magnitude: float = 0.0
    """Mean magnitude of the sampled weights before the first step."""
    change: float = 0.0
    """Mean change of a sampled element in a step."""
    gradient_declared: bool = False
    """Whether the program declared that it wants gradients of this dtype (``Tensor.grad_dtype``)."""
    state: tuple[State, ...] = ()
    own: int = -1
    """How many of the reached elements moved in another way than weight decay alone would move them; -1 where
    unknown."""
    frozen: bool = False
    held: bool = True
    """Whether an optimizer holds it."""
    skipped: int = 0
    """Steps that a loss scaler skipped because gradients were infinite at its scale, and its scale after the last
    step."""
    scale: float = 0.0


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer as it was made: where, what it was given, and how many events there had been before."""

    name: str
    """Its class."""
    place: int
    given: str
    """``tensors``, ``groups`` (dictionaries), ``names`` (pairs with a name) or ``iterator``, which is read once; else
    empty."""
    before: int


@dataclass(frozen=True, slots=True)
class Trial:
    """What an optimizer did to a copy of a few elements of one parameter, when its step was rehearsed."""

    name: str
    dtype: str
    outcome: str
    """A mechanism's name (``rules.mechanisms``)."""
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shared:
    """The dtypes that DDP or FSDP was configured with for one module; empty where none was given."""

    module: str
    by: str
    """The wrapper's class, or ``fully_shard``."""
    computes: str = ""
    reduces: str = ""
    """The dtype in which gradients are averaged over the ranks."""
    built: tuple[str, ...] = ()
    """The dtypes of the buckets that DDP made for gradients when it was built."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings that decide the dtypes a run will compute in, read before it computes. This is not a
    ``PrecisionPlan``, which says what to keep in float32."""

    place: int
    model: str
    """The model's class."""
    parameters: tuple[Parameter, ...] = ()
    """Its floating parameters."""
    trained: tuple[str, ...] = ()
    """Names of those that require a gradient."""
    quantised: tuple[str, ...] = ()
    """Modules whose weights are not floating point."""
    adapted: bool = False
    """Whether there is a trainable matrix next to a quantised weight."""
    autocast: str = ""
    """The dtype that autocast will compute in, empty for none or unknown."""
    scaler: bool = False
    trials: tuple[Trial, ...] = ()
    stale: tuple[str, ...] = ()
    """Parameters that the optimizer holds and the model no longer has, by their shapes."""
    asked: bool = False
    """Whether the program asked for a judgement; if not, only a run that trains is judged."""
    shared: tuple[Shared, ...] = ()
    """The wrappers that average its gradients over several ranks."""
    cast_gradients: tuple[str, ...] = ()
    """Parameters that hold a gradient of a dtype other than their own."""
    held: bool = True
    """Whether the optimizer, if it is known, holds any of its parameters."""


@dataclass(frozen=True, slots=True)
class Precision:
    """The error of one distinct op, measured against the same op in higher precision, over all calls compared.

    *Introduced* error: the op's result against the same op in higher precision on the same operands. *Total* error: its
    result against the reference, so errors of its operands count too. Errors are root mean squares relative to the
    reference; shares are of a sample of the elements.
    """

    op: int
    calls: int
    elements: int
    """Elements compared."""
    size: float
    """Root mean square of the reference."""
    introduced: float
    total: float
    lost: float
    """Share of its nonzero elements to which the op itself added an error of half their size or more."""
    lost_in_all: float
    """Share of its elements that differ from the reference by half their size or more."""
    flushed: float
    """Share of its elements that the op made zero although they are not zero in higher precision."""
    infinite: int
    """Elements that the op made infinite or NaN although they are finite in higher precision."""
    spoiled: int
    """Elements that are infinite or NaN although they are finite in the reference."""
    lost_calls: int
    """Calls in which at least half of the elements differ from the reference by half their size or more."""
    arrived: float = -1.0
    """For an op that changes a tensor in place: the share of the change that arrived, along its direction; -1 for
    others."""
    changed: float = -1.0
    """Share of the elements that should change that did change; -1 for other ops."""
    merged: float = 0.0
    """Of neighbouring elements that differ in the reference, the share that are equal in the program."""
    blurred: float = 0.0
    """The share that are equal in the program although they are above zero and an eighth or more apart: different
    positions, angles or logarithms."""
    effect: float = 0.0
    """First-order effect of the introduced error on the tensor that backward started from, relative to its size."""
    vanished: float = 0.0
    """Share of its calls whose elements are all zero because the reference's are too small for the dtype, whichever op
    made them so."""
    apart: float = 0.0
    """For an op that chooses among numbers (``topk``): their error without the mean, relative to their size without
    it."""
    others: float = 0.0
    """Share of its choices, or of the integers that it casts to, that would be others in higher precision."""
    above: tuple[int, ...] | None = field(default=None, metadata={"saved": False})
    """The ops whose errors its operands brought, in all calls; None in a saved trace. Not in the JSON schema."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A damaged result of an op, and what becomes of it without the rounding of other ops, with the program's own
    rounding everywhere else: the calls were made again when the run had ended."""

    op: int
    undone: tuple[int, ...]
    """The ops whose rounding is left out, together."""
    before: float
    """The damage, over the calls that were made again."""
    after: float
    unit: str
    """What is measured, as ``Tried.unit``."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What the last steps of an optimizer do to a few numbers of a weight that does not learn: in its own dtype, and in
    float32, both compared with float64."""

    name: str
    dtype: str
    steps: int
    before: float
    """The error of the change, relative to it, in the weight's own dtype; and in float32."""
    after: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A parameter's gradients, its updates, or a tensor of its optimizer's state, compared with the reference, over all
    steps compared."""

    name: str
    what: str
    """``gradient``, ``update``, or the state's name (``exp_avg``)."""
    dtype: str
    shape: tuple[int, ...]
    place: int
    """Where the optimizer's step was called."""
    event: int
    """The event that decided its dtype."""
    op: int
    """The op that made it, for a gradient; -1 where unknown."""
    steps: int
    """Optimizer steps in which the reference was not zero."""
    zero: int
    """In how many of those all of the program's was zero."""
    size: float
    """Root mean square of the reference."""
    error: float
    """Root mean square of the difference, relative to ``size``."""
    arrived: float
    """How much of the reference the program's tensor has, along its direction."""
    lost: float
    """Share of its nonzero elements that differ by half their size or more."""
    flushed: float
    """Share of its elements that are zero although they are not zero in the reference."""
    spoiled: int
    """Elements that are infinite or NaN although they are finite in the reference."""
