"""The parts of a training step, found in the text from the line of the optimizer's step."""

from __future__ import annotations

import pytest

from dtypetrace.records import Frame, Place
from dtypetrace.records.text import ProgramText, lines_of
from dtypetrace.source import optimizers

PROGRAM = """\
def train(network, lr):
    {before}optimizer = torch.optim.SGD({given}, lr=lr)
    for x in batches:
        loss = network(x).sum()
        {backward}
        {step}
"""


def found(
    given="network.parameters()", before="", backward="loss.backward()", step="optimizer.step()", text=PROGRAM, kind=""
):
    """The training step of a program; ``kind``: what its optimizer was seen to be given, in the line that makes it."""
    lines = lines_of(text.format(given=given, before=before, backward=backward, step=step))
    number = next(n for n, line in enumerate(lines, 1) if step in line)
    column = lines[number - 1].index(step) + 1
    frame = Frame("/p/train.py", number, "train", True, column, number, column + len(step))
    made = next(n for n, line in enumerate(lines, 1) if "optimizer = " in line)
    seen = [(Place((Frame("/p/train.py", made, "train", True),)), kind)] if kind else []
    return optimizers.training(ProgramText({"/p/train.py": lines}), Place((frame,)), seen), lines


@pytest.mark.parametrize(
    ("given", "before", "kind", "weights"),
    [
        ("network.parameters()", "", "iterator", "network.parameters()"),
        ("network.parameters()", "", "", "network.parameters()"),
        ("trained", "trained = [p for p in network.parameters()]\n    ", "tensors", "trained"),
        ("trained", "trained = collect(network)\n    ", "tensors", "trained"),
        ("trained", "trained = (p for p in network.parameters())\n    ", "iterator", "(p for p in network.parameters())"),
        ("trained", "trained = network.parameters()\n    ", "iterator", "network.parameters()"),
        ("trained", "trained = filter(lambda p: p.requires_grad, network.parameters())\n    ", "iterator",
         "filter(lambda p: p.requires_grad, network.parameters())"),
        ("params=adapter.values()", "", "tensors", "adapter.values()"),
        # what is not known to be weights is not written as if it were
        ("trained", "trained = collect(network)\n    ", "groups", ""),
        ("trained", "trained = collect(network)\n    ", "names", ""),
        ("trained", "trained = collect(network)\n    ", "", ""),
        ("network.named_parameters()", "", "names", ""),
        ("weight_decay, 0.1, (0.9, 0.95)", "", "elsewhere", ""),
    ],
)  # fmt: skip
def test_the_weights_are_written_so_that_they_can_be_read_twice(given, before, kind, weights):
    training, _ = found(given, before, kind=kind)
    assert (training.optimizer, training.weights, training.loss) == ("optimizer", weights, "loss")


@pytest.mark.parametrize("step", ["scaler.step(optimizer)", "optimizer.step()", "optimizer.step(closure)"])
def test_the_step_names_the_optimizer(step):
    training, _ = found(step=step)
    assert (training is not None and training.optimizer == "optimizer") is (step != "optimizer.step(closure)")


@pytest.mark.parametrize(
    "other",
    [
        {"before": "optimizer = None\n    "},  # assigned twice
        {"before": "pass; "},  # not alone on its line
        {"step": "trainer.advance()"},
    ],
)
def test_what_is_not_plain_is_left_alone(other):
    assert found(**other)[0] is None


def test_a_loss_that_is_passed_backward_twice_has_no_name():
    assert found(backward="loss.backward(); (2 * loss).backward()")[0].loss == ""


def test_the_line_goes_before_the_optimizer_in_its_indentation():
    training, lines = found()
    widened = optimizers.widened(training, only_trained=True)
    edit = widened.edit
    assert widened.line == "for p in network.parameters(): p.data = p.data.float() if p.requires_grad else p.data"
    row = lines[edit.start[0] - 1]
    new = row[: edit.start[1] - 1] + edit.after + row[edit.end[1] - 1 :]
    assert row[edit.start[1] - 1 : edit.end[1] - 1] == edit.before
    compile("".join([*lines[: edit.start[0] - 1], new, *lines[edit.start[0] :]]), "train.py", "exec")


def test_groups_are_widened_after_the_optimizer_is_made():
    training, lines = found("[{{'params': network.parameters()}}]")
    widened = optimizers.widened(training, only_trained=True)
    assert training.weights == "" and widened.side == "after" and "param_groups" in widened.line
    number = training.made.line
    row = lines[number - 1].rstrip("\n")
    assert row.strip() == widened.edit.before
    new = row[: widened.edit.start[1] - 1] + widened.edit.after
    compile("".join([*lines[: number - 1], new + "\n", *lines[number:]]), "train.py", "exec")


def test_there_is_no_room_for_a_line_where_a_statement_follows_on_the_same_one():
    training, _ = found(
        "[{{'params': network.parameters()}}]",
        step="optimizer.step()",
        text=PROGRAM.replace("lr=lr)", "lr=lr); print(lr)"),
    )
    assert optimizers.widened(training, only_trained=True) is None


def test_peft_is_asked_to_widen_the_adapters_itself():
    text = "model = get_peft_model(\n    base, config, autocast_adapter_dtype=False\n)\n"
    program = ProgramText({"a.py": lines_of(text)})
    edit = optimizers.adapters_widened(program, Place((Frame("a.py", 1, "f", True, 9, 3, 2),)))
    assert (
        optimizers.in_words(edit) == "a.py:2: replace `autocast_adapter_dtype=False` with `autocast_adapter_dtype=True`"
    )


def test_the_settings_of_a_scaler_and_of_autocast_that_are_to_change():
    text = 'scaler = torch.amp.GradScaler("cpu")\nwith torch.autocast("cpu", dtype=torch.float16):\n    step(scaler)\n'
    program = ProgramText({"a.py": lines_of(text)})
    region = Place((Frame("a.py", 2, "f", True, 6, 2, 48),))
    other = optimizers.computing_in(program, region, "bfloat16")
    assert optimizers.in_words(other) == "a.py:2: replace `torch.float16` with `torch.bfloat16`"
    off = optimizers.without_scaler(program, region)
    assert (off.start, off.end) == ((1, 10), (1, 37))
    assert optimizers.in_words(off) == (
        'a.py:1: replace `torch.amp.GradScaler("cpu")` with `torch.amp.GradScaler("cpu", enabled=False)`'
    )
    twice = ProgramText({"a.py": lines_of(text + text)})
    assert optimizers.without_scaler(twice, region) is None


# ---------------------------------------------------------------- a loss scaler

STEP = """\
import torch

def train(network, lr):
    optimizer = torch.optim.SGD(network.parameters(), lr=lr)
    for x in batches:
        loss = network(x).sum()
        (loss / 4).backward()
        if ready:
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
"""


def scaled(text: str) -> str:
    """The text with a loss scaler; as it was where none can be written."""
    lines = lines_of(text)
    number = next(n for n, line in enumerate(lines, 1) if "optimizer.step" in line)
    column = lines[number - 1].index("optimizer") + 1
    frame = Frame("/p/train.py", number, "train", True, column, number, len(lines[number - 1].rstrip()) + 1)
    edits = optimizers.scaled(ProgramText({"/p/train.py": lines}), Place((frame,)), "cpu")
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        line = lines[edit.start[0] - 1]
        assert edit.start[0] == edit.end[0] and line[edit.start[1] - 1 : edit.end[1] - 1] == edit.before
        lines[edit.start[0] - 1] = line[: edit.start[1] - 1] + edit.after + line[edit.end[1] - 1 :]
    return "".join(lines)


def test_a_loss_scaler_is_written_where_the_loss_is_used():
    assert (
        scaled(STEP)
        == """\
import torch

def train(network, lr):
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(network.parameters(), lr=lr)
    for x in batches:
        loss = network(x).sum()
        scaler.scale(loss / 4).backward()
        if ready:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
"""
    )


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("optimizer.step()", "optimizer.step(closure)"),
        ("optimizer.step()", "done = optimizer.step()"),
        ("for x in batches:", "for x, scaler in batches:"),
        ("import torch", "from torch import optim"),
        ("    for x", "    return optimizer\ndef go(network):\n    for x"),
    ],
)
def test_no_loss_scaler_is_written_where_the_step_is_not_plain(part, other):
    text = STEP.replace(part, other)
    assert scaled(text) == text
