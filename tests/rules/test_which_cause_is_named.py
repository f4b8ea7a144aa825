"""Damage whose cause can be named in two ways: which is named, and which is said first."""

from __future__ import annotations

import programs


def said(folder, text: str) -> list[tuple[str, str]]:
    """Code of each warning and the line where its dtype was decided."""
    ran = programs.run(folder, text, numerics=True, whole_script=True)
    warnings = [f for f in ran.findings if f.severity == "warning"]
    return [(f.code, ran.at(f.culprit.origin.place) if f.culprit else "") for f in warnings]


NORMALIZED = """
torch.manual_seed(0)
embed = nn.Linear(16, 16)
optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)
x = torch.randn(8, 4, 16)
SAME
for _ in range(3):
    with torch.autocast("cpu", dtype=torch.float16):
        scores = embed(x).sum(-1)
        low, high = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
        scores = (scores - low) / (high - low + 1e-8)
        loss = scores.float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss)
"""


def test_numbers_that_were_destroyed_come_before_a_setting_that_did_no_harm(tmp_path):
    line = "scores = (scores - low) / (high - low + 1e-8)"
    found = said(tmp_path, NORMALIZED.replace("SAME", "x[3] = x[3, :1]"))
    assert found[0] == ("DT302", line)
    assert [code for code, _ in found[1:]] == ["DT404"]
    assert said(tmp_path, NORMALIZED.replace("SAME", "")) == []


SPLATS = """
torch.manual_seed(0)
scale = 0.02 + 0.02 * torch.rand(2000, 3, dtype=torch.float64)
scale[:1500, 0] = THIN
area = torch.diag_embed(scale.square())
kept = area.to(torch.float16)
size = torch.linalg.det(kept.double()).sqrt()
print(int((size > LEAST).sum()))
"""


def splats(thin: str, least: str) -> str:
    return SPLATS.replace("THIN", thin).replace("LEAST", least)


def test_what_is_compared_is_zero_because_a_cast_made_a_factor_of_it_zero(tmp_path):
    assert said(tmp_path, splats("1e-4", "0")) == [("DT302", "kept = area.to(torch.float16)")]
    assert said(tmp_path, splats("2e-2", "0")) == []


STAMPS = """
points = torch.randn(400, 3)
def column(stamp):
    stamp = torch.full((400, 1), stamp, dtype=torch.int64).to(points.dtype)
    return torch.cat([points, stamp], dim=1)
stamps = [column(FIRST + 100_000 * i + 37 * (i % 3))[0, 3] for i in range(30)]
lag = torch.stack([b - a for a, b in zip(stamps, stamps[1:])]).double() * 1e-6
print(lag.mean())
"""


def test_integers_are_merged_by_the_cast_and_not_by_the_tensor_whose_dtype_it_takes(tmp_path):
    cast = "stamp = torch.full((400, 1), stamp, dtype=torch.int64).to(points.dtype)"
    assert said(tmp_path, STAMPS.replace("FIRST", "1550083467346370")) == [("DT308", cast)]
    assert said(tmp_path, STAMPS.replace("FIRST", "0")) == []


CHECKPOINT = """
import copy, io
torch.manual_seed(0)
model = nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    optimizer.zero_grad()
    (SCALE * model(torch.randn(16, 8)).square().mean()).backward()
    optimizer.step()
state = copy.deepcopy(optimizer.state_dict())
for moments in state["state"].values():
    for name in ("exp_avg", "exp_avg_sq"):
        moments[name] = moments[name].half()
torch.save({"model": model.state_dict(), "optimizer": state}, io.BytesIO())
"""


def test_a_cast_that_makes_state_zero_is_said_once_where_a_checkpoint_has_its_result(tmp_path):
    cast = "moments[name] = moments[name].half()"
    assert said(tmp_path, CHECKPOINT.replace("SCALE", "1e-3")) == [("DT302", cast)]
    assert said(tmp_path, CHECKPOINT.replace("SCALE", "10")) == [("DT408", cast)]


ENERGIES = """
torch.manual_seed(0)
path = torch.linspace(-1, 1, 41, dtype=torch.float64)
features = torch.exp(-8 * (path[:, None] - torch.linspace(-1, 1, 9, dtype=torch.float64)).square()).to(torch.float16)
network = features.float() @ (0.002 * torch.rand(9))
atoms = torch.full((41, ATOMS), -75.0678312583, dtype=torch.float64)
reference = atoms.sum(1).to(network.dtype)
energy = network + reference
profile = READ
print(profile.max())
"""


def energies(atoms: int, read: str = "energy.double() - energy[0].double()") -> str:
    return ENERGIES.replace("ATOMS", str(atoms)).replace("READ", read)


def test_a_large_number_was_cast_that_is_added_to_a_small_one_from_16_bits(tmp_path):
    assert said(tmp_path, energies(500)) == [("DT308", "reference = atoms.sum(1).to(network.dtype)")]
    assert said(tmp_path, energies(1)) == []


def test_what_is_zero_by_structure_or_read_as_it_is_beside_16_bits(tmp_path):
    assert said(tmp_path, energies(500, "energy")) == []
    assert said(tmp_path, energies(500, "energy.cumsum(0)[-1:] - energy.flip(0).cumsum(0)[-1:]")) == []
    assert said(tmp_path, energies(500, "(energy.double() - reference.double()) - network.double()")) == []
    assert said(tmp_path, energies(500, "energy - energy.mean()").replace("0.002", "4.0")) == []
    assert said(tmp_path, energies(500, "energy[3:].double() - (network.double() + atoms.sum(1))[3:]")) == []
    assert said(tmp_path, energies(500, "energy[0].double() - energy.double()[0]")) == []


HIDDEN = """
torch.manual_seed(0)
moments = torch.stack([2000 + 10 * torch.randn(4000), 1e-2 + 1e-6 * torch.randn(4000)], 1)
kick = torch.randn(4000, 2)SMALL
first, second = moments.mean(0), moments.square().mean(0)
spread = (second - first ** 2).clamp_min(0)
RESULT
print((added.std(0) / torch.tensor([10.0, 1e-6]))[1].item())
"""
RESULTS = {
    "the difference of the sum": "moved = moments + 0.1 * spread.sqrt() * kick\nadded = moved.double() - moments.double()",
    "a difference of more": "moved = (moments + spread.sqrt() * kick).double()\nadded = 0.1 * (moved - moments)",
}


def test_what_a_sum_hides_is_followed_where_a_difference_shows_it(tmp_path):
    for small in ("", ".half().float()"):
        for result in RESULTS.values():
            text = HIDDEN.replace("RESULT", result).replace("SMALL", small)
            ran = programs.run(tmp_path, text, numerics=True, whole_script=True)
            warnings = [f for f in ran.findings if f.severity == "warning"]
            assert [(f.code, ran.at(f.site)) for f in warnings] == [
                ("DT308", "spread = (second - first ** 2).clamp_min(0)")
            ], ran.trace


THRESHOLD = """
torch.manual_seed(0)
torch.set_grad_enabled(False)
embed = nn.Embedding(512, 16).bfloat16()
picked = []
for token in (5, 36, 253, 111):
    logits = embed(torch.tensor(token)) @ embed.weight.t()
    scores = logits - torch.logsumexp(logits, -1, keepdim=True)
    shares = torch.softmax(scores, -1)
    keep = COMPARED
    picked.append(int(torch.where(keep, scores, -float("inf")).argmax()))
print(picked)
torch.set_grad_enabled(True)
"""


def test_a_comparison_that_rounds_what_it_compares_with_is_named(tmp_path):
    for compared in (
        "shares.sort().values.cumsum(-1) > 1 - 1e-3",
        "shares.sort().values.cumsum(-1).gt(0.9985)",
        "shares.flip(0).sort().values.cumsum(-1) > 0.9988",
    ):
        found = said(tmp_path, THRESHOLD.replace("COMPARED", compared))
        assert found == [("DT308", f"keep = {compared}")], compared


FOLLOWS = """
torch.manual_seed(0)
rates = (1.0 / 10000 ** (torch.arange(0, 32, 2).float() / 32)).to(torch.DTYPE)
places = POSITIONS
angles = torch.outer(places, rates)
table = angles.cos()
x = torch.randn(COUNT, 16)
print((x * table.float()).sum().item())
"""


def test_a_table_is_coarse_by_what_was_rounded_and_not_by_integers_that_follow_its_dtype(tmp_path):
    for dtype, count in (("float16", 2048), ("bfloat16", 256)):
        for positions in (f"torch.arange({count}).type_as(rates)", f"torch.arange({count}).to(rates.dtype)"):
            text = FOLLOWS.replace("DTYPE", dtype).replace("POSITIONS", positions).replace("COUNT", str(count))
            (named,) = said(tmp_path, text)
            assert named[0] == "DT204" and named[1].startswith("rates ="), named


AVERAGED = """
torch.manual_seed(0)
offset = 6 + 10 * torch.rand(32)
def seen(step):
    return (offset * (0.7 if step < 60 else 1.0) + 0.25 * torch.randn(24, 32)).to(torch.bfloat16)
kept, count = START, 0
for step in range(700):
    now = NOW
    kept = now if kept is None else KEEP
    count += 1
print((kept.float() - offset).abs().mean())
"""


def averaged(keep: str, now: str = "seen(step).mean(0)", start: str = "None") -> str:
    return AVERAGED.replace("KEEP", keep).replace("NOW", now).replace("START", start)


def test_a_state_that_took_its_dtype_from_what_is_added_is_widened_where_it_adds_up(tmp_path):
    mean, total, maximum = "(kept * count + now) / (count + 1)", "kept + now", "seen(step).amax(0)"
    for keep, now in ((mean, "seen(step).mean(0)"), (total, "seen(step).mean(0)"), (mean, maximum)):
        text = averaged(keep, now)
        assert said(tmp_path, text)[:1] == [("DT307", f"kept = now if kept is None else {keep}")], (keep, now)
    cast = "kept + now.bfloat16()"
    begun = averaged(cast, "seen(step).float().mean(0)", "torch.zeros(32).to(torch.bfloat16)")
    assert said(tmp_path, begun)[0] == ("DT307", "kept, count = torch.zeros(32).to(torch.bfloat16), 0")
    assert said(tmp_path, averaged(mean, "seen(step).float().mean(0)")) == []


SPREAD = """
torch.manual_seed(0)
level = 12 + 8 * torch.rand(16)
weight = torch.randn(48, 16) * 0.01
total, squares, n = torch.zeros(16, dtype=WIDE), torch.zeros(16, dtype=WIDE), 0
for _ in range(100):
    rows = torch.randn(100, 48).to(torch.float16).float() @ weight * SPREAD + level
    TOTAL
    SQUARES
    n += len(rows)
mean = total / n
print((squares / n - mean * mean).mean().item())
"""


def test_the_roundings_of_all_additions_are_those_of_the_sum(tmp_path):
    summed = ("total += rows.sum(0)", "squares += rows.square().sum(0)")
    made = ("total = total + rows.sum(0)", "squares = squares + rows.square().sum(0)")
    for total, squares in (summed, made):
        text = SPREAD.replace("TOTAL", total).replace("SQUARES", squares)
        spread = text.replace("SPREAD", "0.03")
        found = said(tmp_path, spread.replace("WIDE", "torch.float32"))
        lines = [line for line in spread.replace("WIDE", "torch.float32").splitlines() if line.startswith("total,")]
        assert [code for code, _ in found] == ["DT308"] and found[0][1] in (*lines, squares), found
        assert said(tmp_path, text.replace("SPREAD", "30.0").replace("WIDE", "torch.float32")) == []


NEAR = """
torch.manual_seed(0)
centers = F.normalize(torch.randn(40, 1, 32), dim=-1) * 4
points = (centers + F.normalize(torch.randn(40, 5, 32), dim=-1) * torch.tensor([[0.01], [0.02], [0.03], [0.04], [0.05]])).reshape(-1, 32)
data = points.to(torch.float16)
norms = data.float().square().sum(1)
def products(row, column):
    return PRODUCT
dots = products(data[:], data[:].T)
apart = norms[:, None] + norms[None] - 2.0 * dots
apart = ROOT
rows = torch.cat([apart[:64], apart[64:]])
rows.fill_diagonal_(1.0)
print(int(rows.isnan().sum()))
"""


def test_what_makes_most_of_the_numbers_nan_is_named_and_not_what_all_terms_share(tmp_path):
    for product in ("row.half() @ column.half()", "torch.mm(row.half(), column.half())"):
        for root in ("apart.sqrt()", "apart.pow(0.5)"):
            near = NEAR.replace("PRODUCT", product).replace("ROOT", root)
            assert said(tmp_path, near)[:1] == [("DT308", f"return {product}")], (product, root)
    wide = NEAR.replace("PRODUCT", "row.float() @ column.float()")
    assert "return" not in str(said(tmp_path, wide.replace("ROOT", "apart.clamp(min=0).sqrt()")))
