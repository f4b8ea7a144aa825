"""The data that all packages share: plain frozen values, standard library only.

``hooks`` fills a :class:`Recording`; ``graph`` and ``rules`` read it and make :class:`Finding` values; ``report``
renders those. Nothing here holds a tensor, a module or a frame, so a recording can be kept, pickled, compared or
written as JSON without keeping memory alive. References inside a recording are integer indices into its own tuples
(``-1``: none).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .compiled import Region as Region
from .findings import CAST as CAST
from .findings import LARGEST as LARGEST
from .findings import LOWEST as LOWEST
from .findings import NAMED as NAMED
from .findings import NO_CHANGE as NO_CHANGE
from .findings import NOT_FINITE as NOT_FINITE
from .findings import NOTHING as NOTHING
from .findings import RECAST as RECAST
from .findings import SPARED as SPARED
from .findings import UNCAST as UNCAST
from .findings import Cast as Cast
from .findings import Chain as Chain
from .findings import Change as Change
from .findings import Edit as Edit
from .findings import Finding as Finding
from .findings import Fix as Fix
from .findings import FlowStep as FlowStep
from .findings import Inserted as Inserted
from .findings import NotJudged as NotJudged
from .findings import Operand as Operand
from .findings import Origin as Origin
from .findings import Raised as Raised
from .findings import Reach as Reach
from .findings import Sources as Sources
from .findings import Tried as Tried
from .measurements import Compared as Compared
from .measurements import LeftOut as LeftOut
from .measurements import Optimizer as Optimizer
from .measurements import Parameter as Parameter
from .measurements import Plan as Plan
from .measurements import Precision as Precision
from .measurements import Rehearsed as Rehearsed
from .measurements import Shared as Shared
from .measurements import State as State
from .measurements import Trial as Trial
from .measurements import Update as Update
from .measurements import Value as Value
from .places import Frame as Frame
from .places import Place as Place
from .receipts import Declared as Declared
from .receipts import ReceiptRow as ReceiptRow
from .receipts import StateTensors as StateTensors
from .receipts import Transfer as Transfer
from .text import NO_TEXT, ProgramText

SCHEMA = 1
PHASES = ("forward", "recompute", "backward", "optimizer", "other")
"""In the order of a step."""
FORWARD = ("forward", "recompute", "other")
"""Phases in which the program's own calls run; ops of the others follow from them."""
PRECISIONS = ("off", "values", "reference")
"""What is measured besides dtypes: nothing; what becomes of values; and the same step in higher precision, too."""
SEVERITIES = ("note", "warning", "error")
"""Mildest first."""
MOST_STEPS = 12
"""Entries of ``Recording.step_ends``."""
UNWATCHED = "an unwatched step"
"""The ``op`` of an ``input``: the tensor was made in a step that was not watched, or before the watching began."""

# ---------------------------------------------------------------- what hooks record


@dataclass(frozen=True, slots=True)
class Read:
    """One read of ``tensor.dtype``: its value, its place, and the event that had decided the tensor's dtype."""

    dtype: str
    place: int
    event: int
    frames_up: int = 0
    """How many frames outside torch are between the read and the frame that used the value (1 for a property)."""
    producer: int = -1
    """Index of the op that had made the tensor, -1 where that was not seen."""
    written: str = ""
    """The expression that it was read from, as the program writes it (``sample.dtype``); found by ``source.facts``."""
    of_module: bool = False
    """Whether a module was asked, and one of its parameters answered (``next(m.parameters()).dtype``); found by
    ``source.facts``."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event that decided a dtype. Events form a DAG through ``parents`` and ``reads``.

    An event is an origin if its ``how`` is ``factory``, ``cast``, ``conversion``, ``parameter``, ``load``, ``input``,
    ``worker``, ``autocast``, ``reinterpret``, or ``promotion`` without parents. A ``promotion`` with parents widens a
    dtype on its way. ``form`` turns real into complex or complex into real, in the same precision. ``attribute``: a
    ``.to(x.dtype)`` of a tensor that already had x's dtype; from there on it depends on x, too.
    """

    how: str
    op: str
    place: int
    module: str
    source: tuple[str, ...]
    """The floating dtypes of its operands; of a conversion, the dtype to which NumPy is known to have cast its
    numbers before."""
    to: str
    parents: tuple[int, ...] = ()
    reads: tuple[Read, ...] = ()
    """Reads of this dtype by the same running function; after ``source.facts``, only those that decided the call."""
    name: str = ""
    default: int = -1
    """Place of the ``set_default_dtype`` that this event took its dtype from, where that was not float32."""
    explicit: bool = False
    """Whether the program named the dtype (``dtype=torch.float16``, ``.half()``); else it came from a default."""
    assigned: tuple[str, ...] = ()
    """The names that the line of an origin assigns to; found by ``source.facts``."""
    region: int = -1
    """Place of the ``with autocast`` statement, where autocast decided the dtype; found by ``source.facts``."""
    healed: int = -1
    """Index of the refusal that autofix healed with this cast, where no operand of the call had the dtype; else -1."""
    told: int = -1
    """Place of the literal by which NumPy was told the dtype of an array that was converted; found by
    ``source.facts``."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A cast to the dtype that the tensor already had, so no op ran. With another dtype, an op would run there."""

    op: str
    dtype: str
    place: int
    module: str
    event: int
    """The event that decided the tensor's dtype."""
    producer: int
    """Index of the op that made the tensor, -1 where that was not seen."""
    reads: tuple[Read, ...] = ()
    """The reads of ``tensor.dtype`` that may have given the cast its dtype; none where the cast named it."""
    of_module: bool = False
    """Whether a whole module was cast."""


@dataclass(frozen=True, slots=True)
class Input:
    """One tensor operand of an op, from the op's first occurrence."""

    dtype: str
    event: int = -1
    producer: int = -1
    """Index of the op that made the tensor, -1 where that was not seen."""
    name: str = ""
    holder: str | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Op:
    """One distinct op: all its calls that share place, module, phase and dtypes."""

    op: str
    """The function that the code called (``linear``)."""
    aten: str
    """The operator that ran (``addmm.default``)."""
    phase: str
    module: str
    place: int
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    count: int
    autocast: str = ""
    """``"cpu:bfloat16"`` where autocast was on for the call, else empty."""
    of: int = -1
    """In backward: index of the forward op that this op is the backward of, -1 where that was not watched."""
    shape: tuple[int, ...] = ()
    """Shape of the first tensor that its first call returned."""
    device: str = ""
    peak: float | None = None
    """Largest number that its first call returned, measured where integers are cast to fewer than 24 bits of
    precision."""
    uncached: str = ""
    """For a cast of a parameter under autocast: why autocast does not cache the result (``frozen``, ``inference``),
    else empty."""
    model: int = -1
    """Number of the outermost module called, -1 outside any. It separates two models that the program gives the same
    name."""
    effect: str = ""
    """What the operator's schema says about its results: ``view`` of an operand, ``write`` into one, ``new``; empty
    where no schema was seen."""
    written: tuple[int, ...] = ()
    """The operands that it writes into, by index."""
    named: str = ""
    """The dtype that the call named for its operands or its result; empty for none."""


@dataclass(frozen=True, slots=True)
class Later:
    """An operand of a later call of an op that another op had made than that of its first call, as in a loop."""

    op: int
    index: int
    producer: int
    event: int


@dataclass(frozen=True, slots=True)
class Witness:
    """One tensor or scalar of a refused call as it was when the call was refused."""

    index: int
    argument: str
    """The argument's name in the function's signature (``weight``)."""
    dtype: str
    shape: tuple[int, ...]
    device: str
    event: int = -1
    producer: int = -1
    name: str = ""
    """The parameter's or buffer's qualified name, or the scalar as written."""
    holder: str | None = None
    changed: bool = False
    """Whether its dtype was changed after another operand (an optimizer's state, an average) had been made from it."""
    passed: str = ""
    """Where an op inside a call of one of torch's modules refused: the argument of the module's forward that this is
    (``attn_mask``)."""
    position: int = -1
    """That argument's position in the call, -1 where it was passed by name or is none."""
    trained: bool = False  # a parameter that requires a gradient, in a run that has an optimizer
    codes: bool = False  # its numbers only mean something together with a scale, or are several packed into one


@dataclass(frozen=True, slots=True)
class Refused:
    """One distinct call that raised because of a dtype."""

    op: str
    aten: str | None
    phase: str
    module: str
    place: int
    witnesses: tuple[Witness, ...]
    exception: str
    message: str
    pattern: str
    """Id of the message pattern that matched (``refusals.recognise``)."""
    code: str
    wants: str
    dtypes: tuple[tuple[str, str], ...] = ()
    """What the message says: its named parts and their dtypes."""
    argument: str | None = None
    autocast: str = ""
    model: tuple[Parameter, ...] = ()
    """The floating parameters of the outermost module called; empty where no module was running."""
    run: tuple[tuple[str, int], ...] = ()
    """How many numbers of each dtype all live parameters held, the largest count first."""
    count: int = 1
    left: bool = False  # the exception left the block or the script
    healed: bool = False
    casts: tuple[Cast, ...] = ()
    in_vain: str = ""
    """What the call raised once autofix had cast its operands, if no dtype was the reason then; empty otherwise."""
    predicted: bool = False  # found before the call that would have raised
    after: int = -1  # how many of the recording's ops ran before it, -1 where that was not counted
    derived: bool = False
    """Whether the autograd engine ran it. Then its place is that of the forward op, or of the call of ``backward``."""
    unwatched: int = 0
    """The number of the step that it ended, where that step was not watched; 0 where it was."""
    before: tuple[str, ...] = ()
    """For an unwatched step: the operands' dtypes of the same call in watched steps; empty where it did not run."""
    backward: int = -1
    """Place of the call of ``backward``, where the engine ran it for a forward op; else -1."""
    held: tuple[tuple[int, int, str], ...] = ()
    """Where it left: the local variables of its callers that were an operand: its index, the number of the frame in the
    call's place, and the name."""
    beside: tuple[tuple[str, str], ...] = ()
    """The tensors among the variables of the function that made the call, and among the attributes of its ``self``, as
    the program writes them, with their dtypes."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules say about one refusal, for healing, which repeats the call."""

    culprit: Witness | None
    expected: str | None
    """The dtype that the run was meant to have at this call, None where that is unknown."""
    sides: frozenset[str]
    """The dtypes that disagree."""
    blamed: frozenset[int]
    """Indices of the witnesses that got their dtype from the same cause as the culprit."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Everything that was seen, as plain data."""

    places: tuple[Place, ...] = ()
    events: tuple[Event, ...] = ()
    ops: tuple[Op, ...] = ()
    refused: tuple[Refused, ...] = ()
    modules: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    """Every floating parameter and buffer of the models that were called, by qualified name, as they were when the
    program last computed with them: in its steps, if it has any."""
    not_seen: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    values: tuple[Value, ...] = ()
    updates: tuple[Update, ...] = ()
    plans: tuple[Plan, ...] = ()
    precisions: tuple[Precision, ...] = ()
    """The error of each op, where the step was also run in higher precision."""
    compared: tuple[Compared, ...] = ()
    unchanged: tuple[Unchanged, ...] = ()
    """Casts that changed nothing."""
    spot_checks: tuple[Precision, ...] = ()
    """The error of small ops in the first steps, where only those were also run in higher precision."""
    trials: tuple[LeftOut, ...] = ()
    """What became of damaged results without the rounding of the ops that may have caused it."""
    rehearsed: tuple[Rehearsed, ...] = ()
    """What steps in float32 do to weights that do not learn."""
    sources: Sources = field(default_factory=Sources)
    """The lines that views show; empty until the trace is judged."""
    module_calls: tuple[int, ...] = ()
    """For each of ``modules``: how often its forward was called in watched steps, without a checkpoint's recompute."""
    module_results: tuple[tuple[str, ...], ...] = ()
    """For each of ``modules``: the dtypes of what its forward returned then. Older versions saved neither."""
    step_ends: tuple[tuple[int, ...], ...] = ()
    """One entry for all watched optimizer steps in which the same ops ran: the number of the first one from 1 on, how
    many of ``ops`` had been seen at its end, the number of the last one, how many they are, then the ops that ran, as
    pairs of a first op and the one after the last. The last of ``MOST_STEPS`` entries stands for all later steps. Older
    versions saved only the first two numbers, of steps with a new op."""
    not_judged: tuple[NotJudged, ...] = ()
    """What hooks know that the findings cannot speak of; ``render.coverage`` adds what follows from the rest."""
    regions: tuple[Region, ...] = ()
    """What compiled code did with dtypes: the ledger."""
    optimizers: tuple[Optimizer, ...] = ()
    declared: tuple[Declared, ...] = ()
    """What classes, configurations and launchers say about dtypes."""
    state: tuple[StateTensors, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    later: tuple[Later, ...] = ()
    """From the first calls of each op. Older versions did not save them."""
    text: ProgramText = field(default=NO_TEXT, compare=False, repr=False, metadata={"saved": False})
    """The program's whole text while the recording is still to be judged; views do not have it."""

    def line(self, file: str, line: int) -> str:
        """A source line that a report may quote; empty for all other lines."""
        return self.sources.line(file, line)


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that the views of a trace show: what was seen and what was judged, worked out once."""

    recording: Recording
    findings: tuple[Finding, ...] = ()
    fixes: tuple[Inserted, ...] = ()
    """What autofix inserted, in the order in which it was first needed."""
    diff: str = ""
    """The source patch for the casts that autofix inserted, as a unified diff."""
