"""The lines to type so that trained weights stay in float32 and autocast computes in half, for findings about training.

They are shown as a diff where each of them is an edit: the edit of the weights alone, without the autocast region, may
lead to a collision. ``fix`` runs the candidates for the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .. import graph
from ..records import Edit, Frame, Origin, Parameter, Place, Recording
from ..source import editing, expressions, models, optimizers
from ..source.expressions import call_at
from ..source.optimizers import ByHand
from ..tables.dtypes import HALF
from ..tables.english import quoted

_FORWARD = ("forward", "recompute")


def advice(
    recording: Recording, origin: Origin, dtype: str, step: Place | None = None
) -> tuple[str, tuple[ByHand, ...]]:
    """What to change, and the lines to type as far as the recording and the text show them.

    ``dtype``: that of the weights. ``step``: the place of the optimizer's step, where it is known.
    """
    if dtype not in HALF:
        small = "subtract a constant close to this parameter's numbers, so that they are small"
        return f"{small}, or keep it in float64", ()
    lines = tuple(_lines(recording, origin, dtype, step))
    if in_autocast(recording):
        return "keep the trained weights in float32 (your autocast still computes in 16 bits)", lines
    return f"keep the trained weights in float32, and let autocast compute in {dtype}", lines


def in_autocast(recording: Recording) -> bool:
    """Whether the forward pass runs under autocast as it is."""
    return any(op.autocast for op in recording.ops if op.phase in _FORWARD)


@dataclass(frozen=True)
class TrainingEdits:
    """Edits that may let the weights learn."""

    by_hand: ByHand
    edits: tuple[Edit, ...]
    region: bool = False
    """Whether it also puts the call of the model under autocast."""

    @property
    def done(self) -> str:
        return self.by_hand.text

    @classmethod
    def of(cls, *edits: Edit) -> TrainingEdits:
        return cls(ByHand("; ".join(map(optimizers.in_words, edits))), edits)


def candidates(recording: Recording, origin: Origin, dtype: str, step: Place) -> list[TrainingEdits]:
    """The edits to try, the smallest change first; those with an autocast region last.

    What also made weights that are not trained is left alone.
    """
    if dtype not in HALF:
        return []
    found = _keeping_wide(recording, origin, _training(recording, step))
    region = _region(recording, dtype)
    if region is not None:
        done, under = region
        found += [TrainingEdits(ByHand(f"{c.done}; {done.text}"), (*c.edits, under), region=True) for c in found]
    return found


def _keeping_wide(recording: Recording, origin: Origin, training: optimizers.Training | None) -> list[TrainingEdits]:
    """The edits that keep or make the trained weights float32, the best first: the program's own line that made them
    half, then a new line where they are half already and not yet stepped."""
    found = [TrainingEdits(optimizers.by_hand(edit), (edit,)) for edit in _where_made(recording, origin)]
    line = _line(recording, origin, training)
    if line is not None:
        made, widened = line
        where = f"{widened.side} the line that makes {quoted(made.optimizer)} ({made.at(made.made.line)})"
        typed = ByHand(f"{where}: add `{widened.line}`", made.made.file, made.made.line, widened.edit)
        found.append(TrainingEdits(typed, (widened.edit,)))
    behind = models.widened_after(recording.text, origin.place, _is_model(recording))
    if behind is not None:
        found.append(TrainingEdits(optimizers.by_hand(behind), (behind,)))
    return found


def where_all_were_made(recording: Recording, dtype: str, event: int) -> tuple[Edit, ...]:
    """The edits that make all weights float32 that are trained in a dtype in the model of those which have it from an
    event, each where it was born, also where a variable names the dtype: autocast casts them, whatever that is. None
    where one of them has no edit."""
    model = {p.name.partition(".")[0] for p in recording.parameters if p.event == event}
    of_it = (p for p in recording.parameters if p.name.partition(".")[0] in model)
    trained = (p for p in of_it if p.trained and p.dtype == dtype and p.event >= 0)
    found = dict[tuple[str, tuple[int, int]], Edit]()
    for born in (recording.events[p.event] for p in trained):
        place = graph.place_of(recording, born.place)
        edit = _made_wide(recording, born.how, place) if made_only_trained(recording, place) else None
        if edit is None:
            return ()
        found[edit.file, edit.start] = edit
    return tuple(found.values())


def _made_wide(recording: Recording, how: str, place: Place) -> Edit | None:
    """The edit that makes weights float32 where they were born."""
    if (edit := editing.at_birth(recording, how, place, "float32")) is not None:
        return edit
    own = editing.from_user(place)
    if how == "cast":
        return editing.uncast(recording, own)
    named = expressions.dtype_keyword(recording.text, own.stack[0]) if own.stack else None
    made = editing.of_cast(recording, own, "float32") if named is not None else None
    return made[0] if made is not None else None


def _is_model(recording: Recording) -> Callable[[str], bool]:
    """Whether an expression was seen to be a model: by the name that its calls gave it."""
    called = {name.partition(".")[0] for name in recording.modules}
    return lambda expression: expression.rpartition(".")[2] in called


def _where_made(recording: Recording, origin: Origin) -> list[Edit]:
    """The edits of the user's lines that made the weights, if those made no weights that are not trained.

    A cast to a variable is left out: the variable's value is a setting, and other weights may be made with it.
    """
    if not origin.place.stack:
        return []
    everything = not _frozen(recording)
    asked = optimizers.adapters_widened(recording.text, origin.place)
    found = [asked]
    if everything or made_only_trained(recording, origin.place):
        own = editing.from_user(origin.place)
        if origin.kind == "cast" and editing.names_variable(recording, own):
            found.append(editing.uncast(recording, own))
        edits = _at_birth(recording, origin), editing.dtype_keyword(recording, own, "float32")
        found += [edit for edit in edits if edit is not None and (everything or _is_on(edit, origin.place))]
    return list(dict.fromkeys(edit for edit in found if edit is not None))


def _frozen(recording: Recording) -> list[Parameter]:
    """The weights that float32 would widen in vain; buffers are few numbers, and most are float32 as it is."""
    return [p for p in recording.parameters if p.holder == "parameter" and p.dtype in HALF and not p.trained]


def made_only_trained(recording: Recording, place: Place) -> bool:
    """Whether no weights that are not trained got their dtype on the user's line of a place."""
    origins = (graph.origin(recording, p.event, p.dtype, p.name) for p in _frozen(recording) if p.event >= 0)
    line = _line_of(place.user_frame)
    return all(_line_of(origin.place.user_frame) != line for origin in origins)


def _line_of(frame: Frame | None) -> tuple[str, int]:
    return (frame.file, frame.line) if frame is not None else ("", 0)


def _is_on(edit: Edit, place: Place) -> bool:
    """Whether an edit changes the statement's lines at the user's frame of a place."""
    frame = place.user_frame
    if frame is None or frame.file != edit.file:
        return False
    return frame.line <= edit.start[0] <= max(frame.end_line or 0, frame.line)


def scaling(recording: Recording, step: Place) -> list[TrainingEdits]:
    """The edits that scale the loss; none where float16 gradients are scaled already, or it is unclear how."""
    if _has_scaler(recording):
        return []
    edits = optimizers.scaled(recording.text, step, _device(recording))
    words = f"scale the loss with {edits[0].after.partition(chr(10))[0]}" if edits else ""
    return [TrainingEdits(ByHand(words), edits)] if edits else []


def scaling_lines(recording: Recording, step: Place) -> tuple[ByHand, ...]:
    """The lines to type that scale the loss; none where it is scaled already, or the text does not show the training
    step."""
    training = _training(recording, step)
    if training is None or not training.loss or _has_scaler(recording):
        return ()
    made_scaler, scaled = _scaling(recording, training, step)
    return (*made_scaler, *scaled)


def _region(recording: Recording, dtype: str) -> tuple[ByHand, Edit] | None:
    """The edit that puts the call of the model under autocast, and what it does."""
    under = _under(recording, None if in_autocast(recording) else _model_call(recording), dtype)
    return (under, under.edit) if under.edit is not None else None


def region_at(recording: Recording, site: Place, dtype: str) -> Edit | None:
    """The edit that puts the call of the model, on the stack of a place, under autocast.

    None where the program has an autocast region: that it ends before this call may be meant.
    """
    call = _call_of_model(recording, site.stack)
    return region_around(recording, call, dtype) if call is not None else None


def under(recording: Recording, site: Place, region: str) -> Edit | None:
    """The edit that puts the call of the model, on the stack of a place, into a region."""
    call = _call_of_model(recording, site.stack)
    return editing.under(recording, call, region) if call is not None else None


def region_around(recording: Recording, call: Frame, dtype: str) -> Edit | None:
    """The edit that puts a call under autocast; None where the program has an autocast region of its own."""
    if any(op.autocast for op in recording.ops):
        return None
    return editing.under(recording, call, _autocast(recording, dtype))


def _autocast(recording: Recording, dtype: str) -> str:
    return f'torch.autocast("{_device(recording)}", dtype=torch.{dtype})'


def _device(recording: Recording) -> str:
    return next((op.device for op in recording.ops if op.device), "cpu").partition(":")[0]


def _training(recording: Recording, step: Place | None) -> optimizers.Training | None:
    if step is None:
        return None
    seen = [(graph.place_of(recording, o.place), o.given) for o in recording.optimizers]
    return optimizers.training(recording.text, step, seen)


def _line(
    recording: Recording, origin: Origin, training: optimizers.Training | None
) -> tuple[optimizers.Training, optimizers.Widened] | None:
    """The parts of the training step, and the line beside its optimizer that makes the weights float32; None where the
    weights became half only after the optimizer was made."""
    born = [n for n, e in enumerate(recording.events) if graph.place_of(recording, e.place) == origin.place]
    if training is None or born and any(o.before <= min(born) for o in recording.optimizers):
        return None
    some, born_in = bool(_frozen(recording)), origin.place.user_frame
    frames = (f for o in recording.optimizers for f in graph.place_of(recording, o.place).stack)
    in_scope = born_in is not None and any(
        (f.file, f.function, f.line) == (born_in.file, born_in.function, training.made.line) for f in frames
    )
    own = models.own_way(recording.text, origin.place, _is_model(recording)) if in_scope else ""
    widened = optimizers.widened(training, only_trained=some, own=own)
    return (training, widened) if widened is not None else None


def _at_birth(recording: Recording, origin: Origin) -> Edit | None:
    return editing.at_birth(recording, origin.kind, origin.place, "float32") if origin.place.stack else None


def _lines(recording: Recording, origin: Origin, dtype: str, step: Place | None) -> list[ByHand]:
    training = _training(recording, step)
    found = [way.by_hand for way in _keeping_wide(recording, origin, training)][:1]
    forward = [op for op in recording.ops if op.phase in _FORWARD]
    if not forward:
        return found
    wants_scaler = dtype == "float16" and not _has_scaler(recording)
    made_scaler, scaled = _scaling(recording, training, step) if wants_scaler else ([], [])
    call = _model_call(recording)
    under = [] if any(op.autocast for op in forward) else [_under(recording, call, dtype)]
    if under and scaled and training is not None and call is not None and training.loss_line == call.line:
        return [*found, *made_scaler, _in_one_line(recording, training, dtype), *scaled[1:]]
    return [*found, *made_scaler, *under, *scaled]


def _in_one_line(recording: Recording, training: optimizers.Training, dtype: str) -> ByHand:
    """What to write where one line calls the model and ``backward()``: autocast is for the call alone."""
    called = f"with {_autocast(recording, dtype)}: loss = {training.loss}"
    line = f"`{training.loss}.backward()` with two lines, `{called}` and `scaler.scale(loss).backward()`"
    return _at(training, training.loss_line, f"replace {line}")


def _at(training: optimizers.Training, line: int, text: str) -> ByHand:
    return ByHand(f"{training.at(line)}: {text}", training.made.file, line)


def _has_scaler(recording: Recording) -> bool:
    return graph.has_scaler(recording) or any(r.code == "DT116" for r in recording.refused)


def _scaling(
    recording: Recording, training: optimizers.Training | None, step: Place | None
) -> tuple[list[ByHand], list[ByHand]]:
    """The line that makes a loss scaler, beside the optimizer's, and those that use it, in the program's order."""
    made = f'torch.amp.GradScaler("{_device(recording)}")'
    if training is None or step is None or not training.loss:
        return [], [ByHand(f"scale the loss by {made}")]
    makes = f"the line that makes {quoted(training.optimizer)} ({training.at(training.made.line)})"
    scaled = f"replace `{training.loss}.backward()` with `scaler.scale({training.loss}).backward()`"
    found = [_at(training, training.loss_line, scaled)]
    if training.clip_line:
        clips = f"before the line that clips gradients ({training.at(training.clip_line)})"
        found.append(ByHand(f"{clips}: add `scaler.unscale_({training.optimizer})`"))
    stepped = f"scaler.step({training.optimizer}); scaler.update()"
    found.append(_at(training, training.step_line, f"replace `{training.step}` with `{stepped}`"))
    first = ByHand(f"after {makes}: add `scaler = {made}`", training.made.file, training.made.line)
    edits = optimizers.scaled(recording.text, step, _device(recording))
    lines = [first, *found]
    if len(edits) == len(lines):  # else a gradient is clipped at more lines than one, or the step's parts are elsewhere
        lines = [replace(line, edit=edit) for line, edit in zip(lines, edits)]
    return lines[:1], lines[1:]


def _model_call(recording: Recording) -> Frame | None:
    """The program's line that calls the outermost module; None where the text does not show a call."""
    ran = (op for op in recording.ops if op.phase in _FORWARD and op.module and op.place >= 0)
    callers = (_call_of_model(recording, recording.places[op.place].stack) for op in ran)
    return next((caller for caller in callers if caller is not None), None)


def _call_of_model(recording: Recording, stack: tuple[Frame, ...]) -> Frame | None:
    """The frame of a stack that calls the outermost module; None where the text does not show a call."""
    forward = [n for n, frame in enumerate(stack) if frame.function.rpartition(".")[2] == "forward"]
    caller = next((f for f in (stack[forward[-1] + 1 :] if forward else stack) if f.user), None)
    return caller if caller is not None and call_at(recording.text, caller) is not None else None


def _under(recording: Recording, caller: Frame | None, dtype: str) -> ByHand:
    """What to put under autocast: the call of the model, if the text shows it."""
    region = _autocast(recording, dtype)
    if caller is None:
        return ByHand(f"run the forward under `{region}`")
    call, file = call_at(recording.text, caller), recording.text.parsed(caller.file)
    name = file.segment(call.func) if call is not None and file is not None else "the model"
    at = optimizers.short(caller.file, caller.line)
    edit = editing.under(recording, caller, region)
    return ByHand(f"{at}: call `{name}(...)` under `{region}`", caller.file, caller.line, edit)
