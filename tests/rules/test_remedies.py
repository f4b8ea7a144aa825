"""What operands are called, and where the remedy is put: at the birth, where a table is ready, or where a value is used."""

from __future__ import annotations

import textwrap

import programs
import pytest

from dtypetrace.repair.candidates import gather
from dtypetrace.source.patch import Patch
from dtypetrace.tables.english import quoted

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
        (
            "w = torch.ones(4, 4); a = nn.MultiheadAttention(4, 1).half(); a(x, x, x, attn_mask=w[:2, :2])",
            {"w[:2, :2]"},
        ),
        (
            "w = torch.ones(2, 2); a = nn.MultiheadAttention(4, 1).half(); how = {'attn_mask': w}; a(x, x, x, **how)",
            {"attn_mask"},
        ),
        ("w = torch.ones(1, 4); a = nn.GRU(4, 4).half(); a(x, w)", {"x", "w"}),
        ("w = torch.ones(1, 4); a = nn.LSTM(4, 4).half(); state = w, w; a(x, state)", {"x", "state[0]"}),
        (
            "w = torch.ones(4, 4); a = nn.EmbeddingBag(4, 4, mode='sum').half(); a(torch.arange(4), torch.tensor([0]), per_sample_weights=w[0])",
            {"w[0]"},
        ),
        ("w = torch.ones(4, 4); h = torch.einsum('ij,jk->ik', x, w + 1)", {"x", "w + 1"}),
        ("first = net[0]; w = torch.ones(4, 4); h = first(w[:2])", {"weight", "w[:2]"}),
        ("from torch import mm; w = torch.ones(4, 4); mm(x, w)", {"x", "w"}),
        ("w = torch.ones(4, 4); torch.mm(*(x, w))", {"input", "mat2"}),
        ("w = torch.ones(4, 4); F.linear(x.mul(2).add(1).mul(2).add(1).mul(2).add(1), w)", {"(...).add(1)", "w"}),
        (
            "w = torch.ones(4, 4); F.linear(torch.cat([x.mul(2).add(1), x.mul(2).add(1)], dim=-1)[:, :4] + 1, w)",
            {"input", "w"},
        ),
        ("w = torch.ones(4, 4); F.linear(torch.cat([x.mul(2), x.mul(2).add(1)], dim=0), w)", {"torch.cat(...)", "w"}),
        ("p = nn.Parameter(torch.ones(2)); g = torch.ones(2).half(); p.grad = g", {"p", "g"}),
        ("p = torch.zeros(3); g = torch.ones(2).half(); p[torch.tensor([0, 1])] = g", {"p", "g"}),
        ("torch.cdist(x, x1 := x)", {"x"}),
        (
            "a = [torch.ones(2).double()]; torch.meshgrid(torch.ones(2), *a, indexing='ij')",
            {"tensors[0]", "tensors[1]"},
        ),
        ("a = torch.ones(2).double(); torch.meshgrid([torch.ones(2), a], indexing='ij')", {"torch.ones(2)", "a"}),
        ("n = torch.arange(3); n /= torch.ones(3)", {"n", "torch.ones(3)"}),
        ("torch.linalg.svd(x)", {"x"}),
        ("w = torch.ones(4, 4).bool(); 1 - w", {"w"}),
        ("F.layer_norm(torch.ones(2, 4), (4,), torch.ones(4).half())", {"torch.ones(2, 4)", "weight"}),
    ],
)
def test_an_operand_is_called_what_the_call_calls_it(text, called, tmp_path):
    f = programs.run(tmp_path, text, before=HALF).only
    floating = {o.shown for o in f.operands if not o.name.endswith((".bias", "bias"))}
    assert called <= floating, floating


def test_the_json_report_keeps_the_argument_s_name(tmp_path):
    from dtypetrace.records.plain import to_plain

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
    ],
)
def test_what_is_no_table_is_cast_where_it_is_made(text, tmp_path):
    found(tmp_path, HALF + text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("t = torch.ones(2, 4)\nnet(t.cos())", "t.cos().half()"),
        ("t = torch.arange(4.0)[None] * (x * 1000)\nt = torch.sin(t)  # complete\nnet(t)", "t.half()"),
        (
            "t = torch.cat([(x * torch.arange(4.0)).sin(), x], dim=0)\nnet(t)",
            "torch.cat([(x * torch.arange(4.0)).sin(), x], dim=0).half()",
        ),
        ("t = torch.arange(4.0) * x if True else None\nt = t.cumsum(1) / 10\nnet(t)", "t.half()"),
    ],
)
def test_what_is_cast_is_never_what_a_rounding_is_magnified_in(text, written, tmp_path):
    f = programs.run(tmp_path, textwrap.dedent(HALF) + text).findings[0]
    assert [edit.after.replace(".to(torch.float16)", ".half()") for edit in f.fix.edits] == [written]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (
            "y = F.one_hot(torch.tensor([0, 1]), 3)\nF.cross_entropy(torch.ones(2, 3), y)  #!",
            "cast `y` to float32 at the call",
        ),
        ("w = torch.ones(4).to(torch.float8_e4m3fn)\nw + torch.ones(4)  #!", "cast `w` to float32 at the call"),
        (
            "p = nn.Parameter(torch.ones(2).half())\np.grad = torch.ones(2)  #!",
            "cast torch.ones(2) to float16 as it is assigned",
        ),
        ("y = torch.ones(2).bfloat16()\ny.numpy()  #!", "cast `y` to float32 before it leaves torch"),
        ("y = torch.ones(2).to(torch.int8)\nnn.Parameter(y)  #!", "keep `y` out of training with requires_grad=False"),
        ("y = torch.ones(2).half()\ny.fill_(70000)  #!", "torch.finfo(y.dtype).max"),
        # what is read from is a call: not made again for its dtype
        (
            "import torch\ny = torch.ones(2).half()\n(y * 2).masked_fill(y > 0, -1e9)  #!",
            "torch.finfo(torch.float16).min",
        ),
        (
            "import torch\ny = torch.ones(2).half()\nnn.functional.pad(y, (0, 1), value=1e6)  #!",
            "torch.finfo(torch.float16).max",
        ),
        ("import torch\ny = torch.ones(2).half()\ny.abs().new_full((3,), 1e9)  #!", "torch.finfo(torch.float16).max"),
        ("y = torch.zeros(2, dtype=torch.uint8)\ny.fill_(-1000)  #!", "torch.iinfo(y.dtype).min"),
    ],
)
def test_the_cast_is_where_a_value_is_used(text, reported, tmp_path):
    _, f = found(tmp_path, text)
    assert reported in f.fix.why


def test_a_storage_dtype_is_the_culprit_on_either_side(tmp_path):
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


def test_a_check_that_raises_is_no_call_to_cast_in(tmp_path):
    text = """
    import torch
    def scaled(x, scale):
        if x.dtype != scale.dtype:
            raise TypeError(f"expected both to have the same dtype, got {x.dtype} and {scale.dtype}")
        return x * scale
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()
    s = torch.ones(4)  #!
    scaled(net(torch.ones(2, 4).half()), s)
    """
    _, f = found(tmp_path, text)
    assert not f.fix.alternatives and f.fix.edits


# ---------------------------------------------------------------- what the user called and passed


def library(tmp_path, text: str) -> str:
    """Puts a module `lib` into a folder of installed code, and gives the lines that import it."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "lib.py").write_text("import torch\nfrom torch import nn\n" + text)
    return f"import sys\nsys.path.insert(0, {str(folder)!r})\nsys.modules.pop('lib', None)\nimport lib\nsys.modules.pop('lib')\nsys.path.pop(0)\nimport torch\n"


LAYER = """
class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, size))
    def forward(self, x):
        return x @ self.weight
def table(size):
    return torch.linspace(0, 1, size)
class Model(Scale):
    @classmethod
    def from_pretrained(cls, size, dtype=None):
        model = cls(size)
        return model if dtype is None else model.to(dtype)
"""


@pytest.mark.parametrize(
    ("text", "kind", "label", "why", "after"),
    [
        ("scale = lib.Scale(4)  #!\nscale(x)", "parameter", "in lib.Scale(): the module's constructor makes", "cast what lib.Scale() makes to float16 here", "lib.Scale(4).to(torch.float16)"),
        ("w = lib.table(4)  #!\nnet(x * w)", "factory", "in lib.table(): linspace() without a dtype (in lib.py:11, table)", "cast the result of lib.table() to float16 here", "lib.table(4).to(torch.float16)"),
        ("m = lib.Model.from_pretrained(4)  #!\nm(x)", "load", "in lib.Model.from_pretrained(): it is loaded as float32", "load it as float16, by the dtype argument of lib.Model.from_pretrained()", None),
        (
            "m = lib.Model.from_pretrained(4, dtype=torch.float64)  #!\nnet(m.weight)", "load", "in lib.Model.from_pretrained(): the call names float64",
            "load it as float16", "torch.float16",
        ),
    ],
)  # fmt: skip
def test_a_birth_in_a_library_is_reported_at_the_user_s_line(text, kind, label, why, after, tmp_path):
    from dtypetrace import report

    program = programs.run(tmp_path, text, before=library(tmp_path, LAYER) + HALF)
    f = program.findings[0]
    assert f.culprit.origin.kind == kind
    assert label in report.text(program.recording, program.findings, 300)
    assert f.fix.why.startswith(why) and program.at(f.fix.place).endswith("#!")
    if "import torch" not in program.text and kind != "load":  # nothing there to spell the dtype with
        after = after.replace(".to(torch.float16)", ".half()") if after and "(torch.float16)" in after else None
    assert [edit.after for edit in f.fix.edits] == ([after] if after else [])


def test_the_dtype_of_a_load_is_edited_where_the_call_names_it(tmp_path):
    text = "import torch\nm = lib.Model.from_pretrained(4, dtype=torch.float64)\nnet(m.weight)"
    (edit,) = programs.run(tmp_path, text, before=library(tmp_path, LAYER) + HALF).findings[0].fix.edits
    assert (edit.before, edit.after) == ("torch.float64", "torch.float16")


@pytest.mark.slow
@pytest.mark.parametrize("library_name", ["transformers", "diffusers"])
@pytest.mark.parametrize("how", ["", "half", "back"])
def test_what_from_pretrained_makes_is_loaded(library_name, how, tmp_path, monkeypatch):
    """Whichever way it makes the parameters: in threads, on meta, by a default dtype, by casts."""
    pytest.importorskip(library_name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    keyword = "dtype" if library_name == "transformers" else "torch_dtype"
    made = {
        "transformers": "from transformers import BertConfig, BertModel as M\n"
        "m = M(BertConfig(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4))\nx = torch.tensor([[1]])\n",
        "diffusers": "from diffusers import AutoencoderKL as M\nm = M(block_out_channels=(4,), norm_num_groups=2, latent_channels=2)\nx = torch.ones(1, 3, 8, 8)\n",
    }[library_name]
    folder = str(tmp_path / "saved")
    argument = {"": "", "half": f", {keyword}=torch.float16", "back": f", {keyword}=torch.float32"}[how]
    before = f"import torch\n{made}" + (
        f"m.half()\nm.save_pretrained({folder!r})" if how == "back" else f"m.save_pretrained({folder!r})"
    )
    program = programs.run(
        tmp_path,
        f"loaded = M.from_pretrained({folder!r}{argument})\nloaded(x.to(loaded.dtype) if x.is_floating_point() else x)",
        before=before,
    )
    assert program.error is None
    name = "embeddings.word_embeddings.weight" if library_name == "transformers" else "encoder.conv_in.weight"
    (chain,) = program.trace.why(name).chains
    assert (chain.dtype, chain.origin.kind, chain.origin.op) == (
        "float16" if how == "half" else "float32",
        "load",
        "from_pretrained",
    )
    assert (
        chain.origin.explicit is bool(how)
        and program.at(chain.origin.place.__class__(chain.origin.place.stack[-4:])) != ""
    )
    assert len(chain.flow) <= 2


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("model = Net()\nmodel.run(x)", "model.lin"),
        ("model = Net()\nmodel.again(x)", "model.lin"),
        ("holder = Holder()\nholder.go(x)", "net.lin"),
        ("Net().run(x)", "Net.lin"),
        ("model = Net()\ntorch.func.functional_call(model, {}, (x,))", "Net.lin"),
        ("model = lib.Net()\nmodel.generate(x)", "model.lin"),
        ("pipe = lib.Pipe()\npipe(x)", "unet.lin"),
    ],
)
def test_an_outermost_module_is_named_by_the_user_s_variable(call, name, tmp_path):
    net = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4).half()
    def forward(self, x):
        return self.lin(x)
    def run(self, x):
        return self(x)
    def again(self, x):
        return self.run(x)
    def generate(self, x):
        step = type(self).run
        return step(self, x)
class Holder:
    def __init__(self):
        self.net = Net()
    def go(self, x):
        return self.net.again(x)
class Pipe:
    def __init__(self):
        self.unet = Net()
    def __call__(self, x):
        return self.unet(x)
"""
    program = programs.run(tmp_path, "x = torch.ones(2, 4)" + net + call, before=library(tmp_path, net))
    assert program.only.module == name


# ---------------------------------------------------------------- which remedy comes first


def test_a_result_of_autocast_is_cast_in_the_region_s_body(tmp_path):
    text = """
    import torch
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
        def forward(self, x):
            return self.lin(x)
    net = Net()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = net(torch.ones(2, 4))  #!
    h @ torch.ones(4, 4)
    """
    _, f = found(tmp_path, text)
    assert f.fix.why == "cast the result to float32 where it leaves the autocast region"
    assert [e.after for e in f.fix.edits] == ["net(torch.ones(2, 4)).to(torch.float32)"]
    # what else the body gives may be no tensor: then it is cast where it is used
    text = text.replace("h = net(torch.ones(2, 4))  #!", "h = net(torch.ones(2, 4)), 1")
    _, f = found(tmp_path, text.replace("h @ torch.ones(4, 4)", "h[0] @ torch.ones(4, 4)  #!"))
    assert [e.after for e in f.fix.edits] == ["h[0].to(torch.float32)"]


TRAINING = """
net = nn.Linear(4, 4){cast}
optimizer = torch.optim.{optimizer}
x = torch.ones(2, 4){data}
net(x)
"""


@pytest.mark.parametrize(("cast", "data", "dtype"), [(".half()", "", "float16"), ("", ".bfloat16()", "bfloat16")])
@pytest.mark.parametrize("rest", ["", "[]"])
def test_trained_weights_stay_float32_under_autocast(cast, data, dtype, rest, tmp_path):
    """The first advice where the weights have the wrong dtype; where their dtype is the plan, what meets them is changed first."""
    program = TRAINING.format(cast=cast, data=data, optimizer="SGD(net.parameters(), lr=0.1)")
    program += f"\nother = nn.Linear(64, 64){cast}" if rest else ""
    f = programs.run(tmp_path, program).only
    reported = f.fix.why if f.culprit.holder == "parameter" else f.fix.alternatives[0]
    assert f'torch.autocast("cpu", dtype=torch.{dtype})' in reported and "float32" in reported
    assert not any(f"Linear(4, 4).to(torch.{dtype})" in e.after for e in f.fix.edits), "what is trained is not narrowed"


@pytest.mark.parametrize(
    "program",
    [
        # all that is trained is half precision, but for one
        "net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()\ntorch.optim.SGD(net.parameters())\nnet[1].float()\nnet(torch.ones(2, 4).half())",
        TRAINING.format(cast=".half()", data="", optimizer="SGD"),  # nothing is trained
        TRAINING.format(
            cast=".half()", data="", optimizer="SGD([nn.Parameter(torch.ones(2))])\nnet.requires_grad_(False)"
        ),  # not this
        TRAINING.format(cast=".double()", data="", optimizer="SGD(net.parameters(), lr=0.1)"),  # no half precision
    ],
)
def test_autocast_is_for_half_weights_that_are_trained(program, tmp_path):
    fix = programs.run(tmp_path, program).only.fix
    assert not any("autocast" in reported for reported in (fix.why, *fix.alternatives))


def test_autocast_is_reported_with_the_line_that_has_it(tmp_path):
    made = TRAINING.format(cast="", data="", optimizer="SGD(net.parameters(), lr=0.1)").removesuffix("net(x)\n")
    text = made + "with torch.autocast('cpu', dtype=torch.bfloat16):\n    net(x)\nnet(x.bfloat16())  #!"
    _, f = found(tmp_path, text)
    assert f.fix.why.startswith("run this under torch.autocast") and f.fix.why.endswith("as program.py:4 does")


@pytest.mark.parametrize(
    ("text", "reported", "after"),
    [
        (
            "far = 1 - torch.ones(2, 4)\nx.masked_fill(far, 0.0)  #!",
            "cast `far` to bool at the call",
            "far.to(torch.bool)",
        ),
        (
            "near = torch.ones(2, 4).tril()  #!\nx.masked_fill(near, 0.0)",
            "give ones() dtype=torch.bool",
            "torch.ones(2, 4, dtype=torch.bool)",
        ),
        (
            "ids = torch.ones(3).cumsum(0) - 1  #!\nF.embedding(ids, torch.ones(4, 4))",
            "give ones() dtype=torch.int64",
            "torch.ones(3, dtype=torch.int64)",
        ),
        (
            "ids = torch.ones(3) / 2\nF.embedding(ids, torch.ones(4, 4))  #!",
            "cast `ids` to int64 at the call",
            "ids.to(torch.int64)",
        ),
        (
            "y = torch.tensor([[1.0, 0.0]]).mean(0).round()\nF.cross_entropy(torch.ones(1, 2), y[:1])  #!",
            "cast y[:1] to int64 at the call",
            "y[:1].to(torch.int64)",
        ),
        (
            "mask = torch.ones(4, 4) > 0\nmask @ torch.ones(4, 4)  #!",
            "cast `mask` to float32 at the call",
            "mask.to(torch.float32)",
        ),
        ("mask = torch.ones(4) > 0\n1 - mask  #!", "or invert a mask with ~", "mask.to(torch.int64)"),
        (
            "y = torch.ones(4)\ny.bitwise_and(y)  #!",
            "cast `y` to int64 or bool at the call: bitwise_and takes integers or booleans",
            None,
        ),
        (
            "y = torch.arange(4)\ntorch.linalg.qr(y[None])  #!",
            "cast y[None] to float32 at the call",
            "y[None].to(torch.float32)",
        ),
        ("y = torch.ones(4, dtype=torch.complex64)\ny.clamp(0)  #!", "takes real numbers", None),
    ],
)
def test_integers_and_booleans_are_not_reported_to_compute_in_float32(text, reported, after, tmp_path):
    _, f = found(tmp_path, "import torch\nx = torch.ones(2, 4)\n" + text)
    assert reported in f.fix.why and "compute" not in f.fix.why
    assert [edit.after for edit in f.fix.edits] == ([after] if after else [])


def test_an_index_has_no_note_about_parameters(tmp_path):
    from dtypetrace import report

    program = programs.run(tmp_path, "ids = torch.tensor([0, 1]).short()\nnet(x)\nx.gather(1, ids[None])", before=HALF)
    shown = report.text(program.recording, program.findings)
    assert "parameters" not in shown and "too" not in shown


def test_a_cast_for_nothing_is_left_out_and_an_island_s_result_is_brought_back(tmp_path):
    _, f = found(tmp_path, HALF + "y = x.float()  #!\nnet(y)")
    assert f.fix.why == "cast to float16 here instead of float32"
    _, f = found(tmp_path, HALF + "y = x.float()\ny = y / y.norm()\nnet(y)  #!")
    assert "is there on purpose" in f.fix.why and [e.after for e in f.fix.edits] == ["y.to(torch.float16)"]


def test_each_further_remedy_says_what_sets_it_back(tmp_path):
    f = programs.run(tmp_path, "w = torch.ones(4, 4)\nx @ w", before=HALF).only
    assert f.fix.alternatives == ("cast `w` to float16 at the call (program.py:2), which fixes only this call",)
    f = programs.run(tmp_path, "out = torch.zeros(4, 4)\nout[torch.tensor([0])] = x[:1]", before=HALF).only
    assert f.fix.alternatives == ("keep `out` in float32, and cast what is written into it to float32 (program.py:2)",)
    f = programs.run(tmp_path, "net[0].bias.data = net[0].bias.data.float()\nnet(x)", before=HALF).only
    assert f.fix.alternatives == ("remove this cast", "cast all of net.0 to float16 after the model is made")


def test_a_model_cast_after_its_optimizer_was_made(tmp_path):
    text = "net = nn.Linear(4, 4)\noptimizer = torch.optim.Adam(net.parameters(), foreach=False)\nfor dtype in (torch.float32, torch.bfloat16):\n    net.to(dtype)  #!\n    net(torch.ones(2, 4, dtype=dtype)).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()"
    _, f = found(tmp_path, text)
    assert f.fix.why.startswith("leave this cast out, or cast before the optimizer is made")


def test_a_changed_default_is_reported_with_both_lines(tmp_path):
    try:
        _, f = found(
            tmp_path,
            "net = nn.Linear(4, 4)\nimport torch\ntorch.set_default_dtype(torch.float64)\nx = torch.rand(2, 4)\nnet(x)  #!",
        )
    finally:
        import torch

        torch.set_default_dtype(torch.float32)
    assert "program.py:3 set the default dtype to float64, and it was still float64 at program.py:4" in f.fix.why
    assert [e.after for e in f.fix.edits] == ["x.to(torch.float32)"]
    assert f.fix.alternatives[:2] == (
        "set the default dtype back to float32 before program.py:4",
        "give rand() dtype=torch.float32 (program.py:4)",
    )


def test_a_default_that_an_error_left_behind(tmp_path):
    text = """
    import torch
    def build(size):
        torch.set_default_dtype(torch.float64)
        net = nn.Linear(4, 4, **size)
        torch.set_default_dtype(torch.float32)
        return net
    net = nn.Linear(4, 4)
    try:
        build({"depth": 2})
    except TypeError:
        pass
    x = torch.rand(2, 4)
    net(x)
    """
    text = textwrap.dedent(text).lstrip().replace("float64)", "float64)  #!", 1)
    try:
        program, f = found(tmp_path, text)
    finally:
        import torch

        torch.set_default_dtype(torch.float32)
    assert f.fix.why == (
        "put line 5 into a `finally`: an error ended build() before that line, so the default dtype stayed float64"
    )
    assert f.fix.alternatives == (
        "give rand() dtype=torch.float32 (program.py:12)",
        "cast `x` to float32 at the call (program.py:13)",
    )
    shown = """
     4 -     net = nn.Linear(4, 4, **size)
     5 -     torch.set_default_dtype(torch.float32)
     4 +     try:
     5 +         net = nn.Linear(4, 4, **size)
     6 +     finally:
     7 +         torch.set_default_dtype(torch.float32)
    """
    printed = [line.strip() for line in str(program.trace).splitlines()]
    assert all(line.strip() in printed for line in shown.strip().splitlines()), program.trace


def test_what_an_object_of_a_library_holds_is_cast_where_it_is_taken(tmp_path):
    text = "class Schedule:\n    def __init__(self):\n        self.steps = torch.linspace(0, 1, 4)\n"
    program, f = found(
        tmp_path,
        library(tmp_path, text)
        + HALF.replace("import torch\n", "from torch import nn\n")
        + "t = lib.Schedule().steps[None]  #!\nnet(x * t)",
    )
    assert f.fix.why == "cast what is taken from lib.Schedule() to float16 here"
    assert [edit.after for edit in f.fix.edits] == ["lib.Schedule().steps[None].to(torch.float16)"]


EMBED = """
class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
    def forward(self, sample, condition=None):
        if condition is not None:
            sample = sample + condition
        sample = self.inner(sample)
        return sample
    def doubled(self, sample):
        twice = sample * 2
        return self.inner(twice)
def many():
    return torch.ones(2, 4), torch.ones(2, 4)
def table(size):
    return torch.linspace(0, 1, size)
"""


@pytest.mark.parametrize(
    ("text", "shown", "after"),
    [
        ("wave = lib.table(4)  #!\nembed(wave)", "wave", ["lib.table(4).to(torch.float16)"]),
        ("wave = lib.table(4)  #!\nembed(sample=wave)", "wave", ["lib.table(4).to(torch.float16)"]),
        ("embed(lib.table(4))  #!", "lib.table(4)", ["lib.table(4).to(torch.float16)"]),
        ("wave = lib.table(4)  #!\nembed(x * wave)", "x * wave", ["lib.table(4).to(torch.float16)"]),
        ("wave, _ = lib.many()\nembed(wave)  #!", "wave", ["wave.to(torch.float16)"]),
        ("wave = lib.table(4)  #!\nembed(*[wave])", "sample", []),
        ("wave = lib.table(4)  #!\nembed(x, wave)", "sample", []),  # what meets the layer is made of both
        ("wave = lib.table(4)  #!\nembed.doubled(wave)", "twice", []),
    ],
)
def test_an_operand_that_a_library_handed_on_goes_by_the_user_s_name(text, shown, after, tmp_path):
    program = programs.run(
        tmp_path, "import torch\nembed = lib.Embed().half()\n" + text, before=library(tmp_path, EMBED) + HALF
    )
    f = program.findings[0]
    assert f.culprit.shown == shown and program.at(f.fix.place).endswith("#!")
    assert [edit.after for edit in f.fix.edits] == after
    assert any(
        other.startswith(f"cast {quoted(shown)} to float16 at the call (program.py:") for other in f.fix.alternatives
    ) is (shown not in ("sample", "twice") and "many" not in text)


def candidates(tmp_path, text):
    """The candidates for a repair of a program's one cause, each with the lines that it writes instead."""
    p = programs.run(tmp_path, text, autofix=True)
    patch = Patch()
    (problem,) = gather(p.with_text, patch)
    made = {}
    for kind, changes in problem.changes.items():
        patch.set(changes)
        made[kind] = [line for line in patch.diff().splitlines() if line.startswith("+") and not line.startswith("+++")]
    return problem, made


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            "import torch\ntable = torch.zeros(3, dtype=torch.float16)\nrows = torch.ones(1) @ torch.ones(1, 1)\ntable[torch.tensor([0])] = rows",
            "+table[torch.tensor([0])] = rows.to(torch.float16)",
        ),
        (
            "import torch\ntable = torch.zeros(3, dtype=torch.float16)\nrows = torch.ones(1)\ntable.index_add_(0, torch.tensor([0]), rows)",
            "+table.index_add_(0, torch.tensor([0]), rows.to(torch.float16))",
        ),
    ],
)
def test_what_a_call_writes_into_is_not_cast_in_it(text, written, tmp_path):
    problem, made = candidates(
        tmp_path, "net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))\nnet(torch.ones(1, 2))\n" + text
    )
    assert problem.findings[0].culprit.shown == "table" and made["written value"] == [written]
    assert not any("table.to(" in line for lines in made.values() for line in lines)


@pytest.mark.parametrize(
    ("head", "born", "after"),
    [
        ("import torch as th", "th.ones(1, 4)", "th.ones(1, 4, dtype=th.float16)"),
        ("import torch.nn as layers", "torch.ones(1, 4)", "torch.ones(1, 4).half()"),
        ("import torch.nn.functional", "torch.ones(1, 4).double()", "torch.ones(1, 4).to(torch.float16)"),
    ],
)
def test_an_edit_calls_torch_as_the_file_does(head, born, after, tmp_path):
    _, made = candidates(tmp_path, f"{head}\nnet = nn.Linear(4, 2).half()\nx = {born}\nnet(x)")
    assert made["birth"] == [f"+x = {after}"]


def test_a_call_of_torch_by_another_name_is_no_method(tmp_path):
    text = "import torch as th\nm = th.eye(2)\nv = th.ones(2, dtype=th.float64)\nout = th.addmv(m[0], m, v)"
    problem, made = candidates(
        tmp_path, "net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))\nnet(torch.ones(1, 2))\n" + text
    )
    assert problem.findings[0].culprit.shown == "v" and made["at call"] == [
        "+out = th.addmv(m[0], m, v.to(th.float32))"
    ]


def test_integer_casts_are_edited_like_others(tmp_path):
    _, made = candidates(tmp_path, "import torch\nt = torch.tensor([1, 0])\nF.nll_loss(torch.zeros(2, 3), t.int())")
    assert made["birth"] == ["+F.nll_loss(torch.zeros(2, 3), t.to(torch.int64))"]


def test_a_cast_that_a_library_hands_on_is_edited_in_the_user_s_line(tmp_path):
    wrapper = (
        "from torch import nn\nclass Model(nn.Linear):\n    def to(self, *args):\n        return super().to(*args)\n"
    )
    text = "import torch\ntext = lib.Model(4, 4)\ntext.to(torch.float16)\nnet = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).bfloat16()\nnet(text(torch.ones(1, 4).to(text.weight.dtype)))"
    program = programs.run(tmp_path, text, before=library(tmp_path, wrapper))
    (edit,) = program.findings[0].fix.edits
    assert (edit.before, edit.after, edit.start[0]) == ("torch.float16", "torch.bfloat16", program.line("text.to("))


def test_one_meeting_widens_no_model_that_a_library_cast_for_the_program(tmp_path):
    wrapper = "from torch import nn\nclass Model(nn.Sequential):\n    def to(self, *args):\n        return super().to(*args)\n"
    text = "import torch\ncoder = lib.Model(nn.Linear(4, 4), nn.Linear(4, 4))\ncoder.to(torch.bfloat16)\nhead = nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 8)).to(torch.float32)\nstates = [coder(torch.ones(1, 4).to(coder[0].weight.dtype))]\nhead(*states)"
    program = programs.run(tmp_path, text, before=library(tmp_path, wrapper))
    fix = program.findings[0].fix
    assert program.findings[0].culprit.dtype == "bfloat16"
    assert fix.edits and all(edit.start[0] >= program.line("states =") for edit in fix.edits), fix


def test_a_cast_after_the_optimizer_was_made_is_removed(tmp_path):
    text = """
    import torch
    net = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(net.parameters())
    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4).to(net.weight.dtype)).pow(2).sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    net.half()
    optimizer.step(closure)
    """
    fix = next(f for f in programs.run(tmp_path, text).findings if f.code == "DT115").fix
    assert [edit.before.strip() for edit in fix.edits] == ["net.half()"]


def test_trained_weights_yield_to_no_frozen_ones_in_half(tmp_path):
    text = """
    frozen = nn.Linear(4, 4).half().requires_grad_(False)
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(frozen(torch.ones(1, 4).half()))
    """
    f = programs.run(tmp_path, text).findings[0]
    assert f.culprit.dtype == "float16"


def test_a_wider_input_is_wrong_for_trained_weights(tmp_path):
    text = "net = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nx = torch.ones(1, 4, dtype=torch.float64)\nnet(x)"
    assert programs.run(tmp_path, text).findings[0].culprit.shown == "x"


@pytest.mark.parametrize("spelled", ["(m < 2).float()", "( m\n  < 2 ).float()", "((m < 2)  # which\n  .float())"])
def test_the_brackets_around_what_is_cast_stay(spelled, tmp_path):
    text = f"import torch\nm = torch.arange(4)\nv = {spelled}\nnet = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).half()\nnet(v[None])"
    (edit,) = programs.run(tmp_path, text).only.fix.edits
    torch = pytest.importorskip("torch")
    changed = eval(f"({edit.after})", {"torch": torch, "m": torch.arange(4)})
    assert (changed.dtype, changed.tolist()) == (torch.float16, [1, 1, 0, 0])


def test_what_a_collective_writes_into_is_not_cast_in_it():
    from dtypetrace.source import editing

    assert editing.is_destination("all_gather_single", "output_tensor", 0) and not editing.is_destination(
        "all_gather_single", "input_tensor", 1
    )


def test_a_result_that_becomes_a_number_is_not_cast_back(tmp_path):
    text = "import torch\nv = torch.ones(9).bfloat16()\nn = {}"
    number = programs.run(tmp_path, text.format("float(torch.quantile(v, 0.5))")).only.fix
    assert [edit.after for edit in number.edits] == ["v.to(torch.float32)"]
    tensor = programs.run(tmp_path, text.format("torch.quantile(v, 0.5) + 1")).only.fix
    assert [edit.after for edit in tensor.edits] == ["torch.quantile(v.to(torch.float32), 0.5).to(v.dtype)"]


def test_a_kernel_that_torch_calls_for_itself_is_not_to_be_cast_at(tmp_path):
    text = """
    import torch
    from torch.nn.utils.parametrizations import orthogonal
    net = orthogonal(nn.Linear(4, 4), orthogonal_map="cayley")
    net = net.to(torch.bfloat16)  #!
    out = net(torch.ones(1, 4).bfloat16())
    """
    program, f = found(tmp_path, text)
    assert program.at(f.culprit.origin.place).endswith("#!") and f.culprit.origin.kind == "cast"
    assert [edit.start[0] for edit in f.fix.edits] == [f.culprit.origin.place.line]


def test_a_model_of_one_dtype_is_cast_as_a_whole(tmp_path):
    text = "import numpy as np\nnet = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))\n"
    text += "net.load_state_dict({k: torch.from_numpy(np.ones(v.shape)) for k, v in net.state_dict().items()}, assign=True)\nnet(torch.ones(1, 4))"
    f = programs.run(tmp_path, text).only
    assert (f.culprit.shown, f.culprit.dtype) == ("0.weight", "float64")
    assert any(other.startswith("cast all of net to float32 after") for other in f.fix.alternatives), f.fix.alternatives


def test_a_float32_average_is_cast_where_it_replaces_a_weight(tmp_path):
    text = """
    import torch
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).bfloat16()
    optimizer = torch.optim.SGD(net[1].parameters(), 0.1)
    kept = [p.detach().float() for p in net[1].parameters()]  #!
    x = torch.ones(1, 4).bfloat16()
    net(x).sum().backward()
    optimizer.step()
    <update>
    for p, value in zip(net[1].parameters(), kept):
        p.data = value
    net(x)
    """
    _, f = found(
        tmp_path,
        text.replace(
            "<update>", "for p, value in zip(net[1].parameters(), kept):\n        value.lerp_(p.float(), 0.1)"
        ),
    )
    assert f.fix.why.startswith(
        "cast only the value that becomes 1.weight to bfloat16: it is updated in float32 on purpose (program.py:4)"
    )
    # not updated, it is a cast like any other; and weights that were trained in half need no autocast
    _, f = found(tmp_path, text.replace("<update>", "pass"))
    assert f.fix.why == "cast to bfloat16 here instead of float32" and not any(
        "autocast" in other for other in f.fix.alternatives
    )


def test_a_library_s_call_that_gives_nothing_is_not_cast(tmp_path):
    text = """
    import transformers
    config = transformers.Qwen2Config(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, vocab_size=9)
    model = transformers.Qwen2ForCausalLM(config).to(torch.bfloat16).eval()
    cache = transformers.StaticCache(config=config, max_cache_len=8)
    cache.early_initialization(1, 1, 8, torch.float16, torch.device("cpu"))  #!
    model(torch.ones(1, 2, dtype=torch.int64), past_key_values=cache)
    """
    _, f = found(tmp_path, text)
    assert f.fix.why == "let cache.early_initialization() make it bfloat16, by the arguments that it gets here"


SPARED = "{name: value.to(like.dtype) if value.is_floating_point() else value for name, value in made.items()}"


@pytest.mark.parametrize(
    ("cast", "written"),
    [
        ("{name: value.to(like.dtype) for name, value in made.items()}", SPARED),
        (
            "{n: v.half() if n != 'y' else v for n, v in made.items()}",
            "{n: v.half() if n != 'y' and v.is_floating_point() else v for n, v in made.items()}",
        ),
        (
            "tree_map(lambda t: t.to(like.dtype), made)",
            "tree_map(lambda t: t.to(like.dtype) if t.is_floating_point() else t, made)",
        ),
    ],
)
def test_a_cast_of_a_whole_batch_leaves_integers_alone(cast, written, tmp_path):
    text = f"""
    from torch.utils._pytree import tree_map
    like = torch.ones(2).half()
    made = {{"ids": torch.tensor([1, 2]), "x": torch.ones(2)}}
    batch = {cast}
    ids = batch["ids"]
    F.embedding(ids, torch.ones(40, 4))
    """
    ran = programs.run(tmp_path, textwrap.dedent(text))
    (edit,) = ran.findings[0].fix.edits
    assert cast.replace(edit.before, edit.after, 1) == written


@pytest.mark.parametrize(
    ("rows", "reason", "said"),
    [
        (
            40,
            ": this is safe, because the cast at program.py:4 changed no index (all are below 40, and float16 holds every "
            "integer up to 2,048)",
            "leave integers out of the cast at program.py:4",
        ),
        (3000, "", "if there can be numbers above 2,048, leave integers out of the cast at program.py:4 instead,"),
    ],
)
def test_indices_that_a_cast_may_have_rounded_are_told_apart_by_what_they_pick_from(rows, reason, said, tmp_path):
    """A whole number above 2,048 is not exact in float16; an index into a shorter table is never that large."""
    text = f"""
    import torch
    like = torch.ones(2).half()
    made = {{"ids": torch.tensor([1, 2]), "x": torch.ones(2)}}
    ids = {{name: value.to(like.dtype).clone() for name, value in made.items()}}["ids"]
    F.embedding(ids, torch.ones({rows}, 4))
    """
    f = programs.run(tmp_path, textwrap.dedent(text)).findings[0]
    assert f.fix.why == f"cast `ids` to int64 at the call{reason}" and f.fix.alternatives[0].startswith(said)
