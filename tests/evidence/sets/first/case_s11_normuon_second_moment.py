"""
title: the orthogonalised update comes back in float32 and meets a bfloat16 second moment in lerp_
expect: collision
fix_at: 37

After zichongli5/NorMuon#4 ("don't explicitly cast zeropower_via_newtonschulz5 output to float": expected dtype c10::BFloat16 for
`end` but got dtype float). Weights, gradients and both states are bfloat16; the iteration runs in bfloat16 and only its result
is widened. Right change: return it as it is (or in the dtype of what came in).
"""
import torch
from torch import nn


def orthogonalise(g, steps=4):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.to(torch.bfloat16)
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.float()  # BORN


class NorMuon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, beta2=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum, beta2=beta2))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["first"], state["second"] = torch.zeros_like(p), torch.zeros_like(p[:, :1])
                state["first"].lerp_(p.grad, 1 - group["momentum"])
                update = orthogonalise(state["first"])
                rows = update.square().mean(-1, keepdim=True)
                state["second"].lerp_(rows, 1 - group["beta2"])  # COLLIDES
                p.add_(update / (state["second"].sqrt() + 1e-8), alpha=-group["lr"])


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.hidden:
            x = x + torch.relu(layer(x))
        return self.head(x)


torch.manual_seed(0)
net = Net().to(torch.bfloat16)
muon = NorMuon(net.hidden.parameters())
for step in range(2):
    logits = net(torch.randn(16, 4).to(torch.bfloat16))
    nn.functional.cross_entropy(logits.float(), torch.randint(3, (16,))).backward()
    muon.step()
    net.zero_grad()
    print("step", step)
