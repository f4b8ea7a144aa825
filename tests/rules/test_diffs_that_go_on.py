"""One diff is enough: what would be refused next is changed with it, or the place is one that all its users share."""

from __future__ import annotations

import pytest
import torch
from followed import follow
from programs import run

PARTS = """
class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        {made}
    def forward(self, x):
        return {forward}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))).half()
        self.parts = Parts()
    def forward(self, x):
        return self.parts(self.base(x))
net = Model()
net(torch.ones(2, 8).half())
"""
MADE = {
    "an adapter": ("self.down = nn.Linear(8, 2)\n        self.up = nn.Linear(2, 8)", "self.up(self.down(x))", 2),
    "in a container": (
        "self.down = nn.Sequential(nn.Linear(8, 2), nn.ReLU())\n        self.up = nn.Linear(2, 8)",
        "self.up(self.down(x))",
        2,
    ),
    "used later": (
        "self.a = nn.Linear(8, 8)\n        self.norm = nn.LayerNorm(8)",
        "self.norm(torch.relu(self.a(x)))",
        2,
    ),
    "one names its dtype": (
        "self.a = nn.Linear(8, 8)\n        self.b = nn.Linear(8, 8, dtype=torch.float32)",
        "self.b(self.a(x).float())",
        1,
    ),
}


@pytest.mark.parametrize(("made", "forward", "edits"), MADE.values(), ids=MADE)
def test_what_one_constructor_made_is_changed_together(made, forward, edits, tmp_path):
    found = follow(tmp_path, PARTS.format(made=made, forward=forward), rounds=1)
    assert found.clean and len(found.shown[0].edits) == edits, found.text


def test_what_computes_in_its_own_dtype_is_left_out(tmp_path):
    made = "self.wide = nn.Linear(8, 8)\n        self.down = nn.Linear(8, 8)"
    text = PARTS.format(made=made, forward="self.down(x + self.wide(x.float()).half())")
    found = follow(tmp_path, text, rounds=1)
    assert found.clean and len(found.shown[0].edits) == 1, found.text


SHARED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)
    def forward(self, x):
        return self.proj(x)
net = Net()
for _ in range(2):
    net(torch.ones(2, 4))
net.to(torch.bfloat16)
scale = torch.tensor(2.0)
{use}
"""


@pytest.mark.parametrize(
    "use",
    [
        "net((torch.ones(2, 4, dtype=torch.int64).to(scale.dtype) - scale) / scale)",
        "raw = torch.ones(2, 4).float()\nraw = raw / raw.norm()\nnet(raw)",
        "net(torch.ones(2, 4).to(torch.float32) * 2)",
    ],
)
def test_a_line_that_ran_in_another_dtype_still_runs_in_it(use, tmp_path):
    assert follow(tmp_path, SHARED.format(use=use), rounds=1).clean


HOOK = """
seen = {{}}
def keep(module, inputs, output):
    {body}
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), nn.Linear(8, 8)
    def forward(self, x):
        return x + self.mlp(self.norm(x))
net = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(8, 2)).to(torch.bfloat16)
net[1].mlp.register_forward_hook(keep)
net(torch.ones(2, 8).to(torch.bfloat16))
"""


@pytest.mark.parametrize(
    "body",
    [
        "wide = output.detach().float()\n    seen['norm'] = wide.norm().item()\n    return wide",
        "wide = output.float()\n    seen['top'] = wide.amax()\n    return wide",
        "wide = output.clone().to(torch.float32)\n    wide = wide\n    return wide * (1 / wide.norm())",
    ],
)
def test_what_a_hook_widened_for_itself_it_gives_back_as_it_was(body, tmp_path):
    found = follow(tmp_path, HOOK.format(body=body), rounds=1)
    assert found.clean and "output.dtype" in found.text, found.text


MANAGER = """
from contextlib import contextmanager
@contextmanager
def building_in(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(before)
try:
    with building_in(torch.bfloat16):
        raise FileNotFoundError("weights")
except FileNotFoundError:
    pass
base = nn.Sequential(*(nn.Linear(4, 4, dtype=torch.float32) for _ in range(3)))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.head = base, nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.base(x))
net = Model()
{more}net(torch.ones(2, 4, dtype=torch.float32))
"""


@pytest.mark.parametrize("more", ["", "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"])
def test_a_context_manager_that_an_error_ends_sets_the_default_back(more, tmp_path):
    text = MANAGER.format(more=more)
    try:
        found = follow(tmp_path, text, rounds=1)
    finally:
        torch.set_default_dtype(torch.float32)
    assert "finally:" in found.text


MASK = "class Rule:\n    FILL = -1e9\n    def __call__(self, x):\n        return {call}\n"


@pytest.mark.parametrize(
    "text",
    [
        MASK.format(call="x.half().masked_fill_(x > 0, self.FILL)") + "Rule()(torch.ones(4))",
        MASK.format(call="torch.masked_fill(x, x > 0, self.FILL)") + "Rule()(torch.ones(4).half())",
        "LOW = -1e9\nx = torch.ones(4).half()\nx.masked_fill(x > 0, LOW)",
    ],
)
def test_a_constant_that_does_not_fit_gives_way_to_the_limit(text, tmp_path):
    found = follow(tmp_path, "import torch\n" + text, rounds=1)
    assert found.clean and "finfo(" in found.text, found.text


@pytest.mark.parametrize(
    "text",
    [
        "def fill(x, low):\n    return x.masked_fill(x > 0, low)\nfill(torch.ones(4).half(), -1e9)",
        "low = 0.0\nlow = -1e9\nx = torch.ones(4).half()\nx.masked_fill(x > 0, low)",
    ],
)
def test_what_may_hold_another_number_stays(text, tmp_path):
    assert not follow(tmp_path, "import torch\n" + text, rounds=1).shown


PROJECTOR = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.language = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))).half()
        {made}
    def forward(self, pixels, tokens):
        {image}
        x = torch.cat([image, tokens], dim=1)
        return self.language(x)
net = Model()
net(torch.ones(1, 3, 8).half(), torch.ones(1, 2, 8).half())
"""


@pytest.mark.parametrize(
    ("made", "image"),
    [
        (
            "self.projector = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))",
            "image = self.projector(pixels.float())",
        ),
        ("self.projector = nn.Linear(8, 8)", "image = self.projector(pixels.float())"),
        ("self.projector = nn.LayerNorm(8)", "image = self.projector(pixels.float())"),
    ],
)
def test_what_takes_a_wide_input_is_not_made_narrow(made, image, tmp_path):
    found = follow(tmp_path, PROJECTOR.format(made=made, image=image), rounds=1)
    assert found.clean, found.text


FEATURES = """
import numpy as np
from transformers import BatchFeature, WhisperConfig, WhisperModel
config = WhisperConfig(
    vocab_size=20, num_mel_bins=4, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_source_positions=8, max_target_positions=8,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
)
model = WhisperModel(config).eval().half()
batch = BatchFeature({"input_features": np.ones((1, 4, 16), np.float32)}, tensor_type="pt")
def encode(batch):
    feats = batch.input_features
    return model.encoder(MADE).last_hidden_state
encode(batch)
"""


@pytest.mark.parametrize("made", ["feats", "feats * 2"])
def test_what_a_library_refuses_is_cast_where_the_program_passes_it_in(made, tmp_path):
    """Wrappers stand between, which a text cannot be followed through; a product is cast where it is made."""
    followed = follow(tmp_path, FEATURES.replace("MADE", made))
    (fix,) = followed.shown
    assert [e.before for e in fix.edits] == [made]
    assert followed.clean


PRECISION = """
def drawn(rows):
    mean, spread = rows.mean(0), rows.T @ rows + 5 * torch.eye(3).half()
    return torch.distributions.MultivariateNormal(mean, precision_matrix=spread).sample()
drawn(torch.randn(8, 3).half())
"""
LOW_RANK = """
class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.rows = nn.Parameter(torch.randn(3, 2) / 9)
    def forward(self, scale):
        noise = torch.distributions.LowRankMultivariateNormal(self.mean, self.rows, scale)
        return noise.rsample()
Noise().half()(torch.ones(3).half())
"""
COMPONENTS = """
def components(x):
    basis = torch.pca_lowrank(x, 2)[2]
    return x @ basis.to(x.dtype)
components(torch.randn(8, 4).half())
"""
TOGETHER = {
    "a mean and a precision": (PRECISION, ["mean.float()", "spread.float()"]),
    "what a module holds": (LOW_RANK, ["self.mean.float()", "self.rows.float()", "scale.float()"]),
    "a function with several results": (COMPONENTS, ["x.float()"]),
    "one argument": (PRECISION.replace("rows.mean(0)", "rows.double().mean(0)"), ["spread.float()"]),
}


@pytest.mark.parametrize(("text", "edits"), TOGETHER.values(), ids=TOGETHER)
def test_what_a_library_gets_is_cast_together(text, edits, tmp_path):
    followed = follow(tmp_path, text, rounds=1)
    assert [edit.after for edit in followed.shown[0].edits] == edits
    assert followed.clean == ("double" not in text)


ADAPTERS = """
import torch
class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, kind = base, base.weight.dtype
        {down}
        {up}
    def forward(self, x):
        return self.base(x) + {forward}
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).half().requires_grad_(False)
net[0] = Adapter(net[0])
trained = [p for p in net.parameters() if p.requires_grad]
scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=8.0), torch.optim.SGD(trained, lr=0.1)
x = torch.ones(2, 8).half()
with torch.autocast("cpu", dtype=torch.float16, enabled={on}):
    net(x)
with torch.autocast("cpu", dtype=torch.float16):
    loss = {loss}.float().square().mean()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
scaler.step(optimizer)
"""
WEIGHTS = "F.linear(F.linear(x, self.down), self.up)"
MODULES = "self.up(self.down(x))"
LIKE_THE_BASE = {
    "parameters": (
        "self.down = nn.Parameter(torch.randn(2, 8, dtype=kind) * 0.02)",
        "self.up = nn.Parameter(torch.zeros(8, 2, dtype=kind))",
        WEIGHTS,
        2,
    ),
    "modules": (
        "self.down = nn.Linear(8, 2, bias=False, dtype=kind)",
        "self.up = nn.Linear(2, 8, bias=False, dtype=base.weight.dtype)",
        MODULES,
        2,
    ),
    "like a tensor, and by a variable": (
        "self.down = nn.Parameter(torch.zeros_like(base.weight)[:2])",
        "self.up = nn.Parameter(torch.ones(8, 2, dtype=kind))",
        WEIGHTS,
        2,
    ),
    "cast": ("self.down = nn.Linear(8, 2).to(kind)", "self.up = nn.Linear(2, 8).to(dtype=kind)", MODULES, 2),
    "by its name": (
        "self.down = nn.Parameter(torch.randn(2, 8, dtype=torch.float16))",
        "self.up = nn.Parameter(torch.zeros(8, 2, dtype=torch.half))",
        WEIGHTS,
        2,
    ),
}


@pytest.mark.parametrize("how", LIKE_THE_BASE)
def test_all_weights_whose_gradients_a_scaler_takes_are_made_float32(how, tmp_path):
    down, up, forward, edits = LIKE_THE_BASE[how]
    text = ADAPTERS.format(down=down, up=up, forward=forward, on=True, loss="net(x)")
    found = follow(tmp_path, text, rounds=1)
    assert found.clean and len(found.shown[0].edits) == edits, found.text


def test_they_stay_half_where_they_also_compute_outside_of_autocast(tmp_path):
    down, up, forward, _ = LIKE_THE_BASE["parameters"]
    text = ADAPTERS.format(down=down, up=up, forward=forward, on=False, loss="net(x)")
    found = follow(tmp_path, text, rounds=1)
    assert not found.shown, found.text


SPECTRA = """
tables = {}
def basis(like, size):
    return tables.setdefault(like.dtype, torch.ones(size, size).to(like.dtype))
MADE
clean, options = torch.rand(8, 8), (2,)
with torch.autocast("cpu", dtype=torch.float16):
    seen = torch.rand(8, 8) @ torch.rand(8, 8)
print((used(clean, *options) - used(seen, *options)).sum().item())
"""
TWICE = {
    "a spectrum, padded before": "def used(x, n):\n    x = F.pad(x, (n, n))\n    return basis(x, 7) @ torch.fft.rfft(x).abs()[:7]",
    "singular values": "def used(m, n):\n    s = torch.linalg.svdvals(m)\n    return basis(m, 8) @ s",
    "an inverse of a part": "def used(m, n):\n    m = m[n:, n:] + 9 * torch.eye(8 - n, dtype=m.dtype)\n    return basis(m, 6) @ torch.linalg.inv(m)",
}


@pytest.mark.parametrize("made", TWICE.values(), ids=TWICE)
def test_a_function_that_ran_for_another_caller_is_given_the_same(made, tmp_path):
    """What it makes follows what it is given: with a cast of the refused operand alone, the next product is refused."""
    found = follow(tmp_path, SPECTRA.replace("MADE", made), rounds=1)
    assert found.clean and "used(seen.float(), *options)" in found.text, found.text


ARRAYS = {
    "a dictionary": ("data = {'x': torch.from_numpy(a), 'y': torch.from_numpy(b)}", "data['x'], data['y']", 2),
    "two names": ("x, y = torch.from_numpy(a), torch.from_numpy(b)", "x, y", 2),
    "a data set": ("data = torch.utils.data.TensorDataset(torch.tensor(a), torch.tensor(b))", "data.tensors", 2),
    "class numbers beside": ("x, y = torch.from_numpy(a), torch.from_numpy(b > 0).long()", "x, y", 1),
    "narrow beside": ("x, y = torch.from_numpy(a), torch.from_numpy(b.astype(np.float32))", "x, y", 1),
}


@pytest.mark.parametrize(("line", "given", "edits"), ARRAYS.values(), ids=ARRAYS)
def test_what_a_line_takes_from_numpy_is_cast_together(line, given, edits, tmp_path):
    text = f"""
import numpy as np
a, b = np.random.default_rng(0).random((4, 8)), np.random.default_rng(1).random((4, 1))
{line}
x, y = {given}
print((nn.Linear(8, 1)(x) - y).square().mean().item())
"""
    found = follow(tmp_path, text, rounds=1)
    assert found.clean and len(found.shown[0].edits) == edits, found.text
    assert [f.kind for f in found.program.findings if f.kind == "promotion"] == []


KEPT = """
train, choice = True, {{"all": True}}
codes = (torch.randn(4, 2) * 9).round().to(torch.int8)
{made}
"""
SUBCLASS = """
class Packed(nn.Parameter):
    def __new__(cls, data=None, requires_grad=True, bits=4):
        return super().__new__(cls, data, requires_grad=requires_grad)
    def __init__(self, data=None, requires_grad=True, bits=4):
        self.bits = bits
p, wide = Packed(codes, train, bits=8), Packed(torch.ones(3), train)
"""
OUT_OF_TRAINING = {
    "a subclass": (SUBCLASS, "requires_grad and data.is_floating_point()"),
    "by position": ("p = nn.Parameter(codes, train)", "train and codes.is_floating_point()"),
    "a setting": (
        "p = nn.Parameter(codes, requires_grad=choice['all'] or train)",
        "(choice['all'] or train) and codes.is_floating_point()",
    ),
    "in so many words": ("p = nn.Parameter(data=codes, requires_grad=True)", "False"),
    "by default": ("p = nn.Parameter(codes.t())", "nn.Parameter(codes.t(), requires_grad=False)"),
    "among others": (
        "held = {'scale': torch.ones(2), 'codes': codes}\nkept = [nn.Parameter(value) for value in held.values()]",
        "nn.Parameter(value, requires_grad=value.is_floating_point())",
    ),
}


@pytest.mark.parametrize("how", OUT_OF_TRAINING)
def test_integers_that_are_made_parameters_stay_out_of_training(how, tmp_path):
    made, after = OUT_OF_TRAINING[how]
    found = follow(tmp_path, KEPT.format(made=made), rounds=1)
    assert found.clean and [edit.after for edit in found.shown[0].edits] == [after], found.text
    names = found.program.names
    assert not names.get("p", torch.ones(1)).requires_grad
    assert names["wide"].requires_grad if how == "a subclass" else True
    assert names["kept"][0].requires_grad if how == "among others" else True


@pytest.mark.parametrize("made", ["codes.t()", "codes"])
def test_it_is_told_in_words_what_each_call_of_a_function_makes_a_parameter_of(made, tmp_path):
    text = KEPT.format(made=f"def kept(*given):\n    return nn.Parameter(*given)\nkept({made}, True)")
    (finding,) = run(tmp_path, text).findings
    assert "requires_grad=False" in finding.fix.why and not finding.fix.edits


OF_INTEGERS = {
    "a module": "nn.Linear(4, 4, dtype=torch.int64)",
    "a convolution": "nn.Conv1d(2, 3, 1, dtype=torch.int32)",
    "a tensor": "torch.zeros(3, 4, dtype=torch.int64, requires_grad=True)",
    "an embedding": "nn.Embedding.from_pretrained(codes.int(), False)",
}


@pytest.mark.parametrize("made", OF_INTEGERS.values(), ids=OF_INTEGERS)
def test_what_is_no_parameter_by_itself_keeps_its_arguments(made, tmp_path):
    """The second argument is then a size, or has another sense."""
    (finding,) = run(tmp_path, KEPT.format(made=made)).findings
    assert finding.code == "DT119" and (finding.fix is None or not finding.fix.edits)


PICKED = """
table, volume = torch.eye(4), torch.zeros(4, 4, 4)
at = (torch.rand(5, 3) * 3).floor()
whole = torch.arange(5) % 4
{picked}
"""
INDICES = {
    "two columns": ("table[at[:, 0], at[:, 1]]", ["at[:, 0]", "at[:, 1]"]),
    "one of them whole": ("table[whole, at[:, 1]]", ["at[:, 1]"]),
    "three names, between others": ("z, y, x = at.unbind(1)\nvolume[None, z, whole, x]", ["z", "x"]),
    "written": ("volume[at[:, 0], :, at[:, 2]] = 1.0", ["at[:, 0]", "at[:, 2]"]),
    "one": ("table[at[:, 0]]", ["at[:, 0]"]),
}


@pytest.mark.parametrize("how", INDICES)
def test_all_indices_between_two_brackets_are_cast_together(how, tmp_path):
    picked, before = INDICES[how]
    found = follow(tmp_path, PICKED.format(picked=picked), rounds=1)
    assert found.clean and [edit.before for edit in found.shown[0].edits] == before, found.text


def test_an_index_that_is_read_again_is_cast_where_it_comes_from(tmp_path):
    text = """
def first(table, rows):
    return table[rows] + table.index_select(0, rows)
def all_of(table, rows):
    parts = rows[1:3]
    return first(table, parts)
all_of(torch.eye(4), (torch.rand(5) * 3).floor())
"""
    found = follow(tmp_path, text, rounds=1)
    assert found.clean and "rows" != found.shown[0].edits[0].before, found.text
