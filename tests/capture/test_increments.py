"""Averages, sums and counters that are kept narrow: reported where they stand still, however they are written."""

from __future__ import annotations

import weakref

import programs
import pytest
import torch

import dtypetrace

SETUP = "kept, one, at = torch.full((8,), 256.0, dtype=torch.bfloat16), torch.ones(8, dtype=torch.bfloat16), torch.arange(8)\n"
LOOP = "for _ in range(6):\n    "
STANDS = {
    "new sum": "kept = kept + one",
    "new sum, the other way round": "kept = one + kept",
    "new difference": "kept = kept - one * 0.25",
    "with a factor of its own": "kept = torch.add(kept, one, alpha=0.5)",
    "of a number": "kept = kept + one[0]",
    "new average": "kept = 0.9999 * kept + (1 - 0.9999) * one",
    "copied": "new = 0.0001 * one + 0.9999 * kept\n    kept = new.clone()",
    "by way of a parameter": "kept = nn.Parameter(kept) if not isinstance(kept, nn.Parameter) else kept; kept.data = kept.data\n    new = kept.detach() + one\n    with torch.no_grad(): kept.copy_(new)",
    "divided": "kept = kept / torch.tensor(1.0001) + one * 0.02",
    "index_add_": "kept.index_add_(0, at, one)",
    "scatter_add_": "kept.scatter_add_(0, at, one)",
    "index_put_": "kept.index_put_((at,), one, accumulate=True)",
    "in place, gradients on": "kept.data.add_(one)",
    "a factor": "kept = kept * 0.9985",
    "a factor, written back": "kept.copy_(kept / 1.001)",
    "a factor that is a tensor": "kept = torch.mul(torch.tensor(0.9985), kept)",
    "a rate that decays": "kept.fill_(kept[0] * 0.9985)",
}
LONG = "kept = torch.zeros(8, dtype=torch.bfloat16)\nfor n in range(%d):\n    "


@pytest.mark.parametrize("how", ["kept += one * 0.3", "kept = kept + one * 0.3", "kept.data.add_(one, alpha=0.3)"])
def test_a_long_sum_whose_terms_all_arrive_but_roughly(how, tmp_path):
    """Each term changes the sum, but by a step that is up to half too long or too short; a short sum does not drift."""
    for count, codes in ((140, ["DT307"]), (8, [])):
        program = programs.run(tmp_path, SETUP + LONG % count + how, numerics=True)
        assert program.error is None and not program.trace._watch.recorder.broken
        assert [f.code for f in program.findings] == codes, program.trace


@pytest.mark.parametrize(
    "how", ["index_add_(0, at, one)", "scatter_add_(0, at, one)", "index_put_((at,), one, accumulate=True)"]
)
def test_one_place_of_many_that_stands_still(how, tmp_path):
    """Nearly all numbers arrive: those of the one place where most are added up do not."""
    text = "kept, one = torch.zeros(64, dtype=torch.bfloat16), torch.ones(5, dtype=torch.bfloat16)\nfor n in range(COUNT):\n"
    text += "    at = torch.tensor([0, 0, n % 63 + 1, (n + 7) % 63 + 1, (n + 9) % 63 + 1])\n    kept." + how
    for count, codes in ((400, ["DT307"]), (20, [])):
        program = programs.run(tmp_path, text.replace("COUNT", str(count)), numerics=True)
        assert program.error is None and not program.trace._watch.recorder.broken
        assert [f.code for f in program.findings] == codes, program.trace


def test_a_long_sum_drifts_under_a_reference_too(tmp_path):
    data = "one = torch.rand(8).bfloat16() * 0.01 + 0.3\n"
    program = programs.run(tmp_path, SETUP + data + LONG % 140 + "kept += one", numerics=True, reference=True)
    assert program.error is None and not program.recording.not_seen
    assert [f.code for f in program.findings if f.severity != "note"] == ["DT307"], program.trace


class Counted(torch.optim.Optimizer):
    """Adds one to a state in each step; made: makes the state."""

    def __init__(self, parameters, made):
        super().__init__(parameters, {})
        self.made = made

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            energy = self.state[p].setdefault("energy", self.made(p))
            energy.add_(torch.ones_like(energy, dtype=torch.float32))
            p -= 0.01 * p.grad / energy.float().mean().sqrt()


@pytest.mark.parametrize(
    "made",
    [
        lambda p: torch.ones(4, dtype=torch.bfloat16),
        lambda p: torch.ones(4, 1, dtype=torch.bfloat16),
        lambda p: torch.zeros_like(p, dtype=torch.bfloat16),
    ],
)
def test_a_state_that_stops_only_in_a_later_step_is_judged_from_then_on(made):
    """It is looked at in rarer and rarer steps, in all of the first of which the changes arrive."""
    for count, codes in ((310, ["DT307"]), (140, [])):
        model = torch.nn.Linear(8, 4, bias=False)
        optimizer = Counted(model.parameters(), made)
        with dtypetrace.trace(every="new", precision="values") as t:
            for _ in range(count):
                model(torch.ones(8)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert not t.recording.not_seen
        assert [f.code for f in t.findings if f.severity != "note"] == codes, t


STEP = """
class Lean(torch.optim.Optimizer):
    def __init__(self, parameters): super().__init__(parameters, {})
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            power = self.state[p].setdefault("power", torch.zeros_like(p, dtype=torch.bfloat16))
            power.mul_(DECAY).add_(p.grad.square().to(power.dtype), alpha=1 - DECAY)
            p -= 0.01 * p.grad / (power.float().sqrt() + 1e-3)
model = nn.Linear(8, 8)
optimizer = Lean(model.parameters())
for _ in range(6):
    model(torch.ones(8)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("decay", "weights", "codes"),
    [(0.999, "float", ["DT307"]), (0.9, "float", []), (0.999, "bfloat16", ["DT304"])],
)
def test_a_state_that_is_narrower_than_its_weights_and_never_decays(decay, weights, codes, tmp_path):
    """Where the weights are as narrow, what the steps do to them is judged instead."""
    lines = STEP.replace("DECAY", str(decay)).replace("8, 8)", f"8, 8).{weights}()")
    if weights != "float":
        lines = lines.replace("torch.ones(8)", "torch.ones(8).bfloat16()").replace("0.01 *", "1e-5 *")
    program = programs.run(tmp_path, lines, numerics=True)
    assert program.error is None and not program.trace._watch.recorder.broken
    assert [f.code for f in program.findings if f.severity != "note"] == codes, program.trace


@pytest.mark.parametrize("how", STANDS)
def test_weights_that_do_not_change_are_reported_with_the_line_of_their_dtype(how, tmp_path):
    program = programs.run(tmp_path, SETUP + LOOP + STANDS[how], numerics=True)
    assert program.error is None and not program.trace._watch.recorder.broken, (
        program.error,
        program.recording.not_seen,
    )
    assert [f.code for f in program.findings] == ["DT307"], program.trace
    assert program.findings[0].culprit.origin.place.line == 1 or "torch.full" in program.at(
        program.findings[0].culprit.origin.place
    )


MOVES = {
    "what arrives": "kept = kept + one * 4",
    "a share that arrives": "kept = 0.9 * kept + 0.1 * (one * 4)",
    "nothing to add": "kept = 0.9999 * kept + 0.0001 * kept.clone()",
    "adding nothing": "kept = kept + one * 0",
    "float32": "kept = kept.float() + one",
    "a new one each time": "fresh = kept.clone() + one",
    "indices that are added to once": "kept = torch.zeros(8, dtype=torch.bfloat16).index_add_(0, at, one)",
    "a write that adds nothing up": "kept.index_put_((at,), kept + one)",
    "a residual": "kept = kept + torch.sin(kept) * 0.1",
    "a factor that arrives": "kept = kept * 0.99",
    "a factor of one": "kept = kept * 1.0 / 1",
    "a factor of other numbers": "fresh = kept.clone() * 0.9985",
    "divided by zero": "kept = (kept / 0.0).clamp(max=256) + 4 * one",
    "a mask": "kept.index_put_((at > 3,), one[:1], accumulate=True); kept += 4 * one",
}


@pytest.mark.parametrize("how", MOVES)
def test_what_moves_or_is_not_kept_is_not_reported(how, tmp_path):
    program = programs.run(tmp_path, SETUP + LOOP + MOVES[how], numerics=True)
    assert program.error is None and not program.trace._watch.recorder.broken, (
        program.error,
        program.recording.not_seen,
    )
    assert program.findings == (), program.trace


def test_a_stream_that_gradients_flow_through_is_not_looked_at(tmp_path):
    text = SETUP + "kept.requires_grad_()\n" + LOOP + "kept = kept + one"
    assert programs.run(tmp_path, text, numerics=True).findings == ()


def test_the_values_stay_as_they_are(tmp_path):
    for how in STANDS.values():
        here = {"torch": torch, "nn": torch.nn}
        exec(SETUP + LOOP + how, here)
        assert torch.equal(programs.run(tmp_path, SETUP + LOOP + how, numerics=True).names["kept"], here["kept"])


@pytest.mark.parametrize("listed", [False, True])
def test_a_sum_that_is_followed_is_not_kept_alive(listed):
    with dtypetrace.trace(precision="values"), torch.no_grad():
        total = torch.zeros(8, dtype=torch.bfloat16)
        for _ in range(4):
            torch._foreach_add_([total], 1.0) if listed else total.add_(1.0)
        gone = weakref.ref(total)
        del total
        assert gone() is None


@pytest.mark.parametrize(
    ("momentum", "dtype", "affine", "codes"),
    [
        (0.003, "bfloat16", True, ["DT307"]), (0.003, "bfloat16", False, ["DT307"]), (0.1, "bfloat16", True, []),
        (0.003, "float32", True, []),
    ],
    ids=["too small", "too small, without weights", "large enough", "float32"],
)  # fmt: skip
def test_the_running_statistics_of_a_batch_normalisation(momentum, dtype, codes, affine, tmp_path):
    text = f"""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4, momentum={momentum}, affine={affine}).to(torch.{dtype})
    with torch.no_grad():
        for _ in range(400): norm((torch.randn(32, 4) * 0.5 + 6).to(torch.{dtype}))
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None and not program.trace._watch.recorder.broken
    found = [f for f in program.findings if f.severity != "note"]
    assert [f.code for f in found] == codes, program.trace
    assert [(f.culprit.name, f.culprit.origin.line) for f in found] == [("the running mean or variance", 2)] * len(
        codes
    )


@pytest.mark.parametrize(("bias", "codes"), [(9.0, ["DT305"]), (0.0, [])])
@pytest.mark.parametrize("gate", ["torch.tanh(x)", "1 - torch.sigmoid(x)"])
def test_gradients_that_a_saturated_function_makes_zero_in_bfloat16(bias, codes, gate, tmp_path):
    text = f"""
    torch.manual_seed(0)
    first, last = nn.Linear(4, 4).bfloat16(), nn.Linear(4, 1).bfloat16()
    nn.init.constant_(first.bias, {bias})
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.5)
    for _ in range(5):
        x = first(torch.randn(16, 4).bfloat16())
        last({gate} + 1).square().mean().backward()
        optimizer.step(); optimizer.zero_grad()
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.code == "DT305"] == codes, program.trace


@pytest.mark.parametrize(
    "how", ["net.weight.data += delta", "net.weight.add_(delta)", "net.weight.detach().add_(delta)"]
)
@pytest.mark.parametrize(("size", "codes"), [(1e-5, ["DT307"]), (0.5, [])])
def test_an_adapter_that_is_merged_into_weights_once(how, size, codes, tmp_path):
    text = f"""
    net = nn.Linear(64, 4, bias=False).bfloat16()
    delta = torch.full((4, 64), {size})
    with torch.no_grad():
        net(torch.ones(1, 64).bfloat16())
        {how}
        net(torch.ones(1, 64).bfloat16())
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None and not program.trace._watch.recorder.broken
    assert [f.code for f in program.findings if f.severity != "note"] == codes, program.trace


COUNTED = {
    "hits = torch.full((), 512.0).bfloat16()\nfor _ in range(9): hits += (one[:1] > 0).sum()": "lost-update",
    "for _ in range(40): slow.add_(1e-4 * (fast - slow))": "lost-update",
    "for _ in range(40): slow.add_(1e-4 * fast)": "downcast",
}


@pytest.mark.parametrize("text", COUNTED)
def test_a_counter_or_an_average_that_stands_still_is_no_downcast(text, tmp_path):
    """A sum of other values is: each of them was wider than the sum."""
    before = "one = torch.ones(8)\nfast, slow = torch.full((8,), 3.0), torch.ones(8).bfloat16()\n"
    program = programs.run(tmp_path, before + text, numerics=True)
    assert program.error is None
    assert [f.kind for f in program.findings if f.severity != "note"] == [COUNTED[text]], program.trace


def test_no_model_is_widened_for_a_merge(tmp_path):
    text = """
    net = nn.Linear(64, 4, bias=False).requires_grad_(False).bfloat16()
    net(torch.ones(1, 64).bfloat16())
    net.weight.data += torch.full((4, 64), 1e-5)
    net(torch.ones(1, 64).bfloat16())
    """
    fix = programs.run(tmp_path, text, numerics=True).only.fix
    assert not fix.edits and "merge into float32 weights" in fix.why


MICRO_BATCHES = """
torch.manual_seed(0)
net = nn.Linear(6, 2).to(torch.DTYPE)  # cast
for _ in range(2):
    net.zero_grad()
    for _ in range(COUNT):
        (net(torch.rand(1, 6).to(torch.DTYPE)).float().sum() * 1.5).backward()
"""


@pytest.mark.parametrize(
    ("dtype", "count", "codes"), [("bfloat16", 400, ["DT307"]), ("bfloat16", 16, []), ("float32", 400, [])]
)
def test_gradients_of_many_micro_batches(tmp_path, dtype, count, codes):
    """From some hundred micro-batches on, one more is below half a step of their sum in bfloat16."""
    text = MICRO_BATCHES.replace("DTYPE", dtype).replace("COUNT", str(count))
    program = programs.run(tmp_path, text, numerics=True)
    found = [f for f in program.findings if f.severity != "note"]
    assert [f.code for f in found] == codes, program.trace
    assert all(f.phase == "backward" and program.at(f.culprit.origin.place).endswith("# cast") for f in found)


@pytest.mark.parametrize(("dtype", "codes"), [("bfloat16", ["DT307"]), ("float32", [])])
def test_an_average_that_is_computed_anew_and_copied_back(tmp_path, dtype, codes):
    """As torch.optim.swa_utils.AveragedModel does it, through a new view of each parameter."""
    text = f"""
    from torch.optim.swa_utils import AveragedModel
    torch.manual_seed(0)
    net = nn.Linear(24, 1).to(torch.{dtype})  # cast
    average = AveragedModel(net)
    for step in range(300):
        with torch.no_grad():
            net.weight.copy_(torch.full((1, 24), 1.0 + step / 300))
        average.update_parameters(net)
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes, program.trace


SUMS = "one = torch.ones(8)\nkept = torch.full((8,), 4e7)\nfor n in range(100):\n    "
IN_FLOAT32 = {
    "in place": ("kept += one", ["DT307"]),
    "by a number": ("kept.sub_(0.7)", ["DT307"]),
    "made anew": ("kept = kept + one", ["DT307"]),
    "terms that arrive": ("kept += 64 * one", []),
    "a series that converges": ("kept += 4e7 * one * 0.5**n", []),
    "a little that keeps it from zero": ("kept.mul_(0.5).add_(1e-8).clamp_(min=1)", []),
    "made anew each time": ("kept = torch.full((8,), 4e7)\n    kept += one", []),
}


@pytest.mark.parametrize(("how", "codes"), IN_FLOAT32.values(), ids=IN_FLOAT32)
def test_sums_in_float32_that_lose_their_terms(how, codes, tmp_path):
    program = programs.run(tmp_path, SUMS + how, numerics=True)
    assert program.error is None and not program.recording.not_seen
    assert [f.code for f in program.findings if f.severity != "note"] == codes, program.trace


BY_INDEX = """
seen = torch.zeros(1 << 20, dtype=torch.long)
one = torch.ones(1 << 20)
kept = torch.zeros(3)  # made
for n in range(36):
    """
COUNTED_BY_INDEX = {
    "index_put_": ("kept.index_put_((seen,), one, accumulate=True)", ["DT307"]),
    "index_add_": ("kept.index_add_(0, seen, one)", ["DT307"]),
    "scatter_add_": ("kept = kept.scatter_add_(0, seen, one)", ["DT307"]),
    "fewer": ("kept.index_add_(0, seen[:4000], one[:4000])", []),
    "emptied": ("kept.zero_().index_add_(0, seen, one)", []),
    "nothing": ("kept.index_add_(0, seen, 0 * one)", []),
    "spread": ("kept.index_add_(0, torch.arange(1 << 20) % 3, one)", []),
    "integers": ("kept = kept.long().index_add_(0, seen, one.long())", []),
    "float64": ("kept = kept.double().index_add_(0, seen, one.double())", []),
    "the last terms of a series": ("kept.index_add_(0, seen[:1], one[:1] * 4.0**-n)\n    kept.index_add_(0, seen, 0 * one)", []),
}  # fmt: skip


@pytest.mark.parametrize(("how", "codes"), COUNTED_BY_INDEX.values(), ids=COUNTED_BY_INDEX)
def test_counts_by_index_that_stop(how, codes, tmp_path):
    program = programs.run(tmp_path, BY_INDEX + how, numerics=True)
    assert program.error is None and not program.recording.not_seen
    found = [f for f in program.findings if f.severity != "note"]
    assert [f.code for f in found] == codes, program.trace
    assert all(program.at(f.culprit.origin.place).endswith("# made") for f in found)


IN_BACKWARD = """
class Taken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, at):
        ctx.save_for_backward(at)
        ctx.size = len(table)
        return table[at]

    @staticmethod
    def backward(ctx, grad):
        at, = ctx.saved_tensors
        total = torch.zeros(ctx.size, dtype=KIND)  # made
        for n in range(len(at)):
            ADDS
        return total.to(grad.dtype), None

table = nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
Taken.apply(table, torch.arange(COUNT) % 2).sum().backward()
"""
ADDED_IN_BACKWARD = {
    "scatter_add_": "total.scatter_add_(0, at[n : n + 1], grad[n : n + 1].to(KIND))",
    "index_add_": "total.index_add_(0, at[n : n + 1], grad[n : n + 1].to(KIND))",
    "index_put_": "total.index_put_((at[n : n + 1],), grad[n : n + 1].to(KIND), accumulate=True)",
    "an item": "total[n % 2] += grad[n]",
    "a row": "total[:2] += grad[n]",
}


@pytest.mark.parametrize("how", ADDED_IN_BACKWARD.values(), ids=ADDED_IN_BACKWARD)
def test_sums_in_the_backward_of_a_hand_written_function(how, tmp_path):
    """Advice for gradients that torch's engine adds up does not apply to them."""
    for count, kind, codes in (
        (900, "torch.bfloat16", ["DT307"]),
        (40, "torch.bfloat16", []),
        (900, "torch.float32", []),
    ):
        text = IN_BACKWARD.replace("ADDS", how).replace("COUNT", str(count)).replace("KIND", kind)
        program = programs.run(tmp_path, text, numerics=True)
        assert program.error is None and not program.recording.not_seen
        found = [f for f in program.findings if f.severity != "note"]
        assert [f.code for f in found] == codes, program.trace
        for f in found:
            assert program.at(f.culprit.origin.place).endswith("# made")
            assert "gradients" not in f.title and "float32" in f.fix.why
