"""Whether weights learn, judged by what steps did to them: each mechanism with a real optimizer, and what must not be judged so."""

from __future__ import annotations

import copy
import gc
import types
import weakref

import programs
import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace.records import Compared, Recording, State, Update
from dtypetrace.rules.lost_steps import lost_steps
from dtypetrace.rules.mechanisms import MECHANISMS, compared, mechanism, of_adapter, vanishes


def trained(optimizer_of, dtype, *, steps=4, scale=1.0, start=0.25, lr_at=None, **options):
    """A trace of a few steps of one Linear layer in a dtype, all its weights near ``start``."""
    torch.manual_seed(0)
    model = nn.Linear(16, 4, bias=False)
    nn.init.uniform_(model.weight, start, 2 * start)
    model.to(dtype)
    optimizer = optimizer_of(model.parameters())
    with dtypetrace.trace(model, precision="values") as trace:
        for _ in range(steps):
            x = torch.randn(8, 16).to(dtype)
            (model(x).float().pow(2).mean() * scale).backward()
            optimizer.step()
            optimizer.zero_grad()
    return trace


def update(trace):
    (found,) = trace.recording.updates
    return found


class Untouched(torch.optim.Optimizer):
    """Returns before it writes."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1.0})

    def step(self, closure=None):
        return None


class ThroughData(torch.optim.Optimizer):
    """Writes through ``.data``, which does not raise the version counter."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"])


SGD = torch.optim.SGD
AdamW = torch.optim.AdamW


@pytest.mark.parametrize(
    ("make", "dtype", "scale", "expected"),
    [
        (lambda p: SGD(p, lr=1e-2), torch.float32, 1.0, "healthy"),
        (lambda p: SGD(p, lr=0.5), torch.bfloat16, 1.0, "healthy"),
        (lambda p: SGD(p, lr=1e-6), torch.bfloat16, 1.0, "below resolution"),
        (lambda p: SGD(p, lr=1e-7), torch.float16, 1.0, "below resolution"),
        (lambda p: AdamW(p, lr=1e-5), torch.bfloat16, 1.0, "below resolution"),
        (lambda p: AdamW(p, lr=1e-5, foreach=False), torch.bfloat16, 1.0, "below resolution"),
        (lambda p: AdamW(p, lr=1e-5, fused=True), torch.bfloat16, 1.0, "below resolution"),
        (lambda p: AdamW(p, lr=1e-4), torch.float16, 1e-4, "state underflow"),
        (lambda p: AdamW(p, lr=1e-2, foreach=False), torch.float16, 1e-4, "state underflow"),
        (lambda p: SGD(p, lr=0.0), torch.float32, 1.0, "no learning rate"),
        (lambda p: SGD(p, lr=1.0), torch.float16, 1e-9, "zero gradient"),
        (Untouched, torch.float16, 1.0, "untouched"),
        (lambda p: ThroughData(p, lr=1e-7), torch.float16, 1.0, "below resolution"),
        (lambda p: ThroughData(p, lr=1e-2), torch.float32, 1.0, "healthy"),
    ],
)
def test_the_mechanism_is_named_from_what_happened(make, dtype, scale, expected):
    renamed = lambda p: _renamed(make(p))
    assert mechanism(update(trained(make, dtype, scale=scale))).name == expected
    assert mechanism(update(trained(renamed, dtype, scale=scale))).name == expected


def _renamed(optimizer):
    optimizer.__class__ = type("Other", (type(optimizer),), {})
    return optimizer


def test_one_step_shows_nothing_of_resolution():
    found = update(trained(lambda p: SGD(p, lr=1e-7), torch.bfloat16, steps=1))
    assert mechanism(found).name == "one step"


def test_a_gradient_that_is_not_finite_is_no_lost_update():
    found = update(trained(lambda p: SGD(p, lr=1e-2), torch.float32, scale=float("inf")))
    assert (mechanism(found).name, found.broken_gradient, found.steps) == ("broken gradient", 4, 0)


def test_no_gradient_at_all():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]).half()
    optimizer = SGD(model.parameters(), lr=1.0)
    with dtypetrace.trace(model, precision="values") as trace:
        for _ in range(3):
            model[0](torch.ones(1, 2).half()).sum().backward()
            optimizer.step()
    names = {u.name: mechanism(u).name for u in trace.recording.updates}
    assert names == {"0.weight": "healthy", "0.bias": "healthy", "1.weight": "no gradient", "1.bias": "no gradient"}
    assert [(f.code, f.severity) for f in trace.findings] == [("DT305", "note")]


@pytest.mark.parametrize("number", [1e-8, 2.0**-25, 3e-8, 1e-7, 0.0, None])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_what_vanishes_is_what_torch_rounds_to_zero(number, dtype):
    rounded = torch.tensor(number or 0.0, dtype=torch.float64).to(getattr(torch, dtype)).item() == 0.0
    assert vanishes(number, dtype) == (bool(number) and rounded)


# ---------------------------------------------------------------- findings


def test_a_lost_update_names_the_birth_of_the_weights(tmp_path):
    p = programs.run(
        tmp_path,
        """
        model = nn.Linear(8, 2)
        nn.init.constant_(model.weight, 0.5)
        model.to(torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
        for _ in range(3):
            model(torch.ones(4, 8, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
        """,
        numerics=True,
    )
    f = p.only
    assert (f.code, f.kind, f.culprit.name) == ("DT304", "lost-update", "weight")
    assert f.culprit.origin.line == p.line("model.to(torch.bfloat16)") and f.site.line == p.line("optimizer.step()")
    assert any("cannot change by less than 0.002" in note for note in f.notes)


A_TIME = """
class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.when = nn.Parameter(torch.tensor({start}))
        self.level = nn.Parameter(torch.tensor(0.5))

    def forward(self, seconds):
        return torch.sigmoid((seconds - self.when - 9000) / 1200) * 3 - self.level

shift = Shift()
optimizer = torch.optim.Adam(shift.parameters(), lr={rate})
seconds = torch.arange(64, dtype=torch.float64) * 600 + {start}
for _ in range(8):
    shift(seconds).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(
    ("start", "rate", "codes"), [("1.7e9", 20.0, ["DT304"]), ("0.0", 20.0, []), ("1.7e9", 200.0, [])]
)
def test_a_wide_parameter_may_be_too_large_for_its_steps(start, rate, codes, reference, tmp_path):
    p = programs.run(tmp_path, A_TIME.format(start=start, rate=rate), numerics=True, reference=reference)
    found = [f for f in p.findings if f.code == "DT304"]
    assert [f.code for f in found] == codes
    for f in found:
        assert f.culprit.origin.line == p.line("self.when = nn") and "did not move in" in f.title
        assert not f.fix.edits and not f.fix.lines and "float64" in f.fix.why


@pytest.mark.parametrize("rate", [1e-9, 1e-8])
def test_wide_weights_rightly_stand_still_as_a_warm_up_begins(rate):
    t = trained(lambda p: torch.optim.Adam(p, lr=rate), torch.float32)
    assert not [f for f in t.findings if f.code == "DT304"]


def test_weights_that_are_all_dead_are_an_error_and_some_a_warning():
    assert trained(lambda p: SGD(p, lr=1e-7), torch.bfloat16).findings[0].severity == "error"
    torch.manual_seed(0)
    model = nn.ModuleDict({"slow": nn.Linear(4, 4, bias=False), "fast": nn.Linear(4, 4, bias=False)}).to(torch.bfloat16)
    optimizer = SGD(
        [{"params": model["slow"].parameters(), "lr": 1e-8}, {"params": model["fast"].parameters(), "lr": 1.0}]
    )
    with dtypetrace.trace(model, precision="values") as trace:
        for _ in range(3):
            x = torch.randn(8, 4).to(torch.bfloat16)
            model["fast"](model["slow"](x)).float().pow(2).mean().backward()
            optimizer.step()
    (f,) = trace.findings
    assert (f.code, f.severity, [o.name for o in f.operands]) == ("DT304", "warning", ["slow.weight"])


def test_a_lora_whose_up_matrix_stays_zero_is_reported_once(tmp_path):
    p = programs.run(
        tmp_path,
        """
        down, up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
        nn.init.zeros_(up.weight)
        lora = nn.ModuleList([down, up]).half()
        nn.init.constant_(up.weight, 0.0)
        class Nothing(torch.optim.Optimizer):
            def step(self): pass
        optimizer = Nothing(lora.parameters(), {"lr": 1.0})
        for _ in range(3):
            up(down(torch.randn(4, 8).half())).float().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
        numerics=True,
    )
    f = p.only
    assert (f.code, [o.name for o in f.operands]) == ("DT304", ["weight"])
    assert any("1 other weight gets" in note for note in f.notes)


def testgradient_dtypes_are_found_without_numerics_and_declared_ones_are_meant():
    for declared in (False, True):
        model = nn.Linear(4, 2).to(torch.bfloat16)
        if declared:
            for p in model.parameters():
                p.grad_dtype = torch.float32
        optimizer = SGD(model.parameters(), lr=1.0)
        with dtypetrace.trace(model) as trace:
            model(torch.ones(1, 4).to(torch.bfloat16)).sum().backward()
            for p in model.parameters():
                if declared:
                    p.grad = p.grad.float()
                else:
                    p.grad.data = p.grad.data.float()
            optimizer.step()
        assert [f.code for f in trace.findings] == ([] if declared else ["DT306"])


def test_fused_scaling_that_skips_steps_is_no_lost_update():
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), lr=1e-2, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    with dtypetrace.trace(model, precision="values") as trace:
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(4, 4)).float().pow(2).mean()
            scaler.scale(loss * 1e30).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert trace.findings == ()


# ---------------------------------------------------------------- harmless


def test_steps_are_the_same_to_the_bit_and_nobody_is_kept_alive():
    def run(watch):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
        optimizer = AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return copy.deepcopy((model.state_dict(), optimizer.state_dict(), torch.get_rng_state()))

    plain = run(None)
    with dtypetrace.trace(precision="values"):
        watched = run(None)
    flat = lambda t: [v for v in torch.utils._pytree.tree_leaves(t) if isinstance(v, torch.Tensor)]
    assert all(torch.equal(a, b) for a, b in zip(flat(plain), flat(watched), strict=True))


def test_a_trace_that_is_over_holds_no_tensor():
    model, rate = nn.Linear(8, 2), torch.tensor(1e-2)
    held = weakref.ref(rate)
    with dtypetrace.trace(model, precision="values") as t:
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    del optimizer, rate
    gc.collect()
    assert held() is None and t.recording.updates[0].lr == pytest.approx(1e-2) and t.recording.values
    reached, waiting = set(), [t._watch]
    while waiting:
        value = waiting.pop()
        if id(value) not in reached and not isinstance(value, (type, types.ModuleType, types.FunctionType)):
            reached.add(id(value))
            assert not isinstance(value, torch.Tensor)
            waiting += gc.get_referents(value)


def test_no_op_reads_a_value_on_the_host(monkeypatch):
    """Each read of a value waits for the device: there is none but at the end of a step that was measured completely,
    where three tables are read together, and at the end of the trace."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)).half()
    optimizer = SGD(model.parameters(), lr=1e-2)
    reads = []
    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__"):
        plain = getattr(torch.Tensor, name)

        def counted(self, *args, _plain=plain, _name=name, **kwargs):
            reads.append(_name)
            return _plain(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, counted)
    with torch.profiler.profile() as profile:
        with dtypetrace.trace(model, precision="values", every=1) as trace:
            for _ in range(40):
                model(torch.randn(4, 8).half()).float().pow(2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            during = list(reads)
    complete = (2, 8, 16, 24, 32, 40)
    assert during == ["tolist"] * 3 * len(complete), during
    assert len(reads) > len(during)
    assert sum(v.measured for v in trace.recording.values) > 512, "more than one batch was folded"
    names = [e.name for e in profile.events()]
    assert names.count("aten::_local_scalar_dense") == names.count("aten::item") == 0


@pytest.mark.parametrize("step", [2, 4, 11])
def test_a_batch_that_overflows_float16_is_found_in_whichever_step_it_comes(step, tmp_path):
    code = f"""\
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1)).half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(14):
    x = torch.randn(4, 8).half() * (3000 if step == {step} else 1)
    (model(x) * 60).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    program = programs.run(tmp_path, code, numerics=True)
    assert "DT301" in [f.code for f in program.findings], program.trace


def test_calm_operators_are_measured_in_some_steps_only():
    """Far from the limits of float32, and an op is measured as often as it could show something new."""
    model = nn.Linear(4, 4)
    optimizer = SGD(model.parameters(), lr=1e-2)
    with dtypetrace.trace(model, precision="values", every=1) as trace:
        for _ in range(20):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    measured = {
        op.op: v.measured for v in trace.recording.values if (op := trace.recording.ops[v.op]).phase == "forward"
    }
    assert measured["linear"] == 4, measured
    assert next(op.count for op in trace.recording.ops if op.op == "linear") == 20


# ---------------------------------------------------------------- an adapter, and two runs of it


def measured(dtype="float32", **facts) -> Update:
    """A parameter that moved as it should, but for what is said."""
    moved = dict(
        name="w", dtype=dtype, shape=(8, 8), event=-1, place=-1, optimizer="", steps=4, lr=1e-4, eps=1e-8, gradient_dtype=dtype, gradient_event=-1,
        absent=0, zero=0, broken_gradient=0, gradient_peak=1.0, subnormal=0.0, reached=64, moved=64, written=True, broken=0, magnitude=0.1, change=1e-4,
    )  # fmt: skip
    return Update(**moved | facts)


@pytest.mark.parametrize(("moved", "lost"), [(64, []), (0, ["w"])])
def test_a_step_that_arrives_later_is_no_lost_update(moved, lost):
    """Against a reference, most of each single step is missing. If the run moves the weights all the same, the
    missing part came with a later step, as a compensation brings it."""
    beside = Compared(
        name="w", what="update", dtype="bfloat16", shape=(8, 8), place=-1, event=-1, op=-1, steps=4, zero=0, size=1e-4,
        error=0.6, arrived=0.4, lost=0.6, flushed=0.6, spoiled=0,
    )  # fmt: skip
    recording = Recording(updates=(measured("bfloat16", moved=moved),), compared=(beside,))
    assert list(lost_steps(recording)) == lost


def named(*updates) -> str:
    return of_adapter((u, mechanism(u)) for u in updates).name


def test_an_adapter_is_judged_by_what_explains_the_rest():
    lost = (State("exp_avg_sq", "float16", 1.0),)
    up = measured("float16", moved=0, state=lost, magnitude=0.0)
    down = measured("float16", steps=0, zero=4, reached=0, moved=0)
    assert mechanism(down).name == "zero gradient"
    assert named(down, up) == named(up, down) == "state underflow"
    assert named(measured(), measured(frozen=True)) == "healthy"
    assert named(measured(frozen=True), measured(frozen=True)) == "frozen"
    assert named(measured(), measured(held=False)) == "not in the optimizer"


def test_a_matrix_may_stay_unchanged_until_the_one_that_began_at_zero_moves():
    up, still = measured(magnitude=0.0), measured(moved=0)
    assert named(up, still) == "healthy"
    assert named(measured(), still) == "below resolution", "nothing began at zero: it waits for nothing"
    assert named(up, measured("bfloat16", moved=0)) == "below resolution", "a narrow dtype is no place to wait in"
    assert named(up, measured(steps=0, zero=4, reached=0, moved=0)) == "zero gradient"


def test_steps_that_the_scaler_left_out():
    none = dict(steps=0, reached=0, moved=0, gradient_dtype="", skipped=4)
    assert mechanism(measured(**none, scale=2.0**20)).name == "scaler backing off"
    assert (
        mechanism(measured(**none | {"gradient_dtype": "float32", "broken_gradient": 4}, scale=0.5)).name
        == "broken gradient"
    ), "no scale's fault"
    assert mechanism(measured(skipped=2, scale=2.0**20)).name == "healthy"


def test_a_second_run_shows_what_the_first_lost():
    lost = (State("exp_avg_sq", "float16", 1.0),)
    assert compared(measured("float16", change=1.6e-4, state=lost), measured()).name == "overshoot"
    assert compared(measured("float16", change=1.6e-4), measured()).name == "healthy", "no state was lost"
    assert compared(measured("float16", change=1.4e-4, state=lost), measured()).name == "healthy"
    assert compared(measured("float16", reached=20, moved=20), measured()).name == "gradient underflow"
    assert (
        compared(measured("float16", steps=0, zero=4, reached=0, moved=0), measured(reached=0)).name == "zero gradient"
    ), "zero in float32, too"


def test_weights_that_only_decay():
    assert mechanism(measured(own=20)).name == "decay only"
    assert mechanism(measured(own=60)).name == "healthy"
    assert mechanism(measured(own=-1)).name == "healthy", "nothing is known of it"
    assert {"decay only", "healthy"} <= set(MECHANISMS)


def test_an_average_is_known_by_its_memory_whatever_view_reaches_it(tmp_path):
    """``AveragedModel`` detaches its weights for each update; a temporary at an earlier one's address is no average."""
    text = """
    kept = torch.ones(64, dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(6):
            VIEW.lerp_(torch.full((64,), 2.0, dtype=torch.bfloat16), 1e-4)
    """
    for view in ("kept", "kept.detach()", "kept.data", "kept[:]"):
        program = programs.run(tmp_path, text.replace("VIEW", view), numerics=True)
        assert [f.code for f in program.findings] == ["DT307"], (view, program.trace)
    assert programs.run(tmp_path, text.replace("VIEW", "(kept * 1)"), numerics=True).findings == ()


def test_the_state_is_measured_where_the_default_dtype_is_float64(tmp_path):
    """A quotient of counts has the default dtype; only a part of the weights has a state after the first step."""
    text = """
    torch.set_default_dtype(torch.float64)
    early, late = nn.Linear(3, 3), nn.Linear(3, 2)
    optimizer = torch.optim.Adam([*early.parameters(), *late.parameters()], lr=1e-2)
    for step in range(3):
        x = torch.ones(2, 3)
        late(early(x) if step else x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    try:
        trace = programs.run(tmp_path, text, numerics=True).trace
    finally:
        torch.set_default_dtype(torch.float32)
    assert not trace.recording.not_seen and {u.steps for u in trace.recording.updates} == {2, 3}


# ---------------------------------------------------------------- gradients that are zero


class BeforeNorm(nn.Module):
    """A bias that a norm takes away again."""

    def __init__(self, norm):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv1d(4, 8, 3), norm, nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.norm(self.conv(x.transpose(1, 2))).relu().mean(-1))


class Keys(nn.Module):
    """A bias of keys adds the same to all scores of a query."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)).mean(1))


class Pooling(nn.Module):
    """A bias of scores adds the same to all of them."""

    def __init__(self):
        super().__init__()
        self.score, self.out = nn.Linear(4, 1), nn.Linear(4, 3)

    def forward(self, x):
        return self.out((self.score(x).softmax(1) * x).sum(1))


class Shifted(nn.Module):
    """A bias whose gradient is larger than that of its weight, and which is too large to move."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(4, 8), nn.Linear(8, 3)
        nn.init.constant_(self.first.bias, 16.0)

    def forward(self, x):
        return self.out(torch.tanh(self.first(x.mean(1)) - 16))


@pytest.mark.parametrize(
    ("model_of", "still"),
    [
        (lambda: BeforeNorm(nn.BatchNorm1d(8)), []),
        (lambda: BeforeNorm(nn.InstanceNorm1d(8)), []),
        (Keys, []),
        (Pooling, []),
        (Shifted, ["first.bias"]),
    ],
)
def test_a_bias_whose_exact_gradient_is_zero_is_not_said_to_be_kept_from_moving(model_of, still):
    torch.manual_seed(0)
    model = model_of()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") and not still:
            nn.init.constant_(parameter, 0.3)  # far from zero, so that what is left by rounding cannot move it
    model.to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    with dtypetrace.trace(model) as trace:
        for _ in range(4):
            x, y = torch.randn(16, 6, 4, dtype=torch.bfloat16), torch.randint(0, 3, (16,))
            nn.functional.cross_entropy(model(x).float(), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert [u.name for u in trace.recording.updates if u.moved == 0 and u.name.endswith("bias")]
    assert [o.name for f in trace.findings if f.code == "DT304" for o in f.operands if o.name.endswith("bias")] == still


KEPT_SMALL = """
class SmallState(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {{"lr": 1e-2, "eps": 1e-8}})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["square"] = torch.zeros_like(p, dtype=torch.{kept})
                state["square"].mul_(0.9).add_(p.grad.square() * 0.1)
                p.sub_(group["lr"] * p.grad / (state["square"].sqrt() + group["eps"]))

model = nn.Linear(8, 2, bias=False)
optimizer = SmallState(model.parameters())
for _ in range(4):
    (model(torch.ones(4, 8)).mean() * {scale}).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("kept", "scale", "codes"),
    [("float16", 1e-4, ["DT303"]), ("float32", 1e-4, []), ("bfloat16", 1e-4, []), ("float16", 1.0, [])],
)
def test_wide_weights_may_become_nan_by_a_state_that_is_kept_small(kept, scale, codes, tmp_path):
    p = programs.run(tmp_path, KEPT_SMALL.format(kept=kept, scale=scale), numerics=True)
    assert [f.code for f in p.findings if f.severity != "note"][:1] == codes, p.trace
    for f in p.findings[: len(codes)]:
        assert (f.severity, f.culprit.name, f.culprit.dtype) == ("error", "square", "float16")
        assert f.culprit.origin.line == p.line("torch.zeros_like(p")


COPIES = {
    "a prompt that begins as embeddings": "start = net[0](torch.arange(4)).detach()\nx = start.clone().requires_grad_(True)",
    "noise like an image's latents": "latents = net[0].weight[:4].half()\nx = torch.zeros_like(latents).requires_grad_()",
    "one row, for a new word": "x = net[0].weight[:4].detach().clone()\nx.requires_grad_(True)",
    "the mean of what is known": "x = nn.Parameter(net[0].weight.detach().view(4, 4, 8).mean(1))",
}
TRAINED_COPY = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 2)

    def forward(self, given):
        given = given.to(torch.float16)
        return self.project(given)

net = nn.Sequential(nn.Embedding(16, 8), Encoder()).half().requires_grad_(False)  # cast
{copy}
optimizer = torch.optim.Adam([x], lr=1e-2)
for _ in range(5):
    (net[1](x).float().square().mean() * 1e-3).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_what_is_trained_as_a_copy_of_frozen_weights_is_made_wide_where_it_is_copied(copy, tmp_path):
    p = programs.run(tmp_path, TRAINED_COPY.format(copy=copy), numerics=True)
    (found,) = [f for f in p.findings if f.severity != "note"]
    assert found.code == "DT303" and p.at(found.culprit.origin.place).split(" = ")[0] == "x"
    again = p.text
    for edit in found.fix.edits:
        again = again.replace(edit.before, edit.after)
    assert again != p.text
    assert not [
        f for f in programs.run(tmp_path, again, numerics=True, name="again.py").findings if f.severity != "note"
    ]
