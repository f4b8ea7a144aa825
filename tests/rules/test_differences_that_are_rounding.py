"""Differences that training goes through and that hold more rounding than numbers (DT308), and sums that drift (DT307)."""

import textwrap

import programs
import pytest
from followed import applied

POLICY = """
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 16), nn.Linear(16, 64)
    def forward(self, ids):
        return self.head(torch.tanh(self.embed(ids)))
def logps(logits, ids):
    return {logps}.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
policy = Policy()
ids = torch.randint(0, 64, (8, 16))
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    old = logps(policy(ids), ids)
with torch.no_grad():
    for p in policy.parameters():
        p.add_(3e-4 * torch.randn_like(p))
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
for epoch in range(2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        new = logps(policy(ids), ids)
    {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BFLOAT16 = "logits.bfloat16().sub(logits.bfloat16().logsumexp(-1, keepdim=True))"
REGRESSION = """
teacher = nn.Linear(8, 8)
student = nn.Linear(8, 8)
student.load_state_dict({k: v + {moved} * torch.randn_like(v) for k, v in teacher.state_dict().items()})
optimizer = torch.optim.SGD(student.parameters(), lr=1e-3)
x = torch.randn(64, 8)
with torch.no_grad():
    wide = teacher(x) + 4
    kept = wide.{stored}
for step in range(2):
    y = student(x) + 4
    {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def policy(logps, loss):
    return POLICY.replace("{logps}", logps).replace("{loss}", loss)


def regression(loss, stored="bfloat16()", moved="1e-3"):
    return REGRESSION.replace("{loss}", loss).replace("{stored}", stored).replace("{moved}", moved)


ROUNDING = {
    "ratios of probabilities": (
        policy("F.log_softmax(logits.float(), -1).bfloat16()", "loss = -(new - old).float().exp().mean()"),
        ".bfloat16()",
    ),
    "a preference over a reference": (
        policy(
            "torch.log_softmax(logits, -1).to(torch.bfloat16)",
            "m = (new - old).sum(-1); loss = -F.logsigmoid(0.1 * (m[:4] - m[4:]).float()).mean()",
        ),
        ".to(torch.bfloat16)",
    ),
    "sums of log-probabilities": (
        policy(
            "torch.log_softmax(logits.bfloat16(), -1)",
            "m = (new.sum(-1) - old.sum(-1)) * 0.1; loss = -F.logsigmoid(m[:4] - m[4:]).mean()",
        ),
        "logits.bfloat16()",
    ),
    "features of a teacher": (regression("loss = F.mse_loss(y, kept.float())"), "wide.bfloat16()"),
    "values before an update": (regression("loss = (y - kept).clamp(-1, 1).square().mean()"), "wide.bfloat16()"),
    "a smooth loss": (regression("loss = F.smooth_l1_loss(y, kept.to(y.dtype))"), "wide.bfloat16()"),
}

RATIO = policy("F.log_softmax(8 * logits.float(), -1)", "loss = -(narrow(policy(ids)) - old).exp().mean()").replace(
    "3e-4", "0"
)
NARROW = "\ndef narrow(x):\n    return F.log_softmax(8 * {x}, -1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)\n"
ROUNDING["a ratio that should be 1"] = (NARROW.format(x="x.bfloat16()") + RATIO, "F.log_softmax(8 * x")

CHECKED = """
def kernel(a, b, raw):
    return (-0.5 * (a / F.softplus(raw) - b.T / F.softplus(raw)) ** 2).exp()

a, b = torch.tensor([[4.0], [2.0], [8.0]]), torch.tensor([[0.0], [2.0], [2.0]])
expected = torch.full((3, 3), 1.854586542131141, requires_grad=True)
(-0.5 * ((a - b.T) / F.softplus(expected)) ** 2).exp().backward(torch.eye(3))
raw = torch.full((1, 1), 1.854586542131141, requires_grad=True)
kernel(a, b, raw).backward(torch.eye(3))
"""

HEALTHY = {
    "a ratio that is 1": NARROW.format(x="x") + RATIO,
    "ratios in float32 of logits under autocast": policy(
        "torch.log_softmax(logits.float(), -1)", "loss = -(new - old).exp().mean()"
    ),
    "rewards of a policy that has hardly moved from its reference": policy(
        "torch.log_softmax(logits.float(), -1)",
        "print((0.1 * (new.sum(-1) - old.sum(-1)).detach()).mean()); loss = -new.mean()",
    ).replace("3e-4", "1e-6"),
    "targets that are far away": regression("loss = F.mse_loss(y, kept.float())", moved="0.5"),
    "targets in float32": regression("loss = F.mse_loss(y, kept)", stored="float()"),
    "an error that is only read": regression(
        "loss = F.mse_loss(y, wide); print((kept.float() - wide).abs().max().item())"
    ),
    "a gradient and its formula": CHECKED + "assert torch.norm(raw.grad - expected.grad.sum()) < 2e-5",
    "results that were written one by one, and the same in float64": (
        "a = torch.rand(40)\nkept = torch.zeros_like(a)\nfor n in range(40):\n    kept[n] = (1 - a[n]) * a[: n + 1].sum()\n"
        "wide = torch.stack([(1 - a.double()[n]) * a.double()[: n + 1].sum() for n in range(40)])\n"
        "worst = max(0.0, ((kept - wide).abs().max() / wide.abs().max()).item())"
    ),
    "a loss and its number": (
        "loss = torch.log1p(0.5 * (torch.ones(96) - torch.zeros(96)).square()).mean()\n"
        "torch.testing.assert_close(loss, torch.tensor(0.40546512603759766))"
    ),
    "a policy that has not moved": policy(
        "F.log_softmax(logits, -1).bfloat16()", "loss = -(new - new.detach()).exp().mean()"
    ),
}


def serious(program):
    return [f for f in program.findings if f.severity != "note"]


def watched(tmp_path, text):
    return programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)


@pytest.mark.parametrize(("text", "line"), ROUNDING.values(), ids=ROUNDING)
def test_a_difference_that_is_rounding(tmp_path, text, line):
    program = watched(tmp_path, text)
    found = [f for f in serious(program) if f.code == "DT308"]
    assert found and line in program.at(found[0].culprit.origin.place)


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_differences_that_mean_something(tmp_path, text):
    assert serious(watched(tmp_path, text)) == []


SUMS = {
    "gradients of many workers": "total += piece.to(torch.bfloat16)",
    "a meter": "total.add_(piece.abs().to(total.dtype))",
    "a row of a table": "table[1] += piece.bfloat16()",
}


@pytest.mark.parametrize("adds", SUMS.values(), ids=SUMS)
@pytest.mark.parametrize(("rounds", "lost"), [(1200, True), (6, False)])
def test_a_sum_of_many_terms(tmp_path, adds, rounds, lost):
    text = f"""
    pieces = torch.randn({rounds}, 8) * 0.3 + 1
    table = torch.zeros(2, 8, dtype=torch.bfloat16)
    total = torch.zeros(8, dtype=torch.bfloat16)
    for piece in pieces.unbind():
        {adds}
    mean = (total + table[1]).float() / {rounds}
    """
    found = [f for f in serious(watched(tmp_path, text)) if f.code in ("DT307", "DT203")]
    assert bool(found) == lost


SEARCHED = {
    "tokens": "cdf = weights.softmax(-1).cumsum(-1)\nplace = torch.searchsorted(cdf.float(), torch.rand(4, 1))",
    "particles": "cdf = (weights[0].exp() / weights[0].exp().sum()).cumsum(0)\nplace = torch.bucketize(torch.rand(64).to(cdf.dtype), cdf)",
    "bins": "cdf = weights[0].abs().cumsum(0) / weights[0].abs().sum()\nplace = torch.searchsorted(cdf, torch.rand(9).to(cdf.dtype))",
}


@pytest.mark.parametrize("text", SEARCHED.values(), ids=SEARCHED)
@pytest.mark.parametrize(
    ("entries", "dtype", "lost"), [(900, "bfloat16", True), (900, "float32", False), (8, "bfloat16", False)]
)
def test_running_sums_that_are_searched(tmp_path, text, entries, dtype, lost):
    program = watched(tmp_path, f"weights = (torch.randn(4, {entries}) * 0.1).to(torch.{dtype})\n{text}\nprint(place)")
    found = [program.at(f.culprit.origin.place) for f in serious(program)]
    assert [".to(torch.bfloat16)" in line for line in found] == [True] * lost


@pytest.mark.parametrize(
    "asked",
    [
        "(model(x) - half(x.half()).float()).abs().max().item()",
        "(half(x.half()).double() - model(x).double()).pow(2).sum().sqrt().item() / model(x).norm().item()",
        "(torch.sin(t).half().double() - torch.sin(t.double())).abs().mean().item()",
        "((model(x) - half(x.half())).abs() / model(x).abs()).amax().item()",
    ],
)
def test_how_far_16_bits_are_from_the_same_without_them_is_a_question(tmp_path, asked):
    program = programs.run(
        tmp_path,
        f"""
        import copy
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8)).eval()
        half, x, t = copy.deepcopy(model).half(), torch.randn(64, 16), torch.arange(200) * 0.01
        with torch.no_grad():
            far = {asked}
        """,
        numerics=True,
    )
    assert program.error is None and not [f for f in program.findings if f.severity != "note"], program.findings


@pytest.mark.parametrize(
    "asked",
    [
        "((spread(x) - spread(x.double())).abs().max() / spread(x.double()).max() < 1e-4).item()",
        "(spread(x).double() / spread(x.double()) - 1).abs().max().item()",
        "(1 - spread(x) / spread(x.double())).norm().item()",
        "((spread(x) * 2**30).round().long().double() / 2**30 - spread(x.double())).square().mean().sqrt().item()",
    ],
)
def test_how_far_float32_is_from_float64_is_a_question(tmp_path, asked):
    text = f"""
    def spread(rows):
        return (rows.sin() * 0.3 + rows.cos()).square().mean(1)
    x = torch.rand(64, 16)
    far = {asked}
    """
    assert not serious(programs.run(tmp_path, text, numerics=True))


@pytest.mark.parametrize(
    "lost",
    [
        "((1e4 + t).float() - (1e4 + t).double()[0].float()).abs().max().item()",
        "(1 - torch.cos(t.float())).tolist()",
    ],
)
def test_what_cancels_in_float32_without_a_yardstick_is_no_question(tmp_path, lost):
    p = programs.run(tmp_path, f"t = torch.linspace(1e-4, 3e-4, 50).double()\nfar = {lost}", numerics=True)
    assert {f.code for f in serious(p)} in ({"DT308"}, {"DT204"})


@pytest.mark.parametrize(
    "text",
    [
        "values, vectors = torch.linalg.eigh(laplacian)\nhalf = (vectors[:, 1] > 0).tolist()",
        "u, s, v = torch.linalg.svd(laplacian)\nprint((u[:, :3] * s[:3]).tolist())",
        "values, vectors = torch.linalg.eig(laplacian)\nprint(values.real[:3].tolist())",
    ],
)
def test_vectors_that_are_as_right_with_the_other_sign(tmp_path, text):
    """Two equal halves: of what belongs to equal eigenvalues any mixture is right."""
    made = """
    near = torch.exp(-(torch.arange(12.)[:, None] - torch.arange(12.)) ** 2 / 2)
    weights = torch.block_diag(near, near).float() * torch.exp(-torch.full((24, 24), 0.3))
    laplacian = weights.sum(1).diag() - weights
    """
    p = programs.run(tmp_path, f"{textwrap.dedent(made)}{text}", numerics=True)
    assert p.error is None and not serious(p), p.trace


TERMS = "terms = (torch.randn(500, 4) * 0.1 + 0.5).bfloat16()\ntotal = torch.zeros(4, dtype=torch.bfloat16)\n"
COMPENSATED = {
    "kahan": "y = term - lost\n    new = total + y\n    lost = (new - total) - y\n    total = new",
    "in place": "lost += term\n    before = total.clone()\n    total += lost\n    lost += before - total",
}


@pytest.mark.parametrize(("adds", "reference"), [("kahan", False), ("kahan", True), ("in place", False)])
def test_a_compensated_sum_loses_nothing(tmp_path, adds, reference):
    text = f"{TERMS}lost = torch.zeros_like(total)\nfor term in terms.unbind():\n    {COMPENSATED[adds]}\nprint(total.tolist())"
    p = programs.run(tmp_path, text, numerics=True, reference=reference)
    assert not serious(p), p.trace


@pytest.mark.parametrize(
    "adds", ["total = total + term", "new = total + term; seen = (new - total).abs(); total = new"]
)
def test_a_sum_that_is_not_compensated(tmp_path, adds):
    text = f"{TERMS}for term in terms.unbind():\n    {adds}\nprint(total.tolist())"
    assert "DT307" in {f.code for f in serious(programs.run(tmp_path, text, numerics=True))}


ATOMS = """
    places = torch.arange(60)[:, None] * torch.tensor([3.8, 0.1]) + {far}
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled={narrow}):
        atoms = (places @ torch.eye(2)).float()
    print((atoms[1:] - atoms[:-1]).norm(dim=1).max().item())
    """


@pytest.mark.parametrize(("narrow", "codes"), [(True, ["DT308"]), (False, [])])
def test_neighbours_that_were_rounded_alike_and_widened(narrow, codes, tmp_path):
    text = ATOMS.format(far=1000, narrow=narrow)
    found = programs.run(tmp_path, text, numerics=True).findings
    assert [f.code for f in found if f.severity != "note"] == codes


@pytest.mark.parametrize(("base", "lost"), [(2e4, True), (2.0, False)])
def test_a_difference_of_what_was_cast_alike_is_no_question_about_rounding(tmp_path, base, lost):
    text = f"""
    path = torch.stack([1e-5 * torch.tanh(torch.tensor(0.1 * step)) + {base} for step in range(9)]).double()
    print(((path - path[0]) * 600).tolist())
    """
    assert [f.code for f in serious(programs.run(tmp_path, text, numerics=True))] == ["DT308"] * lost


@pytest.mark.parametrize(("dtype", "codes"), [("bfloat16", ["DT308"]), ("float32", [])])
def test_a_loss_that_adding_the_level_back_hides_is_no_question_about_rounding(tmp_path, dtype, codes):
    text = f"""
    price = 40000 + torch.randn(8, 200, dtype=torch.float64).cumsum(-1) * 10
    seen = price[:, :100].to(torch.{dtype})
    last = seen[:, -1:].float()
    change = ((seen.float() - last) / 100) @ torch.full((100, 1), 0.01)
    told = change * 100 + last
    error = (told.double() - price[:, 100:101]).abs().mean().item()
    """
    program = watched(tmp_path, text)
    assert [f.code for f in serious(program)] == codes
    assert all("price[:, :100]" in program.at(f.culprit.origin.place) for f in serious(program))


def test_a_loss_that_its_own_trial_does_not_explain_is_left_out_beside_one_whose_trial_does(tmp_path):
    """The weights went another way because a power was rounded; what the loss subtracts is all float32."""
    text = """
    model = nn.Linear(8, 1)
    power, average = torch.ones((), dtype=torch.bfloat16), torch.zeros(1, 8)
    for step in range(400):
        x = torch.randn(16, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        average = 0.99 * average + 0.01 * model.weight.grad
        power = power * 0.99
        with torch.no_grad():
            model.weight -= 0.05 * average / (1 - power).float()
    """
    assert [f.code for f in serious(watched(tmp_path, text))] == ["DT307"]


STATES = {
    "a variance of two sums": """
    total, squares = torch.zeros(8), torch.zeros(8)
    for _ in range(100):
        x = 500 + 0.3 * torch.randn(64, 8)
        total += x.sum(0)
        squares += (x * x).sum(0)
    mean = total / 6400
    found = (squares / 6400 - mean * mean).mean().item()
    """,
    "a correlation of five sums": """
    sx, sy = torch.tensor(0.0), torch.tensor(0.0)
    sxx, syy, sxy = torch.tensor(0.0), torch.tensor(0.0), torch.tensor(0.0)
    for _ in range(100):
        x = 300 + torch.randn(100)
        y = x + 0.5 * torch.randn(100)
        sx, sy = sx + x.sum(), sy + y.sum()
        sxx, syy, sxy = sxx + (x * x).sum(), syy + (y * y).sum(), sxy + (x * y).sum()
    n = 10000
    found = ((sxy - sx * sy / n) / ((sxx - sx**2 / n) * (syy - sy**2 / n)).sqrt()).item()
    """,
    "a covariance of outer products": """
    state = {}
    for name, shape in (("mean", (8,)), ("outer", (8, 8))):
        state[name] = torch.zeros(shape)
    for _ in range(100):
        x = 20 + 0.006 * torch.randn(50, 8)
        state["mean"].add_(x.sum(0))
        state["outer"].add_(x.T @ x)
    mean = state["mean"] / 5000
    found = (state["outer"] / 5000 - torch.outer(mean, mean)).trace().item()
    """,
}


TRUE = dict(zip(STATES, (0.09, 0.8944, 2.88e-4)))


@pytest.mark.parametrize("name", STATES)
def test_all_sums_of_which_a_difference_leaves_little_are_made_wide(name, tmp_path):
    program = watched(tmp_path, STATES[name])
    (finding,) = serious(program)
    assert finding.code == "DT308"
    after = watched(tmp_path, applied(program.text, finding.fix.edits, program.file))
    assert program.names["found"] != pytest.approx(TRUE[name], rel=0.02)
    assert after.names["found"] == pytest.approx(TRUE[name], rel=0.1)


LAYERS = {
    "a recurrent layer": "net = nn.GRU(8, 8, batch_first=True)\nhead = nn.Linear(8, 64, bias=False)\nlogits = lambda x: head(net(x)[0])",
    "layers without bias": "net = nn.Linear(8, 64, bias=False)\nlogits = lambda x: net(x)",
}


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_what_layers_make_is_no_table(layers, tmp_path):
    text = f"""
    {layers.replace(chr(10), chr(10) + "    ")}
    with torch.no_grad():
        x = torch.zeros(4, 16, 8) + torch.arange(16)[None, :, None]
        one, other = logits(x).bfloat16().float(), logits(x + 0).bfloat16().log_softmax(-1)
        print((other - one.log_softmax(-1)).sum(1).exp().mean().item())
    """
    program = programs.run(tmp_path, text, reference=True)
    assert program.error is None and "DT204" not in [f.code for f in program.findings]
