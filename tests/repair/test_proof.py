"""What two runs are compared by, and in which order causes are patched: runs made by hand, without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
from recordings import RecordingBuilder

from dtypetrace.autofix import Outcome, Repair
from dtypetrace.records import Compared, Fix, Parameter, Place, Recording, Update
from dtypetrace.records.ledger import Ledger, empty
from dtypetrace.repair import steps
from dtypetrace.repair.candidates import Problem
from dtypetrace.repair.proof import evidence, finite, learns_less

NUMBERS = {"norm": 2.0, "along": 1.0}


def ran(recording: Recording | None = None, **entries) -> Outcome:
    ledger: Ledger = {**empty(), **entries}
    return Outcome(recording or Recording(), 0, None, ledger, "")


def compared(a: Outcome, b: Outcome) -> dict[str, float]:
    return {e.what.partition(" ")[2]: e.apart for e in evidence(a, b)}


def test_nothing_to_compare_is_no_evidence():
    assert evidence(ran(), ran()) == [] and evidence(ran(printed="done"), ran(printed="done")) == []


def test_a_run_without_backward_is_compared_by_what_its_modules_return():
    assert compared(ran(outputs=[NUMBERS]), ran(outputs=[NUMBERS])) == {"module output": 0.0}
    other = {"norm": 2.0, "along": 0.0}
    assert compared(ran(outputs=[NUMBERS]), ran(outputs=[other])) == {"module output": 0.5}
    broken = {"norm": math.inf, "along": math.nan}
    assert compared(ran(outputs=[NUMBERS]), ran(outputs=[broken])) == {"module output": math.inf}


def test_outputs_with_a_graph_count_where_no_backward_pass_runs():
    other = {"norm": 2.0, "along": 0.0}
    one, two = ran(graphed=[NUMBERS]), ran(graphed=[other])
    assert compared(one, two) == {"module output": 0.5}
    passes = [{"value": 1.0, "norm": 1.0}]
    assert compared(ran(graphed=[NUMBERS], passes=passes), ran(graphed=[other], passes=passes)) == {
        "backward pass (loss and gradient norm)": 0.0
    }


def test_what_a_program_holds_and_prints_counts_where_nothing_else_does():
    held = ran(variables={"x": NUMBERS, "y": NUMBERS}, printed="loss 1.50")
    other = ran(variables={"x": NUMBERS}, printed="loss 1.0")
    found = compared(held, other)
    assert found["tensor that the program holds at its end"] == 0 and found[
        "number that the program prints"
    ] == pytest.approx(1 / 3)
    assert compared(
        replace(held, ledger={**held.ledger, "outputs": [NUMBERS]}),
        replace(other, ledger={**other.ledger, "outputs": [NUMBERS]}),
    ) == {"module output": 0.0}


@pytest.mark.parametrize(
    ("dtype", "norm", "one", "other", "apart"),
    [
        ("float32", 20.0, "error 6.85e-07", "error 7.75e-07", None),
        ("float32", 20.0, "error 6.85e-07 of 0.10", "error 0 of 0.20", 0.5),
        ("float32", 20.0, "error 6.85e-07", "error 7.75e-02", 1.0),
        ("float32", 1e6, "loss 4.0e-03", "loss 3.0e-03", 0.25),
        ("float32", 1e-3, "gain 4.0e-07", "gain 3.0e-07", 0.25),
        ("float64", 20.0, "error 4.0e-07", "error 3.0e-07", 0.25),
        ("float64", 20.0, "error 4.4e-16", "error 2.2e-16", None),
        ("bfloat16", 20.0, "loss 4.0e-03", "loss 3.0e-03", 0.25),
        (None, None, "smallest 1.4e-11, split 1.00", "smallest 2.2e-16, split 1.00", 0.0),
        (None, None, "smallest 1.4e-11, split 1.00", "smallest 2.2e-16, split 0.50", 0.5),
        (None, None, "gain 4.0e-07 after 10", "gain 3.0e-07 after 10", 0.25),
    ],
)
def test_printed_numbers_that_are_rounding_alone_say_nothing(dtype, norm, one, other, apart):
    b = RecordingBuilder()
    b.ran("mm", b.made(dtype or "float32"))
    held = {"x": {"norm": norm, "along": 1.0}} if norm is not None else {}
    found = compared(ran(b.recording, variables=held, printed=one), ran(b.recording, variables=held, printed=other))
    printed = [share for what, share in found.items() if "prints" in what]
    assert printed == ([] if apart is None else [pytest.approx(apart, rel=1e-3)])
    assert found.get("tensor that the program holds at its end", 0) == 0


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("mean 0.1234", "mean 0.1235", 0.0),
        ("mean 0.10", "mean 0.20", 0.5),
        ("tensor([1.5, nan])", "tensor([1.5, nan])", 0.0),
        ("ids [3, 7]", "ids [3, 8]", 0.125),
        ("tensor(2., dtype=torch.float16)", "tensor(2., dtype=torch.bfloat16)", 0.0),
        ("x 1 is bad", "x 1 is good", math.inf),
        ("layer2 has 3e-05", "layer2 has 4e-05", 0.0),
    ],
)  # fmt: skip
def test_printed_numbers(one, other, apart):
    assert next(iter(compared(ran(printed=one), ran(printed=other)).values())) == pytest.approx(apart)


UPDATE = Update(
    name="w", dtype="float32", shape=(4, 4), event=-1, place=0, optimizer="SGD", steps=3, lr=0.1, eps=None, gradient_dtype="float32", gradient_event=-1,
    absent=0, zero=0, broken_gradient=0, gradient_peak=1.0, subnormal=0.0, reached=16, moved=16, written=True, broken=0, magnitude=1.0, change=1e-2,
)  # fmt: skip


def trained(**changes) -> Recording:
    return Recording(updates=(replace(UPDATE, **changes),))


def test_the_optimizers_steps_are_compared_by_what_they_did_to_the_weights():
    def apart(a, b):
        return max(compared(ran(a), ran(b)).values())

    assert apart(trained(), trained()) == 0
    assert apart(trained(), trained(change=0.0)) == 1.0
    assert apart(trained(), trained(change=5e-3)) == 0.5
    assert apart(trained(change=1e-3), trained(dtype="bfloat16", change=0.0)) == 0, "one rounding of bfloat16"
    assert evidence(ran(trained(steps=0)), ran(trained())) == []
    runs = Recording(updates=tuple(replace(UPDATE, change=c) for c in (1e-2, 2e-2, 3e-2)))
    assert apart(runs, runs) == 0, "models of one kind, trained one after the other"


def test_weights_that_learn_less_are_named():
    assert learns_less(trained(), trained(moved=7)) == ["w"]
    assert learns_less(trained(), trained(moved=9)) == []
    assert learns_less(trained(reached=4, moved=4), trained(reached=4, moved=1)) == [], "too few to say"


def test_values_that_are_not_finite_count_as_none():
    assert finite(ran(outputs=[NUMBERS], passes=[{"value": 1.0, "norm": None}])) == 2
    assert finite(ran(outputs=[NUMBERS], passes=[{"value": math.nan, "norm": None}])) == 0


def in_higher_precision(arrived: float) -> Compared:
    return Compared(
        name="w", what="update", dtype="float32", shape=(4, 4), place=0, event=0, op=-1, steps=4, zero=0, size=1e-3, error=1 - arrived,
        arrived=arrived, lost=1 - arrived, flushed=1 - arrived, spoiled=0,
    )  # fmt: skip


def test_how_much_of_the_steps_arrives_is_said():
    moved = replace(trained(), compared=(in_higher_precision(0.97),))
    assert steps.said(moved) == "the updates of 1 weight in 4 steps are 97% as large as in higher precision"
    assert "in the first 4 steps are" in steps.said(replace(moved, meta={"steps": 9}))
    twice = replace(moved, compared=moved.compared * 2)
    assert steps.said(twice).startswith("the updates of 2 weights in 4 steps are, in the median, 97%"), (
        "two modules that are called by themselves share names"
    )
    assert steps.said(Recording()) == "" == steps.said(trained()), "nothing in 16 bits"
    b = RecordingBuilder()
    b.ran("linear", b.made("float16"))
    assert "was not compared" in steps.said(replace(b.recording, updates=(UPDATE,)))


def test_what_a_program_loses_itself_is_not_the_patchs():
    lost, whole = (replace(trained(), compared=(in_higher_precision(a),)) for a in (0.0, 1.0))
    assert list(steps.lost_since(lost, whole)) == ["w"]
    assert steps.lost_since(lost, lost) == {} == steps.lost_since(whole, lost)
    narrow = Recording(parameters=(Parameter("w", "bfloat16", 16),))
    assert steps.lost_since(lost, narrow) == {}, "it took no step, and the weight is narrow without a patch"
    assert list(steps.lost_since(lost, Recording())) == ["w"]


# ---------------------------------------------------------------- the order of causes


class Sheets:
    """A patch that only knows which changes are set."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.patched_files: dict = {}

    @property
    def texts(self) -> list[str]:
        return self.now

    def set(self, changes) -> None:
        self.now = list(changes)


@dataclass
class Program:
    """A program of which each run meets the causes that the patch leaves: ``meets`` says which, by what is patched."""

    meets: dict[frozenset[str], tuple[str, ...]]
    patches: list[frozenset[str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def run(self, patch, *, shown, compare_steps) -> Outcome:
        self.patches.append(frozenset(patch.now))
        b = RecordingBuilder()
        for _ in self.meets[self.patches[-1]]:
            b.refused("linear", b.made("float32"), b.made("float16"), left=False, healed=True)
        return replace(ran(b.recording), ledger={**empty(), "outputs": [NUMBERS]})


class Search(Repair):
    """A search whose causes are named, each with one candidate of that name."""

    program: Program

    def _gather(self, outcome):
        fixes = {"birth": Fix("cast", Place(), (), True, "")}
        found = [
            Problem((name,), fixes=fixes, changes={"birth": [name]})
            for name in self.program.meets[self.program.patches[-1]]
        ]
        return found

    def _maker(self, found):
        return None

    def _described(self):
        return ", ".join(p.chosen_changes[0] for p in self.problems if p.chosen)


def search(meets: dict[str, str]) -> tuple[Search, Program]:
    program = Program({frozenset(k.split()): tuple(v.split()) for k, v in meets.items()})
    made = Search(program.run, Sheets(), say=program.said.append)
    made.program = program
    made.find()
    return made, program


def test_the_first_cause_is_patched_and_judged_anew_before_a_second_is_believed():
    repair, program = search({"": "first artefact", "first": "", "first artefact": ""})
    proof = repair.prove()
    assert proof.proven and program.patches == [frozenset(), frozenset({"first"})]
    assert [p.key for p in repair.problems] == [("first",)], "the second was only met because healing went on"


def test_a_second_cause_that_remains_is_patched_too():
    repair, program = search({"": "first second", "first": "second", "first second": ""})
    assert repair.prove().proven and len(program.patches) == 3
    assert program.patches[-1] == {"first", "second"}


def test_each_run_is_named_when_it_begins():
    repair, program = search({"": "first second", "first": "second", "first second": ""})
    repair.prove()
    assert program.said == [
        "run 1: with a cast wherever torch refuses a call (the healed run)",
        "run 2: first",
        "run 3: first, second",
    ]


def test_a_search_that_fails_shows_the_patch_that_came_nearest():
    repair, program = search({"": "first second", "first": "second", "first second": "first second"})
    proof = repair.prove()
    assert not proof.proven and "the best patch, which is shown" in proof.why
    assert repair.patch.now == ["first"] and "still refused" in proof.why


def test_a_patch_that_does_not_help_is_shown_all_the_same():
    repair, program = search({"": "only", "only": "only"})
    assert not repair.prove().proven and repair.patch.now == ["only"]


def test_many_causes_need_few_runs():
    """What the program still meets once its first cause is patched is believed."""
    names = [f"cause{n}" for n in range(7)]
    meets = {" ".join(names[:n]): " ".join(names[n:]) for n in (0, 1, 7)}
    repair, program = search(meets)
    assert repair.prove().proven and [len(p) for p in program.patches] == [0, 1, 7]


@dataclass
class Training(Program):
    """A program that is refused until it is patched. The steps of the first candidate lose what they should change."""

    loses: frozenset[str] = frozenset({"bad"})
    compared: list[int] = field(default_factory=list)

    def run(self, patch, *, shown, compare_steps) -> Outcome:
        self.compared.append(compare_steps)
        ran = super().run(patch, shown=shown, compare_steps=compare_steps)
        share = 0.0 if self.loses & (self.patches[-1] or {"as it is"}) else 1.0
        steps = (in_higher_precision(share),) if compare_steps else ()
        return replace(ran, recording=replace(ran.recording, updates=(UPDATE,), compared=steps))


class Choice(Search):
    def _gather(self, outcome):
        problems = super()._gather(outcome)
        for problem in problems:
            problem.fixes["own lines"] = problem.fixes["birth"]
            problem.changes = {"birth": ["bad"], "own lines": ["good"]}
        return problems


def chosen(*loses: str, candidates=("bad", "good")) -> tuple[Choice, Training]:
    meets = {frozenset(): ("cause",), **{frozenset({name}): () for name in candidates}}
    program = Training(meets, loses=frozenset(loses))
    made = Choice(program.run, Sheets(), say=program.said.append)
    made.program = program
    made.find()
    for problem in made.problems:
        problem.changes = {k: v for k, v in problem.changes.items() if v[0] in candidates}
    return made, program


def test_a_patch_whose_steps_lose_what_higher_precision_keeps_is_not_the_one():
    repair, program = chosen("bad")
    proof = repair.prove()
    assert proof.proven and repair.patch.now == ["good"], proof
    assert "the updates of 1 weight in 4 steps are 100% as large as in higher precision" in proof.why
    assert program.patches == [frozenset(), {"bad"}, frozenset(), {"good"}]
    assert program.compared == [0, 4, 4, 4], "the first run is not compared"
    assert program.said[2:4] == [
        "in run 2, the steps change 1 of 1 checked weight by another amount than in higher precision. Run 1 did not check for this",
        "run 3: the healed run again, now with this check",
    ]


def test_if_it_is_the_only_one_it_is_not_proven():
    repair, _ = chosen("bad", candidates=("bad",))
    proof = repair.prove()
    assert not proof.proven
    assert (
        "change weights as they do in higher precision: w: a step would change it by 0.001, and nothing of that arrives"
        in proof.why
    )


def test_steps_that_lose_the_same_without_the_patch_are_no_reason_against_it():
    repair, program = chosen("bad", "as it is")
    proof = repair.prove()
    assert proof.proven and repair.patch.now == ["bad"]
    said = (
        "in 4 steps, 1 of 1 checked weight changes by another amount than in higher precision (in the healed run, too)"
    )
    assert said in proof.why
