"""Packed and scaled numbers are codes: no advice, no candidate and no healing casts them; their module is called."""

from __future__ import annotations

import pytest
from followed import follow
from programs import run

from dtypetrace import rules
from dtypetrace.rules import remedies

INT8 = """
class Int8(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        weight = torch.randn(made, given)
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype))
head = Int8(8, 4)
h = torch.ones(3, 8)
"""
FLOAT8 = """
class Float8(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        weight = torch.randn(made, given)
        self.weight_scale = nn.Parameter(weight.abs().max() / 448, requires_grad=False)
        self.weight = nn.Parameter((weight / self.weight_scale).to(torch.float8_e4m3fn), requires_grad=False)
    def forward(self, x):
        return F.linear(x, {weight})
"""
BNB = """
import bitsandbytes as bnb
head = bnb.nn.{kind}
head.load_state_dict(nn.Linear(64, 32, {bias}).state_dict())
head = head.to("cpu")
if head.bias is not None:
    head.bias.data = head.bias.data.bfloat16()
h = torch.ones(3, 64, dtype=torch.bfloat16)
"""
FOUR_BIT = BNB.format(kind='Linear4bit(64, 32, compute_dtype=torch.bfloat16, quant_type="nf4")', bias="bias=True")
EIGHT_BIT = BNB.format(kind="Linear8bitLt(64, 32, bias=False, has_fp16_weights=False)", bias="bias=False")

CALLED = {
    "a packed 4-bit head": FOUR_BIT + "F.linear(h, head.weight, head.bias)",
    "an int8 weight of bitsandbytes": EIGHT_BIT + "torch.matmul(h, head.weight.t())",
    "an int8 buffer with a scale": INT8 + "h @ head.weight.T",
    "a tied int8 head": INT8
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), head
    def forward(self, x):
        return F.linear(self.body(x), self.head.weight)
Model()(h)
""",
}


@pytest.mark.parametrize("name", CALLED)
def test_the_module_is_called(name, tmp_path):
    if "bnb" in CALLED[name]:
        pytest.importorskip("bitsandbytes")
    found = follow(tmp_path, CALLED[name], rounds=1)
    (fix,) = found.shown
    assert fix.kind == "call" and fix.edits[0].after.startswith(("head(", "self.head("))
    assert found.clean, found.program.findings


CACHE = """
keys = torch.randn(2, 5, 8)
scale = keys.abs().amax(-1, keepdim=True) / 127
cache = (keys / scale).round().clamp(-128, 127).to(torch.int8)
torch.randn(2, 3, 8) @ cache.transpose(1, 2)
"""


FLOAT8_HEAD = FLOAT8.format(weight="self.weight") + "nn.Sequential(nn.Linear(8, 8), Float8(8, 4))(torch.ones(3, 8))"


def test_codes_are_multiplied_by_their_scale_again(tmp_path):
    fix = run(tmp_path, FLOAT8_HEAD).findings[0].fix
    assert "by its scale again" in fix.why and not fix.edits


QUANTISER = """
class Quantiser(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.delta = w.abs().amax(1, keepdim=True) / 127
    def forward(self, w):
        codes = torch.round({scaled})
        return torch.clamp(codes, -128, 127).to(torch.int8)
layer = nn.Linear(8, 4)
layer.weight.data = Quantiser(layer.weight.data)(layer.weight.data)
"""
SCALED_BACK = {
    "a cache": (CACHE, "* scale"),
    "data of a parameter": (QUANTISER.format(scaled="w / self.delta"), "* self.delta"),
    "a factor": (QUANTISER.format(scaled="w * self.delta"), "/ self.delta"),
    "an operand of a sum": (
        "w = torch.randn(4, 8)\nstep = w.abs().max() / 127\nq = 1.0 * (w / step).round().char().contiguous()\n"
        "k = (w / step).round().to(torch.int8)\nF.linear(torch.ones(2, 8), k)",
        "* step",
    ),
}
NOT_SCALED_BACK = {
    "a scale that is another one by then": "w = torch.randn(4, 8)\nstep = w.abs().max() / 127\nq = w / step\nstep = 2.0\n"
    "q = q.round().to(torch.int8)\nF.linear(torch.ones(2, 8), q)",
    "a scale of another function": "def scaled(w):\n    s = w.abs().max() / 127\n    return w / s\nw = torch.randn(4, 8)\n"
    "q = scaled(w).round().to(torch.int8)\nF.linear(torch.ones(2, 8), q)",
    "a scale without a name": "w = torch.randn(4, 8)\nq = (w / (w.abs().max() / 127)).round().to(torch.int8)\n"
    "F.linear(torch.ones(2, 8), q)",
}


@pytest.mark.parametrize("how", SCALED_BACK)
def test_the_diff_undoes_the_scale_after_the_cast(how, tmp_path):
    text, undone = SCALED_BACK[how]
    found = follow(tmp_path, text, rounds=1)
    assert found.shown and found.shown[0].edits[0].after.endswith(undone) and found.clean, found.program.findings


@pytest.mark.parametrize("how", NOT_SCALED_BACK)
def test_a_scale_that_the_cast_does_not_see_is_only_named(how, tmp_path):
    fix = run(tmp_path, NOT_SCALED_BACK[how]).findings[0].fix
    assert "by its scale again" in fix.why and not fix.edits


STORES = """
latent = torch.randn(2, 3, 8)
{made}
torch.cat([torch.randn(2, 5, 8), kept], 1)
"""
SCALES = {
    "a number that was read": "s = latent.abs().max().item() / 448\nkept = (latent / s).to(torch.float8_e4m3fn)",
    "the largest number of the format": "kept = (latent.tanh() * 448).to(torch.float8_e4m3fn)",
    "that as a constant": "LIMIT = torch.finfo(torch.float8_e5m2).max\nkept = (latent.tanh() * LIMIT).to(torch.float8_e5m2)",
    "a power of two": "s = torch.exp2((latent.abs().amax() / 448).log2().ceil())\nkept = (latent / s).to(torch.float8_e4m3fn)",
    "one that is kept": """
class Store(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(0.02))
    def forward(self, x):
        return (x / self.scale).to(torch.float8_e4m3fn)
kept = Store()(latent)
""",
}
FACTORS = {
    "a number": "strength = 0.9\nkept = (latent * strength).to(torch.float8_e4m3fn)",
    "one of the settings": "kept = (latent / {'scaling': 0.18215}['scaling']).to(torch.float8_e5m2)",
    "one of a schedule": "sigmas = torch.linspace(1, 0, 5)\nkept = (latent * sigmas[1]).to(torch.float8_e4m3fn)",
    "a mask": "kept = (latent * (latent > 0)).to(torch.float8_e4m3fn)",
    "a gate": "kept = (latent * nn.Linear(8, 8)(latent).sigmoid()).to(torch.float8_e4m3fn)",
}


@pytest.mark.parametrize("how", SCALES)
def test_what_fits_numbers_to_a_format_is_their_scale(how, tmp_path):
    fix = run(tmp_path, STORES.format(made=SCALES[how])).findings[0].fix
    assert "by its scale again" in fix.why and not fix.edits


@pytest.mark.parametrize("how", FACTORS)
def test_another_factor_is_a_part_of_the_numbers(how, tmp_path):
    found = follow(tmp_path, STORES.format(made=FACTORS[how]), rounds=1)
    assert found.shown and found.shown[0].kind != "call" and found.clean, found.program.findings


@pytest.mark.parametrize("text", [*CALLED.values(), CACHE], ids=[*CALLED, "a cache"])
def test_no_candidate_and_no_healing_casts_codes(text, tmp_path):
    if "bnb" in text:
        pytest.importorskip("bitsandbytes")
    program = run(tmp_path, text)
    case = rules.judged(program.with_text, program.recording.refused[-1]).case
    edits = [edit.after for c in remedies.candidates(case) for edit in c.fix.edits]
    assert not any("weight.to(" in after or "cache" in after for after in edits)
    assert type(run(tmp_path, text, autofix=True).error) is type(program.error)


STORED = {
    "float8 without a scale": """
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
w = net[1].weight.detach().to(torch.float8_e4m3fn)
F.linear(net[0](torch.ones(3, 8)), w)
""",
    "counts": "F.linear(torch.ones(3, 8), torch.arange(32).reshape(4, 8).to(torch.uint8))",
    "a mask of bytes in a buffer": """
class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keep", torch.ones(8, 2, dtype=torch.uint8))
    def forward(self, x):
        return x @ self.keep
Pool()(torch.ones(3, 8))
""",
}


@pytest.mark.parametrize("name", STORED)
def test_numbers_that_are_only_stored_in_few_bits_are_cast(name, tmp_path):
    found = follow(tmp_path, STORED[name], rounds=1)
    assert found.shown and found.shown[0].kind != "call" and found.clean, found.program.findings


BESIDE = {
    "frozen": ("base = nn.Sequential(nn.Linear(64, 64), head).requires_grad_(False).to(torch.bfloat16)", "base(h)"),
    "with biases that could be trained": (
        "base = nn.Sequential(nn.Linear(64, 64), head).to(torch.bfloat16)",
        "base(h)",
    ),
    "a teacher": ("base = nn.Sequential(nn.Linear(64, 64), head).to(torch.bfloat16)", "base(h).detach()"),
}


@pytest.mark.parametrize("how", BESIDE)
def test_a_quantised_model_beside_one_that_is_trained_needs_no_adapter(how, tmp_path):
    pytest.importorskip("bitsandbytes")
    base, called = BESIDE[how]
    text = (
        FOUR_BIT
        + f"""
{base}
net = nn.Linear(32, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net({called}.float()).square().mean().backward()
    opt.step()
"""
    )
    assert not [f for f in run(tmp_path, text).findings if f.code == "DT402"]
