"""Where a program makes its optimizer and its loss scaler, computes its loss and steps: found in the text, from the
line of a step.

Text only. Where a name is assigned more than once in the file, or the step is a library's, nothing is found.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..records import NAMED, Change, Edit, Place
from ..records.text import ParsedFile, ProgramText
from ..tables.operators import tagged
from . import dictionaries, editing
from .expressions import call_at, dotted, dtype_argument, expression_at, function_around, last_part, own_call


@dataclass(frozen=True)
class Statement:
    """One statement: the file, its line and column, its text's first name, and how far it is indented."""

    file: str
    line: int
    column: int
    name: str
    indent: str


@dataclass(frozen=True)
class Training:
    """The parts of a training step, as the program writes them; what is not known is None or empty."""

    optimizer: str
    """The optimizer's name."""
    made: Statement
    """The statement that makes it."""
    weights: str
    """The expression for the weights that it is given; empty where it is given groups of them."""
    whole: Edit | None
    """The statement as an edit that changes nothing; None where another one follows on its line."""
    step: str
    """The call that steps, and its line."""
    step_line: int
    loss: str = ""
    """What ``backward()`` is called on, and the line; empty where that is done in several ways."""
    loss_line: int = 0
    clip_line: int = 0
    """The line that clips gradients, 0 where none does."""

    def at(self, line: int) -> str:
        return short(self.made.file, line)


def short(file: str, line: int) -> str:
    """A line as a help names it: ``train.py:12``."""
    return f"{file.rpartition('/')[2]}:{line}"


Seen = tuple[Place, str]
"""Where an optimizer was seen to be made, and what it was given (``records.Optimizer.given``)."""


def training(text: ProgramText, step: Place, seen: Sequence[Seen] = ()) -> Training | None:
    """The training step to which an optimizer's step belongs. ``seen``: the optimizers that were seen to be made."""
    own = own_call(text, step)
    if own is None or last_part(own[1].func) != "step":
        return None
    file, call = own
    given = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None
    name = dotted(given) if given is not None else None
    made, given_kind = _made(file, name, seen) if name is not None else (None, "")
    if name is None or made is None or not isinstance(made.value, ast.Call):
        return None
    line, column = file.start(made)
    if file.indent(made).strip():
        return None  # not the first statement of its line
    loss = _loss(file)
    return Training(
        name,
        Statement(file.path, line, column, file.segment(made.targets[0]), file.indent(made)),
        _weights(file, made.value, given_kind),
        _whole(file, made),
        file.segment(call),
        call.lineno,
        file.segment(loss.value) if loss is not None else "",
        loss.lineno if loss is not None else 0,
        next((n.lineno for n in ast.walk(file.tree) if isinstance(n, ast.Call) and _clips(n)), 0),
    )


def _clips(call: ast.Call) -> bool:
    return last_part(call.func).startswith("clip_grad_")


def _assigned(file: ParsedFile, name: str) -> ast.Assign | None:
    """The only statement of a file that gives a name its value."""
    found = [n for n in ast.walk(file.tree) if isinstance(n, ast.Assign) and name in map(dotted, n.targets)]
    return found[0] if len(found) == 1 and len(found[0].targets) == 1 else None


def _made(file: ParsedFile, name: str, seen: Sequence[Seen]) -> tuple[ast.Assign | None, str]:
    """The statement that makes an optimizer of this name, and what it gives the constructor; ``elsewhere`` where it
    calls something that makes the optimizer."""
    alone = _assigned(file, name)
    found = [n for n in ast.walk(file.tree) if isinstance(n, ast.Assign) and list(map(dotted, n.targets)) == [name]]
    for place, kind in seen:
        for level, frame in enumerate(f for f in place.stack if f.user):
            for made in found if frame.file == file.path else ():
                if made.lineno <= frame.line <= (made.end_lineno or made.lineno):
                    return made, "elsewhere" if level else kind
    return alone, ""


def _whole(file: ParsedFile, made: ast.Assign) -> Edit | None:
    row, column = file.end(made)
    rest = file.lines[row - 1][column - 1 :].strip()
    return file.replaced(made, file.segment(made)) if not rest or rest.startswith("#") else None


def _weights(file: ParsedFile, call: ast.Call, kind: str) -> str:
    """The expression for the weights, fit to be written a second time; empty for groups with settings of their own, and
    where it is not known to be weights. ``kind``: what the constructor was seen to be given, empty where it was not."""
    named = (k.value for k in call.keywords if k.arg == "params")
    given = call.args[0] if call.args else next(named, None)
    if given is None or isinstance(given, ast.Starred) or kind in ("groups", "names", "elsewhere"):
        return ""
    if isinstance(given, ast.Name) and kind != "tensors":
        bound = _assigned(file, given.id)
        given = bound.value if bound is not None else given
    seen = kind == "tensors" or kind == "iterator" and isinstance(given, ast.Call)
    return file.segment(given) if seen or _of_parameters(given) else ""


def _of_parameters(node: ast.expr) -> bool:
    """Whether an expression says by itself that it is parameters: ``net.parameters()``, or some of those."""
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        return isinstance(node.elt, ast.Name) and _of_parameters(node.generators[0].iter)
    if not isinstance(node, ast.Call):
        return False
    name = last_part(node.func) or getattr(node.func, "attr", "")
    some = name in ("filter", "list", "chain") and bool(node.args)
    return name == "parameters" or some and all(map(_of_parameters, node.args[-1:]))


def _loss(file: ParsedFile) -> ast.Attribute | None:
    """The only ``loss.backward`` of a file, called without an argument."""
    found = [method for n in ast.walk(file.tree) if (method := _backward(n)) is not None]
    return found[0] if len(found) == 1 else None


def _backward(node: ast.AST) -> ast.Attribute | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
        return node.func if not node.args else None
    return None


def widened(found: Training, *, only_trained: bool, own: str = "") -> Widened | None:
    """The line that makes trained weights float32, beside the statement that makes the optimizer; None where there is
    no room for one.

    ``only_trained``: the expression may also hold weights that are not trained. ``own``: the program's own way.
    """
    at, weights = found.made, found.weights
    if not weights and not own:
        if found.whole is None:
            return None
        chosen = " if p.requires_grad" if only_trained else ""
        groups = f"(p for group in {found.optimizer}.param_groups for p in group['params']{chosen})"
        line = f"for p in {groups}: p.data = p.data.float()"
        return Widened(line, "after", replace(found.whole, after=f"{found.whole.before}\n{at.indent}{line}"))
    some = " if p.requires_grad else p.data" if only_trained and weights.endswith(".parameters()") else ""
    line = own or f"for p in {weights}: p.data = p.data.float(){some}"
    name = Edit(at.file, (at.line, at.column), (at.line, at.column + len(at.name)), at.name, at.name)
    edit = found.whole or name
    return Widened(line, "before", replace(edit, after=f"{line}\n{at.indent}{edit.before}"))


@dataclass(frozen=True)
class Widened:
    """A line that makes weights float32, whether it goes before or after the optimizer's own, and the edit that puts it
    there."""

    line: str
    side: str
    edit: Edit


def stores_state(text: ProgramText, loaded: Place, dtype: str) -> Edit | None:
    """The edit by which the statement that assigns an optimizer's state (``optimizer.state[p] = ...``), or a part of it
    (``optimizer.state[p]["exp_avg"] = ...``), casts it: in the function, else in the file, of the user's line that
    loaded it."""
    frame = loaded.user_frame
    file = text.parsed(frame.file) if frame is not None else None
    if frame is None or file is None:
        return None
    call = expression_at(text, frame)
    scopes = (function_around(file, call), file.tree) if call is not None else (file.tree,)
    found = (n for scope in scopes for n in ast.walk(scope) if isinstance(n, ast.Assign) and _of_state(n))
    assignment, torch = next(found, None), editing.torch_name(file)
    if assignment is None or not torch:
        return None
    value, (target,) = assignment.value, assignment.targets
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Subscript):
        plain = isinstance(value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
        given = file.segment(value) if plain else f"({file.segment(value)})"
        return file.replaced(value, given + editing.cast_text(file, dtype))
    after = dictionaries.cast_values(file, value, dtype, f"{torch}.is_tensor(value)")
    return file.replaced(value, after)


def _of_state(node: ast.Assign) -> bool:
    """Whether a statement assigns an optimizer's state, or a part of it, without making that anew."""
    target = node.targets[0]
    holder = target.value if isinstance(target, ast.Subscript) else None
    holder = holder.value if isinstance(holder, ast.Subscript) else holder
    made = isinstance(node.value, ast.Call) and tagged(last_part(node.value.func), "factory", "like")
    return len(node.targets) == 1 and isinstance(holder, ast.Attribute) and holder.attr == "state" and not made


def scaled(text: ProgramText, step: Place, device: str) -> tuple[Edit, ...]:
    """The edits that make a loss scaler and use it: at the loss, at each clipping of gradients, at the step.

    None of them where the parts of the training step are not in one function, or not statements of their own.
    """
    found, own = training(text, step), own_call(text, step)
    loss = _loss(own[0]) if own is not None else None
    if found is None or own is None or loss is None or own[1].args or own[1].keywords:
        return ()
    file, call = own
    made = _assigned(file, found.optimizer)
    if made is None or not _see(file, made, (call, loss)) or _SCALER in _bound(file) or not _imports_torch(file):
        return ()
    clips = [n for n in ast.walk(file.tree) if isinstance(n, ast.Call) and _clips(n)]
    if not all(isinstance(file.parents.get(n), ast.Expr) and not file.indent(n).strip() for n in (call, *clips)):
        return ()
    edits = [file.line_before(made, f'{_SCALER} = torch.amp.GradScaler("{device}")')]
    edits.append(_scaled_loss(file, loss))
    unscale = f"{_SCALER}.unscale_({found.optimizer})"
    edits += [file.line_before(clip, unscale) for clip in clips]
    steps = f"{_SCALER}.step({found.optimizer})\n{file.indent(call)}{_SCALER}.update()"
    return (*edits, file.replaced(call, steps))


_SCALER = "scaler"


def _see(file: ParsedFile, made: ast.AST, uses: tuple[ast.AST, ...]) -> bool:
    """Whether a name that is bound beside a statement is seen where it is used."""
    around = function_around(file, made)
    return around is file.tree or all(function_around(file, use) is around for use in uses)


def _bound(file: ParsedFile) -> set[str]:
    return {n.id for n in ast.walk(file.tree) if isinstance(n, ast.Name)}


def _imports_torch(file: ParsedFile) -> bool:
    names = (a for n in ast.walk(file.tree) if isinstance(n, ast.Import) for a in n.names)
    return any(a.name == "torch" and a.asname is None for a in names)


def _scaled_loss(file: ParsedFile, loss: ast.Attribute) -> Edit:
    """The edit that scales what ``backward()`` is called on, with the brackets around it."""
    before = file.between(file.start(loss), file.end(loss)).removesuffix("backward").rstrip().removesuffix(".")
    inside = before[1:-1] if before.startswith("(") and not file.segment(loss.value).startswith("(") else before
    end = _after(file.start(loss), before)
    return Edit(file.path, file.start(loss), end, before, f"{_SCALER}.scale({inside})")


def _after(start: tuple[int, int], text: str) -> tuple[int, int]:
    """The position after a text that starts somewhere."""
    lines = text.split("\n")
    return start[0] + len(lines) - 1, len(lines[-1]) + (start[1] if len(lines) == 1 else 1)


def adapters_widened(text: ProgramText, place: Place) -> Edit | None:
    """The edit by which peft itself makes adapters float32: their call turned that off."""
    own = own_call(text, place)
    named = (k for k in own[1].keywords if k.arg == "autocast_adapter_dtype") if own is not None else iter(())
    chosen = next(named, None)
    if own is None or chosen is None or not isinstance(chosen.value, ast.Constant):
        return None
    written = own[0].segment(chosen)
    if chosen.value.value is not False or not written.endswith("False"):
        return None
    return own[0].replaced(chosen, written.removesuffix("False") + "True")


def without_scaler(text: ProgramText, place: Place) -> Edit | None:
    """The edit that turns off the one loss scaler of the file of a place; None where it is not made there, or is
    twice."""
    file = text.parsed(place.user_frame.file) if place.user_frame is not None else None
    nodes = ast.walk(file.tree) if file is not None else ()
    found = [n for n in nodes if isinstance(n, ast.Call) and last_part(n.func).endswith("GradScaler")]
    if file is None or len(found) != 1 or any(k.arg == "enabled" for k in found[0].keywords):
        return None
    given = ", " if found[0].args or found[0].keywords else ""
    after = f"{file.segment(found[0])[:-1].rstrip().removesuffix(',')}{given}enabled=False)"
    return file.replaced(found[0], after)


def computing_in(text: ProgramText, region: Place, dtype: str) -> Edit | None:
    """The edit that makes an ``autocast(...)`` expression name another dtype; None where it names none."""
    frame = region.stack[0]
    file, call = text.parsed(frame.file), call_at(text, frame)
    named = dtype_argument(call) if call is not None else None
    name = dotted(named) if named is not None else None
    if file is None or named is None or not name or not name.startswith("torch."):
        return None
    return file.replaced(named, f"torch.{dtype}", Change(NAMED, dtype))


@dataclass(frozen=True)
class ByHand:
    """A change to type by hand, in words."""

    text: str
    file: str = ""
    line: int = 0
    """The line that the words name, where they name one."""
    edit: Edit | None = None
    """The edit that they say."""


def by_hand(edit: Edit) -> ByHand:
    """An edit as a change to type."""
    return ByHand(in_words(edit), edit.file, edit.start[0], edit)


def in_words(edit: Edit) -> str:
    """What to type for an edit: train.py:12: replace `torch.bfloat16` with `torch.float16`."""
    at = short(edit.file, edit.start[0])
    if edit.after in ("", "pass"):
        return f"{at}: remove `{edit.before.strip()}`"
    if not edit.before:
        return f"after the statement ({at}): add `{edit.after.strip()}`"
    return f"{at}: replace `{edit.before}` with `{edit.after}`"


def given_first(text: ProgramText, place: Place) -> str:
    """The first argument of the call at a place, where that is a plain name."""
    own = own_call(text, place)
    return (dotted(own[1].args[0]) or "") if own is not None and own[1].args else ""


# ---------------------------------------------------------------- gradients that are clipped


def clipped_in_float32(text: ProgramText, place: Place) -> Edit | None:
    """The edit by which ``clip_grad_norm_(parameters, most)`` scales by a norm of float32 copies of the gradients.

    None for another call, where its result is used, and where its parameters may be an iterator that is read once.
    """
    own = own_call(text, place)
    if own is None or last_part(own[1].func) != "clip_grad_norm_":
        return None
    file, call = own
    name = file.segment(call.func)
    plain = len(call.args) == 2 and not call.keywords and isinstance(file.parents.get(call), ast.Expr) and "." in name
    if not plain or not isinstance(call.args[0], ast.Call):
        return None
    given, most = map(file.segment, call.args)
    home = name.rpartition(".")[0]
    norm = f"{home}.get_total_norm([p.grad.float() for p in {given} if p.grad is not None])"
    after = f"{home}.clip_grads_with_norm_({given}, {most}, {norm})"
    return file.replaced(call, after)
