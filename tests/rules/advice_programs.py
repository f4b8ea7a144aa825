"""Further small programs with one wrong dtype each, for ``test_advice``: what to expect was written with them.

``#!`` marks the line where the wrong dtype was born. In each, ``net`` is the model, and ``HALF`` programs compute in
bfloat16 throughout.
"""

from __future__ import annotations

HALF = "net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).to(torch.bfloat16)\nx = torch.ones(3, 8, dtype=torch.bfloat16)\n"
WIDE = "net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))\nx = torch.ones(3, 8)\n"

FURTHER = {
    "a part that was cast by itself": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward, self.mixer, self.head = nn.Linear(8, 16), nn.Linear(16, 64), nn.Linear(64, 4)
    def forward(self, x):
        h = self.mixer(self.inward(x).to(torch.bfloat16))
        return self.head(h)
net = Net()
net.mixer.to(torch.bfloat16)  #!
net(torch.ones(3, 8))
""",
    "a pad like a table that is kept wide": WIDE
    + """
table = torch.linspace(0, 1, 20, dtype=torch.float64).cumprod(0)
level = table[3].float()
pad = table.new_zeros(3, 2)  #!
net(torch.cat([level * x[:, :6], pad], 1))
""",
    "a sum outside the model, made like its half result": HALF
    + """
out = net(x)
total = out.new_zeros(2, 8)  #!
total.index_add_(0, torch.tensor([0, 1, 0]), (out.float() - 1).square())
""",
    "an array of numpy's": "import numpy as np\n" + WIDE + "y = torch.from_numpy(np.ones((3, 8)))  #!\nnet(y)\n",
    "a state that is made like the wrong input": WIDE
    + "y = torch.linspace(0, 1, 24, dtype=torch.float64).reshape(3, 8)  #!\nh = torch.zeros_like(y[:, :4])\nnet(torch.cat([h, y[:, :4]], 1))\n",
    "rows that were narrowed and come back": WIDE
    + """
table = torch.ones(6, 8)
rows = table[:3].half()  #!
torch.zeros_like(table).index_add_(0, torch.tensor([0, 1, 2]), rows)
""",
    "steps counted and scaled": HALF + "steps = torch.arange(8) * 0.1  #!\nnet(x * steps)\n",
    "noise of the default dtype": HALF + "noise = torch.randn(3, 8)  #!\nnet(x + noise)\n",
    "a mask of the default dtype": HALF
    + "q = net(x)[None]\nmask = torch.zeros(3, 3)  #!\ntorch.baddbmm(mask[None], q, q.transpose(1, 2))\n",
    "a bias of the default dtype": HALF
    + "bias = torch.zeros(4)  #!\nF.linear(net(x), torch.ones(4, 8, dtype=torch.bfloat16), bias)\n",
    "zeros that are joined on": HALF + "zeros = torch.zeros(3, 2)  #!\nnet(torch.cat([x[:, :6], zeros], 1))\n",
    "zeros in the other branch": HALF + "zeros = torch.zeros(3, 8)  #!\nnet(torch.where(x > 0, x, zeros))\n",
    "a layer that was added later": HALF + "net.append(nn.Linear(8, 4))  #!\nnet(x)\n",
    "a state of the default dtype": """
net = nn.GRU(8, 4, batch_first=True).to(torch.bfloat16)
x = torch.ones(3, 5, 8, dtype=torch.bfloat16)
state = torch.zeros(1, 3, 4)  #!
net(x, state)
""",
    "a result that is gathered in the default dtype": HALF
    + "out = torch.zeros(5, 8)  #!\nout[torch.tensor([0, 2, 4])] = net(x)\nnet(out)\n",
    "gates of the default dtype": HALF
    + "gates = torch.ones(3, 2)  #!\nexperts = torch.stack([net(x), net(-x)], 1)\ntorch.einsum('be,bed->bd', gates, experts)\n",
    "a scatter into the default dtype": HALF
    + "where = torch.zeros(3, 8, dtype=torch.int64)\nout = torch.zeros(2, 8)  #!\nout.scatter_add_(0, where, net(x))\n",
    "a partial function that names a dtype": "from functools import partial\n"
    + WIDE
    + "make = partial(torch.ones, dtype=torch.bfloat16)\ny = make(3, 8)  #!\nnet(y)\n",
    "a lambda's default": WIDE
    + "make = lambda n, dtype=torch.bfloat16: torch.ones(n, 8, dtype=dtype)  #!\nnet(make(3))\n",
    "a dtype that a class holds": WIDE
    + "class Made:\n    kind = torch.bfloat16\n    def rows(self, n):\n        return torch.ones(n, 8, dtype=self.kind)  #!\nnet(Made().rows(3))\n",
    "a data set that converts": WIDE
    + """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 3
    def __getitem__(self, i):
        return torch.tensor([float(i)] * 8, dtype=torch.float64)  #!
for rows in torch.utils.data.DataLoader(Rows(), batch_size=3):
    net(rows)
""",
    "a norm that is not cast back": HALF
    + "def norm(h):\n    return F.normalize(h.float(), dim=-1)  #!\nnet(norm(net(x)))\n",
    "a tensor of numbers": HALF + "scale = torch.tensor([0.5] * 8)  #!\nnet(x * scale)\n",
    "two operands from one wide table": HALF
    + """
turn = torch.ones(3, 8)  #!
q = net(x)[None]
F.scaled_dot_product_attention(q * turn, q * turn.flip(0), q)
""",
    "a wide scale, applied before and after rounding": """
class Rounded(nn.Linear):
    scale = None
    def calibrate(self):
        self.scale = self.weight.detach().to(torch.float32).abs().amax(dim=1, keepdim=True) / 127  #!
    def forward(self, x):
        w = self.weight
        if self.scale is not None:
            w = w / self.scale
            w = w.round() * self.scale
        return F.linear(x, w, self.bias)
net = Rounded(8, 4).to(torch.bfloat16)
x = torch.ones(3, 8, dtype=torch.bfloat16)
net(x)
net.calibrate()
net(x)
""",
    "a default that one of two ways out sets back": WIDE
    + """
def careful(values):
    torch.set_default_dtype(torch.float64)  #!
    total = torch.tensor(values).sum()
    if total > 0:
        return total
    torch.set_default_dtype(torch.float32)
    return total
careful([1.0, 2.0])
net.append(nn.Linear(8, 4))
net(x)
""",
    "a default that no line sets back": WIDE
    + """
def careful(values):
    torch.set_default_dtype(torch.float64)  #!
    print(torch.tensor(values).sum())
careful([1.0, 2.0])
net(x + torch.ones(3, 8))
""",
    "a saved head that is trained in float32": """
import torch
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)), nn.Linear(8, 4)
    def forward(self, x):
        return nn.Sequential(self.body, self.head)(x)
net = Classifier().to(torch.bfloat16)
net.body.requires_grad_(False)
for p in net.head.parameters():
    p.data = p.data.to(torch.float32)  #!
"""
    + """
opt = torch.optim.SGD(net.head.parameters(), lr=0.1)
for _ in range(2):
    out = net(torch.ones(3, 8, dtype=torch.bfloat16))
    loss = out.float().square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a setting that one of three objects leaves out": """
from dataclasses import dataclass
@dataclass
class Part:
    size: int
    dtype: torch.dtype = torch.float32
    def build(self):
        return nn.Linear(self.size, 8, dtype=self.dtype)  #!
@dataclass
class Config:
    width: int = 8
    dtype: torch.dtype = torch.bfloat16
config = Config()
net = nn.Sequential(*(p.build() for p in [Part(config.width, config.dtype), Part(8), Part(8, dtype=config.dtype)]))
net(torch.ones(3, 8, dtype=config.dtype))
""",
    "wide distances of which one product is cast": HALF
    + """
position = torch.linspace(0, 1, 24).reshape(3, 8)  #!
far = position.square().sum(-1, keepdim=True).sqrt()
basis = torch.exp(-far).to(torch.bfloat16)
message = net(x) * basis * torch.cos(far)
torch.zeros_like(x).index_add_(0, torch.tensor([0, 1, 0]), message)
""",
    "biases of a dictionary of weights": """
import torch
net = nn.Linear(8, 4)  #!
weights = {k: v.detach().to(torch.bfloat16) if k == "weight" else v.detach() for k, v in net.named_parameters()}
torch.func.functional_call(net, (weights, {}), (torch.ones(3, 8, dtype=torch.bfloat16),))
""",
}
