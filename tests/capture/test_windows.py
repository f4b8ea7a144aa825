"""A trace that stays on: between watched steps nothing is installed, and a refusal there is still diagnosed."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
import warm
from conftest import installed
from torch import nn
from torch.overrides import TorchFunctionMode

import dtypetrace
from dtypetrace.__main__ import _run_command
from dtypetrace.capture.windows import Windows
from dtypetrace.errors import UsageError
from dtypetrace.tracing import Trace

BETWEEN = {"_global_optimizer_post_hooks", "an open trace"}
"""What a trace that is detached leaves: its count of the steps, and the knowledge that it is open."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.outward(nn.functional.dropout(torch.relu(self.inward(x)), 0.1, True))


def train(steps, each=lambda number, x: x, between=lambda number: None, model=None):
    """Trains; ``each`` changes the batch of a step, ``between`` is called before each step."""
    torch.manual_seed(0)
    model = model or Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = torch.randn(8, 8)
    for number in range(1, steps + 1):
        between(number)
        x = each(number, data[number % 4 :])
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()]


def watched_steps(trace, between):
    """The steps at whose beginning more than the counter was installed."""
    found = []

    def look(number):
        between(number)
        here = set(installed())
        assert here >= {"an open trace"}
        if trace.is_attached:
            assert here - BETWEEN
            found.append(number)
        else:
            assert here == BETWEEN

    return found, look


@pytest.mark.parametrize("numerics", [False, True])
def test_between_watched_steps_nothing_is_installed_and_the_weights_are_the_same(numerics):
    with dtypetrace.trace(precision="values" if numerics else "off", every=5) as t:
        model = Net()

        def no_reference(number):
            if not t.is_attached:
                assert not [p for p in model.parameters() if weakref.getweakrefs(p)]

        found, look = watched_steps(t, no_reference)
        torch.manual_seed(0)
        model = Net()
        same = train(14, between=look, model=model)
    torch.manual_seed(0)
    plain = train(14, model=Net())
    assert found == [1, 2, 3, 5, 10]
    assert all(map(torch.equal, plain, same))
    assert t.recording.meta["steps"] == 5
    assert any(line.startswith("9 of 14 steps") for line in t.recording.not_seen)


def test_what_a_watched_step_shows_is_found_with_the_birth_of_what_older_steps_knew():
    table = torch.ones(8, dtype=torch.float64)
    with dtypetrace.trace(every=10) as t:
        scale = torch.full((8,), 2.0, dtype=torch.float64)
        scale.sum()
        seen = []

        def widen(number, x):
            if number == 10:
                seen.append((x * scale).dtype)
                seen.append((x * table).dtype)
            return x

        train(11, widen)
    assert seen == [torch.float64] * 2
    by_line = {f.culprit.origin.line: f for f in t.findings if f.code == "DT201"}
    assert by_line, t.findings
    events = [e for e in t.recording.events if e.how == "promotion"]
    roots = [t.recording.events[e.parents[0]] for e in events]
    assert {(r.how, r.op) for r in roots} == {("factory", "full"), ("input", "an unwatched step")}


def test_a_refusal_in_a_step_that_was_not_watched():
    line = train.__code__.co_firstlineno
    with pytest.raises(RuntimeError) as raised, dtypetrace.trace(every=5) as t:
        train(9, lambda number, x: x.double() if number == 7 else x)
    (finding,) = t.findings
    assert (finding.code, finding.op, finding.phase, finding.module) == ("DT101", "linear", "forward", "model.inward")
    assert finding.culprit.dtype == "float64" and finding.culprit.origin.kind == "input"
    weight = next(o for o in finding.operands if o.dtype == "float32")
    assert (weight.name, weight.holder, weight.origin.kind) == ("inward.weight", "parameter", "parameter")
    assert 0 < weight.origin.line - line < 5  # where the whole model was made: the first steps saw that
    assert any(n.startswith("step 7 was not watched: its operands are those that the traceback") for n in finding.notes)
    assert "in a step that was not watched" in " ".join(repr(t).replace("|", " ").split())
    assert any("not watched" in note for note in raised.value.__notes__)
    assert "4 of 6 steps" not in repr(t) and "2 of 6 steps: the first 3 were watched" in repr(t)


def test_a_line_that_never_ran_while_watched():
    with pytest.raises(RuntimeError), dtypetrace.trace(every=50) as t:

        def broken(number, x):
            if number == 8:
                torch.mm(x, torch.ones(8, 8, dtype=torch.bfloat16))
            return x

        train(9, broken)
    (finding,) = t.findings
    assert finding.severity == "error" and finding.phase == "other"
    assert any(n.endswith("in watched steps this line did not run") for n in finding.notes)


class Board:
    def __init__(self):
        self.hits = torch.zeros(3, dtype=torch.int64)
        self.kept = {"hits": [self.hits]}

    def of_attribute(self, other):
        return self.hits.mean()

    def of_entry(self, other):
        return torch.mean(self.kept["hits"][0])


@pytest.mark.parametrize("report", [Board.of_attribute, Board.of_entry])
def test_an_attribute_that_is_refused_in_a_step_that_was_not_watched(report):
    """What the refused expression reads is meant, and not another tensor of that dtype which the frame holds."""
    with pytest.raises(RuntimeError), dtypetrace.trace(every=50) as t:
        board = Board()
        train(8, lambda number, x: report(board, torch.arange(3)) if number == 8 else x)
    (finding,) = t.findings
    assert finding.culprit.origin.place.stack[0].line == Board.__init__.__code__.co_firstlineno + 1


PROGRAM = """
import torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(1, 20):
    x = torch.ones(2, 4)
    if step == 12:
        x = x.half()
    net(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_command_line(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = warm.run(["-m", "dtypetrace", "run", "--every", "10", "train.py"], tmp_path)
    assert done.returncode == 1
    assert "step 12 was not watched" in done.stderr and "train.py:9" in done.stderr
    assert "not seen: 7 of 11 steps: the first 3 were watched, then one in 10" in done.stderr


def test_each_step_from_one_on():
    with Trace(watch_every=1, start=7) as t:
        found, look = watched_steps(t, lambda number: None)
        train(10, between=look)
    assert found == [1, 7, 8, 9, 10]
    assert "not seen: 5 of 10 steps: the first was watched, then each from 7 on" in repr(t)


@pytest.mark.parametrize(
    "words", ["0", "-1", "foo", "1:0", "1:", ":4", "1:x", "5 --autofix", "5 --precision reference", "5 --dry-run"]
)
def test_one_line_for_what_makes_no_sense(words):
    with pytest.raises(UsageError, match=r"^--every [^\n]+$"):
        _run_command(["run", "--every", *words.split(), "train.py"])


@pytest.mark.parametrize("bad", [0, -1, True, 2.5, "200"])
def test_what_is_no_number_of_steps(bad):
    with pytest.raises(ValueError, match="every needs a whole number"):
        dtypetrace.trace(every=bad)


@pytest.mark.parametrize("other", ["autofix", "reference"])
def test_what_needs_every_step(other):
    with pytest.raises(ValueError, match=f"every leaves steps unwatched, and {other}"):
        dtypetrace.trace(every=5, autofix=other == "autofix", precision="reference" if other == "reference" else "off")


def test_a_watched_step_has_the_steps_of_all_optimizers():
    models = {name: nn.Linear(4, 4) for name in ("critic", "maker")}
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models.values()]
    ran = []
    with dtypetrace.trace(every=6) as t:
        for _ in range(13):
            for model, optimizer in zip(models.values(), optimizers):
                model(torch.ones(1, 4)).sum().backward()
                optimizer.step()
                ran.append(t.is_attached)
    # the first optimizer sets the pace: a window goes from the end of one of its steps to the end of its next
    attached = [i for i, on in enumerate(ran) if on]
    assert attached == [0, 1, 8, 9, 20, 21]


def test_batches_that_are_added_up_belong_to_one_step():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    on = []
    with dtypetrace.trace(every=5) as t:
        for batch in range(1, 25):
            on.append(t.is_attached)
            model(torch.ones(1, 4)).sum().backward()
            if batch % 4 == 0:
                optimizer.step()
    assert [i // 4 + 1 for i, was in enumerate(on) if was] == [1] * 4 + [2] * 4 + [3] * 4 + [5] * 4


def test_modes_of_the_program_keep_their_order():
    class Mine(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    mine = Mine()
    stacks = []

    def look(number):
        stacks.append(torch._C._len_torch_function_stack())
        assert torch._C._get_function_stack_at(stacks[-1] - 1) is mine

    with dtypetrace.trace(every=5):
        with mine:
            train(11, between=look)
        assert torch._C._len_torch_function_stack() == 0
        train(4)
    assert stacks == [2, 2, 2, 1, 2, 1, 1, 1, 1, 2, 1]


def test_an_optimizer_that_steps_inside_the_backward_pass():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.bias.register_post_accumulate_grad_hook(lambda p: optimizer.step())
    with dtypetrace.trace(every=5) as t:
        for _ in range(9):
            model(torch.ones(1, 4)).sum().backward()
        assert set(installed()) == BETWEEN
    assert any("inside a backward pass" in line for line in t.recording.not_seen)


def test_steps_of_other_threads_do_not_count():
    with dtypetrace.trace(every=5) as t:
        train(3)
        other = threading.Thread(target=train, args=(20,))
        other.start()
        other.join()
        assert set(installed()) == BETWEEN and t.windows.rounds == 3
        found, look = watched_steps(t, lambda number: None)
        train(2, between=look)
    assert found == [2]


def test_memory_is_flat_over_many_watched_steps():
    def growth() -> int:
        counts = []

        def count(number):
            if number in (40, 80):
                gc.collect()
                counts.append((len(gc.get_objects()), len(t.recording.events), len(t.recording.ops)))

        with dtypetrace.trace(precision="values", every=3) as t:
            train(81, between=count)
        assert counts[0][1:] == counts[1][1:]
        return counts[1][0] - counts[0][0]

    # others of the process (the threads of xdist) may make objects meanwhile; what a trace keeps grows in each trace
    assert any(growth() <= 8 for _ in range(4))


def test_a_look_at_a_trace_that_is_detached_leaves_no_reference():
    with dtypetrace.trace(every=50) as t:
        model = Net()
        train(5, model=model)
        assert not t.is_attached
        assert t.findings == () and "inward.weight" in str(t.why("model.inward"))
        assert "float32" in str(t.why(model.inward.weight))
        assert not [p for p in model.parameters() if weakref.getweakrefs(p)]


def test_the_first_optimizer_sets_the_pace_until_it_is_abandoned():
    class Some:
        pass

    first, second = Some(), Some()
    windows = Windows(1, 10, lambda: None)
    windows.attach = windows.detach = lambda: None
    for optimizer in (first, second, second, first, second, second, second, second, first):
        windows.step_ended(optimizer)
    assert windows.rounds == 3
    for _ in range(12):
        windows.step_ended(second)
    assert windows.rounds == 5  # another training has begun
    del second
    windows.step_ended(first)
    assert windows.rounds == 6


def test_an_optimizer_for_each_weight_makes_no_more_steps():
    class Some:
        pass

    windows, each = Windows(1, 10, lambda: None), [Some() for _ in range(100)]
    windows.attach = windows.detach = lambda: None
    for _ in range(20):
        for optimizer in each:
            windows.step_ended(optimizer)
    assert 20 <= windows.rounds <= 25
