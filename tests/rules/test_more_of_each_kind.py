"""Three more programs of each kind that the first sealed batch showed to be judged wrongly.

Each is a program, the fragment of the line that is to be blamed, and, where it matters, the finding's code.
"""

import programs
import pytest
from followed import follow

EMA = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)
    def forward(self, x):
        return self.net(x)
model = Model().to(torch.bfloat16)
"""

CAST_THAT_CHANGED_NOTHING = {
    "a table is widened for one product, then cast like its argument": (
        """
        def embed(t, table):
            wide = t.float()[:, None] * table
            return torch.cat([wide.sin(), wide.cos()], -1).type_as(t)
        net = nn.Linear(8, 4).to(torch.bfloat16)
        table = torch.arange(4) / 4
        net(embed(torch.rand(3).bfloat16(), table))
        times = torch.linspace(0, 1, 3)
        net(embed(times, table))
        """,
        "torch.linspace(0, 1, 3)",
    ),
    "a library-like function widens what is wide already": (
        """
        def normalised(x, like):
            return ((x.float() - x.float().mean()) / x.float().std()).to(like.dtype)
        net = nn.Linear(4, 4).half()
        sample = torch.ones(2, 4) * torch.arange(4.0)
        net(normalised(sample, sample))
        """,
        "torch.arange(4.0)",
    ),
    "the scale is read before a cast of something else": (
        """
        scale = torch.full((4,), 0.5)
        def scaled(x):
            y = scale.float() * x
            return y.to(scale.dtype)
        net = nn.Linear(4, 4).to(torch.bfloat16)
        net(scaled(torch.ones(2, 4).bfloat16()))
        """,
        "torch.full((4,), 0.5)",
    ),
    "another tensor's dtype is asked for, after its own was read": (
        """
        def scaled(x, like):
            kept = x.dtype
            y = x * 2
            return y.to(like.dtype)
        net = nn.Linear(4, 4).to(torch.bfloat16)
        scale = torch.full((4,), 0.5)
        net(scaled(torch.ones(2, 4).bfloat16().float(), scale))
        """,
        "torch.full((4,), 0.5)",
    ),
}

DATA_OF_ANOTHER_DTYPE = {
    "an average of weights": (
        EMA
        + """
shadow = [p.detach().float().clone() for p in model.parameters()]
x = torch.randn(2, 4).bfloat16()
model(x)
def use(model):
    for p, s in zip(model.parameters(), shadow):
        p.data = s
use(model)
model(x)
""",
        "p.data = s",
    ),
    "weights that a server sent": (
        EMA
        + """
def received():
    return [torch.randn(p.shape) for p in model.parameters()]
new = received()
x = torch.randn(2, 4).bfloat16()
model(x)
def load(model, new):
    for p, n in zip(model.parameters(), new):
        p.data = n
load(model, new)
model(x)
""",
        "p.data = n",
    ),
    "weights before a merge": (
        EMA
        + """
kept = {n: p.detach().double() for n, p in model.named_parameters()}
x = torch.randn(2, 4).bfloat16()
model(x)
def unmerge(module):
    module.weight.data = kept["net.weight"]
unmerge(model.net)
model(x)
""",
        "module.weight.data = kept",
    ),
}

FIRST_PARAMETER = {
    "a cache": (
        """
        class Mixer(nn.Module):
            def __init__(self):
                super().__init__()
                self.decay = nn.Parameter(torch.ones(8))
                self.inp, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
            def forward(self, x, cache):
                h = self.inp(x)
                cache.index_copy_(0, torch.arange(len(h)), h)
                return self.out(cache)
        mixer = Mixer()
        for name, p in mixer.named_parameters():
            if name != "decay":
                p.data = p.data.to(torch.bfloat16)
        cache = torch.zeros(4, 8, dtype=next(mixer.parameters()).dtype)
        mixer(torch.randn(4, 8).bfloat16(), cache)
        """,
        "next(mixer.parameters()).dtype",
    ),
    "an input": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.temperature = nn.Parameter(torch.tensor(1.0))
                self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
            def forward(self, x):
                return self.b(self.a(x)) / self.temperature
        net = Net()
        net.a.to(torch.bfloat16), net.b.to(torch.bfloat16)
        x = torch.randn(2, 8).to(list(net.parameters())[0].dtype)
        net(x)
        """,
        "list(net.parameters())[0].dtype",
    ),
    "a loop's last parameter": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
                self.norm = nn.LayerNorm(8)
            def forward(self, x):
                return self.norm(self.body(x).float())
        net = Net()
        net.body.to(torch.bfloat16)
        for p in net.parameters():
            dtype = p.dtype
        net(torch.ones(2, 8, dtype=dtype))
        """,
        "torch.ones(2, 8, dtype=dtype)",
    ),
}

OPTIMIZER_STATE = {
    "an update that is widened in between": (
        """
        class Optimizer(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self):
                for p in self.param_groups[0]["params"]:
                    state = self.state[p]
                    if not state:
                        state["m"] = torch.zeros_like(p)
                    update = p.grad.float() / (p.grad.float().norm() + 1e-6)
                    state["m"].lerp_(update, 0.1)
                    p.sub_(state["m"])
        net = nn.Linear(4, 2).to(torch.bfloat16)
        optimizer = Optimizer(net.parameters(), {})
        net(torch.ones(1, 4).bfloat16()).sum().backward()
        optimizer.step()
        """,
        "update = p.grad.float()",
    ),
    "moments that are loaded before the weights are cast": (
        """
        net = nn.Linear(4, 2)
        first = torch.optim.Adam(net.parameters())
        net(torch.ones(1, 4)).sum().backward()
        first.step()
        kept = first.state_dict()
        again = torch.optim.Adam(net.parameters(), foreach=False)
        again.load_state_dict(kept)
        net.bfloat16()
        net.zero_grad()
        net(torch.ones(1, 4).bfloat16()).sum().backward()
        again.step()
        """,
        "net.bfloat16()",
    ),
    "a momentum buffer that is set by hand": (
        """
        net = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        net.half()
        net.zero_grad()
        optimizer.step()
        net(torch.ones(1, 4).half()).sum().backward()
        torch.lerp(optimizer.state[net.weight]["momentum_buffer"], net.weight.grad, 0.1)
        """,
        "net.half()",
    ),
}

INTEGERS = {
    "labels": (
        """
        labels = torch.full((6,), -100)
        found = torch.arange(3, dtype=torch.int32)
        labels[:3][torch.ones(3, dtype=torch.bool)] = found
        """,
        "torch.arange(3, dtype=torch.int32)",
    ),
    "a scatter": (
        """
        import numpy as np
        places = torch.zeros(6, dtype=torch.int64)
        sent = torch.from_numpy(np.array([1, 2], dtype=np.int32))
        places.scatter_(0, torch.tensor([0, 3]), sent)
        """,
        "np.array([1, 2], dtype=np.int32)",
    ),
    "an index_copy": (
        """
        table = torch.arange(6)
        short = torch.tensor([7, 8], dtype=torch.int16)
        table.index_copy_(0, torch.tensor([0, 1]), short)
        """,
        "dtype=torch.int16",
    ),
}

FROZEN = """
class Net(nn.Module):
    def __init__(self, out=4):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, out)
    def forward(self, x):
        return self.head(torch.relu(self.body(x)))
"""

TRAINED_BESIDE_FROZEN = {
    "a value model on features": (
        FROZEN
        + """
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8)).to(torch.bfloat16).requires_grad_(False)
        self.policy, self.value = Net(), nn.Linear(8, 1)
    def forward(self, x):
        logits = self.policy(x)
        return logits, self.value(self.encoder(x.bfloat16()))
agent = Agent()
optimizer = torch.optim.Adam([p for p in agent.parameters() if p.requires_grad])
agent(torch.randn(2, 8))
""",
        "to(torch.bfloat16)",
    ),
    "a perceptual loss in half": (
        FROZEN
        + """
class Trainer(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 8))
        self.features.half().requires_grad_(False)
        self.generator, self.judge = Net(), nn.Linear(8, 1)
    def forward(self, z):
        image = self.generator(z)
        return self.judge(self.features(image.half()))
trainer = Trainer()
optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, trainer.parameters()))
trainer(torch.randn(2, 8))
""",
        "self.features.half()",
    ),
    "an adapter that is the first trained layer is not right by that": (
        """
        class Adapter(nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base, self.down = base, nn.Linear(8, 2)
            def forward(self, x):
                h = self.base(x)
                return h + self.down(h).sum()
        base = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8)).to(torch.bfloat16).requires_grad_(False)
        model = Adapter(base)
        optimizer = torch.optim.Adam(model.down.parameters())
        model(torch.randn(2, 8).bfloat16())
        """,
        "nn.Linear(8, 2)",
    ),
}

KEPT_WIDE = {
    "a decoder stays in float32": (
        """
        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(8, 8)
                self.mix = nn.Sequential(nn.Linear(8, 32), nn.Linear(32, 8))
            def forward(self, x):
                return self.mix(self.decoder(self.encoder(x).float()))
        pair = Pair()
        pair.decoder.to(dtype=torch.float32)
        pair.encoder.to(torch.bfloat16), pair.mix.to(torch.bfloat16)
        pair(torch.randn(2, 8).bfloat16())
        """,
        "pair.decoder.to(dtype=torch.float32)",
    ),
    "a tower is loaded as it is": (
        """
        tower, body = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 8))
        tower = tower.to("cpu", torch.float32)
        body = body.to("cpu", torch.float16)
        body(tower(torch.randn(2, 8)))
        """,
        'tower.to("cpu", torch.float32)',
    ),
    "a copy of the weights is no decision": (
        """
        net = nn.Linear(8, 8)
        masters = [p.detach().float() for p in net.parameters()]
        net(torch.randn(2, 8).half())
        """,
        "net = nn.Linear(8, 8)",
    ),
    "a projection by its own name": (
        """
        parts = {"project": nn.Linear(8, 8), "body": nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 8))}
        parts["project"].float()
        parts["body"].bfloat16()
        parts["body"](parts["project"](torch.randn(2, 8)))
        """,
        'parts["project"].float()',
    ),
}

SAVED = """
import io
def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file
"""

ASSIGNED = {
    "weights of a part": (
        SAVED
        + """
net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 64), nn.Linear(64, 4))
weights = torch.load(saved({k: v.half() for k, v in net[0].state_dict().items()}))
net[0].load_state_dict(weights, assign=True)
net(torch.randn(2, 4).half())
""",
        "weights = torch.load(saved({k: v.half()",
    ),
    "a buffer": (
        SAVED
        + """
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("basis", torch.eye(4))
        self.net = nn.Linear(4, 4)
    def forward(self, x):
        return self.net(x @ self.basis)
model = Scaled()
model.load_state_dict(torch.load(saved({"basis": torch.eye(4).double()})), strict=False, assign=True)
model(torch.randn(2, 4))
""",
        "model.load_state_dict(torch.load(saved",
    ),
    "a copying load keeps the dtype of the module": (
        SAVED
        + """
net = nn.Linear(4, 4)
net.load_state_dict(torch.load(saved({k: v.double() for k, v in net.state_dict().items()})))
net(torch.randn(2, 4).half())
""",
        "net = nn.Linear(4, 4)",
    ),
}

LEFT_CAST = {
    "an encoder that is cast for the first prompt": (
        """
        encoder = nn.Linear(8, 8).to(torch.bfloat16)
        def encode(x):
            if encoder.weight.dtype == torch.bfloat16:
                encoder.float()
                x = x.float()
            return encoder(x)
        for prompt in range(2):
            encode(torch.randn(1, 8).bfloat16())
        """,
        "encoder.float()",
    ),
    "a judge that is halved for good": (
        """
        class Judge:
            def __init__(self, net):
                self.net, self.ready = net, False
            def prepare(self):
                self.net.half()
                self.ready = True
            def score(self, x):
                if not self.ready:
                    self.prepare()
                    x = x.half()
                return self.net(x).sum()
        judge = Judge(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
        judge.score(torch.randn(2, 8))
        judge.score(torch.randn(2, 8))
        """,
        "self.net.half()",
    ),
    "in one call, the input is to blame": (
        """
        def main():
            net = nn.Linear(8, 8)
            net.half()
            for step in range(2):
                x = torch.ones(2, 8, dtype=torch.float16) if not step else torch.randn(2, 8)
                net(x)
        main()
        """,
        "torch.randn(2, 8)",
    ),
}

WRITTEN_BEFORE = {
    "weights that were halved for the file": (
        SAVED
        + """
net = nn.Linear(4, 4)
small = {k: v.half() for k, v in net.state_dict().items()}
read = torch.load(saved(small))
net(torch.randn(2, 4) @ read["weight"])
""",
        "read = torch.load",
    ),
    "latents of a cache": (
        SAVED
        + """
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 64))
latents = [torch.randn(4).to(torch.bfloat16) for _ in range(3)]
cache = torch.load(saved({"latents": latents}))
net(torch.stack(cache["latents"]))
""",
        "cache = torch.load",
    ),
    "moments": (
        SAVED
        + """
net = nn.Linear(4, 4)
optimizer = torch.optim.Adam(net.parameters(), foreach=False)
net(torch.ones(1, 4)).sum().backward()
optimizer.step()
kept = {i: {k: v if k == "step" else v.double() for k, v in s.items()} for i, s in enumerate(optimizer.state.values())}
read = torch.load(saved(kept))
for i, p in enumerate(net.parameters()):
    optimizer.state[p] = read[i]
optimizer.step()
""",
        "read = torch.load",
    ),
}

ALL_THAT_IS_WRITTEN = {
    "the state of the random numbers": (
        SAVED
        + """
state = {"weights": torch.randn(4), "rng": torch.get_rng_state()}
small = {k: v.to(torch.bfloat16) for k, v in state.items()}
torch.set_rng_state(torch.load(saved(small))["rng"])
""",
        "small = {k",
    ),
    "indices of a buffer": (
        SAVED
        + """
state = {"rows": torch.tensor([0, 2]), "table": torch.randn(4, 4)}
small = {k: v.half() for k, v in state.items()}
read = torch.load(saved(small))
read["table"].index_select(0, read["rows"])
""",
        "small = {k",
    ),
    "a mask": (
        SAVED
        + """
def slim(v):
    return v.half()
read = torch.load(saved({k: slim(v) for k, v in {"mask": torch.ones(4, dtype=torch.bool), "x": torch.randn(4)}.items()}))
torch.where(read["mask"], read["x"], 0.0)
""",
        "return v.half()",
    ),
}

LATER_PART = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.vision, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 2)
    def forward(self, ids, pixels):
        text, seen = self.embed(ids), self.vision(pixels.to(self.vision.weight.dtype))
        return self.head(join(text, seen))
"""
CAST_AFTER_THE_WHOLE = {
    "written by a mask": (
        "def join(text, seen):\n    return text.masked_scatter(torch.ones_like(text, dtype=torch.bool), seen)\n"
        + LATER_PART
        + "model = Model().bfloat16()\nmodel.vision.float()\nmodel(torch.arange(3), torch.rand(3, 8))",
        "model.vision.float()",
    ),
    "multiplied": (
        "def join(text, seen):\n    return text @ (seen.T @ text)\n"
        + LATER_PART
        + "model = Model().half()\nmodel.vision.to(torch.float32)\nmodel(torch.arange(3), torch.rand(3, 8))",
        "model.vision.to(torch.float32)",
    ),
    "the narrow part is the later one": (
        "def join(text, seen):\n    return text.index_add(0, torch.arange(3), seen)\n"
        + LATER_PART
        + "model = Model().float().double()\nmodel.vision.half()\nmodel(torch.arange(3), torch.rand(3, 8))",
        "model.vision.half()",
    ),
}

LIKE_THE_WEIGHTS = {
    "state of an optimizer": (
        """
class Whitening(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            gram = self.state[p].setdefault("gram", torch.eye(p.size(0), dtype=p.dtype))
            gram.add_(p.grad @ p.grad.T)
            p.sub_(torch.linalg.inv(gram) @ p.grad)
net = nn.Linear(4, 4, bias=False).bfloat16()
optimizer = Whitening(net.parameters(), {})
net(torch.ones(2, 4).bfloat16()).sum().backward()
optimizer.step()
""",
        "gram = self.state",
    ),
    "weights of an adapter": (
        """
net = nn.Linear(4, 4).bfloat16()
spectrum = nn.Parameter(torch.ones(4, 4, dtype=net.weight.dtype))
delta = torch.fft.ifft2(spectrum).real
""",
        "spectrum =",
    ),
    "moments of a buffer": (
        """
net = nn.Linear(4, 4).bfloat16()
moments = torch.zeros(4, 4, dtype=net.weight.dtype)
moments += torch.eye(4)
factor = torch.linalg.cholesky(moments)
""",
        "moments = torch",
    ),
    "what meets the weights": (
        """
net = nn.Linear(4, 4).bfloat16()
eye = torch.eye(4, dtype=net.weight.dtype)
back = torch.linalg.inv(eye - net.weight)
""",
        "net = nn",
    ),
}
"""Of an operation without a kernel for half: what takes the weights' dtype and never meets them decided by itself."""

KINDS = (
    LIKE_THE_WEIGHTS
    | WRITTEN_BEFORE
    | ALL_THAT_IS_WRITTEN
    | CAST_AFTER_THE_WHOLE
    | LEFT_CAST
    | ASSIGNED
    | TRAINED_BESIDE_FROZEN
    | KEPT_WIDE
    | CAST_THAT_CHANGED_NOTHING
    | DATA_OF_ANOTHER_DTYPE
    | FIRST_PARAMETER
    | OPTIMIZER_STATE
    | INTEGERS
)


@pytest.mark.parametrize(("text", "line"), KINDS.values(), ids=KINDS)
def test_the_line_that_decided_is_blamed(tmp_path, text, line):
    program = programs.run(tmp_path, text)
    found = [f for f in program.findings if f.kind == "collision"]
    assert found and line in program.at(found[0].culprit.origin.place)


DIFFS = {
    "both operands of an operation without a kernel": "adj = torch.eye(4).to_sparse().half()\ntwo = torch.sparse.mm(adj, adj)",
    "three operands": "a, b = torch.eye(4).half(), torch.ones(4, 1).half()\nx = torch.linalg.solve(a, b)",
    "distances": "a = torch.ones(2, 4).half()\nd = torch.cdist(a, a)",
    "a dtype that was asked for, inside a library": """
import torch
from torch.distributions import MultivariateNormal
def beam(dtype):
    spread = torch.eye(4).to(dtype)
    return MultivariateNormal(torch.zeros(4, dtype=dtype), covariance_matrix=spread).sample()
out = beam(torch.float16)
""",
    "a model that was cast, inside a library": """
from torch.nn.utils.parametrizations import orthogonal
def frozen(dtype):
    return orthogonal(nn.Linear(4, 4), orthogonal_map="cayley").to(dtype)
out = frozen(torch.bfloat16)(torch.ones(1, 4))
""",
    "decoded codes that are returned": """
def dequantise(q, scale):
    return q.to(torch.float32) * scale
net = nn.Linear(4, 4).bfloat16()
out = net(torch.ones(2, 4).bfloat16()) @ dequantise(torch.ones(4, 4, dtype=torch.int8), 0.5)
""",
    "positions that are returned": """
def table(positions, dim):
    return positions.float()[:, None] * torch.ones(dim)
net = nn.Linear(4, 4).bfloat16()
out = net(torch.ones(2, 4).bfloat16()) @ table(torch.arange(4), 4)
""",
    "one function converts observations and actions": """
import numpy as np
def converted(array):
    return torch.as_tensor(array)
x, actions = converted(np.ones((2, 4), dtype=np.float32)), converted(np.zeros((2, 1), dtype=np.int16))
chosen = nn.Linear(4, 3)(x).gather(1, actions)
""",
    "one function converts features and class numbers": """
import numpy as np
batch = {"x": np.ones((2, 4)), "y": np.array([0, 1])}
x, y = (torch.from_numpy(batch[name]) for name in ("x", "y"))
loss = F.cross_entropy(nn.Linear(4, 3)(x), y)
""",
    "one cast of all inputs": """
def half(*tensors):
    return [torch.tensor(t) for t in tensors]
x, rows = half([[1.0, 2.0], [3.0, 4.0]], [0, 1])
out = nn.Linear(2, 3).to(torch.bfloat16)(x).index_select(0, rows)
""",
    "a cache in the default dtype": """
def cache(n):
    return torch.zeros(n, 4, dtype=torch.get_default_dtype())
net = nn.Linear(4, 4).half()
out = net(torch.cat([cache(2), net(torch.ones(1, 4).half())]))
""",
    "a router in float32 with the model's weights": """
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4))
    def forward(self, x):
        return F.linear(x.type(torch.float32), self.weight).softmax(-1).type_as(x)
out = Gate().bfloat16()(torch.ones(2, 4).bfloat16())
""",
    "a norm in float32 with the model's weights": """
class Norm(nn.LayerNorm):
    def forward(self, x):
        y = F.layer_norm(x.to(torch.float32), self.normalized_shape, self.weight, self.bias, self.eps)
        return y.to(x.dtype)
out = nn.Sequential(Norm(4), nn.Linear(4, 2)).bfloat16()(torch.ones(2, 4).bfloat16())
""",
    "norms that were cast one by one": """
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
    def forward(self, x):
        return self.weight * x / x.abs().max()
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.gate, self.up, self.down = Norm(), nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 4)
    def forward(self, x):
        h = self.norm(x)
        return x + self.down(self.gate(h) * self.up(h))
model = nn.Sequential(Block(), Block()).bfloat16()
for module in model.modules():
    if isinstance(module, Norm):
        module.float()
out = model(torch.ones(2, 4).bfloat16())
""",
    "targets of a loader, refused in backward": """
net, loss_of = nn.Linear(4, 1), nn.HuberLoss()
for x, y in torch.utils.data.DataLoader([(torch.ones(4), 0.5 * n) for n in range(2)], batch_size=2):
    loss_of(net(x).squeeze(-1), y).backward()
""",
    "targets of a dictionary, refused in the backward of a function": """
net = nn.Linear(4, 1)
for batch in torch.utils.data.DataLoader([{"x": torch.ones(4), "y": 0.5 * n} for n in range(2)], batch_size=2):
    loss = F.huber_loss(net(batch["x"]).squeeze(-1), batch["y"])
loss.backward()
""",
    "targets of a loader in a method": """
class Fit:
    def __init__(self):
        self.net, self.criterion = nn.Linear(4, 1), nn.HuberLoss(delta=0.5)
    def step(self, x, y):
        self.criterion(self.net(x)[:, 0], y).backward()
fit = Fit()
for x, y in torch.utils.data.DataLoader([(torch.ones(4), 0.5 * n) for n in range(2)], batch_size=2):
    fit.step(x, y)
""",
    "pixels that are returned": """
def gray(image):
    return image.to(torch.float32).mean(0)
net = nn.Linear(4, 4).half()
out = net(gray(torch.ones(3, 2, 4, dtype=torch.uint8)))
""",
}


@pytest.mark.parametrize("text", DIFFS.values(), ids=DIFFS)
def test_the_diff_works_as_it_is_shown(text, tmp_path):
    found = follow(tmp_path, text)
    assert found.clean and len(found.shown) == 1, [fix.why for fix in found.shown]


LIBRARY = """
import torch
def encode(ids):
    return torch.ones(len(ids), 4, dtype=torch.bfloat16).float()
def features(ids):
    return {"mean": torch.ones(len(ids), 4), "ids": ids}
class Table:
    def __init__(self, size):
        self.rows = torch.linspace(0, 1, 4 * size).view(size, 4)
"""
HANDED_ON = {
    "the result of a call": "made = lib.encode([1, 2])\nout = head(made).float()",
    "an entry of a result": "made = lib.features([1, 2])\nout = head(made['mean']).float()",
    "an attribute of an object": "made = lib.Table(2)\nout = head(made.rows).float()",
}


@pytest.mark.parametrize("text", HANDED_ON.values(), ids=HANDED_ON)
def test_what_a_library_made_is_cast_where_the_program_takes_it(text, tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "lib.py").write_text(LIBRARY)
    imported = (
        f"import sys\nsys.path.insert(0, {str(folder)!r})\nsys.modules.pop('lib', None)\nimport lib\nsys.path.pop(0)\n"
    )
    model = """
import torch
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4))
    def forward(self, h):
        return self.net(h)
head = Head().to(torch.bfloat16)
"""
    found = follow(tmp_path, imported + model + text)
    assert found.clean and found.shown
