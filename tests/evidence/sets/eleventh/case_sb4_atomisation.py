"""
title: total energies are cast to float32 before the atoms are subtracted; descriptors are half
expect: silent:precision-loss|downcast
thread: https://github.com/torchmd/torchmd-net/pull/275
measured: residual 0.86 mEh, worst bond energy off by 0.03 mEh
widened: residual 0.10 mEh, worst bond energy off by 0.03 mEh

Expectation, written first: a total energy near 40000 hartree keeps steps of four millihartree in float32, which is
more than the differences that are asked for. The descriptors count atoms, exact in half.
"""
import torch

REFERENCE = {1: -0.500273, 6: -37.845355, 8: -75.062826, 79: -19_021.370512}


class Entry:
    def __init__(self, formula, energy):
        self.formula, self.energy = formula, energy


class EnergySet(torch.utils.data.Dataset):
    def __init__(self, entries, elements=(1, 6, 8, 79)):
        self.elements = elements
        counts = [[e.formula.get(z, 0) for z in elements] for e in entries]
        self.counts = torch.tensor(counts, dtype=torch.float16)
        self.energy = torch.tensor([e.energy for e in entries], dtype=torch.float32)  # BORN
        self.reference = torch.tensor([REFERENCE[z] for z in elements], dtype=torch.float64)

    def __len__(self):
        return len(self.energy)

    def __getitem__(self, i):
        counts = self.counts[i].double()
        return counts, self.energy[i].double() - counts @ self.reference


class BondModel:
    """additive: so much per atom of each kind"""

    def fit(self, loader):
        x, y = map(torch.cat, zip(*loader))
        self.coef = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
        self.residual = (x @ self.coef - y).std()
        return self


def clusters(n, gen, bond=(-0.11, -0.19, -0.14, -0.05)):
    out = []
    for _ in range(n):
        counts = torch.randint(1, 9, (3,), generator=gen).tolist() + [int(torch.randint(1, 3, (1,), generator=gen))]
        formula = dict(zip((1, 6, 8, 79), counts))
        energy = sum(REFERENCE[z] * k for z, k in formula.items())
        energy += sum(b * k for b, k in zip(bond, counts))
        energy += 1e-4 * torch.randn(1, generator=gen).item()
        out.append(Entry(formula, energy))
    return out


gen = torch.Generator().manual_seed(0)
loader = torch.utils.data.DataLoader(EnergySet(clusters(80, gen)), batch_size=16)
model = BondModel().fit(loader)
worst = (model.coef - torch.tensor([-0.11, -0.19, -0.14, -0.05])).abs().max().item()
print(f"residual {1000 * model.residual.item():.2f} mEh, worst bond energy off by {1000 * worst:.2f} mEh")
