"""
title: duplicate edges are found through row * nodes + col in int32
expect: silent:overflow|precision-loss|precision-loss|downcast
fix_at: 28

After https://github.com/pyg-team/pytorch_geometric/pull/8812 and https://github.com/dmlc/dgl/issues/7850: with 70 000 nodes the key passes 2^31 and wraps;
its decoded ends are other nodes. The weights in bfloat16 are innocent. Here 0.53 of the edges that are left do not exist
(repaired: none). Right: 64-bit node ids.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(37)
NODES = 70_000


def read_edges(n=3000, repeats=400):
    hub = torch.randint(0, NODES, (200,))
    rows = hub[torch.randint(0, len(hub), (n,))]
    cols = torch.randint(0, NODES, (n,))
    again = torch.randint(0, n, (repeats,))
    edges = torch.stack([torch.cat([rows, rows[again]]), torch.cat([cols, cols[again]])])
    return edges.to(torch.int32)  # BORN


def coalesce(edges, nodes):
    key = edges[0] * nodes + edges[1]
    key, inverse = torch.unique(key, return_inverse=True)
    weight = torch.bincount(inverse).to(torch.bfloat16)
    rows = torch.div(key, nodes, rounding_mode="floor")
    return torch.stack([rows, key - rows * nodes]).long() % nodes, weight


class MeanConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin_self, self.lin_near = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edges, weight):
        total = torch.zeros_like(x).index_add_(0, edges[0], x[edges[1]] * weight[:, None])
        count = torch.zeros(len(x)).index_add_(0, edges[0], weight).clamp(min=1)
        return self.lin_self(x) + self.lin_near(total / count[:, None])


raw = read_edges()
edges, weight = coalesce(raw, NODES)
truth = set(map(tuple, raw.long().t().tolist()))
invented = sum(tuple(edge) not in truth for edge in edges.t().tolist()) / edges.shape[1]
model = MeanConv(8, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
x = torch.randn(NODES, 8)
labels = torch.zeros(NODES).index_add_(0, raw[0].long(), x[raw[1].long(), 0]).sign().long() + 1
train = raw[0].long().unique()
for step in range(8):
    loss = F.cross_entropy(model(x, edges, weight.float())[train], labels[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("edges", edges.shape[1], "invented", round(invented, 3), "loss", round(loss.item(), 4))
