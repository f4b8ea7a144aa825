"""Where the dtype was decided in which numbers are lost: the principles of ``rules/blame.py``, members of each kind."""

from __future__ import annotations

import programs
import pytest

SEED = """
    torch.manual_seed(0)"""
CAST_FOR_IT = {
    "places in a queue are counted with a mask in the model's dtype": """
    class Queue(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(4, 2, bias=False)
        def forward(self, x):
            first = self.score(x).argmax(-1) == 0
            mask = first.to(self.score.weight.dtype)  #!
            place = mask.cumsum(0) - 1
            return place.long()
    queue = Queue().to(torch.bfloat16)
    place = queue(torch.randn(1200, 4).to(torch.bfloat16))
    print(place[:1100].unique().numel(), torch.zeros(1201)[place].sum().item())
    """,
    "the energy of a frame inside a float16 model": """
    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Linear(8, 8)
        def forward(self, wave):
            x = wave.half()  #!
            power = x.square().mean(-1, keepdim=True)
            return self.gain(x / power.sqrt())
    print(Energy().half()(torch.randn(4, 8) * 900).float().mean().item())
    """,
    "a ratio of two sums beside a float16 model": """
    class Share(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(16, 4)
        def forward(self, counts):
            counts = counts.to(torch.float16)  #!
            whole = counts.sum(-1, keepdim=True)
            return self.out(counts / whole)
    print(Share().half()(torch.full((4, 16), 9000.0)).float().sum().item())
    """,
}
IN_FLOAT32 = {
    "a curvature from neighbours that are nearly equal": """
    x = torch.linspace(0.1, 0.9, 200)  #!
    step = 3e-5
    curvature = (torch.sin(x + step) - 2 * torch.sin(x) + torch.sin(x - step)) / step**2
    print(curvature.abs().mean().item())
    """,
    "a chance that is multiplied up in a table": """
    chance = torch.rand(80, 4) * 0.2
    table = torch.zeros(80, 4)  #!
    table[0] = chance[0]
    for t in range(1, 80):
        table[t] = table[t - 1] * chance[t]
    print(table[-1].log().argmax().item())
    """,
    "moments in a buffer of a module without weights": """
    class Moments(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("sums", torch.zeros(2, 40))  #!
        def forward(self, x):
            self.sums[0] += x.sum(0)
            self.sums[1] += (x * x).sum(0)
        def spread(self, count):
            return (self.sums[1] / count - (self.sums[0] / count) ** 2).clamp(min=0).sqrt()
    moments = Moments()
    for _ in range(8):
        moments(500 + 0.02 * torch.randn(64, 40))
    print(moments.spread(512).mean().item())
    """,
}
STATES = {
    "a sum of logarithms, cast as it is added": """
    logs = torch.randn(300, 8).sub(3.0)
    total = torch.zeros(8, dtype=torch.bfloat16)  #!
    for row in logs:
        total += (row * 1.0).to(total.dtype)
    print(total.float().argmax().item())
    """,
    "rewards, cast as they are added in place": """
    rewards = torch.rand(300, 8)
    sums = torch.zeros(8, dtype=torch.bfloat16)  #!
    for row in rewards:
        sums.add_((row * 1.5).to(sums.dtype))
    print(sums.float().mean().item())
    """,
    "an outer product, cast as it is added": """
    moment = torch.zeros(6, 6, dtype=torch.bfloat16)  #!
    for _ in range(400):
        x = torch.rand(6)
        moment += torch.outer(x, x).to(moment.dtype)
    print(torch.linalg.inv(moment.float()).trace().item())
    """,
}
SQUARES = {
    "of gradients, for their average": """
    average, weight = torch.zeros(32, dtype=torch.float16), torch.zeros(32)  #!
    for _ in range(60):
        gradient = (torch.randn(32) * 1e-4).to(average.dtype)
        average += 0.1 * (gradient * gradient - average)
        weight -= 1e-3 * gradient.float() / (average.float().sqrt() + 1e-8)
    print(weight.abs().max().item())
    """,
    "of a frame, for a table of energies": """
    energies = torch.zeros(8, 64, dtype=torch.float16)  #!
    for i in range(8):
        frame = (torch.randn(64) * 1e-4).to(energies.dtype)
        energies[i] = frame * frame
    print((energies.float() + 1e-10).log().mean().item())
    """,
    "of distances, for a buffer": """
    class Far(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("far", torch.zeros(64, dtype=torch.float16))  #!
        def forward(self, x):
            x = x.to(self.far.dtype)
            self.far.copy_(x * x)
            return self.far.float()
    print((1 / (Far()(torch.rand(64) * 1e-4 + 1e-5) + 1e-12)).mean().item())
    """,
}
AS_CONFIGURED = {
    "a cast at the door of a model": """
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(64, 4)
        def forward(self, x):
            mean = x.mean(-1, keepdim=True)
            spread = ((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0)  #!
            return self.out((x - mean) * torch.rsqrt(spread + 1e-5))
    with torch.no_grad():
        print(Norm().to(torch.bfloat16)((12 + 0.3 * torch.randn(32, 64)).to(torch.bfloat16)).float().mean().item())
    """,
    "a square in a model's float16": """
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(8, 16)
        def forward(self, ids):
            h = self.embed(ids) * 400
            return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True))  #!
    print(Norm().half()(torch.arange(8)).float().mean().item())
    """,
    "a square under autocast": """
    net = nn.Linear(8, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        h = net(torch.randn(4, 8)) * 900
        size = h.square().mean()  #!
    print(size.item())
    """,
}
NAMED = {
    "the energies of atoms beside those of a network": """
    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(3, 1)
            self.register_buffer("atoms", torch.tensor([-398.0641, -54.7077], dtype=torch.float32))  #!
        def forward(self, x):
            return 0.001 * self.net(x).sum() + self.atoms[torch.ones(400, dtype=torch.long) * 0].sum()
    shift, x = Shift(), torch.randn(4, 3)
    with torch.no_grad():
        curve = torch.stack([shift(x + 1e-3 * n) for n in range(6)]).double()
    print((curve - curve[0]).abs().mean().item())
    """,
    "a mass that is read beside small changes of it": """
    class Tank:
        def __init__(self):
            self.empty = torch.tensor(125000.0, dtype=torch.float32)  #!
        def weigh(self, drops):
            return drops.sum() * 1e-3 + self.empty
    tank, drops = Tank(), torch.rand(20)
    read = torch.stack([tank.weigh(drops * (1 + 0.01 * n)) for n in range(8)]).double()
    print((read - read[0]).abs().mean().item())
    """,
    "the larger operand has the default": """
    class Tank:
        def __init__(self):
            self.empty = torch.tensor(125000.0)
        def weigh(self, drops):
            return drops.to(torch.float32).sum() * 1e-3 + self.empty  #!
    tank, drops = Tank(), torch.rand(20)
    read = torch.stack([tank.weigh(drops * (1 + 0.01 * n)) for n in range(8)]).double()
    print((read - read[0]).abs().mean().item())
    """,
}
KINDS = {
    "named": NAMED,
    "cast for it": CAST_FOR_IT,
    "float32": IN_FLOAT32,
    "a state": STATES,
    "a state whose dtype is taken": SQUARES,
    "as configured": AS_CONFIGURED,
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, members in KINDS.items() for name in members])
def test_the_line_that_decided_the_dtype_is_named(kind, name, tmp_path):
    program = programs.run(tmp_path, SEED + KINDS[kind][name], numerics=True, reference=True)
    assert program.error is None
    serious = [f for f in program.findings if f.severity != "note"]
    assert serious and program.at(serious[0].culprit.origin.place).endswith("#!"), program.trace


def test_a_counter_that_was_seen_to_stand_still_is_not_foretold_as_well(tmp_path):
    text = """
    class Counting(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})
        @torch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = torch.full((), START, dtype=p.dtype)  #!
                state["step"] += 1
                p -= 0.1 * p.grad / state["step"]
    net = nn.Linear(4, 1, bias=False).to(torch.bfloat16)
    optimizer = Counting(net.parameters())
    for _ in range(8):
        net(torch.ones(2, 4).to(torch.bfloat16)).float().square().sum().backward()
        optimizer.step()
    """
    codes = {}
    for start in (0.0, 512.0):
        program = programs.run(tmp_path, text.replace("START", str(start)), name=f"from_{start:.0f}.py", numerics=True)
        codes[start] = [f.code for f in program.findings if f.code in ("DT505", "DT307")]
    assert codes == {0.0: ["DT505"], 512.0: ["DT307"]}


COUNTED = """
    features = torch.randn(8, 4).half()
    counts = features.{made}  # made
    for n in range(3000):
        counts[n % 1] += 1
    print(counts.float().max().item())
    """


def test_a_counter_that_is_made_like_what_is_counted(tmp_path):
    program = programs.run(tmp_path, COUNTED.format(made="new_zeros(2)"), numerics=True)
    told = [(f.code, f.culprit.origin.line) for f in program.findings if f.severity != "note"]
    assert told == [("DT307", program.line("# made"))]
    wide = COUNTED.format(made="new_zeros(2, dtype=torch.float32)")
    assert programs.run(tmp_path, wide, numerics=True).findings == ()


SCALES = """
    weight = torch.randn(16, 32) * torch.logspace(0, {smallest}, 16)[:, None]
    scale = (weight.abs().amax(1, keepdim=True) / 127).half()
    codes = torch.where(scale > 0, weight / scale, torch.zeros_like(weight)).round().clamp(-127, 127).to(torch.int8)
    print((codes.float() * scale.float()).norm(dim=1).min().item())
    """


@pytest.mark.parametrize(("smallest", "codes"), [(-8, ["DT302"]), (-2, [])])
def test_scales_of_whole_channels_that_become_zero(smallest, codes, tmp_path):
    text = SCALES.format(smallest=smallest)
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


GUARDED = """
    weight = (torch.randn(16, 32) * torch.logspace(0, {smallest}, 16)[:, None]).half()
    scale = weight.abs().amax(1, keepdim=True) / 127  # made
    {guarded}
    codes = (weight.float() / safe.float()).round().clamp(-127, 127).to(torch.int8)
    print((codes.float() * scale.float()).norm(dim=1).min().item())
    """
GUARDS = {
    "where": "safe = torch.where(scale == 0, torch.ones_like(scale), scale)",
    "masked_fill": "safe = scale.masked_fill(scale <= 0, 1.0)",
    "assigned": "safe = scale.clone()\n    safe[safe == 0] = 1.0",
}


@pytest.mark.parametrize("guarded", GUARDS.values(), ids=GUARDS)
@pytest.mark.parametrize("smallest", [-6.5, -2])
def test_scales_that_become_zero_as_they_are_computed_and_are_taken_for_none(smallest, guarded, tmp_path):
    program = programs.run(tmp_path, GUARDED.format(smallest=smallest, guarded=guarded), numerics=True)
    told = [(f.code, f.site.line, bool(f.fix.edits)) for f in program.findings if f.severity != "note"]
    assert told == ([("DT302", program.line("# made"), True)] if smallest < -5 else [])


def test_what_becomes_zero_and_is_replaced_but_not_divided_by(tmp_path):
    text = GUARDED.format(smallest=-6.5, guarded="safe = torch.where(scale == 0, torch.ones_like(scale), scale)")
    text = text.replace("weight.float() / safe.float()", "weight.float() * safe.float()")
    assert [f for f in programs.run(tmp_path, text, numerics=True).findings if f.severity == "warning"] == []


DEFAULT = """
    torch.set_default_dtype(torch.bfloat16)
    try:
        net = nn.Linear(4, 4)
        TABLE
    finally:
        torch.set_default_dtype(torch.float32)
"""
TAKEN = {
    "positions": "at = torch.arange(0.0, 900.0)  #!\n        print(net.weight.float().sum().item() + at.float().cos().sum().item())",
    "depths": "near = torch.linspace(2.0, 6.0, 900)  #!\n        print((1 / near.float().diff().clamp(min=1e-3)).sum().item())",
    "a count": "n = torch.zeros(())  #!\n        for _ in range(600):\n            n += 1\n        print(n.item() / 600)",
}


@pytest.mark.parametrize("table", TAKEN.values(), ids=TAKEN)
def test_a_default_dtype_is_right_for_a_model_and_what_takes_it_and_is_spoilt_is_told(table, tmp_path):
    program = programs.run(tmp_path, DEFAULT.replace("TABLE", table), numerics=True)
    found = next(f for f in program.findings if f.severity == "warning")
    assert program.at(found.culprit.origin.place).endswith("#!")


@pytest.mark.parametrize(
    "table",
    [
        "w = torch.linspace(0.0, 1.0, 9)\n        print((net.weight.sum() * w.sum()).item())",
        "at = torch.arange(0.0, 900.0, dtype=torch.float32)\n        print(at.cos().sum().item())",
        "n = torch.zeros((), dtype=torch.int64)\n        for _ in range(600):\n            n += 1\n        print(n.item() / 600)",
    ],
)
def test_a_default_dtype_that_spoils_nothing(table, tmp_path):
    program = programs.run(tmp_path, DEFAULT.replace("TABLE", table), numerics=True)
    assert [f for f in program.findings if f.severity == "warning"] == []


@pytest.mark.parametrize(
    "text",
    [
        "gate = torch.sigmoid(18 * torch.randn(128, 32) - 12).half()\nused = gate > 0\nout = torch.zeros(128, 32)\n"
        "out[used] = gate[used].float()\nprint(out.sum().item())",
        "heads = (torch.randn(8, 64, 64) * 9).softmax(-1).half()\nsparse = heads > 0\nprint(sparse.float().mean().item())\n"
        "print(((heads * sparse).float() @ torch.randn(8, 64, 16)).mean().item())",
        "grad = torch.randn(64, 64) * torch.logspace(-9, 0, 64)\nprint((grad.half() == 0).all(0).sum().item())",
    ],
)
def test_numbers_that_are_zero_in_float16_and_nothing_beside_the_others(text, tmp_path):
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    assert [f for f in program.findings if f.severity == "warning"] == []


DRAWN = {
    "Gumbel noise": "u = torch.rand(64, 900, dtype=torch.bfloat16)  #!\n"
    "token = (torch.randn(900) - torch.log(-torch.log(u.clamp(min=1e-3)))).argmax(-1)",
    "a race": "u = torch.zeros(32, 4000).half().uniform_()  #!\np = torch.randn(4000).softmax(-1)\n"
    "token = (p / -u.log().float()).argmax(-1)",
    "the best of many": "score = torch.randn(8, 600, dtype=torch.bfloat16)\nu = torch.rand_like(score)  #!\n"
    "kept = (score + -(-u.log()).log()).topk(20).indices",
}


@pytest.mark.parametrize("text", DRAWN.values(), ids=DRAWN)
def test_random_numbers_that_are_too_coarse_for_what_is_chosen_by_them(text, tmp_path):
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    found = next(f for f in program.findings if f.severity == "warning")
    assert found.code == "DT204" and program.at(found.culprit.origin.place).endswith("#!")


@pytest.mark.parametrize(
    "text",
    [
        "u = torch.rand(64, 8, dtype=torch.bfloat16)\nexpert = (torch.randn(8) - torch.log(-torch.log(u))).argmax(-1)",
        "u = torch.rand(64, 900)\ntoken = (torch.randn(900).bfloat16() - torch.log(-torch.log(u)).bfloat16()).argmax(-1)",
        "u = torch.rand(64, 900, dtype=torch.bfloat16)\nkept = u.argsort(-1)[:, :90]",
        "e = torch.zeros(64, 900, dtype=torch.bfloat16).exponential_()\ntoken = (torch.randn(900) - e.log()).argmax(-1)",
        "u = torch.rand(64, 900).half() * 0.9 + 0.05\ngate = torch.sigmoid(u.log() - (1 - u).log())\nprint(gate.mean().item())",
    ],
)
def test_random_numbers_that_are_fine_enough(text, tmp_path):
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    assert [f for f in program.findings if f.severity == "warning"] == []


SCORED = """
torch.manual_seed(0)
net = nn.Sequential(nn.Embedding(128, 16), nn.Linear(16, 128)).to(torch.bfloat16)
with torch.no_grad():
    ids = torch.randint(0, 128, (64, 401))
    x = ids.roll(1, 1)
    old = net(x).float().log_softmax(-1).gather(-1, ids[..., None])[..., 0].sum(-1)
    SCORE
    ratio = (new.float() - old).clamp(-20, 20).exp()
    print(((ratio - 1).abs() > 0.2).float().mean().item())
"""


@pytest.mark.parametrize(
    "score",
    [
        "logp = net(x).log_softmax(-1)  #!\n    new = logp.gather(-1, ids[..., None]).squeeze(-1).sum(-1)",
        "logp = torch.log_softmax(net(x), -1)  #!\n    new = (logp.gather(-1, ids[..., None])[..., 0] * (ids >= 0)).sum(-1)",
    ],
)
def test_the_logarithms_of_probabilities_are_told_that_are_summed_up_in_16_bits(score, tmp_path):
    program = programs.run(tmp_path, SCORED.replace("SCORE", score), numerics=True)
    found = next(f for f in program.findings if f.severity == "warning")
    assert found.code == "DT308" and program.at(found.culprit.origin.place).endswith("#!")


@pytest.mark.parametrize(
    "score",
    [
        "new = net(x).float().log_softmax(-1).gather(-1, ids[..., None])[..., 0].sum(-1)",
        "new = net(x).log_softmax(-1, dtype=torch.float32).gather(-1, ids[..., None])[..., 0].sum(-1)",
    ],
)
def test_logarithms_of_probabilities_in_float32(score, tmp_path):
    program = programs.run(tmp_path, SCORED.replace("SCORE", score), numerics=True)
    assert [f for f in program.findings if f.severity == "warning"] == []


AFTER_HALF = "half = torch.rand(64).half().float()\n"
ROUNDED_IN_FLOAT32 = {
    "self energies": "table = torch.full((64,), 5248.123456789, dtype=torch.float64).to(half.dtype)  # born\n"
    "energy = 0.001 * half + table\nrelative = energy - energy.min()\nprint(torch.softmax(-relative / 2e-4, 0).max())",
    "heights over a datum": "datum = torch.tensor([812_345.678] * 64, dtype=torch.float64).float()  # born\n"
    "height = half * 0.05 + datum\nprint(height.diff().abs().mean())",
    "times": "start = torch.tensor(1_700_000_000.25, dtype=torch.float64).to(torch.float32)  # born\n"
    "at = start + 40 * half\nprint((at - at[0]).std())",
}
FINE_IN_FLOAT32 = {
    "a small offset": "table = torch.full((64,), 3.5, dtype=torch.float64).to(half.dtype)\n"
    "energy = half + table\nprint((energy - energy.min()).mean())",
    "no difference": "table = torch.full((64,), 5248.1, dtype=torch.float64).to(half.dtype)\n"
    "energy = 0.001 * half + table\nprint(energy.mean())",
}


@pytest.mark.parametrize("text", ROUNDED_IN_FLOAT32.values(), ids=ROUNDED_IN_FLOAT32)
def test_what_float32_rounds_counts_after_16_bits_too(text, tmp_path):
    """And the cast that gave up the float64 which a line had named is where that was decided."""
    program = programs.run(tmp_path, AFTER_HALF + text, before="torch.manual_seed(0)", numerics=True)
    (found,) = [f for f in program.findings if f.severity == "warning"]
    assert (found.code, found.culprit.origin.place.stack[0].line) == ("DT308", program.line("born"))


@pytest.mark.parametrize("text", FINE_IN_FLOAT32.values(), ids=FINE_IN_FLOAT32)
def test_what_float32_rounds_a_little(text, tmp_path):
    program = programs.run(tmp_path, AFTER_HALF + text, before="torch.manual_seed(0)", numerics=True)
    assert not [f for f in program.findings if f.severity == "warning"]


FREQUENCIES = "inv = (1.0 / 10000 ** (torch.arange(0, 32, 2).float() / 32))"
ANGLES = {
    "time steps": FREQUENCIES + ".bfloat16()  #!\nt = torch.arange(0, 400, 8).bfloat16()\n"
    "print((t[:, None] * inv).float().sin().diff().abs().max().item())",
    "positions": FREQUENCIES + ".half()  #!\nat = torch.arange(2000).half()\ntable = (at[:, None] * inv).cos()\n"
    "print((table[3] * table[9]).sum().item() - (table[1903] * table[1909]).sum().item())",
    "phases": "turn = (torch.arange(1, 64) * 0.37).bfloat16()  #!\nwave = torch.exp(-0.01 * torch.arange(63.0)) * torch.cos(turn.float() * 4)\n"
    "print(wave.cumsum(0).max().item())",
}


@pytest.mark.parametrize("text", ANGLES.values(), ids=ANGLES)
def test_angles_that_were_rounded_by_parts_of_a_turn(text, tmp_path):
    program = programs.run(tmp_path, text, numerics=True)
    found = next(f for f in program.findings if f.severity == "warning")
    assert found.code == "DT204" and program.at(found.culprit.origin.place).endswith("#!")


@pytest.mark.parametrize(
    "text",
    [
        FREQUENCIES
        + "\nat = torch.arange(2000.0)\ntable = (at[:, None] * inv).cos().half()\nprint(table.float().diff().max().item())",
        FREQUENCIES
        + ".half()\nat = torch.arange(64).half()\nprint((at[:, None] * inv).float().sin().diff().max().item())",
    ],
    ids=["the finished table", "few positions"],
)
def test_angles_that_were_rounded_by_nothing(text, tmp_path):
    program = programs.run(tmp_path, text, numerics=True)
    assert [f for f in program.findings if f.severity == "warning"] == []


FLOORS = {
    "power": "sound = torch.randn(4, 900) * 1e-4\npower = sound.half().square()  #!\n"
    "level = 10 * torch.log10(power.float().view(4, 30, 30).mean(-1) + 1e-10)\nprint((level < -99).float().mean().item())",
    "a product": "p, q = torch.rand(40, 64) * 2e-4, torch.rand(40, 64) * 2e-4\njoint = p.half() * q.half()  #!\n"
    "print(((joint.float() + 1e-9).log() < -20).float().mean().item())",
    "decay": "age = torch.linspace(12, 40, 2000)\nleft = torch.exp(-age.half())  #!\n"
    "print(((left.float() + 1e-12).log() > -20).float().mean().item())",
}


@pytest.mark.parametrize("text", FLOORS.values(), ids=FLOORS)
def test_numbers_that_became_zero_before_a_logarithm_to_compare_by(text, tmp_path):
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    found = next(f for f in program.findings if f.severity == "warning")
    assert found.code == "DT302" and program.at(found.site).endswith("#!")


@pytest.mark.parametrize(
    "text",
    [
        "sound = torch.randn(4, 900) * 1e-2\npower = sound.half().square()\n"
        "level = 10 * torch.log10(power.float().view(4, 30, 30).mean(-1) + 1e-10)\nprint((level < -45).float().mean().item())",
        "age = torch.linspace(1, 9, 2000)\nleft = torch.exp(-age.half())\n"
        "print(((left.float() + 1e-12).log() > -5).float().mean().item())",
    ],
)
def test_numbers_that_stay_above_the_floor_of_a_logarithm(text, tmp_path):
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    assert [f for f in program.findings if f.severity == "warning"] == []


NEEDED = {
    "ids of an embedding": "ids = torch.randint(0, 9, (4, 5))\nmade = nn.Embedding(9, 4)(ids)\nids.abs().mean()  #!",
    "rows that are picked": "rows = torch.arange(6)\nmade = torch.randn(8, 3)[rows]\ntorch.std(rows)  #!",
    "targets that are gathered": "target = torch.randint(0, 4, (6, 1))\nmade = torch.randn(6, 4).gather(1, target)\n"
    "F.softmax(target, 0)  #!",
    "bounds of a slice": "start = torch.tensor([2])\nmade = torch.randn(9)[int(start) :]\nstart.mean()  #!",
    "a range": "lengths = torch.tensor([2, 3])\nmade = [x for n in lengths for x in range(n)]\nlengths.std()  #!",
    "a size": "size = torch.tensor([4])\nmade = torch.zeros(int(size[0]), 2)\nF.softmax(size, 0)  #!",
    "counts that nothing picks with": "count = torch.randint(0, 4, (6, 1))  #!\nmade = torch.randn(6, 1) * count\n"
    "F.softmax(count, 0)",
}


@pytest.mark.parametrize("name", NEEDED)
def test_integers_that_another_call_needs_are_right_where_they_are_made(name, tmp_path):
    program = programs.run(tmp_path, NEEDED[name])
    (finding,) = (f for f in program.findings if f.kind == "collision")
    assert program.at(finding.culprit.origin.place).endswith("#!")
    assert finding.fix.edits or "counts" in name
