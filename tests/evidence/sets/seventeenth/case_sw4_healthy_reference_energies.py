"""
title: energies go to the network in float32 after the atomic references were subtracted in float64
expect: clean
thread: https://github.com/torchmd/torchmd-net/pull/275
measured: total energies near -31703.1 eV, RMSE of the fit 0.0191 eV, weights 0.800 -0.500 0.300 0.099 -0.201 0.400  (with float64 in its
    place: total energies near -31703.1 eV, RMSE of the fit 0.0191 eV, weights 0.800 -0.500 0.300 0.099 -0.201 0.400)
suspect: 35 float32 energies: residual (a few eV, the large part is taken off in float64)

Expectation, written first: Total energies of tens of thousands of eV in float32 would lose milli-eV. The data set subtracts the reference
    energies in float64 first, so the residual of a few eV is exact to 1e-6 and the fit agrees with float64.
"""
import torch
from torch import nn


class SpiceLike:
    def __init__(self, n, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.refs = torch.tensor([-16.3523, -1036.2906, -1488.6625, -2046.1385], dtype=torch.float64)
        self.counts = torch.randint(1, 14, (n, 4), generator=g)
        self.feat = torch.randn(n, 6, generator=g, dtype=torch.float64)
        true = torch.tensor([0.8, -0.5, 0.3, 0.1, -0.2, 0.4], dtype=torch.float64)
        self.energy = self.counts.double() @ self.refs + self.feat @ true + 0.02 * torch.randn(n, generator=g, dtype=torch.float64)

    def __len__(self):
        return len(self.energy)


class AtomrefDataset:
    def __init__(self, raw):
        self.raw = raw

    def __getitem__(self, idx):
        energy = self.raw.energy[idx] - self.raw.counts[idx].double() @ self.raw.refs
        return self.raw.feat[idx].to(torch.float32), energy.to(torch.float32)
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 1)

    def forward(self, x):
        return self.lin(x.float()).squeeze(-1)


class LNNP:
    def __init__(self, model, lr=0.1):
        self.model, self.lr = model, lr

    def fit(self, data, n, epochs=150):
        for _ in range(epochs):
            x, y = data[torch.arange(n)]
            loss = (self.model(x) - y).pow(2).mean()
            for p, g in zip(self.model.parameters(), torch.autograd.grad(loss, list(self.model.parameters()))):
                p.data.sub_(self.lr * g)
        return loss


torch.manual_seed(0)
raw, module = SpiceLike(600), LNNP(Head())
loss = module.fit(AtomrefDataset(raw), len(raw))
w = module.model.lin.weight.detach().flatten()
print(f"total energies near {raw.energy.mean():.1f} eV, RMSE of the fit {loss.sqrt():.4f} eV, weights " + " ".join(f"{v:.3f}" for v in w.tolist()))
