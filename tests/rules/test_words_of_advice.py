"""Advice names what the reader has to change: the tensor as the program writes it, its modules, its table."""

from __future__ import annotations

import programs
import pytest

from dtypetrace.render import cards

TABLES = """
import torch
rate = 10000.0 ** (-torch.arange(0, 8, 2) / 8)
angle = torch.outer(torch.arange(64), rate)
cos, sin = angle.cos(), angle.sin()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(torch.bfloat16)
x = model[0](torch.randn(64, 4, dtype=torch.bfloat16))
model[1]((x * cos + x * sin).to(torch.bfloat16)) if CAST else (x * cos + x * sin) @ (x * cos).T
"""

AVERAGE = """
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
torch.manual_seed(0)
model = nn.Linear(12, 3).to(torch.bfloat16)
shadow = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9999))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for _ in range(8):
    model(torch.randn(16, 12, dtype=torch.bfloat16)).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    shadow.update_parameters(model)
"""

FOREACH = """
import torch
torch.manual_seed(0)
model = nn.Linear(16, 8)
kept = [p.detach().clone().half() for p in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(6):
    model(torch.randn(8, 16)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        torch._foreach_lerp_(kept, [p.detach().half() for p in model.parameters()], 1e-4)
"""

SCHEDULE = """
import torch
rise = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float16)
kept = (1 - rise).cumprod(dim=0)
model = nn.Linear(4, 4).half()
with torch.no_grad():
    model(kept[torch.tensor([3, 900])][:, None] * torch.randn(2, 4).half())
"""

DECODED = """
import torch
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))
model = nn.Sequential(*(Layer() for _ in range(3))).requires_grad_(False)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    x = torch.randn(1, 16)
    for _ in range(8):
        x = model(x)
"""

BUFFER = """
import torch
class Whiten(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("eps", torch.full((24,), 1e-8))
        self.gain = nn.Parameter(torch.ones(24))
    def forward(self, x):
        return self.gain * x / ((x - x.mean(0)).abs().mean(0) + self.eps)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 24), Whiten()).half()
with torch.no_grad():
    net[0].weight[:4] = 0.0
    net(torch.randn(6, 10).half())
"""


def found(tmp_path, text: str, code: str):
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None, program.error
    return next(f for f in program.findings if f.code == code)


def afters(finding) -> list[str]:
    return [edit.after for edit in finding.fix.edits]


def test_an_angles_two_tables_are_both_cast_when_they_are_complete(tmp_path):
    f = found(tmp_path, TABLES.replace("CAST", "False"), "DT201")
    assert f.fix.why == "cast angle.cos() and angle.sin() to bfloat16 here"
    assert afters(f) == ["angle.cos().to(torch.bfloat16)", "angle.sin().to(torch.bfloat16)"]


def test_a_table_that_would_be_refused_wide_is_cast_when_it_is_complete(tmp_path):
    f = found(tmp_path, SCHEDULE, "DT204")
    assert f.fix.why == "make the table in float32, and cast it to float16 when it is ready"
    assert afters(f)[0] == "torch.float32" and afters(f)[1].endswith(".to(torch.float16)")
    again = SCHEDULE
    for edit in sorted(f.fix.edits, key=lambda e: e.start, reverse=True):
        again = again.replace(edit.before, edit.after, 1)
    assert programs.run(tmp_path, again, numerics=True, name="again.py").findings == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            AVERAGE,
            "keep the trained weights in float32, and let autocast compute in bfloat16: "
            "the tensor that shadow.update_parameters() changes has the dtype of these weights",
        ),
        (
            FOREACH,
            "keep `kept` in float32: it is changed a little at a time. No diff is shown, because with this change alone "
            "_foreach_lerp_ at program.py:11 would refuse it",
        ),
    ],
    ids=["of a library's call", "of a list"],
)
def test_an_average_is_called_as_the_program_calls_it(text, why, tmp_path):
    f = found(tmp_path, text, "DT307")
    assert f.fix.why == why and not f.fix.edits
    assert bool(f.fix.lines) is (text is AVERAGE)  # two lines to type: float32 weights, and autocast


def test_weights_that_autocast_casts_again_are_named_by_their_modules(tmp_path):
    f = found(tmp_path, DECODED, "DT205")
    made = "model = nn.Sequential(*(Layer() for _ in range(3))).requires_grad_(False)"
    assert f.fix.why == "cast `model` to bfloat16 once, and leave autocast on"
    assert afters(f) == ["\nmodel.to(torch.bfloat16)"]
    again = programs.run(tmp_path, DECODED.replace(made, made + afters(f)[0]), numerics=True, name="b.py")
    assert all(f.severity == "note" for f in again.findings)
    normed = DECODED.replace("range(3))).requires", "range(3)), nn.LayerNorm(16)).requires")
    f = found(tmp_path, normed, "DT205")
    assert 'if name.endswith(("down", "up")):' in afters(f)[0]
    assert "cast the parameters of the modules called up and `down` to bfloat16 once" in f.fix.why.replace("`up`", "up")
    assert f.fix.why.endswith("and leave autocast on")


def test_numbers_that_a_models_cast_makes_zero_are_named_as_they_are_used(tmp_path):
    f = found(tmp_path, BUFFER, "DT302")
    assert f.title == "`div` meets values of self.eps that became zero in float16"
    assert f.fix.why == "keep self.eps in float32, or scale it up before the cast"


LOADED = """
import io
import torch
torch.manual_seed(0)
model = nn.Linear(6, 6)
file = io.BytesIO()
torch.save({"exp_avg": torch.zeros(6, 6, dtype=torch.float16)}, file)
file.seek(0)
optimizer = torch.optim.Adam([model.weight])
model(torch.randn(2, 6)).sum().backward()
optimizer.step()
optimizer.state[model.weight].update(torch.load(file))
optimizer.step()
"""


FORCES = """
import torch
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    place = torch.randn(4, 2, requires_grad=True)
    force = torch.autograd.grad(model(place).sum(), place, create_graph=True)[0]
    force.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_parameter_on_which_the_loss_does_not_depend_is_not_said_to_have_no_graph(tmp_path):
    f = found(tmp_path, FORCES, "DT305")
    assert f.flow[-1].said == (
        "a loss that uses only derivatives of this result, such as forces, does not depend on 2.bias"
    )
    assert f.fix.why == "nothing to change, if 2.bias is not to be trained: the optimizer skips it"
    assert f.fix.alternatives == ("to train it, compute a loss that depends on it",)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("y = x[:, None] * wide", "x[:, None]"),
        ("y = x / x.square().mean(dim=-1, keepdim=True).add(1e-5).sqrt() * wide", "x / (...)"),
    ],
)
def test_an_operand_without_a_name_is_called_by_a_part_of_what_is_written(line, name, tmp_path):
    text = f"""
import torch
torch.manual_seed(0)
model = nn.Linear(4, 4).half()
wide = torch.ones(4)
x = model(torch.randn(4, 4).half())
{line}
z = (y @ torch.ones(4, 4)).tanh().sigmoid().exp()
"""
    f = found(tmp_path, text, "DT201")
    assert name in [o.shown for o in f.operands]


def test_two_edits_of_one_line_are_one_diff_on_the_page(tmp_path):
    program = programs.run(tmp_path, TABLES.replace("CAST", "False"))
    f = next(f for f in program.findings if f.code == "DT201")
    (block,) = cards.changes_of(program.with_text, f)
    added = [text for sign, text in block.lines if sign == "+"]
    assert added == ["cos, sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)"]


ROTARY = """
import torch
class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rate", 0.1 ** torch.linspace(0, 4, 8))
    def forward(self, x):
        angle = torch.outer(torch.arange(len(x)), self.rate.float())
        return x * torch.cat([angle.cos(), angle.sin()], dim=1).to(x.dtype)
torch.manual_seed(0)
net = nn.Sequential(Rotary(), nn.Linear(16, 4))MADE
print(net(torch.randn(600, 16).bfloat16()).shape)
"""


@pytest.mark.parametrize("cast", [".to(torch.bfloat16)", "\nnet.bfloat16()"], ids=["as it is made", "later"])
def test_a_buffer_keeps_its_numbers_when_its_model_is_cast(cast, tmp_path):
    text = ROTARY.replace("MADE", cast)
    f = found(tmp_path, text, "DT204")
    assert f.fix.why.startswith("keep self.rate of net.0 as it is in float32")
    (edit,) = f.fix.edits
    assert "net[0].rate = rate_float32" in edit.after
    again = text.replace(edit.before, edit.after, 1)
    assert programs.run(tmp_path, again, numerics=True, name="again.py").findings == ()


def test_a_buffer_is_made_again_where_the_cast_moves_the_model_too(tmp_path):
    f = found(tmp_path, ROTARY.replace("MADE", '.to("cpu", torch.bfloat16)'), "DT204")
    assert f.fix.edits == () and f.fix.why.startswith("compute self.rate of net.0 again in float32, as in program.py:5")


STEPS = """
import torch
class Timed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = torch.exp(-torch.arange(8) / 8 * 9.0)
        self.mix = nn.Linear(16, 4)
    def forward(self, x, step):
        step = step.to(x.dtype)
        angle = step[:, None] * self.rate.to(x.dtype)
        return x + self.mix(torch.cat([angle.cos(), angle.sin()], dim=-1))
torch.manual_seed(0)
net = Timed().bfloat16()
print(net(torch.randn(8, 4).bfloat16(), torch.full((8,), 999)).shape)
"""


def test_every_cast_on_the_way_to_a_table_is_changed_and_the_table_cast_to_the_same_variable(tmp_path):
    f = found(tmp_path, STEPS, "DT204")
    assert afters(f)[:2] == ["step.to(torch.float32)", "self.rate.to(torch.float32)"]
    assert afters(f)[2].endswith(".to(x.dtype)")
    again = STEPS
    for edit in f.fix.edits:
        again = again.replace(edit.before, edit.after, 1)
    assert programs.run(tmp_path, again, numerics=True, name="again.py").findings == ()


RECAST = """
import torch
class ManualCast(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))
torch.manual_seed(0)
net = nn.Sequential(ManualCast(16, 32), nn.GELU(), ManualCast(32, 16)EXTRA).requires_grad_(False)
x = torch.randn(2, 16).half()
for _ in range(8):
    x = x - 0.1 * net(x)
"""


def test_a_model_whose_weights_are_all_cast_again_is_cast_where_it_is_made(tmp_path):
    f = found(tmp_path, RECAST.replace("EXTRA", ""), "DT205")
    assert afters(f) == ["\nnet.to(torch.float16)"]


def test_no_edit_casts_other_weights_than_those_that_are_cast_again(tmp_path):
    f = found(tmp_path, RECAST.replace("EXTRA", ", nn.LayerNorm(16, dtype=torch.float16)"), "DT205")
    assert "named_modules()" in afters(f)[0] and 'endswith(("0", "2"))' in afters(f)[0]


@pytest.mark.parametrize("way", ["topk(5)", "sort(dim=1, descending=True)", "max(dim=1, keepdim=True)"])
def test_bfloat16_is_no_remedy_for_digits(way, tmp_path):
    """Scores that float16 cannot tell apart: bfloat16 has the range of float32, and fewer digits than float16."""
    text = f"""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2, padding=1))
    head = nn.Linear(16, 8).half()
    @torch.no_grad()
    def features(n):
        return F.normalize(head(net.half()(torch.rand(n, 3, 16, 16).half()).mean((2, 3))), dim=1)
    a, b = features(32), features(64)
    labels = torch.randint(0, 4, (64,))
    scores = a @ b.T
    distances, indices = scores.float().{way}
    votes = (F.one_hot(labels[indices], 4) * (distances / 0.07).exp()[..., None]).sum(1)
    print((votes.argmax(1) == torch.randint(0, 4, (32,))).float().mean())
    """
    found = [f for f in programs.run(tmp_path, text, numerics=True).findings if f.kind == "precision-loss"]
    assert found and all("bfloat16" not in " ".join(f.fix.alternatives) for f in found)
