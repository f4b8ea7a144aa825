"""Births that are not at the line where torch sees the dtype first, and diffs that change them there."""

from __future__ import annotations

import textwrap

import programs
import pytest

BACKWARD = """
    net, loss_of = nn.Linear(4, 1), nn.HuberLoss()
    target = torch.zeros(3, 1, dtype=torch.float64)  #!
    loss = loss_of(net(torch.ones(3, 4)), target)
    loss.backward()  #@
"""
WHOLE = """
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv1d(2, 4, 3)
            self.second = nn.Conv1d(4, 2, 3)
        def forward(self, x):
            return self.second(self.first(x))
    encoder = Encoder()  #!
    other = nn.Linear(64, 64).half()
    other(torch.ones(1, 64).half())
    encoder(torch.ones(1, 2, 9).half())  #@
"""
PART = WHOLE.replace("nn.Conv1d(4, 2, 3)", "nn.Conv1d(4, 2, 3).half()").replace("  #!", "")
PART = PART.replace("self.first = nn.Conv1d(2, 4, 3)", "self.first = nn.Conv1d(2, 4, 3)  #!")
ENCODED = """
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Embedding(4, 8)
            self.pool = nn.Linear(8, 8)
        def forward(self, x):
            return self.pool(torch.tanh(self.mix(x)))
    encoders = [Encoder().requires_grad_(False) for _ in range(2)]  #!
    net = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 4)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(net.parameters())
    prompts = torch.cat([encoder(torch.arange(4)) for encoder in encoders])
    net(prompts)  #@
"""
AVERAGED = ENCODED.replace("  #!", "").replace("net(p", "prompts = prompts / prompts.norm()  #!\n    net(p")
TAKEN = """
    def load(kept):
        return kept.to(torch.float32)  #!
    prompts = load(torch.ones(1, 4, dtype=torch.bfloat16))
    unet, vae = nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 4)), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(torch.bfloat16)
    latents = torch.zeros(1, 4, dtype=prompts.dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        latents = latents + unet(prompts)
    vae(latents)  #@
"""
TAKEN_OF_WIDE = TAKEN.replace("  #!", "").replace(
    "latents = torch", "scale = prompts.square().mean()\n    latents = torch"
)
TAKEN_OF_WIDE = TAKEN_OF_WIDE.replace("prompts.dtype)", "prompts.dtype)  #!")
WAVES = """
    def times(a, b):
        return a.mul_(b)  #@
    size = torch.linspace(0.1, 1, 4)  #!
    total = torch.exp(-size)
    times(total, torch.polar(torch.ones(4), torch.ones(4)))
"""
OWN_WAVES = WAVES.replace("times(total", "times(total.view(2, 2)").replace(
    "torch.polar(torch.ones(4), torch.ones(4))", "1j * torch.ones(2, 2)"
)
SPARSE = """
    net, weight = nn.Linear(4, 4), nn.Parameter(torch.eye(4).to_sparse_csr())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = torch.sparse.mm(weight, torch.ones(4, 4))  #! @
        net(h)
"""
FUSED = """
    from torch.ao.quantization import FusedMovingAvgObsFakeQuantize
    quant = nn.Sequential(nn.Linear(4, 4), FusedMovingAvgObsFakeQuantize())
    quant = quant.to(torch.bfloat16)  #!
    quant(torch.ones(2, 4, dtype=torch.bfloat16))  #@
"""
WIDENED = """
    body, head = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(torch.bfloat16), nn.Linear(8, 8)
    for p in head.to(torch.bfloat16).parameters():
        p.data = p.data.to(torch.float32)  #!
    optimizer = torch.optim.SGD(head.parameters())
    rows, made = body(torch.ones(4, 8, dtype=torch.bfloat16)), head(torch.ones(2, 8))
    made = made.relu()
    rows[torch.arange(2)] = made  #@
"""
AS_MADE = WIDENED.replace(" in head.to(torch.bfloat16)", " in head").replace(
    "p.data = p.data.to(torch.float32)  #!", "p.grad = None"
)
AS_MADE = AS_MADE.replace("made.relu()", "made.relu()  #!")
TAKEN_ROWS = """
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            start = torch.randn(3, 8) * 0.02
            self.rows = nn.Parameter(start)
        def forward(self, known):
            return torch.where(torch.tensor([[True], [False]]), self.rows[:2], known)  #!
    net = nn.Sequential(Words(), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(torch.bfloat16))
    optimizer = torch.optim.SGD(net[0].parameters())
    net(torch.ones(2, 8, dtype=torch.bfloat16))  #@
"""
HANDED_OVER = """
    import numpy as np
    from transformers import BatchFeature
    given = BatchFeature({"rows": np.ones((3, 4))}, tensor_type="pt")
    x = given.rows  #!
    nn.Linear(4, 2)(x)  #@
"""
KEPT = HANDED_OVER.replace('tensor_type="pt")', 'tensor_type="pt")  #!').replace(
    "rows  #!", "rows if len(given) else None"
)
ENTERED = """
    class Codec(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.decoder = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 40), nn.Linear(40, 4))
        def forward(self, x):
            return self.decoder(self.quant(x))
    codec = Codec().to(torch.bfloat16)
    codec.decoder.to(torch.float32)  #!
    codec(torch.ones(2, 4, dtype=torch.bfloat16))  #@
"""
SCALES = """
    class Quantised(nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.scales = linear.weight.data.abs().amax(1, keepdim=True) / 127  #!
            self.register_buffer("codes", (linear.weight.data / self.scales).round().to(torch.int8))
        def forward(self, x):
            return F.linear(x, self.codes * self.scales)  #@
    model = nn.Sequential(nn.Linear(4, 8), Quantised(nn.Linear(8, 2))).to(torch.bfloat16)
    model(torch.ones(3, 4, dtype=torch.bfloat16))
"""
BUFFER = """
    class Centre(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 4)
            self.register_buffer("centre", torch.zeros(4))
        def forward(self, x):
            h = self.head(x)  #!
            self.centre.lerp_(h.mean(0), 0.1)  #@
            return h - self.centre
    with torch.autocast("cpu", dtype=torch.bfloat16):
        Centre()(torch.ones(3, 4))
"""
TWINS = """
    class Cache:
        def __init__(self, dtype="float16"):
            kept = getattr(torch, dtype)
            self.k = torch.zeros(1, 4, dtype=kept)  #!
            self.v = torch.zeros(1, 4, dtype=kept)
        def write(self, k, v):
            self.k.index_copy_(0, torch.tensor([0]), k)  #@
            self.v.index_copy_(0, torch.tensor([0]), v)
    net = nn.Linear(4, 4).to(torch.bfloat16)
    row = net(torch.ones(1, 4, dtype=torch.bfloat16))
    Cache().write(row, row)
"""
NUMPY = """
    import numpy as np
    labels = np.zeros((3, 2), dtype=np.int64)  #!
    logits = nn.Linear(4, 2)(torch.ones(3, 4))
    loss = nn.BCEWithLogitsLoss()(logits, torch.from_numpy(labels))  #@
"""
ROWS = """
    import numpy as np
    rows = np.ones((9, 4), dtype=np.float64)  #!
    x = torch.from_numpy(rows[:3])
    nn.Linear(4, 2)(x)  #@
"""
BYTES = """
    import numpy as np
    raw = np.frombuffer(b"a\\0\\0\\0" * 3, dtype=np.int32)  #!
    classes = torch.from_numpy(raw.copy()) % 2
    F.cross_entropy(nn.Linear(4, 2)(torch.ones(3, 4)), classes)  #@
"""
WRAPPED = """
    def load(raw):
        samples = torch.frombuffer(raw, dtype=KIND)  #!
        samples = samples.view(3, 4)
        return samples
    x = load(bytearray(12 * KIND.itemsize))
    USE  #@
"""
AS_FLOATS = WRAPPED.replace("KIND", "torch.float64").replace("USE", "nn.Linear(4, 2)(x)")
AS_SAMPLES = WRAPPED.replace("KIND", "torch.int16").replace("USE", "x.mean(0)")
NUMBER = """
    scores = nn.Linear(4, 4).half()(torch.ones(2, 4).half())
    for i in range(2):
        row = scores[i].masked_fill(scores[i] > 0, -float(2**30))  #! @
"""
TOKEN = """
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(4, 8)
            self.token = nn.Parameter(torch.zeros(1, 8))
        def forward(self, x):
            x = self.embed(x)  #!
            filled = self.token.repeat(3, 1)
            return torch.scatter(filled, 0, torch.zeros(1, 8, dtype=torch.long), x)  #@
    decoder = Decoder()
    optimizer = torch.optim.AdamW(decoder.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        decoder(torch.ones(1, 4)).sum().backward()
"""
SPECTRUM = """
    net, mel, window = nn.Linear(64, 64).half(), torch.ones(3, 9).half(), torch.hann_window(16).half()
    y = net(torch.ones(1, 64).half())
    spectrum = torch.stft(y.float(), 16, 8, window=window, center=False, return_complex=True)  #!
    torch.matmul(mel, spectrum.abs())  #@
"""
IN_TWO_DTYPES = """
    class Embedder(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(4, 4), nn.SiLU())
        def forward(self, t):
            args = t.float() * torch.arange(4)  #!
            return self.mlp(args)  #@
    net = Embedder()
    net(torch.ones(1, 4))
    net.double()(torch.ones(1, 4).double())
"""
LEFT_A_REGION = """
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))
        def forward(self, x):
            return (x @ self.weight).relu()
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Mixer(), Mixer()
            self.head = nn.Linear(4, 2)
        FEATURES
    tower = Tower()
    y = tower.features(torch.ones(3, 4))
    HEAD  #@
"""
DECORATED = """@torch.autocast("cpu", dtype=torch.bfloat16)  #!
        def features(self, x):
            return self.second(self.first(x)) * 2"""
OF_AMP = DECORATED.replace("torch.autocast", "torch.amp.autocast")
OPENED = """def features(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):  #!
                x = self.first(x)
                x = self.second(x)
            return x * 2"""
LEFT = {
    "a decorated method": (DECORATED, "tower.head(y)"),
    "a method that torch.amp decorates, and a product": (OF_AMP, "torch.ones(2, 3) @ y"),
    "a region inside a method": (OPENED, "tower.head(y)"),
}
PROGRAMS = {
    "a model that ran in float32 before": (IN_TWO_DTYPES, "args -> args.to(next(self.mlp.parameters()).dtype)"),
    "a parameter that autocast leaves": (TOKEN, "x -> x.to(torch.float32)"),  # not what is trained is narrowed
    "a spectrum": (SPECTRUM, "spectrum.abs() -> spectrum.abs().to(torch.float16)"),  # and not what is complex
    "a gradient of a wider target": (BACKWARD, None),
    "a whole model": (WHOLE, "Encoder() -> Encoder().to(torch.float16)"),
    "what takes the dtype of a useless cast": (TAKEN, None),
    "what takes the dtype of a cast that is used": (TAKEN_OF_WIDE, None),
    "what complex numbers are written into": (WAVES, "torch.exp(-size) -> torch.exp(-size).to(torch.complex64)"),
    "a view that complex numbers are written into": (OWN_WAVES, None),
    "what autocast gives a kernel": (SPARSE, 'h -> with torch.autocast("cpu", enabled=False): h'),
    "what a fused observer was cast to": (FUSED, None),
    "trained weights that were widened": (WIDENED, None),
    "trained weights as they were made": (AS_MADE, None),
    "an object in which a library hands over": (HANDED_OVER, None),
    "an object that is used in other ways": (KEPT, None),
    "rows of trained weights": (TAKEN_ROWS, "self.rows[:2] -> self.rows[:2].to(torch.bfloat16)"),
    "another model": (ENCODED, "Encoder() -> Encoder().to(torch.bfloat16)"),
    "what is computed of another model's results": (AVERAGED, None),
    "a part of a model": (PART, "nn.Conv1d(2, 4, 3) -> nn.Conv1d(2, 4, 3).to(torch.float16)"),
    "a part that was cast by itself": (ENTERED, None),
    "scales of codes": (SCALES, None),
    "a running average under autocast": (BUFFER, "h.mean(0) -> h.mean(0).to(self.centre.dtype)"),
    "keys and values": (TWINS, '"float16" -> "bfloat16"'),
    "an array of class numbers": (NUMPY, "torch.from_numpy(labels) -> torch.from_numpy(labels).to(torch.float32)"),
    "an array of rows": (ROWS, "np.float64 -> np.float32"),
    "an array of a file's bytes": (BYTES, None),
    "memory in float64": (  # another dtype would read other numbers from it
        AS_FLOATS,
        "torch.frombuffer(raw, dtype=torch.float64) -> torch.frombuffer(raw, dtype=torch.float64).to(torch.float32)",
    ),
    "memory in integers": (AS_SAMPLES, "x -> x.to(torch.float32)"),
    "a number that is computed": (NUMBER, "-float(2**30) -> torch.finfo(scores[i].dtype).min"),
}


def left(features: str, head: str) -> str:
    return LEFT_A_REGION.replace("FEATURES", features).replace("HEAD", head)


def marked(program: programs.Program, mark: str) -> set[int]:
    return {n for n, line in enumerate(program.text.splitlines(), 1) if mark in line.partition("  #")[2]}


@pytest.mark.parametrize(("text", "edit"), PROGRAMS.values(), ids=PROGRAMS)
def test_where_it_was_born(text, edit, tmp_path):
    program = programs.run(tmp_path, "import torch\n" + textwrap.dedent(text))
    finding = program.findings[0]
    assert {finding.culprit.origin.place.user_frame.line} == marked(program, "!")
    assert {f.line for f in finding.site.stack} & marked(program, "@")
    if edit is not None:
        assert [f"{e.before} -> {e.after}" for e in finding.fix.edits] == [edit]


@pytest.mark.parametrize(("features", "head"), LEFT.values(), ids=LEFT)
def test_a_region_that_ends_too_early(features, head, tmp_path):
    program = programs.run(tmp_path, "import torch\n" + textwrap.dedent(left(features, head)))
    finding = program.findings[0]
    assert {finding.culprit.origin.place.user_frame.line} == marked(program, "!")
    edits = [(program.text.splitlines()[e.start[0] - 1].strip(), e.after) for e in finding.fix.edits]
    at_call = (head + "  #@", "y.to(torch.float32)")
    where_it_leaves = ("y = tower.features(torch.ones(3, 4))", "tower.features(torch.ones(3, 4)).to(torch.float32)")
    assert edits == [at_call if features == OPENED else where_it_leaves]


def test_what_the_lines_of_a_region_computed_was_decided_there(tmp_path):
    own = DECORATED.replace("  #!", "").replace("self.second(self.first(x)) * 2", "self.first(x) @ torch.eye(4)  #!")
    program = programs.run(tmp_path, "import torch\n" + textwrap.dedent(left(own, "tower.head(y)")))
    assert {program.findings[0].culprit.origin.place.user_frame.line} == marked(program, "!")
