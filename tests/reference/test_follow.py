"""References in higher precision: what they follow, and that the program is left as it is."""

from __future__ import annotations

import gc

import programs
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtypetrace.reference.calls import Done
from dtypetrace.reference.engine import Engine
from dtypetrace.tracing import Trace


class Follow(torch.utils._python_dispatch.TorchDispatchMode):
    """The engine alone, without a trace."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.engine = Engine(lambda number, followed: None, lambda number, sums: None, **options)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        written = self.engine.before(func, args, kwargs)
        out = func(*args, **(kwargs or {}))
        self.engine.after(Done(0, func, args, kwargs or {}, out), written)
        return out

    def of(self, tensor):
        """A tensor's reference, as numbers; the program's own where it has none."""
        reference = self.engine.shadows.of(tensor.detach())
        return (tensor.detach() if reference is None else reference).double()


def close(reference, wanted, tolerance=1e-6):
    torch.testing.assert_close(reference, wanted.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_reference_is_what_higher_precision_would_give(half):
    x = torch.linspace(-3, 3, 64).to(half)
    with Follow() as follow:
        y = (x * 0.1).exp().cumsum(0) / 7
    close(follow.of(y), (x.double() * 0.1).exp().cumsum(0) / 7)
    assert not torch.equal(follow.of(y), y.double())


def test_views_writes_lists_and_data_share_one_reference():
    with Follow() as follow:
        x = torch.full((4, 6), 0.1, dtype=torch.float16)
        x.t()[2].mul_(3)
        x.data[1] = x[0] + 1e-4
        torch._foreach_add_([x[2], x[3]], [x[0], x[0]], alpha=0.5)
        part = x[:, 1:4].reshape(-1)
    wide = torch.full((4, 6), 0.1, dtype=torch.float64)
    wide[:, 2] *= 3
    wide[1] = wide[0] + 1e-4
    wide[2:] += 0.5 * wide[0]
    close(follow.of(x), wide)
    close(follow.of(part), wide[:, 1:4].reshape(-1))


def test_numbers_that_enter_a_narrow_dtype_are_kept_as_they_were_given(tmp_path):
    with Follow() as follow:
        count = torch.arange(300).to(torch.bfloat16)
        named = torch.arange(0, 1, 0.1, dtype=torch.float16)
        half = torch.arange(5) / 3
    close(follow.of(count), torch.arange(300))
    close(follow.of(named), torch.arange(0, 1, 0.1, dtype=torch.float64))
    close(follow.of(half), torch.arange(5).double() / 3, 1e-12)
    with Trace(reference=True) as t:
        given = torch.tensor([0.1, 257.0], dtype=torch.bfloat16)
        reference = t._watch.recorder.reference._engine.shadows.of(given)
        assert reference is not None and reference.tolist() == pytest.approx([0.1, 257.0], rel=1e-7)


def test_random_numbers_and_masks_are_the_programs():
    torch.manual_seed(0)
    with Follow() as follow:
        noise = torch.randn(64, dtype=torch.float16)
        dropped = F.dropout(noise * 0.1, 0.5)
    close(follow.of(noise), noise)
    kept = dropped != 0
    close(follow.of(dropped), torch.where(kept, noise.double() * 0.1 * 2, 0.0))


def test_what_the_program_decides_stays_decided():
    x = torch.tensor([1.0, 1.0005, 0.2], dtype=torch.float16)
    with Follow() as follow:
        y = x + torch.tensor([0.0004, 0.0, 0.0], dtype=torch.float16)
        value, index = y.max(0)
        taken = y[y.argsort(descending=True)]
    close(follow.of(value), follow.of(y)[index])
    close(follow.of(taken), follow.of(y)[y.argsort(descending=True)])


def test_a_reference_is_dropped_with_its_storage_and_by_what_writes_unseen():
    with Follow() as follow:
        x = torch.ones(8, dtype=torch.float16) / 3
        y = x * 2
        assert len(follow.engine.shadows) >= 2
        before = len(follow.engine.shadows)
        del y
        gc.collect()
        assert len(follow.engine.shadows) == before - 1
        x.view(torch.int16).add_(1)  # another dtype's view
        assert torch.equal(follow.of(x), x.double())
        z = torch.ones(4, dtype=torch.float16) / 3
        z.resize_(16)
        assert follow.engine.shadows.of(z) is None
        weight = nn.Parameter(torch.ones(4))
        with torch.no_grad():
            weight.div_(3)
        assert follow.engine.shadows.of(weight) is not None
    with torch.no_grad():  # unseen
        weight.add_(1)
        weight.add_(1)
    assert follow.engine.shadows.of(weight) is None


def test_memory_that_numpy_may_write_to_has_no_reference():
    with Trace(reference=True) as t:
        x = torch.ones(8) / 3
        shadows = t._watch.recorder.reference._engine.shadows
        assert shadows.of(x) is not None
        x.numpy()[:] = 2
        assert shadows.of(x) is None
        x.mul_(1 / 3)
        assert shadows.of(x) is None


def test_what_higher_precision_refuses_is_said_and_harms_nothing():
    from torch.library import Library

    library = Library("refusing", "DEF")
    library.define("narrow(Tensor x) -> Tensor")
    library.impl("narrow", lambda x: x.half() if x.dtype is torch.float16 else 1 / 0, "CPU")
    with Trace(reference=True) as t:
        out = torch.ops.refusing.narrow(torch.ones(3).half()) * 2
    assert out.tolist() == [2.0, 2.0, 2.0]
    assert not t._watch.recorder.broken


# ---------------------------------------------------------------- the program stays as it is


def train(optimizer=torch.optim.AdamW, half=torch.bfloat16, steps=3, **options):
    """A few steps with what draws numbers, writes in place and decides; everything that came of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))
    average = [p.detach().clone() for p in model.parameters()]
    made = optimizer(model.parameters(), lr=1e-2, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, enabled=half is torch.float16)
    reported = []
    for _ in range(steps):
        with torch.autocast("cpu", dtype=half):
            loss = F.cross_entropy(model(torch.randn(24, 16)), torch.randint(0, 4, (24,)))
        made.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(made)
        reported.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        reported += [p.grad.clone() for p in model.parameters()]
        scaler.step(made)
        scaler.update()
        with torch.no_grad():
            torch._foreach_lerp_(average, [p.detach() for p in model.parameters()], 0.01)
        reported += [loss.item(), int(model(torch.randn(4, 16)).argmax())]
    state = [v for s in made.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [*reported, *model.state_dict().values(), *average, *state, torch.get_rng_state()]


def same(one, other) -> bool:
    """Whether two values are equal bit for bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype is other.dtype and one.shape == other.shape and torch.equal(_bits(one), _bits(other))
    return one == other or one != one and other != other


def _bits(tensor):
    return tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


@pytest.mark.parametrize(
    "optimizer, half, options",
    [
        (torch.optim.AdamW, torch.bfloat16, {}),
        (torch.optim.AdamW, torch.float16, {"foreach": True}),
        (torch.optim.AdamW, torch.bfloat16, {"fused": True}),
        (torch.optim.SGD, torch.float16, {"momentum": 0.9, "foreach": False}),
        (torch.optim.Adafactor, torch.bfloat16, {}),
        (torch.optim.RMSprop, torch.bfloat16, {}),
    ],
)
def test_values_decisions_and_random_numbers_are_bit_equal(optimizer, half, options):
    with Trace():
        plain = train(optimizer, half, **options)
    with Trace(reference=True) as t:
        followed = train(optimizer, half, **options)
    assert not t._watch.recorder.broken and not [n for n in t.recording.not_seen if "reference" in n], (
        t.recording.not_seen
    )
    assert all(same(a, b) for a, b in zip(plain, followed, strict=True))
    assert t.recording.precisions and {c.what for c in t.recording.compared} >= {"gradient", "update"}


def test_inference_mode_and_checkpointing_are_followed():
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).bfloat16()
    x = torch.randn(4, 8).bfloat16()
    with Trace(reference=True) as t:
        with torch.inference_mode():
            buffer = torch.zeros(4, 8, dtype=torch.bfloat16)
            buffer += net(x)
            wide = t._watch.recorder.reference._engine.shadows.of(buffer)
        checkpoint(net, x.requires_grad_(), use_reentrant=False).sum().backward()
    assert wide is not None and not t.recording.not_seen, t.recording.not_seen
    assert {t.recording.ops[p.op].phase for p in t.recording.precisions} >= {"forward", "recompute", "backward"}


def test_nothing_is_kept_alive_and_it_ends_after_its_steps():
    model = nn.Linear(4, 4).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Trace(reference=True, reference_steps=2) as t:
        reference = t._watch.recorder.reference
        for _ in range(4):
            model(torch.randn(2, 4).bfloat16()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert not reference.on and not len(reference._engine.shadows)
    update = next(c for c in t.recording.compared if c.what == "update")
    assert update.steps == 2
    assert t._watch.recorder.reference is None


# ---------------------------------------------------------------- what was lost


def by_op(t, aten):
    recording = t.recording
    return next(p for p in recording.precisions if recording.ops[p.op].aten.startswith(aten))


def test_introduced_is_distinguished_from_inherited():
    with Trace(reference=True) as t:
        x = torch.full((256,), 1.001, dtype=torch.bfloat16)
        y = x * 3
        y.double()
    rounded, multiplied, widened = by_op(t, "full"), by_op(t, "mul"), by_op(t, "_to_copy")
    assert rounded.introduced == rounded.total > 5e-4
    assert multiplied.introduced == pytest.approx(0, abs=1e-9) and multiplied.total == pytest.approx(
        rounded.total, rel=1e-3
    )
    assert widened.introduced == 0 and widened.total == pytest.approx(rounded.total, rel=1e-3)


def test_flushed_infinite_and_lost_changes_are_counted():
    with Trace(reference=True) as t:
        small = torch.full((10,), 1e-3, dtype=torch.float16)
        small * small * 1e-2
        (torch.full((10,), 300.0, dtype=torch.float16)).square()
        kept = torch.full((10,), 2048.0, dtype=torch.float16)
        for _ in range(3):
            kept += 0.5
    flushed = next(p for p in t.recording.precisions if p.flushed)
    assert flushed.flushed == 1.0 and flushed.lost == 1.0
    assert by_op(t, "pow").infinite == 10
    added = by_op(t, "add_")
    assert added.arrived == 0.0 and added.changed == 0.0 and added.calls == 3


def test_an_update_that_does_not_arrive_is_compared_with_the_one_that_would():
    model = nn.Linear(8, 8).bfloat16()
    nn.init.constant_(model.weight, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with Trace(model, reference=True) as t:
        model(torch.ones(2, 8).bfloat16()).sum().backward()
        optimizer.step()
    update = next(c for c in t.recording.compared if c.what == "update" and c.name == "weight")
    assert (update.zero, update.steps, update.arrived, update.flushed) == (1, 1, 0.0, 1.0)
    assert update.size == pytest.approx(2e-6, rel=0.1)


def test_errors_are_weighed_by_the_gradient_that_they_meet():
    """The same rounding, before a factor of a hundred and before one of one."""
    with Trace(reference=True) as t:
        x = torch.rand(512, dtype=torch.float32, requires_grad=True)
        loud = x.sin().bfloat16()
        quiet = x.cos().bfloat16()
        (loud.float() * 100 + quiet.float()).sum().backward()
    casts = [
        p
        for p in t.recording.precisions
        if t.recording.ops[p.op].phase == "other" or t.recording.ops[p.op].phase == "forward"
    ]
    effects = sorted((p.effect for p in casts if p.effect), reverse=True)
    assert effects[0] > 20 * effects[1] > 0


KAHAN = """
torch.manual_seed(0)
net = nn.Linear(16, 16).bfloat16()
rest = [torch.zeros_like(p) for p in net.parameters()]
class Kahan(torch.optim.Optimizer):
    def __init__(self, parameters): super().__init__(parameters, {})
    @torch.no_grad()
    def step(self):
        for p, r in zip(self.param_groups[0]["params"], rest):
            r.sub_(p.grad, alpha=RATE)
            old = p.clone()
            p.add_(r)
            r.sub_(p - old) if KEEPS else r.zero_()
optimizer = Kahan(net.parameters())
for _ in range(40):
    net(torch.ones(4, 16).bfloat16()).float().square().sum().backward()
    optimizer.step(); optimizer.zero_grad()
"""


@pytest.mark.parametrize(("keeps", "codes"), [("True", []), ("False", ["DT304"])])
def test_what_a_compensation_keeps_of_a_step_arrives_later(keeps, codes, tmp_path):
    lines = KAHAN.replace("KEEPS", keeps).replace("RATE", "2e-5")
    program = programs.run(tmp_path, lines, numerics=True, reference=True)
    assert program.error is None, program.error
    assert sorted({f.code for f in program.findings if f.severity != "note"}) == codes, program.trace


@pytest.mark.parametrize("residual", ["h + x", "torch.add(x, h)", "h - x"])
def test_an_addition_weighs_by_the_gradient_that_it_hands_on(residual):
    """Its node runs no operator; the gradient is that of the branch which nothing else takes. With a factor of 1, whose
    node does run one, the effect is the same."""

    def effect(text: str) -> float:
        torch.manual_seed(0)
        x, weight = torch.randn(64, 8).bfloat16(), torch.randn(8, 8).bfloat16().requires_grad_()
        with Trace(reference=True) as t:
            h = (x @ weight).tanh()
            total = eval(text, {"torch": torch, "x": x, "h": h, "one": torch.ones((), dtype=torch.bfloat16)})
            (total.float() * torch.arange(8)).sum().backward()
        adds = [p for p in t.recording.precisions if t.recording.ops[p.op].op in ("add", "sub", "__add__", "__sub__")]
        return max(p.effect for p in adds)

    expected = effect(f"({residual}) * one")
    assert expected > 0 and effect(residual) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("other", ["h.view(-1)", "h.T", "h * 1"])
def test_a_sum_of_gradients_is_not_the_gradient_of_the_addition_that_hands_one_on(other):
    """Autograd adds the other branch's gradient, 1000 times as large, while the addition's node is the current one."""

    def effect(text: str) -> float:
        torch.manual_seed(0)
        x, weight = torch.randn(64, 8).bfloat16(), torch.randn(8, 8).bfloat16().requires_grad_()
        with Trace(reference=True) as t:
            h = x @ weight
            a = (h + x).float().sum()
            (a + eval(text, {"torch": torch, "h": h}).float().sum() * 1000).backward()
        first = next(i for i, op in enumerate(t.recording.ops) if op.aten.startswith("add."))
        return next(p.effect for p in t.recording.precisions if p.op == first)

    assert 0 < effect(other) == pytest.approx(effect("torch.zeros(())"), rel=1e-3)
