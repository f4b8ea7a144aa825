"""What can be asked of a trace: why, ignored findings, ends after some steps."""

import textwrap

import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace.capture import threads
from dtypetrace.tracing import Trace


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.outer = nn.Linear(4, 2)

    def forward(self, x):
        return self.outer(self.inner(x).relu())


def line_of(text: str) -> int:
    """The number of this file's only line that ends with a marker comment."""
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith("# " + text))


def test_why_of_a_module_shows_its_parameters_and_its_inputs():
    with dtypetrace.trace() as t:
        head = Head().bfloat16()  # model is cast
        x = torch.ones(2, 4, dtype=torch.bfloat16)  # input is made
        head(x)
    chains = {chain.name: chain for chain in t.why("head.inner").chains}
    assert set(chains) == {"head.inner.weight", "head.inner.bias", "input of head.inner"}
    assert chains["head.inner.weight"].origin.line == line_of("model is cast")
    assert chains["input of head.inner"].origin.line == line_of("input is made")
    assert repr(t.why("inner.weight")).startswith(
        "head.inner.weight: bfloat16\n  born: cast by bfloat16(), float32 -> bfloat16"
    )


def test_why_of_a_tensor_while_the_block_is_open():
    with dtypetrace.trace() as t:
        wide = torch.ones(3)  # wide is made
        mixed = torch.ones(3).half() * wide
        (chain,) = t.why(mixed).chains
    assert chain.dtype == "float32" and chain.origin.line == line_of("wide is made")
    assert [step.how for step in chain.flow] == ["value", "promotion"]


def test_why_of_what_was_not_seen_says_so_in_one_line():
    head, unused = Head(), torch.ones(1)
    with dtypetrace.trace(head) as t:
        head(torch.ones(1, 4))
        with pytest.raises(ValueError, match="took part in nothing"):
            t.why(unused)
    with pytest.raises(ValueError, match="did you mean .*head.inner"):
        t.why("head.iner")
    with pytest.raises(ValueError, match="inside the with block"):
        t.why(torch.ones(1))


def test_why_tells_what_came_in_backward_from_an_input():
    with dtypetrace.trace() as t:
        head = Head()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (head(torch.ones(2, 4)) * torch.ones(2, 2, dtype=torch.float64)).sum()
        loss.backward()
    names = [chain.name for chain in t.why("outer").chains]
    assert names.count("input of outer") == 1 and "input of outer, backward" in names


WRONG = {
    "names and dtypes, as in": lambda t: t.what_if("bf16"),
    "names and dtypes, as in .*, got torch.float16": lambda t: t.what_if(torch.float16),
    "names and dtypes, as in .*, got {Linear": lambda t: t.what_if({nn.Linear(1, 1): torch.float32}),
    "'None' is no dtype to compute in; give one such as torch.bfloat16": lambda t: t.what_if({"inner": None}),
    "takes a name, as in .*, got int": lambda t: t.why(0),
    "takes a name, as in .*, got Linear": lambda t: t.why(nn.Linear(1, 1)),
    "between 0 and 1, such as 0.05, got 'a'": lambda t: t.precision_plan(tolerance="a"),
    "between 0 and 1, such as 0.05, got -1": lambda t: t.precision_plan(tolerance=-1),
    "no reference": lambda t: t.precision_plan(),
    "expected str, bytes or os.PathLike object, not int": lambda t: t.report(1),
    "No such file or directory: 'nowhere/r.html'": lambda t: t.report("nowhere/r.html"),
    "'nowhere/t.trace'": lambda t: t.save("nowhere/t.trace"),
    "'nowhere/t.json'": lambda t: t.to_json("nowhere/t.json"),
    "scaler.*got bool, which has no is_enabled": lambda t: dtypetrace.preflight(nn.Linear(1, 1), scaler=True),
    "'float15' is no dtype": lambda t: dtypetrace.preflight(nn.Linear(1, 1), autocast_dtype="float15"),
    "steps.*got 2.5; pass a whole number": lambda t: retrain(steps=2.5),
    "seed.*got None; pass a whole number": lambda t: retrain(seed=None),
    "scaler.*got bool; pass the GradScaler itself": lambda t: retrain(scaler=True),
    "'bad' is no dtype that autocast computes in": lambda t: retrain(autocast_dtype="bad"),
}


def retrain(**given):
    dtypetrace.retrain_lora(nn.Linear(1, 1), lambda m: m(torch.ones(1)).sum(), make_optimizer=torch.optim.SGD, **given)


def test_wrong_arguments_are_one_line_that_says_what_to_give(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with dtypetrace.trace() as t:
        Head()(torch.ones(1, 4))
    for message, ask in WRONG.items():
        with pytest.raises((TypeError, ValueError, OSError), match=message) as raised:
            ask(t)
        assert "\n" not in str(raised.value) and ".part" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_trace_that_was_never_opened_and_a_preflight_say_what_they_did_not_judge():
    assert "not judged: anything (this trace was never opened" in repr(dtypetrace.trace(Head()))
    text = repr(dtypetrace.preflight(Head(), autocast_dtype="bf16"))
    assert "not judged: values (preflight runs no step of the program)" in text and "--precision" not in text


def test_a_short_name_is_a_dtype_for_preflight():
    head = Head()
    with_name, with_dtype = (repr(dtypetrace.preflight(head, autocast_dtype=d).receipt()) for d in ("fp16", torch.half))
    assert with_name == with_dtype and "float16" in with_name


def test_a_place_and_what_holds_one_have_a_short_repr():
    with pytest.raises(RuntimeError), dtypetrace.trace() as t:
        collide()
    place = t.findings[0].site
    assert repr(place) == f"<Place test_view.py:{place.line}:{place.column}>"
    assert len(repr(t.findings[0].culprit)) < 400


def collide():
    a = torch.ones(2, 2)
    return a @ torch.ones(2, 2).half()


def test_a_code_can_be_ignored():
    for ignore, count in ((frozenset(), 1), (frozenset({"DT101"}), 0), (frozenset({"DT102"}), 1)):
        with pytest.raises(RuntimeError), Trace(ignore=ignore) as t:
            collide()
        assert len(t.findings) == count


@pytest.mark.parametrize(
    ("born", "hurts", "count"),
    [
        ("", "", 1),
        ("  # dtypetrace: ignore[DT101]", "", 0),
        ("", "# dtypetrace: ignore[DT101, DT102]", 0),
        ("", "  # dtypetrace: ignore[DT102]", 1),
    ],
)
def test_a_comment_on_the_line_ignores_a_finding(tmp_path, born, hurts, count):
    program = tmp_path / "program.py"
    program.write_text(
        f"import torch\na = torch.ones(2, 2){born}\nb = torch.ones(2, 2).half()\nc = torch.ones(2, 2).half()\na @ b @ c {hurts}\n"
    )
    with pytest.raises(RuntimeError), Trace(source=tmp_path) as t:
        exec(compile(program.read_text(), str(program), "exec"), {})
    assert len(t.findings) == count


def train(steps: int) -> int:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    done = 0
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        done += 1
    return done


def test_steps_end_the_run_with_status_zero():
    with pytest.raises(SystemExit) as ending, Trace(steps=3) as t:
        train(10)
    assert ending.value.code == 0 and t.recording.meta["steps"] == 3


def test_trace_steps_let_the_run_go_on_unwatched():
    from torch._C import _len_torch_dispatch_stack

    with Trace(trace_steps=2) as t:
        assert train(5) == 5
        assert _len_torch_dispatch_stack() == 0
    assert t.recording.meta["steps"] == 2 and {op.phase for op in t.recording.ops} >= {
        "forward",
        "backward",
        "optimizer",
    }


def test_repr_is_the_console_text():
    with dtypetrace.trace() as t:
        torch.ones(2)
    assert repr(t) == "dtypetrace: no dtype problem found (1 op)"
    with dtypetrace.trace(precision="off") as t:
        torch.ones(2)
    assert repr(t).startswith("dtypetrace: no dtype problem found (1 op)\nnot judged: values (not measured: ")
    assert textwrap.dedent(repr(t)) == repr(t)


def test_a_failure_to_read_the_exception_keeps_the_recording(monkeypatch):
    def broken(self, error):
        raise LookupError("ours")

    monkeypatch.setattr("dtypetrace.capture.recorder.Recorder.leaves", broken)
    with pytest.raises(RuntimeError, match="same dtype"), dtypetrace.trace() as t:
        nn.Linear(2, 2).half()(torch.ones(1, 2))
    assert t.recording.refused and any(
        "internal error in the exception that ended the block: LookupError: ours" in reported
        for reported in t.recording.not_seen
    )


def test_a_module_that_is_called_while_an_exception_is_handled_did_not_raise_it():
    class Keeps(nn.Module):
        def forward(self, x):
            self.kept = x

    with dtypetrace.trace() as t:
        try:
            raise ValueError("expected a and b to have the same dtype, but got torch.float32 and torch.float16")
        except ValueError:
            Keeps()(torch.ones(2))
    assert t.recording.refused == () and t.findings == ()


def test_what_cannot_be_removed_keeps_nothing_else_installed(monkeypatch):
    t = dtypetrace.trace()
    t.start()
    assert t._watch in threads.everyone()
    with monkeypatch.context() as patched:
        patched.setattr("dtypetrace.capture.patches.Patches.remove", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            t.stop()
    t._watch._patches.remove()
    assert t._watch not in threads.everyone() and not t._watch.recorder.origins.marks
    assert not torch.nn.modules.module._global_forward_hooks
    with dtypetrace.trace() as after:
        torch.ones(2)
    assert len(after.recording.ops) == 1
