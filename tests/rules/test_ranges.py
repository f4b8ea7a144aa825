"""Values that leave the range of float16: where it began, whether it does harm, and what should change."""

from __future__ import annotations

import programs
import pytest
import torch

HAND_SCALED = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
optimizer, scale = torch.optim.SGD(net.parameters(), 1e-3), 2.0**24
for _ in range(8):
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(torch.randn(16, 8))
    loss = F.cross_entropy(out.float(), torch.arange(16) % 4)
    optimizer.zero_grad()
    (loss * scale).backward()
    if LOOKED:
        for p in net.parameters():
            p.grad /= scale
        optimizer.step()
    else:
        scale /= 4
"""


def reported(tmp_path, text: str) -> list[tuple[str, str]]:
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None, program.error
    return [(f.code, program.at(f.culprit.origin.place)) for f in program.findings if f.severity != "note"]


def test_infinite_gradients_do_no_harm_where_the_program_leaves_the_step_out(tmp_path):
    looked = "all(torch.isfinite(p.grad).all() for p in net.parameters())"
    assert reported(tmp_path, HAND_SCALED.replace("LOOKED", looked)) == []
    assert [code for code, _ in reported(tmp_path, HAND_SCALED.replace("LOOKED", "True"))] == ["DT301"]


@pytest.mark.parametrize("model", ["half", "float"])
def test_a_cast_to_the_dtype_of_a_right_tensor_is_the_culprit(model, tmp_path):
    """``to(x.dtype)`` of a float16 stream in a float16 model; in a float32 model the stream itself has the wrong dtype."""
    text = f"""
    net = nn.Linear(4, 4).{model}()
    with torch.no_grad():
        net(torch.randn(2, 4).{model}())
        x = torch.randn(2, 4).half()  # stream
        away = (1 - torch.zeros(2, 4, dtype=torch.long).to(x.dtype)) * -1e9  # cast
        (x + away).softmax(-1)
    """
    ((code, line),) = reported(tmp_path, text)
    assert (code, line.rpartition("# ")[2]) == ("DT301", "cast" if model == "half" else "stream")


def test_an_infinite_loss_is_harm_and_an_infinity_that_is_looked_for_is_none(tmp_path):
    text = """
    torch.manual_seed(0)
    net = nn.Linear(64, 64).half()
    x = torch.randn(64, 64).half() * 8
    loss = F.mse_loss(net(x), x, reduction="sum") / 4096
    USED
    """
    program = programs.run(tmp_path, text.replace("USED", "loss.backward()"), numerics=True)
    assert [(f.code, f.severity) for f in program.findings] == [("DT301", "warning")]
    assert program.only.fix.place == program.only.site, "the model computes as configured: only this op has to change"
    assert reported(tmp_path, text.replace("USED", "print(loss.item())")) != []
    assert reported(tmp_path, text.replace("USED", "loss.clamp(max=100).item()")) == []


@pytest.mark.parametrize("root", [".sqrt()", "**0.5"])
def test_gradients_that_were_divided_by_an_infinity(root, tmp_path):
    """The norm to clip by overflows; the zeros that come of it are its consequence."""
    text = """
    torch.manual_seed(0)
    net = nn.Linear(64, 8).half()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(3):
        optimizer.zero_grad()
        ((net(torch.randn(64, 64).half()).float() - 30).square().mean() * 4 ** (2 + 2 * step)).backward()
        norm = sum(p.grad.square().sum() for p in net.parameters())ROOT
        for p in net.parameters():
            p.grad.mul_((1 / norm).clamp(max=1))
        optimizer.step()
    """
    program = programs.run(tmp_path, text.replace("ROOT", root), numerics=True)
    assert [(f.code, f.severity) for f in program.findings] == [("DT301", "warning")], program.trace


FLUSHED = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(net.parameters(), 1e-3, eps=1e-20)
for _ in range(4):
    with torch.autocast("cpu", dtype=torch.float16):  # region
        out = net(torch.randn(16, 8))
    loss = WEIGHT * out.float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_flushed_gradients_of_whole_parameters_are_zero_gradients(tmp_path):
    program = programs.run(tmp_path, FLUSHED.replace("WEIGHT", "1e-8"), numerics=True)
    (f,) = (f for f in program.findings if f.severity != "note")
    assert (f.code, f.kind, f.title) == (
        "DT305",
        "zero-gradient",
        "the gradient of 0.weight and 3 more becomes zero in float16",
    )
    assert program.at(f.culprit.origin.place).endswith("# region")
    assert reported(tmp_path, FLUSHED.replace("WEIGHT", "1.0")) == []


@pytest.mark.parametrize(("flags", "kind"), [({}, "underflow"), ({"reference": True}, "underflow")])
def test_zero_divided_by_zero_is_no_overflow(tmp_path, flags, kind):
    """The products along a trajectory become zero in every row, and their share is 0 / 0."""
    text = """
    torch.manual_seed(0)
    ratio = (torch.rand(12, 150) * 0.4 + 0.5).to(torch.float16)  # cast
    product = ratio.cumprod(dim=1)
    share = product / product.sum(dim=0, keepdim=True)
    print(share.float().mean().item())
    """
    program = programs.run(tmp_path, text, numerics=True, **flags)
    f = next(f for f in program.findings if f.severity != "note")
    assert f.kind == kind and program.at(f.culprit.origin.place).endswith(("# cast", "product = ratio.cumprod(dim=1)"))


@pytest.mark.parametrize(
    ("power", "code"),
    [
        ("x.pow(2)", "DT301"),
        ("x**2", "DT301"),
        ("torch.pow(x + 1, 3)", "DT301"),
        ("x.pow(exponent=2)", "DT301"),
        ("x\n    y **= 2", "DT301"),
        ("(x.clamp(max=1) * tiny).pow(-1)", "DT302"),
        ("(x.clamp(max=1) * tiny) ** -0.5", "DT302"),
        ("(x.clamp(max=1) * tiny).pow(exponent=-2)", "DT302"),
    ],
)
def test_a_power_meets_a_zero_only_where_its_exponent_is_negative(power, code, tmp_path):
    text = f"""
    torch.manual_seed(0)
    tiny = torch.full((64,), 1e-6, dtype=torch.float16)
    branch = tiny * torch.rand(64).half() * 0.01
    x = torch.linspace(0.001, 900, 64).half() + branch
    y = {power}
    print((y - y.mean()).float().sum().item())
    """
    program = programs.run(tmp_path, text, numerics=True)
    found = [f.code for f in program.findings if f.severity != "note"]
    assert found[:1] == [code], program.findings


def test_a_loop_of_products_that_ends_at_zero_in_float32_is_underflow(tmp_path):
    text = """
    torch.manual_seed(0)
    step = torch.rand(5, 5).softmax(-1)
    seen = (torch.rand(64, 5) * 0.04)
    alpha = torch.full((64, 5), 0.2)
    for _ in range(70):
        alpha = (alpha @ step) * seen
    print(alpha.sum(-1).log().mean().item())
    """
    program = programs.run(tmp_path, text, numerics=True)
    f = next(f for f in program.findings if f.severity != "note")
    assert f.kind == "underflow" and program.at(f.culprit.origin.place) == "alpha = torch.full((64, 5), 0.2)"
    edits = {e.before: e.after for e in f.fix.edits}  # the product takes no float64 beside float32
    assert edits == {
        "torch.full((64, 5), 0.2)": "torch.full((64, 5), 0.2).double()",
        "torch.rand(5, 5)": "torch.rand(5, 5).double()",
    }


def test_the_state_of_an_optimizer_that_is_cast_for_a_checkpoint(tmp_path):
    text = """
    torch.manual_seed(0)
    net = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        (SIZE * net(torch.randn(16, 8))).square().mean().backward()
        optimizer.step()
    state = [{k: v.to(torch.float16) if k == "exp_avg_sq" else v for k, v in s.items()} for s in optimizer.state.values()]  # cast
    """
    program = programs.run(tmp_path, text.replace("SIZE", "1e-3"), numerics=True)
    (f,) = (f for f in program.findings if f.severity != "note")
    assert (f.code, f.kind) == ("DT302", "underflow") and program.at(f.culprit.origin.place).endswith("# cast")
    assert reported(tmp_path, text.replace("SIZE", "1.0")) == []


@pytest.mark.parametrize(
    ("blocks", "use", "codes"),
    [
        ("torch.zeros(40, 8)", "kept.float() * codes", []),
        ("torch.full((40, 8), 1e-9)", "kept.float() * codes", ["DT302"]),  # the blocks are not zero
        ("torch.zeros(40, 8)", "blocks / kept.float()", ["DT302"]),  # something divides by it
    ],
)
def test_the_scale_of_a_block_of_zeros_stands_for_zero(blocks, use, codes, tmp_path):
    text = f"""
    blocks = {blocks}
    scale = blocks.abs().amax(1, keepdim=True).clamp_min(1e-12)
    codes = torch.round(blocks / scale * 127)
    kept = scale.half()
    print(({use}).sum().item())
    """
    assert [code for code, _ in reported(tmp_path, text)] == codes


def test_a_product_with_a_factor_that_is_zero_and_broadcast_has_not_underflowed(tmp_path):
    """The inverse root of an infinity is rightly zero, and so is what it multiplies; the overflow is the finding."""
    text = """
    x = torch.full((16, 32), 600.0).half() * torch.ones(16, 32).half()
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)  #!
    print(y.sum())
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert [f.code for f in program.findings if f.severity != "note"] == ["DT301"]


@pytest.mark.parametrize(
    ("margin", "found"), [(0.0, []), (24.0, ["DT305"])], ids=["some are learnt", "all of a weight"]
)
def test_the_gradients_of_entries_that_are_learnt_vanish_beside_the_others(margin, found, tmp_path):
    text = f"""
    net = nn.Linear(4, 4, bias=False)
    nn.init.constant_(net.weight, 0.01)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    sure = torch.tensor([40.0] * 8 + [{margin}] * 8)
    for step in range(4):
        with torch.autocast("cpu", dtype=torch.float16):
            logits = net(torch.rand(16, 4)).float()
        logits = logits + sure[:, None] * nn.functional.one_hot(torch.zeros(16, dtype=torch.long), 4)
        nn.functional.cross_entropy(logits, torch.zeros(16, dtype=torch.long)).backward()
        opt.step()
        opt.zero_grad()
    """
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    assert [f.code for f in program.findings if f.code in ("DT302", "DT305")] == found, program.findings


@pytest.mark.parametrize(
    ("dtype", "limited", "function", "codes"),
    [
        ("bfloat16", "clamp(max=1 - 1e-6)", "torch.log1p(-p)", ["DT308"]),
        ("float16", "clamp(1e-4, 1 - 1e-4)", "torch.log(p / (1 - p))", ["DT308"]),
        ("bfloat16", "clamp(1e-6 - 1, 1 - 1e-6)", "torch.atanh(p)", ["DT308"]),
        ("float32", "clamp(max=1 - 1e-8)", "torch.log(1 - p)", ["DT308"]),
        ("float32", "clamp(max=1 - 1e-6)", "torch.log1p(-p)", []),
        ("bfloat16", "clamp(max=1 - 2.0**-8)", "torch.log1p(-p)", []),  # a limit that bfloat16 holds
        ("bfloat16", "clamp(max=1 - 1e-6)", "torch.log1p(-p[:1])", []),  # no number reaches it there
        ("bfloat16", "clamp(max=1 - 1e-6)", "torch.log(p * torch.tensor([1, 0]))", []),  # another pole
        ("bfloat16", "clamp(max=1 - 1e-6)", "torch.exp(-1 / (1 - p))", []),  # the infinity is removed
    ],
)
def test_a_limit_that_is_the_pole_itself_after_rounding(dtype, limited, function, codes, tmp_path):
    text = f"""
    p = torch.sigmoid(torch.tensor([0.5, 30.0], dtype=torch.{dtype}))  # made
    p = p.{limited}
    print({function}.sum().item())
    """
    found = reported(tmp_path, text)
    assert [code for code, _ in found] == codes
    assert all(line.endswith("# made") for _, line in found)


PARTLY = {
    "rows by index": "out[:, rows] = part(rows)",
    "scatter": "out.scatter_(1, rows[None].expand(4, -1), part(rows))",
    "index_copy": "out.index_copy_(1, rows, part(rows))",
    "masked": "at = torch.zeros(48).index_fill(0, rows, 1.0).bool().expand(4, -1); out.masked_scatter_(at, part(rows))",
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("write", PARTLY.values(), ids=PARTLY)
def test_what_nothing_has_filled_yet_says_nothing_of_what_is_written_beside_it(write, dtype, tmp_path):
    torch.use_deterministic_algorithms(True)  # fills empty memory with NaN
    try:
        text = f"""
        part = lambda rows: torch.rand(4, len(rows)).to(torch.{dtype})
        for _ in range(3):
            out = torch.empty(4, 48, dtype=torch.{dtype})
            for rows in torch.randperm(48).split(16):
                {write}
        print(out.float().mean().item())
        """
        program = programs.run(tmp_path, text, numerics=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert [f for f in program.findings if f.severity != "note"] == []


def test_what_becomes_infinite_on_its_way_into_such_memory_is_told(tmp_path):
    text = """
    out = torch.empty(4, 48, dtype=torch.float16)
    for rows in torch.arange(48).split(16):
        out[:, rows] = (1e5 * torch.rand(4, 16) + 7e4).half()  # made
    print(out.float().mean().item())
    """
    program = programs.run(tmp_path, text, numerics=True)
    told = [(f.code, f.site.line) for f in program.findings if f.severity != "note"]
    assert told == [("DT301", program.line("# made"))]
