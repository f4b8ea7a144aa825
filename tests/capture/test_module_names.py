"""Names of modules and parameters, however the program reaches them: through a method, or beside the model's own parts."""

from __future__ import annotations

import gc

import programs
import pytest

PARTS = """
class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.decoder = nn.Linear(4, 4)
    def encode(self, x):
        return self.encoder(x)
    @torch.no_grad()
    def decode(self, x):
        return self._inner(x)
    def _inner(self, x):
        return self.decoder(x)
    @property
    def latent(self):
        return self.encoder(torch.ones(2, 4).half())
    def forward(self, x):
        return self.decode(self.encode(x))

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Coder(), Coder()
    def features(self, x):
        return self.first.encode(x)

class Adapter(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.lora_down, self.lora_up = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
        self.scale = nn.Parameter(torch.ones(4))
        self.of = [layer]
        self.forward_of_layer = layer.forward
    def apply(self):
        self.of[0].forward = self.forward
        return self
    def forward(self, x):
        return self.forward_of_layer(x) + self.lora_up(self.lora_down(x))

class Functional(Adapter):
    def forward(self, x):
        weight = self.of[0].weight + self.lora_up.weight @ self.lora_down.weight
        return F.linear(x, weight * self.scale[:, None])

class Network(nn.Module):
    def __init__(self, parts):
        super().__init__()
        for n, part in enumerate(parts):
            self.add_module(f"lora_{n}", part)
"""
ONES = "x = torch.ones(2, 4)\n"
NAMES = {
    # what is called, then the module and the parameter that the refusal names
    "encode": ("vae = Coder().half()\nvae.encode(ONES)", "vae.encoder.0", "encoder.0.weight"),
    "a method behind a decorator and another method": ("vae = Coder().half()\nvae.decode(ONES)", "vae.decoder", "decoder.weight"),
    "a method behind a library's decorator": (
        "from diffusers.utils.accelerate_utils import apply_forward_hook\nCoder.encode = apply_forward_hook(Coder.encode)\nCoder._hf_hook = None\n"
        "vae = Coder().half()\nvae._hf_hook = type('Hook', (), {'pre_forward': lambda *_: None})()\nvae.encode(ONES)",
        "vae.encoder.0", "encoder.0.weight",
    ),
    "a property": ("vae = Coder()\nvae.latent", "vae.encoder.0", "encoder.0.weight"),
    "a method of what holds it": ("pair = Pair().half()\npair.features(ONES)", "pair.first.encoder.0", "first.encoder.0.weight"),
    "forward, without the call": ("vae = Coder().half()\nvae.forward(ONES)", "vae.encoder.0", "encoder.0.weight"),
    "a part, called by itself": ("vae = Coder().half()\nvae.decoder(ONES)", "vae.decoder", "weight"),
    "a part of a list that only holds it": ("nets = nn.ModuleList([Coder().half()])\nvae = nets[0]\nvae.encode(ONES)", "vae.encoder.0", "encoder.0.weight"),
    "a copy that ran before": (
        "import copy\nvae = copy.deepcopy(Coder().half())\nvae(ONES.half())\nvae.encode(ONES)", "vae.encoder.0", "encoder.0.weight"
    ),
    "in a generator": (
        "vae = Coder().half()\ndef all_of(vae, parts):\n    for part in parts:\n        yield vae.encode(part)\nlist(all_of(vae, [ONES]))",
        "vae.encoder.0", "encoder.0.weight",
    ),
    # adapters whose forward replaced a layer's
    "lora_down": ("vae = Coder().half()\na = Adapter(vae.decoder).apply()\nvae(ONES.half())", "vae.decoder.lora_down", "decoder.lora_down.weight"),
    "lora_up": (
        "vae = Coder().half()\na = Adapter(vae.decoder).apply()\na.lora_down.half()\nvae(ONES.half())", "vae.decoder.lora_up", "decoder.lora_up.weight"
    ),
    "the adapter of a method's part": (
        "vae = Coder().half()\na = Adapter(vae.encoder[0]).apply()\nvae.encode(ONES.half())", "vae.encoder.0.lora_down", "encoder.0.lora_down.weight"
    ),
    "applied after a first call": (
        "vae = Coder().half()\nvae(ONES.half())\na = Adapter(vae.decoder).apply()\nvae(ONES.half())", "vae.decoder.lora_down", "decoder.lora_down.weight"
    ),
    "in a network of its own": (
        "vae = Coder().half()\nnetwork = Network([Adapter(vae.decoder).apply()])\nvae(ONES.half())", "vae.decoder.lora_down", "decoder.lora_down.weight"
    ),
    "two around one layer": (
        "vae = Coder().half()\na = Adapter(vae.decoder).apply()\nb = Adapter(vae.decoder).apply()\nb.half()\nvae(ONES.half())",
        "vae.decoder.lora_down#2", "decoder.lora_down#2.weight",
    ),
    "by a closure": (
        "vae = Coder().half()\na = Adapter(vae.decoder)\nlayer = vae.decoder\nforward = layer.forward\n"
        "layer.forward = lambda x: forward(x) + a.lora_up(a.lora_down(x))\nvae(ONES.half())", "vae.decoder.lora_down", "decoder.lora_down.weight"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_module_and_the_parameter_of_a_refusal(name, tmp_path):
    text, module, parameter = NAMES[name]
    program = programs.run(tmp_path, PARTS + "ONES = torch.ones(2, 4)\n" + text)
    f = next(f for f in program.findings if f.kind == "collision")
    assert f.module == module
    assert parameter in [o.name for o in f.operands]


def test_each_weight_that_an_optimizer_trains_has_a_name(tmp_path):
    """Of adapters that only an optimizer's list holds, too, and of those whose layers are never called."""
    program = programs.run(
        tmp_path,
        PARTS
        + """
vae = Coder().requires_grad_(False)
adapters = [Functional(vae.encoder[0]).apply(), Adapter(vae.decoder).apply()]
optimizer = torch.optim.SGD([p for a in adapters for p in a.parameters()], lr=1e-3)
vae.decoder(vae.encode(torch.ones(2, 4))).sum().backward()
optimizer.step()
""",
    )
    names = [u.name for u in program.recording.updates]
    assert names == [
        f"{layer}.{part}"
        for layer in ("encoder.0", "decoder")
        for part in ("scale", "lora_down.weight", "lora_up.weight")
    ]
    assert {f"vae.{name}" for name in names} <= {p.name for p in program.recording.parameters}
    lora = [op for op in program.recording.ops if op.op == "linear" and op.phase == "forward"]
    assert {op.module for op in lora} == {
        f"vae.{n}" for n in ("encoder.0", "decoder", "decoder.lora_down", "decoder.lora_up")
    }


def test_the_tensors_of_a_module_whose_constructor_has_not_ended():
    """It names its parameters by what is not there yet: as FSDP, which wraps a model of two dtypes."""
    from torch import nn

    from dtypetrace.capture.module_names import walk

    class Wrapper(nn.Module):
        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.wrapped, name)  # again and again, until there is one

        def named_parameters(self, *args, **kwargs):
            yield from ((name.removeprefix(self.prefix), p) for name, p in super().named_parameters(*args, **kwargs))

    half_built = Wrapper()
    half_built.head = nn.Linear(2, 2)
    _, parameters, buffers = walk(half_built)
    assert [name for name, _ in parameters] == ["head.weight", "head.bias"] and not buffers


def test_no_module_is_kept_alive(tmp_path):
    program = programs.run(
        tmp_path,
        PARTS
        + """
import gc, weakref
vae = Coder()
a = Adapter(vae.decoder).apply()
vae.encode(torch.ones(2, 4))
vae(torch.ones(2, 4))
alive = [weakref.ref(m) for m in (vae, vae.encoder, vae.decoder, a, a.lora_down)]
del vae, a
gc.collect()
left = [r for r in alive if r() is not None]
""",
    )
    assert not program.names["left"]
    gc.collect()


METHODS = """
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.token = nn.Linear(4, 4), nn.Parameter(torch.zeros(1, 4))
        self.head = nn.Linear(4, 4)
    def training_step(self, x):
        return torch.scatter(self.token.repeat(2, 1), 1, INDEX, self.embed(x))
    @torch.no_grad()
    def generate(self, x):
        return [self._next(self.embed(x)) for _ in range(2)]
    def _next(self, h):
        return h @ self.head.weight.float()
    def loss(self, x):
        h = self.embed(x)
        def closure():
            return F.mse_loss(h @ self.head.weight.float(), h)
        return closure()

class Trainer:
    def __init__(self, model):
        self.model = model
    def fit(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model.training_step(x)

class Average(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.average = [p.detach().float() for p in model.parameters()]
    def update(self, model):
        for average, p in zip(self.average, model.parameters()):
            average.lerp_(p, 0.5)

INDEX = torch.arange(4).repeat(2, 1)
x = torch.ones(2, 4)
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Trainer(Masked()).fit(x)", ["token", "embed.weight"]),
        ("model = Masked().bfloat16()\nmodel.generate(x.bfloat16())", ["token", "head.weight"]),
        ("model = Masked().bfloat16()\nmodel.loss(x.bfloat16())", ["token", "head.weight"]),
        ("model = Masked().bfloat16()\nmodel.head(x.bfloat16())\nAverage(model).update(model)", []),
        ("model = Masked().bfloat16()\nmodel.embed(x.bfloat16()) @ model.head.weight.float()", []),
    ],
)
def test_the_model_of_a_refusal_in_a_method_outside_any_forward(text, names, tmp_path):
    """The outermost module that ran and whose method is running; what never ran, as an average, is no model."""
    refused = programs.run(tmp_path, METHODS + text).recording.refused[0]
    assert refused.module == ""
    assert set(names) <= {p.name for p in refused.model} and bool(names) == bool(refused.model)
