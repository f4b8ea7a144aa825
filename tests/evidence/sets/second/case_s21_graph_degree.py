"""
title: a graph layer counts degrees with ones_like of the integer edge index
expect: collision

After rusty1s/pytorch_scatter#281 and uzh-rpg/rpg_e2vid#5 ("index_add_(): self (Float) and source (Long) must have the same
scalar type"). Right: ones in the features' dtype.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(14)


def ring_with_chords(nodes, chords):
    a = torch.arange(nodes)
    b = (a + 1) % nodes
    extra = torch.randint(0, nodes, (2, chords))
    source = torch.cat([a, b, extra[0], extra[1]])
    target = torch.cat([b, a, extra[1], extra[0]])
    return torch.stack([source, target])


class MeanConv(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.own = nn.Linear(inp, out)
        self.other = nn.Linear(inp, out, bias=False)

    def forward(self, x, edges):
        source, target = edges
        gathered = torch.zeros_like(x).index_add_(0, target, x[source])
        once = torch.ones_like(target)  # BORN
        degree = x.new_zeros(x.shape[0]).index_add_(0, target, once)  # COLLIDES
        mean = gathered / degree.clamp(min=1)[:, None]
        return self.own(x) + self.other(mean)


class NodeClassifier(nn.Module):
    def __init__(self, inp=6, hidden=16, classes=3):
        super().__init__()
        self.first = MeanConv(inp, hidden)
        self.second = MeanConv(hidden, classes)

    def forward(self, x, edges):
        return self.second(F.relu(self.first(x, edges)), edges)


def split(nodes, share=0.5):
    order = torch.randperm(nodes)
    known = torch.zeros(nodes, dtype=torch.bool)
    known[order[: int(share * nodes)]] = True
    return known


def main():
    nodes = 30
    edges = ring_with_chords(nodes, chords=20)
    labels = torch.randint(0, 3, (nodes,))
    features = torch.randn(nodes, 6) + F.one_hot(labels, 6)
    known = split(nodes)
    model = NodeClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    for epoch in range(10):
        logits = model(features, edges)
        loss = F.cross_entropy(logits[known], labels[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hit = (logits.argmax(-1) == labels)[~known].float().mean()
    print("loss", round(loss.item(), 3), "accuracy", round(hit.item(), 2))


main()
