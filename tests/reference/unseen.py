"""Forty small programs, each written with its expectation before any rule was looked at.

Ten with underflow or overflow, ten with dead or lost updates, ten with precision lost in a library's module, ten that are
healthy. ``expect`` is the kind of the first serious finding (several are right where the words of the kinds overlap), or nothing
for a healthy one. ``# BORN`` stands at the line that decided the dtype to blame. In two programs it was added later at the operation of a model
that is bfloat16 as configured: authors who had not seen the tool blame that line.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unseen:
    """One program."""

    name: str
    expect: tuple[str, ...]
    text: str
    needs: str = ""


NET = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
"""

PROGRAMS = [
    # ------------------------------------------------------------ underflow, overflow
    Unseen(
        "power of quiet audio",
        ("underflow",),
        """
torch.manual_seed(0)
wave = (torch.randn(4, 256) * 1e-4).half()  # BORN
loudness = wave.square().mean(-1)
normal = wave / loudness.sqrt().unsqueeze(-1)
print(normal.isfinite().all().item())
""",
    ),
    Unseen(
        "likelihood of many flips",
        ("underflow",),
        """
torch.manual_seed(0)
chance = (torch.rand(8, 40) * 0.5 + 0.2).half()  # BORN
likelihood = chance.prod(-1)
print(likelihood.float().log().mean().item())
""",
    ),
    Unseen(
        "a count of pixels in half",
        ("overflow",),
        """
mask = torch.ones(1, 1, 400, 400, dtype=torch.float16)  # BORN
image = torch.rand(1, 1, 400, 400).half()
area = mask.sum((-2, -1))
print(((image * mask).sum((-2, -1)) / area).item())
""",
    ),
    Unseen(
        "wide features in half",
        ("overflow",),
        """
torch.manual_seed(0)
net = nn.Linear(512, 8)
nn.init.constant_(net.weight, 2.0)
net = net.half()  # BORN
with torch.no_grad():
    print(net((torch.rand(3, 512) * 200).half()).softmax(-1).sum().item())
""",
    ),
    Unseen(
        "variance far from zero",
        ("overflow",),
        """
torch.manual_seed(0)
x = (torch.randn(6, 64) * 100 + 500).half()  # BORN
variance = x.pow(2).mean(-1, keepdim=True) - x.mean(-1, keepdim=True).pow(2)
print((x * variance.rsqrt()).mean().item())
""",
    ),
    Unseen(
        "a loss scaled by hand",
        ("overflow",),
        NET
        + """
net = net.half()  # BORN
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for _ in range(3):
    loss = net(torch.randn(8, 16).half()).float().pow(2).sum() * 65536.0
    loss.backward()
    for p in net.parameters():
        p.grad /= 65536.0
    optimizer.step()
    optimizer.zero_grad()
print(net[0].weight.isnan().any().item())
""",
    ),
    Unseen(
        "a mean over many pixels",
        ("underflow", "zero-gradient"),
        """
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
net = net.half()  # BORN
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    x = torch.randn(2, 1, 48, 48).half()
    loss = 1e-4 * (net(x).float() - x.float()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    Unseen(
        "a kernel over far neighbours",
        ("underflow",),
        """
torch.manual_seed(0)
points = torch.randn(12, 3) * 5
distance = torch.cdist(points, points[:4] + 12).half()  # BORN
weight = torch.exp(-distance.square() / 2)
print((weight / weight.sum(-1, keepdim=True)).isnan().any().item())
""",
    ),
    Unseen(
        "bfloat16 activations handed to a half model",
        ("overflow",),
        """
torch.manual_seed(0)
body = nn.Linear(32, 32).bfloat16()
head = nn.Linear(32, 4).half()
with torch.no_grad():
    hidden = body(torch.randn(4, 32).bfloat16()) * 1e5
    print(head(hidden.to(torch.float16)).softmax(-1).isfinite().all().item())  # BORN
""",
    ),
    Unseen(
        "attention that decays",
        ("underflow",),
        """
torch.manual_seed(0)
decay = torch.full((64,), 0.7, dtype=torch.float16)  # BORN
kept = decay.cumprod(0)
values = torch.randn(64, 8).half() / kept[:, None]
print(values.isinf().any().item())
""",
    ),
    # ------------------------------------------------------------ dead or lost updates
    Unseen(
        "plain SGD on bfloat16 weights",
        ("lost-update",),
        NET
        + """
net = net.bfloat16()  # BORN
optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
for _ in range(4):
    net(torch.randn(8, 16).bfloat16()).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    Unseen(
        "Adam on half weights",
        ("underflow",),
        NET
        + """
net = net.half()  # BORN
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
for _ in range(3):
    (net(torch.randn(8, 16).half()).float().pow(2).mean() * 1e-2).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    Unseen(
        "an average by lerp",
        ("lost-update",),
        NET
        + """
average = [p.detach().half() for p in net.parameters()]  # BORN
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(5):
    net(torch.randn(8, 16)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    for a, p in zip(average, net.parameters()):
        a.lerp_(p.detach().half(), 1e-4)
""",
    ),
    Unseen(
        "an average through data",
        ("lost-update",),
        NET
        + """
import copy
kept = copy.deepcopy(net).bfloat16()  # BORN
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(5):
    net(torch.randn(8, 16)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    for a, p in zip(kept.parameters(), net.parameters()):
        a.data.mul_(0.9995).add_(p.data.bfloat16(), alpha=0.0005)
""",
    ),
    Unseen(
        "running statistics of a norm",
        ("lost-update",),
        """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=5e-4))
nn.init.constant_(net[1].running_mean, 4.0)
net = net.bfloat16()  # BORN
for _ in range(6):
    net(torch.randn(32, 8).bfloat16())
print(net[1].running_mean)
""",
    ),
    Unseen(
        "a counter of tokens",
        ("lost-update", "downcast"),
        """
seen = torch.full((4,), 4096.0, dtype=torch.float16)  # BORN
for _ in range(12):
    seen += torch.ones(4, dtype=torch.float16)
print(seen)
""",
    ),
    Unseen(
        "a gate that is open",
        ("zero-gradient",),
        """
torch.manual_seed(0)
gate = nn.Linear(8, 1)
nn.init.constant_(gate.bias, 9.0)
body = nn.Linear(8, 8)
gate, body = gate.bfloat16(), body.bfloat16()  # BORN
optimizer = torch.optim.SGD([*gate.parameters(), *body.parameters()], lr=0.1)
for _ in range(3):
    x = torch.randn(16, 8).bfloat16()
    (torch.sigmoid(gate(x)) * body(x)).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    Unseen(
        "a tanh that is full",
        ("zero-gradient",),
        """
torch.manual_seed(0)
score = nn.Linear(8, 4)
with torch.no_grad():
    score.bias.copy_(torch.tensor([6.0, -6.5, 7.0, -6.0]))
    score.weight.mul_(0.1)
head = nn.Linear(4, 2)
score, head = score.half(), head.half()  # BORN
optimizer = torch.optim.SGD([*score.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    head(torch.tanh(score(torch.randn(16, 8).half()))).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    Unseen(
        "a small correction to a large offset",
        ("zero-gradient", "precision-loss"),
        """
torch.manual_seed(0)
net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        change = net(x)  # BORN
    value = torch.full_like(change, 1000.0) + change * 0.01  # BORN
    (value.float() - 1000.0).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    Unseen(
        "momentum in half",
        ("lost-update",),
        """
torch.manual_seed(0)
table = nn.Embedding(32, 16)
table = table.half()  # BORN
optimizer = torch.optim.SGD(table.parameters(), lr=1e-4, momentum=0.9)
for _ in range(4):
    table(torch.randint(0, 32, (64,))).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    # ------------------------------------------------------------ precision lost in a library's module
    Unseen(
        "timesteps of a sampler in bfloat16",
        ("downcast", "precision-loss"),
        """
from diffusers.models.embeddings import TimestepEmbedding, Timesteps
torch.manual_seed(0)
project, embed = Timesteps(32, True, 0), TimestepEmbedding(32, 64)
steps = torch.arange(1, 1000, 111).to(torch.bfloat16)  # BORN
with torch.no_grad():
    print(embed(project(steps)).mean().item())
""",
        "diffusers",
    ),
    Unseen(
        "a rotary buffer that is cast",
        ("downcast", "precision-loss"),
        """
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
config = LlamaConfig(hidden_size=64, num_attention_heads=2, max_position_embeddings=2048)
rotary = LlamaRotaryEmbedding(config)
rotary = rotary.to(torch.bfloat16)  # BORN
x = torch.randn(1, 2048, 64).bfloat16()
cos, sin = rotary(x, torch.arange(2048)[None])
print((x[..., :32] * cos).mean().item())
""",
        "transformers",
    ),
    Unseen(
        "how alike two views are",
        ("precision-loss",),
        """
torch.manual_seed(0)
encoder = nn.Linear(32, 64)
encoder = encoder.bfloat16()  # BORN
x = torch.randn(16, 32)
with torch.no_grad():
    one, other = encoder(x.bfloat16()), encoder((x + 0.02 * torch.randn_like(x)).bfloat16())
    print((1 - F.cosine_similarity(one, other)).mean().item())  # BORN
""",
    ),
    Unseen(
        "distances far from the origin",
        ("precision-loss",),
        """
torch.manual_seed(0)
points = torch.randn(64, 3) * 0.01 + 3000.0  # BORN
print(torch.cdist(points, points + 0.01).mean().item())  # BORN
""",
    ),
    Unseen(
        "a variance as a difference of means",
        ("precision-loss",),
        """
torch.manual_seed(0)
x = torch.randn(8, 512) * 0.01 + 300.0  # BORN
spread = (x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()).abs().sqrt()  # BORN
print(((x - x.mean(-1, keepdim=True)) / (spread + 1e-5)).std().item())
""",
    ),
    Unseen(
        "close embeddings in bfloat16",
        ("precision-loss",),
        """
torch.manual_seed(0)
table = nn.Embedding(50, 32)
table = table.bfloat16()  # BORN
distance = nn.PairwiseDistance()
ids = torch.randint(0, 50, (20,))
with torch.no_grad():
    base = table(ids)
    print(distance(base, base * 1.003).mean().item())  # BORN
""",
    ),
    Unseen(
        "a noise schedule in half",
        ("downcast", "precision-loss"),
        """
from diffusers import DDIMScheduler
scheduler = DDIMScheduler(beta_start=1e-5, beta_end=1e-3)
scheduler.alphas_cumprod = scheduler.alphas_cumprod.half()  # BORN
noise = (1 - scheduler.alphas_cumprod[:20]).sqrt()
print((noise / scheduler.alphas_cumprod[:20].sqrt()).sum().item())
""",
        "diffusers",
    ),
    Unseen(
        "positions counted in bfloat16",
        ("downcast", "precision-loss"),
        """
torch.manual_seed(0)
place = torch.arange(1500, dtype=torch.bfloat16)  # BORN
bias = -(place[None] - place[:, None]).abs() * 0.05
scores = torch.randn(1500, 1500) * 0.1
print((scores + bias).softmax(-1).max().item())
""",
    ),
    Unseen(
        "attention with loud queries",
        ("precision-loss",),
        """
torch.manual_seed(0)
attention = nn.MultiheadAttention(32, 2, batch_first=True)
nn.init.normal_(attention.in_proj_weight, std=1.2)
attention = attention.bfloat16().eval()  # BORN
x = torch.randn(2, 24, 32).bfloat16()
with torch.no_grad():
    out, weights = attention(x, x, x)
    print(out.float().norm().item(), weights.max().item())
""",
    ),
    Unseen(
        "a grid over a wide picture",
        ("precision-loss", "downcast"),
        """
torch.manual_seed(0)
picture = torch.rand(1, 1, 8, 2000)
across = torch.linspace(-1, 1, 2000).bfloat16()  # BORN
grid = torch.stack([across.expand(8, -1), torch.linspace(-1, 1, 8).bfloat16()[:, None].expand(-1, 2000)], -1)[None]
print(F.grid_sample(picture, grid.float(), align_corners=True).std().item())
""",
    ),
    # ------------------------------------------------------------ healthy
    Unseen(
        "autocast and AdamW",
        (),
        NET
        + """
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(4):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(torch.randn(32, 16)), torch.randint(0, 4, (32,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
""",
    ),
    Unseen(
        "a scaler that searches",
        (),
        """
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for _ in range(12):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(torch.randn(8, 3, 12, 12)).float(), torch.randint(0, 3, (8,)))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(scaler.get_scale(), loss.item())
""",
    ),
    Unseen(
        "adapters beside a bfloat16 base",
        (),
        """
torch.manual_seed(0)
base = nn.Linear(16, 16).bfloat16().requires_grad_(False)
down, up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
nn.init.zeros_(up.weight)
optimizer = torch.optim.AdamW([*down.parameters(), *up.parameters()], lr=1e-3)
for _ in range(4):
    x = torch.randn(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = base(x) + up(down(x))
    optimizer.zero_grad()
    (out.float() - x).square().mean().backward()
    optimizer.step()
""",
    ),
    Unseen(
        "a bfloat16 encoder that only reads",
        (),
        """
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
encoder = nn.TransformerEncoder(layer, 3).bfloat16().eval()
with torch.inference_mode():
    out = encoder(torch.randn(2, 10, 32).bfloat16(), src_key_padding_mask=torch.zeros(2, 10, dtype=torch.bool))
print(out.float().norm().item())
""",
    ),
    Unseen(
        "masks of the lowest half",
        (),
        """
torch.manual_seed(0)
q, k, v = (torch.randn(2, 8, 16).half() for _ in range(3))
mask = torch.full((8, 8), torch.finfo(torch.float16).min, dtype=torch.float16).triu(1)
weights = (q @ k.transpose(-1, -2) / 4 + mask).softmax(-1)
print((weights @ v).float().norm().item(), (weights > 0).sum().item())
""",
    ),
    Unseen(
        "numbers that are zero by structure",
        (),
        """
torch.manual_seed(0)
norm = nn.LayerNorm(64).bfloat16()
with torch.no_grad():
    x = norm(torch.randn(8, 64).bfloat16())
    print("mean", x.mean().item(), "centred", (x - x.mean(-1, keepdim=True)).sum().item())
key = nn.Linear(16, 16).bfloat16()
h = torch.randn(4, 6, 16).bfloat16()
(h @ key(h).transpose(-1, -2)).softmax(-1).sub(0.3).square().sum().backward()
print(key.bias.grad.float().norm().item())
""",
    ),
    Unseen(
        "a float32 average of bfloat16 weights",
        (),
        NET
        + """
net = net.bfloat16()
average = [p.detach().float().clone() for p in net.parameters()]
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(5):
    net(torch.randn(16, 16).bfloat16()).float().sub(1).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    for a, p in zip(average, net.parameters()):
        a.lerp_(p.detach().float(), 1e-3)
""",
    ),
    Unseen(
        "a recurrent net under autocast",
        (),
        """
torch.manual_seed(0)
rnn, head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 2)
optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-3)
for _ in range(3):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = rnn(torch.randn(4, 12, 8))
        loss = F.cross_entropy(head(out[:, -1]).float(), torch.randint(0, 2, (4,)))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
    optimizer.step()
""",
    ),
    Unseen(
        "two players in float32",
        (),
        """
torch.manual_seed(0)
maker, critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)), nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 1))
first, second = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
for _ in range(4):
    fake, real = maker(torch.randn(16, 4)), torch.randn(16, 2)
    loss = F.softplus(critic(fake.detach())).mean() + F.softplus(-critic(real)).mean()
    second.zero_grad(); loss.backward(); second.step()
    loss = F.softplus(-critic(fake)).mean()
    first.zero_grad(); loss.backward(); first.step()
print(loss.item())
""",
    ),
    Unseen(
        "tables in float32, cast once",
        (),
        """
torch.manual_seed(0)
rate = 10000 ** (-torch.arange(0, 16, 2).float() / 16)
angle = torch.outer(torch.arange(2000).float(), rate)
cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
x = torch.randn(2000, 8).bfloat16()
q = nn.Linear(8, 8).bfloat16()
with torch.no_grad():
    print((q(x) * cos - q(x) * sin).float().norm().item())
""",
    ),
]
