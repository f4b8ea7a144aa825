"""A trace that sleeps while nothing is new: what wakes it, what is left on while it sleeps, what it says."""

from __future__ import annotations

import copy
import linecache
import pickle
import signal
import sys
import threading

import pytest
import torch
import validated
from conftest import installed
from torch import nn

import dtypetrace
from dtypetrace.capture import threads
from dtypetrace.capture.novelty import Novelty, _stack

FIRST = list(range(1, 13))
"""Steps that are watched first."""
CALLS = "_global_forward_pre_hooks"
ASLEEP = {
    "an open trace",
    CALLS,
    "_global_optimizer_post_hooks",
    "_global_parameter_registration_hooks",
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
    "_has_any_global_hook",
    "torch._C._set_default_dtype",
    "torch._C._log_api_usage_once",
}
"""Of what ``installed`` looks at, what a trace that sleeps leaves on between calls of modules."""


def made():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    return net, torch.optim.SGD(net.parameters(), lr=1e-5)


def train(steps, before=lambda s, net: None, batch=lambda s: torch.ones(4, 8), after=lambda s, net: None, trace=None):
    """Trains; returns the steps that began watched, and those in which something woke the trace."""
    net, optimizer = made()
    on, woke = [], []
    for step in range(1, steps + 1):
        began = trace is None or trace.is_attached
        before(step, net)
        net(batch(step)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        after(step, net)
        if began:
            on.append(step)
        elif trace.is_attached and trace.windows.novelty.spans[-1].first <= step:
            woke.append(step)
    return on, woke, [p.detach() for p in net.parameters()]


def watch(**given):
    return dtypetrace.trace(every="new", precision="values", **given)


def test_it_sleeps_when_nothing_is_new_and_wakes_rarer_and_rarer():
    with watch() as t:
        on, woke, weights = train(600, trace=t)
    assert on == [*FIRST, 17, 33, 65, 129, 257, 513] and woke == []
    assert t.recording.meta["watched"] == "18 of 600 steps: 1-12, 17, 33, 65, 129, 257, 513"
    validated.check(t.recording, t.findings)
    assert "no dtype problem found in 600 steps, 18 of them watched" in repr(t)
    assert all(map(torch.equal, weights, train(600)[2]))


def test_a_short_script_is_watched_as_a_whole():
    with watch() as t:
        train(12, trace=t)
    assert "watched" not in t.recording.meta and t.windows.watched == 12


@pytest.mark.parametrize("given, watched", [(None, [1, 2, 3, 4, 257, 513, 1025, 2049]), (9, [*range(1, 10), 2049])])
def test_a_model_of_many_ops_is_watched_in_one_of_200_steps(given, watched):
    novelty, awake, on = Novelty(given), True, []
    novelty.calls = lambda: 4000 * len(on)
    for step in range(1, 2200):
        on += [step] * awake
        awake = novelty.wanted(step + 1, awake)
    assert on == watched


def validation(step, net):
    if step % 20 == 0:
        net.eval()
        with torch.no_grad():
            for _ in range(12):
                net(torch.ones(2, 8))
        net.train()


def test_the_first_validation_wakes_it_the_second_does_not():
    with watch() as t:
        train(100, after=validation, trace=t)
    assert "21 (a model that is evaluated)" in t.recording.meta["watched"]
    assert t.recording.meta["watched"].count("(") == 2  # of its 12 calls the ninth is looked at again
    evaluated = [o for o in t.recording.ops if o.op == "linear" and o.shape[0] == 2]
    assert evaluated and sum(o.count for o in evaluated) < 20  # it sleeps again during the validation


@pytest.mark.parametrize(
    "size, why", [(1e4, "a gradient that left its range"), (float("inf"), "a gradient that is not finite")]
)
def test_a_gradient_that_leaves_its_range_wakes_it(size, why):
    with watch() as t:
        train(60, batch=lambda s: torch.full((4, 8), 1.0 if s < 40 else size), trace=t)
    assert f"41-43 ({why})" in t.recording.meta["watched"]
    assert t.recording.meta["watched"].count("(") == 1


def test_a_loader_that_ends_wakes_it_the_first_time():
    def evaluate(step, net):
        if step in (30, 50):
            attached.append(t.is_attached)
            attached.extend(t.is_attached for _ in loader)
            attached.append(t.is_attached)

    loader, attached = torch.utils.data.DataLoader([1, 2]), []
    iterates = vars(torch.utils.data.dataloader._BaseDataLoaderIter)["__next__"]
    with watch() as t:
        train(60, evaluate, trace=t)
    assert attached == [False, False, False, True] + 4 * [False]
    assert vars(torch.utils.data.dataloader._BaseDataLoaderIter)["__next__"] is iterates


def test_a_loop_of_calls_is_looked_at_rarer_and_rarer_the_same_loop_again_is_not():
    def sample(step, net):
        if step in (30, 60):
            looked = []
            with torch.no_grad():
                for call in range(1, 141):
                    net(torch.ones(2, 8))
                    looked += [call] * t.is_attached
            found.append(looked)

    found = []
    with watch() as t:
        train(70, sample, trace=t)
    assert found == [[*range(1, 50), 65, 66, 129, 130], []]


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.half().float(),
        lambda net: net.load_state_dict(net.state_dict()),
        lambda net: nn.Linear(2, 2),
        lambda net: torch.optim.Adam(net.parameters()),
        lambda net: torch.utils.data.DataLoader([1, 2]),
        lambda net: torch.set_default_dtype(torch.float32),
        lambda net: net.append(nn.Identity()),
        lambda net: net.eval(),
        lambda net: net.register_forward_hook(lambda *_: None),
        lambda net: torch.amp.GradScaler("cpu"),
        lambda net: torch.load(__import__("io").BytesIO(saved())),
    ],
)
def test_what_changes_models_or_dtypes_wakes_it(change):
    with watch() as t:
        _, woke, _ = train(40, lambda s, net: change(net) if s == 35 else None, trace=t)
    assert woke == [35]


def test_steps_from_other_lines_wake_it_where_no_module_is_called():
    weight = torch.ones(4, requires_grad=True)
    optimizer, on = torch.optim.SGD([weight], lr=1e-5), []

    def fit(number):
        on.extend([number] * t.is_attached)
        weight.square().sum().backward()
        optimizer.step()

    with watch() as t:
        for number in range(1, 40):
            fit(number)
        for number in range(40, 60):
            fit(number)
    assert on == [*FIRST, 17, 33, 41, 42, 43, 44, 50, 58]
    assert "41-44 (steps from other lines)" in t.recording.meta["watched"]


def saved():
    import io

    torch.save({"a": torch.ones(2)}, file := io.BytesIO())
    return file.getvalue()


@pytest.mark.parametrize(
    "batch",
    [
        lambda s: torch.ones(3 if s == 35 else 4, 8),  # a last short batch
        lambda s: torch.ones(4, 8, requires_grad=s == 35),
    ],
)
def test_a_call_with_other_arguments_wakes_it(batch):
    with watch() as t:
        _, woke, _ = train(40, batch=batch, trace=t)
    assert woke == [35]


def test_a_parameter_whose_dtype_the_program_assigned_wakes_it():
    def widen(step, net):
        if step == 35:
            for p in net.parameters():
                p.data = p.data.double().float()
                p.requires_grad_(step != 35 or p.dim() > 1)

    with watch() as t:
        _, woke, _ = train(40, widen, trace=t)
    assert woke == [35]


def test_sizes_that_always_vary_wake_nothing():
    with watch() as t:
        on, woke, _ = train(200, batch=lambda s: torch.ones(1 + s % 7, 8), trace=t)
    assert on == [*FIRST, 17, 33, 65, 129] and not woke


def test_a_program_whose_steps_all_differ_is_not_watched_for_ever(monkeypatch):
    monkeypatch.setattr("dtypetrace.capture.novelty._MOST_PLACES", 40)

    def each(step, net):
        exec(compile("net(x)", f"<{step}>", "exec"), {"net": net, "x": torch.ones(1, 8)})

    with watch() as t:
        on, _, _ = train(140, each, trace=t)
    assert 12 < len(on) < 100 and max(on) > 120


def test_inside_a_call_and_after_it_the_program_finds_its_own_hooks():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 1)
            self.found = []

        def forward(self, x):
            if not t.is_attached:
                self.found.append((len(self._forward_hooks), set(installed())))
                assert not torch.nn.modules.module._global_forward_pre_hooks
                copied = copy.deepcopy(self._modules["inner"]), pickle.loads(pickle.dumps(self._forward_hooks))
                assert not copied[1] and type(copied[1]).__name__ == "OrderedDict"
            return self.inner(x)

    with watch() as t:
        net = Looks()
        own = net._forward_hooks
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
        for _ in range(20):
            net(torch.ones(1, 8)).sum().backward()
            optimizer.step()
            assert net._forward_hooks is own
            assert t.is_attached or set(installed()) == ASLEEP
    assert net.found == [(0, ASLEEP - {CALLS})] * len(net.found) != []


def test_the_fused_path_of_an_encoder_is_taken_as_alone():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()
    net, optimizer = made()
    with torch.no_grad():
        alone = encoder(torch.ones(1, 3, 8))
    with watch() as t:
        for step in range(40):
            with torch.no_grad():
                same = encoder(torch.ones(1, 3, 8))
                direct = encoder.layers[0](torch.ones(1, 3, 8))
            assert t.is_attached or torch.equal(same, alone) and torch.equal(direct, alone)
            net(torch.ones(4, 8)).sum().backward()
            optimizer.step()


def test_a_hook_that_a_sleeping_module_gives_itself_can_be_removed():
    class Hooked(nn.Linear):
        def forward(self, x):
            if step == 20:
                self.handle = self.register_forward_hook(lambda *_: heard.append(step))
            return super().forward(x)

    net, heard = Hooked(8, 1), []
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
    with watch():
        for step in range(26):
            net(torch.ones(1, 8)).sum().backward()
            optimizer.step()
            if step == 22:
                net.handle.remove()
    assert heard[-2:] == [21, 22] and not net._forward_hooks


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_in_a_sleeping_call_leaves_nothing(error):
    class Raises(nn.Linear):
        def forward(self, x):
            if x.shape[0] == 9:
                raise error
            return super().forward(x)

    net = Raises(8, 1)
    own = net._forward_hooks
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
    with watch() as t:
        for step in range(60):
            try:
                net(torch.ones(1 + step % 3 if step != 50 else 9, 8)).sum().backward()
            except error:
                assert not t.is_attached
            optimizer.step()
            assert net._forward_hooks is own
    with pytest.raises(error), watch():
        for step in range(60):
            net(torch.ones(1 + step % 3 if step != 50 else 9, 8)).sum().backward()
            optimizer.step()
    assert net._forward_hooks is own


def test_other_threads_do_not_wake_it_and_find_their_own_hooks():
    with watch() as t:
        train(20, trace=t)
        assert not t.is_attached
        before = t.windows.rounds
        other = threading.Thread(target=lambda: train(5, lambda s, net: net.double().float()))
        other.start()
        other.join()
        assert not t.is_attached and t.windows.rounds == before


def test_random_numbers_are_the_same():
    def noise(step):
        return torch.randn(4 if step != 33 else 2, 8)

    def run(trace=None):
        weights = train(50, batch=noise, after=validation, trace=trace)[2]
        return [*weights, torch.randn(3)]

    alone = run()
    with watch() as t:
        watched = run(t)
    assert all(map(torch.equal, alone, watched))


def test_a_birth_that_only_later_steps_show_is_named():
    def widened(step):
        x = torch.ones(4, 8)
        return x.double() if step >= 35 else x

    with pytest.raises(RuntimeError), watch() as t:
        train(40, batch=widened, trace=t)
    (finding,) = [f for f in t.findings if f.severity == "error"]
    assert finding.site.user_frame.function == "train" and finding.culprit.dtype == "float64"


def test_what_is_kept_is_bounded():
    novelty = Novelty()
    net = nn.Linear(1, 1)
    frame = __import__("sys")._getframe()
    for number in range(2000):
        novelty.called(net, (torch.ones(1), {f"key{number}": 1}), {}, frame)
    assert sum(len(line.seen) for line in novelty._known.values()) <= 8


def interrupted_at(line, net, once=()):
    """Trains asleep, with a wake, and raises SIGINT as that line of the look-out is about to run. once: files of which
    each line counts the first time only."""
    count, entered, counted = 0, {}, set()

    def ends_a_block(frame):
        """Python names the line of a ``with`` again before it calls ``__exit__``; no signal is handled there."""
        if not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            return False
        lines = entered.setdefault(frame, set())
        again = frame.f_lineno in lines
        lines.symmetric_difference_update({frame.f_lineno})
        return again

    def trace_lines(frame, event, arg):
        nonlocal count
        if not frame.f_code.co_filename.endswith(
            ("asleep.py", "novelty.py", "windows.py", "gradient_range.py", "global_hooks.py")
        ):
            return None if event == "call" else trace_lines
        here = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and not ends_a_block(frame) and (not once or here[0].endswith(once) and here not in counted):
            counted.add(here)
            count += 1
            if count == line:
                signal.raise_signal(signal.SIGINT)
        return trace_lines

    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
    with watch():
        for step in range(1, 19):
            if step == 11:
                sys.settrace(trace_lines)
            net(torch.ones(4 if step != 15 else 3, 8)).sum().backward()
            optimizer.step()
        sys.settrace(None)
    return count


@pytest.mark.parametrize("once, least", [((), 30), (("asleep.py", "global_hooks.py"), 80)])
def test_an_interrupt_while_it_wakes_or_falls_asleep_leaves_nothing(once, least):
    net, _ = made()
    own, lines = net._forward_hooks, interrupted_at(-1, net, once)
    interrupted = 0
    for line in range(1, lines, 1 if once else lines // 40):
        try:
            interrupted_at(line, net, once)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(None)
        assert net._forward_hooks is own and not installed() and not threads.lock()._is_owned(), line
        assert "dtypetrace" not in str(vars(nn.Module)["_apply"].__module__)
    assert interrupted > least


def test_a_call_is_known_by_its_lines_not_by_instructions_which_python_moves():
    first, second = _stack(sys._getframe()), _stack(sys._getframe())
    assert first == second != _stack(sys._getframe())


@pytest.mark.parametrize("kind", ["module", "function", "part"])
def test_compiled_code_is_compiled_as_alone_and_a_new_call_of_it_wakes(kind):
    def run(trace=None):
        torch._dynamo.reset()
        graphs, net = [], made()[0]

        def backend(graph, inputs):
            graphs.append(len(graph.graph.nodes))
            return graph.forward

        if kind == "part":
            net[0] = torch.compile(net[0], backend=backend)
        called = {"module": net, "function": lambda x: net(x) * 2, "part": net}[kind]
        called = torch.compile(called, backend=backend) if kind != "part" else called
        optimizer, woke = torch.optim.SGD(net.parameters(), lr=1e-5), []
        for step in range(1, 30):
            asleep = trace is not None and not trace.is_attached
            called(torch.ones(4 if step != 25 else 3, 8)).sum().backward()
            woke += [step] * (asleep and trace.is_attached)
            optimizer.step()
        return graphs, [p.detach() for p in net.parameters()], woke

    graphs, weights, _ = run()
    with watch() as t:
        same, watched, woke = run(t)
    torch._dynamo.reset()
    assert graphs == same and len(graphs) > 1 and woke == [25]
    assert all(map(torch.equal, weights, watched))


def test_a_slice_of_a_list_of_modules_is_looked_at_twice_not_for_each_of_them(monkeypatch):
    class Sliced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(9))

        def forward(self, x):
            for layer in self.layers[:8]:
                x = layer(x)
            return x

    net, looked = Sliced(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
    with watch() as t:
        for step in range(1, 16):
            if step == 14:
                happens = t.windows.novelty.happens
                monkeypatch.setattr(
                    t.windows.novelty,
                    "happens",
                    lambda *given, **named: looked.append(given[0]) or happens(*given, **named),
                )
            net(torch.ones(4, 8)).sum().backward()
            optimizer.step()
        assert not t.is_attached
    assert looked[:2] == ["a new module", "a new part of a model"] and looked.count("a new part of a model") == 2
