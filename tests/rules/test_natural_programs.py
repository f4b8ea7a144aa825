"""Programs as people write them, of the kinds that a natural sample showed to be judged wrongly."""

import followed
import programs
import pytest

from dtypetrace.records.findings import gone

KAHAN = """
net = nn.Linear(32, 4).to(torch.bfloat16)
class Kahan(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        params = list(net.parameters())
        kept = [self.state[p].setdefault("c", torch.zeros_like(p)) for p in params]
        STEP
optimizer, x = Kahan(net.parameters(), {"lr": 3e-4}), torch.randn(16, 32).bfloat16()
for _ in range(12):
    nn.functional.cross_entropy(net(x).float(), torch.arange(16) % 4).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
EACH = "for p, c in zip(params, kept): c.add_(p.grad, alpha=-3e-4); "
COMPENSATED = {
    "clone": EACH + "old = p.clone(); p.add_(c); c.add_(old.sub_(p))",
    "data": EACH + "old = p.detach().clone(); p.data.add_(c); c.add_(old.sub_(p.data))",
    "the gradient as a buffer": EACH + "p.grad.copy_(p.detach()); p.add_(c); c.add_(p.grad.sub_(p))",
    "lists": "gs = [p.grad for p in params]; torch._foreach_add_(kept, gs, alpha=-3e-4); torch._foreach_copy_(gs, params)"
    "; torch._foreach_add_(params, kept); torch._foreach_sub_(gs, params); torch._foreach_add_(kept, gs)",
}


def warned(folder, text: str) -> list[str]:
    program = programs.run(folder, text, numerics=True)
    assert program.error is None and not program.trace._watch.recorder.broken
    return [f.code for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("step", COMPENSATED.values(), ids=COMPENSATED)
def test_steps_that_are_compensated_are_not_lost(step, tmp_path):
    assert warned(tmp_path, KAHAN.replace("STEP", step)) == []


def test_what_no_later_step_gets_is_lost(tmp_path):
    assert warned(tmp_path, KAHAN.replace("STEP", EACH + "p.add_(c); c.zero_()")) == ["DT304"]


ROUNDS = {
    "bits": "bits = new.view(torch.int32) + torch.randint(0, 1 << 16, new.shape, dtype=torch.int32); "
    "p.copy_((bits & -65536).view(torch.float32))",
    "the next number": "down = (new.view(torch.int32) & -65536).view(torch.float32); up = torch.nextafter(down.bfloat16(), "
    "torch.full_like(p, 9)).float(); p.copy_(torch.where(torch.rand_like(new) * (up - down) < new - down, up, down))",
    "noise": "p.copy_(new + (torch.rand_like(new) - 0.5) * 2**-7 * new.abs())",
}


@pytest.mark.parametrize("rounds", ROUNDS.values(), ids=ROUNDS)
def test_steps_that_round_at_random_are_not_lost(rounds, tmp_path):
    each = f"for p in params:\n            new = p.float() - 3e-4 * p.grad.float(); {rounds}"
    assert warned(tmp_path, KAHAN.replace("STEP", each)) == []


NO_ROUNDING = {
    "unused": "p.add_(p.grad, alpha=-3e-4); torch.rand_like(p)",
    "a projection": "g = p.grad.reshape(4, -1); q = torch.randn(g.shape[1], 2).bfloat16(); "
    "p.add_((g @ q @ q.T).view_as(p), alpha=-3e-4)",
    "one number": "p.add_(p.grad * torch.rand(()).bfloat16(), alpha=-3e-4)",
}


@pytest.mark.parametrize("step", NO_ROUNDING.values(), ids=NO_ROUNDING)
def test_random_numbers_that_do_not_round_the_weights_excuse_nothing(step, tmp_path):
    assert warned(tmp_path, KAHAN.replace("STEP", f"for p in params: {step}")) == ["DT304"]


@pytest.mark.parametrize(("size", "spread", "codes"), [(64, 1.5, ["DT307"]), (16, 1.0, [])])
def test_a_running_variance_that_stands_still_far_from_the_batches(size, spread, codes, tmp_path):
    text = f"""
    norm = nn.BatchNorm1d(8, momentum=0.001).to(torch.bfloat16)
    for _ in range(100): norm((torch.randn({size}, 8) * {spread}).bfloat16())
    """
    assert warned(tmp_path, text) == codes


def test_a_diff_does_not_cast_what_a_call_makes_on_its_way(tmp_path):
    """The norm's result becomes wide inside ``net(...)``, where a layer refuses it: no line of the program makes it."""
    text = """
    class Norm(nn.Module):
        def forward(self, x):
            m = x.mean(-1, keepdim=True)
            v = (x * x).mean(-1, keepdim=True) - m * m
            return (x - m) * torch.rsqrt(v.clamp(min=0) + 1e-5)
    net = nn.Sequential(nn.Linear(8, 32), Norm(), nn.ReLU(), nn.Linear(32, 3))
    net[0].bias.data.fill_(12.0)
    net.to(torch.bfloat16)(torch.randn(64, 8).bfloat16())
    """
    program = programs.run(tmp_path, text, numerics=True)
    found = next(f for f in program.findings if f.code == "DT308")
    assert all(edit.before.count("net") == 0 for edit in found.fix.edits)


REFUSED = {
    "a tensor of one element, as a factor": (
        "ema, new, share = torch.zeros(4).bfloat16(), torch.ones(4).bfloat16(), torch.tensor([0.1])\nema.lerp_(new, share)",
        "share.to(ema.dtype)",
    ),
    "a factor between wider tensors": (
        "a, b, w = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64), torch.rand(1)\nc = torch.lerp(a, b, w)",
        "w.to(a.dtype)",
    ),
    "a factor of weights that are few": (
        "net = nn.Linear(8, 8)\nkept = nn.Linear(2, 2).bfloat16()\nold, t = torch.zeros(2, 2).bfloat16(), torch.rand(1)\n"
        "old.lerp_(kept.weight.detach(), t)",
        "t.to(old.dtype)",
    ),
    "scores that the call cuts": (
        "net = nn.Linear(4, 3)\nx = torch.randn(5, 4)\nloss = F.cross_entropy(net(x).long(), torch.arange(5) % 3)\nloss.backward()",
        "net(x)",
    ),
    "scores that a softmax takes as integers": ("s = torch.randn(4)\np = torch.softmax(s.int(), 0)", "s"),
    "a mean of cut numbers": ("s = torch.randn(4)\nm = s.long().mean()", "s"),
    "a float mask beside truth values": ("m, ok = torch.ones(3), torch.tensor([True, False, True])\nboth = m & ok", "m.to(torch.bool)"),
    "an inverted float mask": ("m = torch.tensor([1.0, 0.0])\nn = ~m", "torch.tensor([1.0, 0.0], dtype=torch.bool)"),
    "truth values on the left": ("m, ok = torch.ones(3), torch.tensor([True, False, True])\nok |= m", "torch.ones(3, dtype=torch.bool)"),
    "a sparse product under autocast": (
        "a = torch.eye(4).to_sparse_csr()\nlin = nn.Linear(4, 4)\nwith torch.autocast('cpu', torch.bfloat16):\n"
        "    h = lin(torch.randn(4, 4))\n    out = torch.sparse.mm(a, h)",
        'with torch.autocast("cpu", enabled=False): out',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "after"), REFUSED.values(), ids=REFUSED)
def test_the_diff_of_a_refused_call_is_enough(text, after, tmp_path):
    done = followed.follow(tmp_path, followed.IMPORTS + text)
    assert after in [edit.after for fix in done.shown for edit in fix.edits]
    assert done.clean


KEPT = {
    "integers beside a float mask": "m, n = torch.ones(3), torch.arange(3)\nboth = m & n",
    "a sum of truth values and numbers": "m, n = torch.tensor([True, False]), torch.ones(2)\nm += n",
    "a number that meets two dtypes": "a, b = torch.zeros(4), torch.ones(4).double()\nc = torch.lerp(a, b, torch.rand(1))",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_what_these_principles_do_not_decide(text, tmp_path):
    found = programs.run(tmp_path, text).findings[0]
    assert found.fix is None or "bool" not in " ".join(e.after for e in found.fix.edits)
    assert "it is one number" not in str(found)


TABLES = {
    "attributes in a loop": (
        """
        class Counts:
            def __init__(self):
                self.x = torch.zeros(8, dtype=torch.uint8)
                self.y = torch.zeros(8, dtype=torch.uint8)
            def add(self, n):
                for t, k in ((self.x, 1), (self.y, 2)): t.add_(n * k)
        c = Counts()
        for _ in range(40): c.add(torch.full((8,), 9, dtype=torch.uint8))
        share = (c.x / c.y).sum()
        """,
        2,
    ),
    "names in a loop": (
        """
        x = torch.zeros(8, dtype=torch.uint8)
        y = torch.zeros(8, dtype=torch.uint8)
        for n in range(40):
            for t in [x, y]: t.add_(30)
        share = x.float() / y.float()
        """,
        2,
    ),
    "one is wide already": (
        """
        x = torch.zeros(8, dtype=torch.uint8)
        y = torch.zeros(8, dtype=torch.int64)
        for _ in range(40):
            for t in (x, y): t.add_(torch.full((8,), 9, dtype=torch.uint8))
        share = (x / y).sum()
        """,
        1,
    ),
}


@pytest.mark.parametrize(("text", "many"), TABLES.values(), ids=TABLES)
def test_what_a_loop_writes_into_in_turn_is_widened_together(text, many, tmp_path):
    found = next(f for f in programs.run(tmp_path, text, numerics=True).findings if f.code == "DT301")
    assert ["int64" in e.after for e in found.fix.edits] == [True] * many


@pytest.mark.parametrize(
    ("before", "after", "is_gone"),
    [(1.0, 0.25, True), (1.0, 0.3, False), (1e9, 41.0, False), (1e9, 0.9, True), (30.0, 2.0, True)],
)
def test_a_result_that_is_finite_and_wrong_is_not_mended(before, after, is_gone):
    assert gone(before, after) is is_gone


@pytest.mark.parametrize("product", ["pos @ inv", "torch.matmul(pos, inv)", "nn.functional.linear(pos, inv.t())"])
def test_no_diff_widens_what_autocast_has_just_narrowed(product, tmp_path):
    text = f"""
    pos, inv = torch.arange(4096.0, 4352.0)[:, None], 1.0 / 10000 ** (torch.arange(0.0, 8) / 8)[None]
    with torch.autocast("cpu", torch.bfloat16): freqs = {product}
    table = torch.cat([freqs.float().cos(), freqs.float().sin()], -1)
    """
    found = [f for f in programs.run(tmp_path, text, numerics=True).findings if f.severity != "note"]
    assert [e.after for f in found if f.fix is not None for e in f.fix.edits if e.before == product] == []
