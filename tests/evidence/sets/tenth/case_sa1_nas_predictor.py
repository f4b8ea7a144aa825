"""
title: accuracies of architectures are Python floats, the loader collates them to float64
expect: collision
thread: https://github.com/ultmaster/neuralpredictor.pytorch/issues/5
fix_at: 54, 56

Expectation, written first: default_collate makes a float64 tensor out of Python floats;
the Huber loss against float32 predictions promotes quietly and the backward pass refuses.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class NasBenchLike(Dataset):
    def __init__(self, n=64, nodes=7, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.adj = (torch.rand(n, nodes, nodes, generator=gen) < 0.4).float().triu(1)
        self.ops = torch.randint(0, 5, (n, nodes), generator=gen)
        self.stats = [{"validation_accuracy": 0.9 + 0.05 * a.mean().item()} for a in self.adj]

    def __len__(self):
        return len(self.stats)

    def __getitem__(self, i):
        record = self.stats[i]
        return {
            "adjacency": self.adj[i],
            "operations": self.ops[i],
            "val_acc": (record["validation_accuracy"] - 0.91) / 0.01,  # BORN
        }


class GraphPredictor(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.ops = nn.Embedding(5, dim)
        self.gc = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, 1)

    def forward(self, adj, ops):
        h = self.ops(ops)
        for _ in range(2):
            h = torch.relu(self.gc(adj @ h + h))
        return self.head(h.mean(1)).squeeze(-1)


def main():
    torch.manual_seed(0)
    net = GraphPredictor()
    criterion = nn.HuberLoss(delta=0.5)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for batch in DataLoader(NasBenchLike(), batch_size=16):  # BORN
        target = batch["val_acc"]
        predict = net(batch["adjacency"], batch["operations"])
        loss = criterion(predict, target)
        opt.zero_grad()
        loss.backward()  # COLLIDES
        opt.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
