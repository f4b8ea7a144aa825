"""What operands are called, and where the remedy is put: at the birth, where a table is ready, or where a value is used."""

from __future__ import annotations

import programs
import pytest

HALF = "import torch\nnet = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()\nx = torch.ones(2, 4).half()\n"


def found(tmp_path, text: str):
    """The program and its one finding; the line that the remedy is about ends in `#!`."""
    program = programs.run(tmp_path, text)
    f = program.only
    assert f.fix is not None and program.at(f.fix.place).endswith("#!"), (f.fix, program.at(f.fix.place))
    return program, f


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("w = torch.ones(4, 4); h = x @ w", {"x", "w"}),
        ("w = torch.ones(4, 4); h = torch.mm(x, w.t())", {"x", "w.t()"}),
        ("w = torch.ones(4, 4); h = x.mm(mat2=w)", {"x", "w"}),
        ("w = torch.ones(4, 4); h = F.linear(x + 1, w)", {"x + 1", "w"}),
        ("w = torch.ones(4, 4); h = net[0](w)", {"weight", "w"}),
        ("w = torch.ones(4, 4); h = net(w)", {"0.weight", "w"}),
        ("w = torch.ones(4, 4); h = nn.Sequential(nn.ReLU(), *net)(w)", {"1.weight", "input"}),
        ("w = torch.ones(4, 4); torch.utils.checkpoint.checkpoint(net, w, use_reentrant=False)", {"0.weight", "input"}),
        ("w = torch.ones(4, 4); torch.func.functional_call(net, {}, (w,))", {"0.weight", "input"}),
        ("w = torch.ones(2, 4); a = nn.MultiheadAttention(4, 1).half(); a(x, w, x)", {"w", "in_proj_weight"}),
        ("w = torch.ones(4, 4); a = nn.MultiheadAttention(4, 1).half(); a(x, x, x, attn_mask=w[:2, :2])", {"w[:2, :2]"}),
        ("w = torch.ones(2, 2); a = nn.MultiheadAttention(4, 1).half(); how = {'attn_mask': w}; a(x, x, x, **how)", {"attn_mask"}),
        ("w = torch.ones(1, 4); a = nn.GRU(4, 4).half(); a(x, w)", {"x", "w"}),
        ("w = torch.ones(1, 4); a = nn.LSTM(4, 4).half(); state = w, w; a(x, state)", {"x", "state[0]"}),
        ("w = torch.ones(4, 4); a = nn.EmbeddingBag(4, 4, mode='sum').half(); a(torch.arange(4), torch.tensor([0]), per_sample_weights=w[0])", {"w[0]"}),
        ("w = torch.ones(4, 4); h = torch.einsum('ij,jk->ik', x, w + 1)", {"x", "w + 1"}),
        ("first = net[0]; w = torch.ones(4, 4); h = first(w[:2])", {"weight", "w[:2]"}),
        ("from torch import mm; w = torch.ones(4, 4); mm(x, w)", {"x", "w"}),
        ("w = torch.ones(4, 4); torch.mm(*(x, w))", {"input", "mat2"}),
        ("w = torch.ones(4, 4); F.linear(x.mul(2).add(1).mul(2).add(1).mul(2).add(1), w)", {"input", "w"}),
        ("p = nn.Parameter(torch.ones(2)); g = torch.ones(2).half(); p.grad = g", {"p", "g"}),
        ("p = torch.zeros(3); g = torch.ones(2).half(); p[torch.tensor([0, 1])] = g", {"p", "g"}),
        ("torch.cdist(x, x1 := x)", {"x"}),
        ("a = [torch.ones(2).double()]; torch.meshgrid(torch.ones(2), *a, indexing='ij')", {"tensors[0]", "tensors[1]"}),
        ("a = torch.ones(2).double(); torch.meshgrid([torch.ones(2), a], indexing='ij')", {"torch.ones(2)", "a"}),
        ("n = torch.arange(3); n /= torch.ones(3)", {"n", "torch.ones(3)"}),
        ("torch.linalg.svd(x)", {"x"}),
        ("F.layer_norm(torch.ones(2, 4), (4,), torch.ones(4).half())", {"torch.ones(2, 4)", "weight"}),
    ],
)
def test_an_operand_is_called_what_the_call_calls_it(text, called, tmp_path):
    f = programs.run(tmp_path, text, before=HALF).only
    floating = {o.shown for o in f.operands if not o.name.endswith((".bias", "bias"))}
    assert called <= floating, floating


def test_the_json_report_keeps_the_argument_s_name(tmp_path):
    from dtypetrace.records import to_plain

    f = programs.run(tmp_path, "w = torch.ones(4, 4)\nx.mm(w)", before=HALF).only
    assert (f.culprit.shown, f.culprit.name) == ("w", "mat2")
    assert "written" not in to_plain(f)["culprit"]


@pytest.mark.parametrize(
    "text",
    [
        "t = torch.arange(4.0)\nt = t.cos()  #!\nnet(x * t + t)",
        "t = torch.linspace(0, 1, 4).cumprod(0)\nt = t[None]  #!\nnet((x - t) * t)",
        "t = torch.arange(4, dtype=torch.float32)\nt = (10_000.0 ** t)  #!\nnet(x * t)",
    ],
)
def test_a_table_is_cast_when_it_is_ready(text, tmp_path):
    program, f = found(tmp_path, HALF + text)
    (edit,) = f.fix.edits
    lines = program.text.splitlines()
    line = lines[edit.start[0] - 1]
    lines[edit.start[0] - 1] = line[: edit.start[1] - 1] + edit.after + line[edit.end[1] - 1 :]
    assert programs.run(tmp_path, "\n".join(lines), name="fixed.py").error is None


@pytest.mark.parametrize(
    "text",
    [
        "t = torch.ones(4)  #!\nt = t[None].expand(2, 4)\nnet(x * t)",
        "t = torch.arange(4.0)  #!\nnet(x * (t * 2))",
        "t = torch.ones(2, 4)  #!\nnet(t.cos())",
    ],
)
def test_what_is_no_table_is_mended_where_it_is_born(text, tmp_path):
    found(tmp_path, HALF + text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("y = F.one_hot(torch.tensor([0, 1]), 3)\nF.cross_entropy(torch.ones(2, 3), y)  #!", "cast y to float32 at the call"),
        ("w = torch.ones(4).to(torch.float8_e4m3fn)\nw + torch.ones(4)  #!", "cast w to float32 at the call"),
        ("p = nn.Parameter(torch.ones(2).half())\np.grad = torch.ones(2)  #!", "cast torch.ones(2) to float16 as it is assigned"),
        ("y = torch.ones(2).bfloat16()\ny.numpy()  #!", "cast y to float32 before it leaves torch"),
        ("y = torch.ones(2).to(torch.int8)\nnn.Parameter(y)  #!", "keep y out of training with requires_grad=False"),
        ("y = torch.ones(2).half()\ny.fill_(70000)  #!", "torch.finfo(y.dtype).max"),
        ("y = torch.zeros(2, dtype=torch.uint8)\ny.fill_(-1000)  #!", "torch.iinfo(y.dtype).min"),
    ],
)
def test_the_cast_is_where_a_value_is_used(text, told, tmp_path):
    _, f = found(tmp_path, text)
    assert told in f.fix.why


def test_what_is_stored_narrow_is_not_what_others_are_to_become(tmp_path):
    for text in ("w + x  #!", "x + w  #!"):
        _, f = found(tmp_path, "x = torch.ones(4).half()\nw = torch.ones(4).half().to(torch.float8_e5m2)\n" + text)
        assert f.culprit.dtype == "float8_e5m2"


@pytest.mark.parametrize("make", ["torch.ones_like(ids)", "ids.new_ones(3)", "torch.full_like(ids, 1)"])
def test_what_is_made_like_integers_is_a_decision_of_its_own(make, tmp_path):
    program, f = found(tmp_path, f"ids = torch.tensor([1, 2, 3])\nweights = {make}  #!\nweights /= weights.sum()")
    assert "float32" in f.fix.why and not f.fix.alternatives


def test_what_an_optimizer_holds_is_not_cast_at_a_call(tmp_path):
    text = """
    net = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        net(torch.ones(2, 4, dtype=net.weight.dtype)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        net.half()  #!
    """
    _, f = found(tmp_path, text)
    assert f.code == "DT115" and not f.fix.alternatives
