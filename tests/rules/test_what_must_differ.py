"""Numbers that must be told apart: neighbours in a table, small gradients, first timesteps."""

from __future__ import annotations

import textwrap

import programs
import pytest


def said(tmp_path, text: str) -> tuple[programs.Program, list[tuple[str, str]]]:
    program = programs.run(tmp_path, f"torch.manual_seed(0)\n{textwrap.dedent(text)}", numerics=True)
    return program, [(f.code, f.kind) for f in program.findings if f.severity != "note"]


def test_measurements_may_be_large_and_distinct(tmp_path):
    assert said(tmp_path, "torch.unique((torch.rand(500) * 1e9 + torch.rand(500)))")[1] == []


BIASES = """
slopes = 2.0 ** -torch.arange(1, 5)
far = torch.arange({first}, {last})
bias = (slopes[:, None] * far).to(torch.{dtype})  # cast
(bias.float() * torch.rand(4, 1)).softmax(-1)
"""


@pytest.mark.parametrize(
    ("first", "last", "dtype", "found"),
    [
        (0, 1024, "bfloat16", [("DT204", "downcast")]),
        (0, 1024, "float32", []),
        (0, 100, "bfloat16", []),
        (-1023, 1, "bfloat16", []),  # relative to the last one: the far ones vanish in the softmax
    ],
)
def test_biases_of_neighbouring_positions(first, last, dtype, found, tmp_path):
    program, codes = said(tmp_path, BIASES.format(first=first, last=last, dtype=dtype))
    assert codes == found
    for f in program.findings:
        assert program.at(f.culprit.origin.place).endswith("# cast")


def test_rotary_tables_may_be_cast_when_they_are_ready(tmp_path):
    text = """
    angles = torch.arange(1024)[:, None] * 10000 ** (-torch.arange(0, 32, 2) / 32)
    table = torch.cos(angles).to(torch.bfloat16)
    (table.float() * torch.rand(1024, 16)).sum()
    """
    assert said(tmp_path, text)[1] == []


@pytest.mark.parametrize(("scale", "found"), [(1, [("DT302", "underflow")]), (2**12, [])])
def test_gradients_that_are_packed_in_8_bits(scale, found, tmp_path):
    text = f"""
    net = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(4):
        opt.zero_grad()
        (net(torch.rand(64, 16)) * 0.01).square().mean().backward()
        for p in net.parameters():
            packed = (p.grad * {scale}).to(torch.float8_e5m2)  # packed
            p.grad = packed.float() / {scale}
        opt.step()
    """
    program, codes = said(tmp_path, text)
    assert codes[:1] == found
    if found:
        assert program.at(program.findings[0].culprit.origin.place).endswith("# packed")


def test_a_determinant_that_a_limit_replaces(tmp_path):
    text = """
    cov = torch.eye(16) * 1e-3  # born
    for _ in range(3):
        volume = torch.det(cov).clamp_min(1e-38).log()
    """
    program, codes = said(tmp_path, text)
    assert codes == [("DT302", "underflow")]
    assert program.at(program.findings[0].culprit.origin.place).endswith("# born")


def test_exponentials_that_vanish_before_they_are_normalised(tmp_path):
    text = """
    net = nn.Linear(4, 4)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    def shares(shift):
        rate = torch.exp(net(torch.rand(8, 4)) - shift)  # exp
        return rate / rate.sum(-1, keepdim=True)
    for step in range(4):
        opt.zero_grad()
        shares(0.0).square().mean().backward()
        opt.step()
    print(shares(200.0).sum().item())
    """
    program, codes = said(tmp_path, text)
    assert codes == [("DT302", "underflow")]
    assert program.at(program.findings[0].culprit.origin.place).endswith("# exp")


@pytest.mark.parametrize(
    ("dtype", "steps", "found"),
    [("bfloat16", 25, [("DT204", "downcast")]), ("bfloat16", 1000, []), ("float32", 25, [])],
    ids=["the first timesteps", "all timesteps", "float32"],
)
def test_the_noise_of_the_first_timesteps(dtype, steps, found, tmp_path):
    text = f"""
    kept = (1 - torch.linspace(1e-4, 0.02, 1000)).cumprod(0)
    for _ in range(3):
        latents = torch.rand(64, 8).to(torch.{dtype})
        t = torch.randint(0, {steps}, (64,))
        alpha = kept.to(latents.dtype)[t]  # cast
        noisy = alpha[:, None] ** 0.5 * latents + (1 - alpha[:, None]) ** 0.5 * torch.rand_like(latents)
        print(noisy.float().mean().item())
    """
    assert said(tmp_path, text)[1] == found


@pytest.mark.parametrize(("dtype", "found"), [("bfloat16", [("DT308", "precision-loss")]), ("float32", [])])
def test_the_exponential_of_a_difference_that_cancels(dtype, found, tmp_path):
    text = f"""
    log_p = -torch.rand(256) * 40 - 400
    stored = log_p.to(torch.{dtype})  # cast
    for _ in range(3):
        ratio = (log_p - stored.float()).exp()
        print((ratio - 1).square().mean().item())
    """
    program, codes = said(tmp_path, text)
    assert codes == found
    if found:
        assert program.at(program.findings[0].culprit.origin.place).endswith("# cast")


@pytest.mark.parametrize("columns", ["times[:, None]", "np.stack([times, sizes], 1)"])
def test_times_in_one_column_of_a_table(columns, tmp_path):
    text = f"""
    import numpy as np
    draw = np.random.default_rng(0)
    times, sizes = 1_700_000_000 + np.cumsum(draw.exponential(12.0, 200)), draw.normal(size=200)
    table = torch.tensor({columns}, dtype=torch.float32)  # converted
    torch.diff(table[:, 0]).clamp(max=60).tanh().mean()
    """
    program, codes = said(tmp_path, text)
    assert ("DT204", "downcast") in codes
    assert program.at(program.findings[0].culprit.origin.place).endswith("# converted")


def test_weights_that_become_zero_as_they_are_stored(tmp_path):
    text = """
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    nn.init.normal_(net[1].weight, std=1e-4)
    packed = {k: v.to(torch.float8_e4m3fn) for k, v in net.state_dict().items()}  # packed
    """
    program, codes = said(tmp_path, text)
    assert codes == [("DT302", "underflow")]
    assert program.at(program.findings[0].culprit.origin.place).endswith("# packed")


@pytest.mark.parametrize(("dtype", "found"), [("bfloat16", [("DT307", "lost-update")]), ("float32", [])])
def test_an_average_that_is_computed_wide_and_copied_back(dtype, found, tmp_path):
    text = f"""
    from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn
    net = nn.Linear(8, 8)
    average = AveragedModel(nn.Linear(8, 8), avg_fn=get_ema_avg_fn(0.998)).to(torch.{dtype})
    for _ in range(12):
        with torch.no_grad():
            for p in net.parameters():
                p.add_(torch.rand_like(p) * 0.001)
        average.update_parameters(net)
    """
    assert said(tmp_path, text)[1] == found


@pytest.mark.parametrize(("dtype", "found"), [("bfloat16", [("DT307", "lost-update")]), ("float32", [])])
def test_a_sum_by_index_that_stops_within_one_call(dtype, found, tmp_path):
    text = f"""
    where = torch.randint(0, 4, (6000,))
    for _ in range(3):
        degree = torch.zeros(4, dtype=torch.{dtype})
        degree.index_add_(0, where, torch.ones(6000, dtype=torch.{dtype}))  # counted
        print(degree.float().mean().item())
    """
    program, codes = said(tmp_path, text)
    assert codes[:1] == found
    if found:
        assert program.at(program.findings[0].site).endswith("# counted")


@pytest.mark.parametrize(
    ("dtype", "width", "found"),
    [("bfloat16", 1024, [("DT204", "downcast")]), ("bfloat16", 128, []), ("float32", 1024, [])],
)
def test_the_grid_of_a_wide_image(dtype, width, found, tmp_path):
    text = f"""
    theta = torch.eye(2, 3)[None].to(torch.{dtype})
    grid = nn.functional.affine_grid(theta, (1, 1, 8, {width}), align_corners=False)
    nn.functional.grid_sample(torch.rand(1, 1, 8, {width}), grid.float(), align_corners=False)
    """
    assert said(tmp_path, text)[1] == found


def test_a_mask_that_becomes_infinite_in_inference_mode(tmp_path):
    text = """
    with torch.inference_mode():
        allowed = torch.ones(4, 8, 8).tril()
        allowed[:, :3] = 0
        bias = ((1 - allowed) * -1e9).to(torch.float16)  # cast
        mixed = torch.softmax(torch.rand(4, 8, 8, dtype=torch.float16) + bias, -1) @ torch.rand(4, 8, 8).half()
        print(mixed.float().sum().item())
    """
    program, codes = said(tmp_path, text)
    assert codes[:1] == [("DT301", "overflow")]
    assert program.at(program.findings[0].site).endswith("# cast")


@pytest.mark.parametrize(("level", "found"), [(12.0, ["DT301"]), (2.0, [])])
def test_steps_that_are_nearly_all_skipped(level, found, tmp_path):
    text = f"""
    net = nn.Linear(4, 1)
    nn.init.constant_(net.bias, {level})
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(20):
        with torch.autocast("cpu", dtype=torch.float16):
            log_rate = net(torch.rand(8, 4) * (step > 2))
            loss = (torch.exp(log_rate if step > 2 else log_rate - {level}) - 5 * log_rate).mean()
        opt.zero_grad()
        loss.backward()
        if torch.isfinite(nn.utils.clip_grad_norm_(net.parameters(), 1.0)):
            opt.step()
    """
    program, codes = said(tmp_path, text)
    assert [code for code, _ in codes] == found


@pytest.mark.parametrize(("dtype", "found"), [("int8", [("DT301", "overflow")]), ("int32", [])])
def test_products_of_8_bit_matrices(dtype, found, tmp_path):
    text = f"""
    codes = torch.randint(-100, 100, (16, 32)).to(torch.int8)
    weight = torch.randint(-100, 100, (32, 8)).to(torch.int8)
    for _ in range(2):
        total = torch.matmul(codes.to(torch.{dtype}), weight.to(torch.{dtype}))  # multiplied
        (total * 0.01).mean()
    """
    program, codes = said(tmp_path, text)
    assert codes == found
    for f in program.findings:
        assert program.at(f.site).endswith("# multiplied")


RATINGS = """
table = torch.full((40,), 1500.0, dtype=torch.{dtype})
for day in range(12):
    rows = torch.randperm(40)[:20]
    table[rows] += torch.rand(20).to(table.dtype)
print(table.float().mean().item())
"""


@pytest.mark.parametrize(("dtype", "found"), [("bfloat16", ["DT307"]), ("float32", [])])
def test_rows_that_are_picked_changed_and_put_back(dtype, found, tmp_path):
    assert [code for code, _ in said(tmp_path, RATINGS.format(dtype=dtype))[1]] == found


LATE = """
counts = torch.zeros(8, dtype=torch.{dtype})
for _ in range(1200):
    counts[torch.arange(4)] += 1
print(counts.sum().item())
"""
FRESH = """
for _ in range(20):
    x = torch.randn(64, 8).bfloat16()
    y = x.clone()
    y[x[:, 0] > 0] += 0.001 * x[x[:, 0] > 0]
print(y.sum().item())
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [(LATE.format(dtype="bfloat16"), ["DT307"]), (LATE.format(dtype="float32"), []), (FRESH, [])],
    ids=["late", "in float32", "in a new tensor each time"],
)
def test_rows_that_change_no_more_after_many_calls(text, found, tmp_path):
    assert [code for code, _ in said(tmp_path, text)[1]] == found


NEAR = """
from torch.nn import functional as F
torch.manual_seed(6)
centre = torch.randn(64, 32)
unit = F.normalize(torch.cat([centre, centre + {apart} * torch.randn(64, 32)]), dim=-1)
similarity = (unit @ unit.T).bfloat16()
similarity.fill_diagonal_(0)
print((similarity > {limit}).any(1).sum().item())
"""


@pytest.mark.parametrize(("apart", "limit", "found"), [(0.06, 0.9985, ["DT308"]), (0.3, 0.7, [])])
def test_what_is_compared_after_a_cast(apart, limit, found, tmp_path):
    assert [code for code, _ in said(tmp_path, NEAR.format(apart=apart, limit=limit))[1]] == found


@pytest.mark.parametrize(("eps", "found"), [("1e-8", ["DT302"]), ("1e-4", [])])
def test_a_number_of_pythons_that_is_zero_in_float16(eps, found, tmp_path):
    text = f"""
    rows = torch.randn(8, 4)
    rows[5] = 0
    eps = torch.tensor({eps}, dtype=torch.float16)
    print((rows / (rows.norm(dim=-1, keepdim=True) + eps.float())).sum().item())
    """
    assert [code for code, _ in said(tmp_path, text)[1]] == found


WRITTEN = """
import torch
ids = {made}
{write}
ids = ids.to(torch.{dtype})
rate = 1.0 / 10000.0 ** (torch.arange(0, 8, 2, dtype=torch.float64) / 8)
angle = ids.double()[:, None] * rate if ids.dim() == 1 else ids[:, 1].double()[:, None] * rate
table = torch.cat([angle.cos(), angle.sin()], -1).float()
net = nn.Linear(8, 2)
print(net(table).sum().item())
"""


@pytest.mark.parametrize(
    ("made", "write", "dtype", "told"),
    [
        ("torch.zeros(512, 3)", "ids[:, 1] = torch.arange(512)", "bfloat16", True),
        ("torch.zeros(512)", "ids[:] = torch.arange(512.0)", "bfloat16", True),
        ("torch.zeros(600, 2)", "ids[:, 1].copy_(torch.arange(600))", "bfloat16", True),
        ("torch.zeros(64, 3)", "ids[:, 1] = torch.arange(64)", "bfloat16", False),
        ("torch.zeros(512, 3)", "ids[:, 1] = torch.arange(512)", "float16", False),
        ("torch.zeros(512, 3)", "ids[:, 0] = torch.arange(512) % 2", "bfloat16", False),
    ],
)
def test_positions_that_are_written_into_a_table_count(made, write, dtype, told, tmp_path):
    text = WRITTEN.format(made=made, write=write, dtype=dtype)
    found = programs.run(tmp_path, text, numerics=True).findings
    assert [f.code for f in found if f.severity != "note"] == ["DT204"] * told


SCALED = """
class Block(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.gamma = nn.Parameter({made})
        self.up = nn.Linear(dim, dim)
    def forward(self, x):
        return x + self.gamma * self.up(x)
torch.manual_seed(0)
net = nn.Sequential(Block(), Block()).half()
with torch.no_grad():
    print(net(torch.randn(4, 8).half()).float().sum().item())
"""


@pytest.mark.parametrize(
    "made",
    ["1e-6 * torch.ones(dim, dtype=torch.float16)", "torch.full((dim,), 1e-3, dtype=torch.float16) * 1e-3"],
)
def test_one_number_everywhere_is_no_table(made, tmp_path):
    program = programs.run(tmp_path, SCALED.format(made=made), numerics=True, reference=True)
    assert not [f for f in program.findings if f.severity != "note"]


def test_one_number_everywhere_of_which_nothing_is_right(tmp_path):
    made = "(1 - torch.full((dim,), 0.9999, dtype=torch.bfloat16)).half()"
    program = programs.run(tmp_path, SCALED.format(made=made), numerics=True, reference=True)
    assert [f.code for f in program.findings if f.severity != "note"] == ["DT204"]
