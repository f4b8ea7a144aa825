"""
title: message passing under autocast: float32 accumulator, bfloat16 messages
expect: collision

After pytorch/pytorch#51730 (scatter_add does not promote inside autocast) and TorchSim/torch-sim#27.
Right change: allocate the accumulator in the messages' dtype, or scatter messages.to(out.dtype).
"""
import torch
import torch.nn as nn


class GraphConv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.msg = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, edges):
        src, dst = edges
        m = self.msg(torch.cat([h[src], h[dst]], dim=-1))  # BORN
        out = torch.zeros_like(h)  # BORN
        out.scatter_add_(0, dst[:, None].expand_as(m), m)  # COLLIDES
        return self.norm(h + torch.relu(out))


class Net(nn.Module):
    def __init__(self, dim=12, depth=2, classes=3):
        super().__init__()
        self.register_buffer("degree_scale", torch.ones(1))
        self.embed = nn.Embedding(10, dim)
        self.convs = nn.ModuleList(GraphConv(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, atoms, edges):
        h = self.embed(atoms) * self.degree_scale
        for conv in self.convs:
            h = conv(h, edges)
        return self.head(h)


def random_graph(gen, nodes=14, edges=40):
    return (torch.randint(0, 10, (nodes,), generator=gen), torch.randint(0, nodes, (2, edges), generator=gen),
            torch.randint(0, 3, (nodes,), generator=gen))


torch.manual_seed(0)
gen = torch.Generator().manual_seed(3)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(4):
    atoms, edges, y = random_graph(gen)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(atoms, edges)
    loss = nn.functional.cross_entropy(logits.float(), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item())
