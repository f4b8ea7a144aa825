"""
title: GraphSAGE on features stored in half precision, with the sums over the neighbours taken in float32
expect: clean
thread: https://github.com/dmlc/dgl/issues/4674
measured: hub in-degree 5003, sum of ones 5003; loss 0.298, test accuracy 0.817 (the same with a float32 feature store)

Expectation, written first: the features are kept in float16 to save memory (they are of unit scale), but the gathered messages are converted
and summed in float32, so that even the hub node with thousands of neighbours does not stop at 2048. Degrees are counted in int64. Harmless.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def build_graph(num_nodes, num_classes, num_edges, hub_degree, generator):
    labels = torch.randint(0, num_classes, (num_nodes,), generator=generator)
    src = torch.randint(0, num_nodes, (num_edges,), generator=generator)
    same = torch.rand(num_edges, generator=generator) < 0.8
    by_class = [torch.nonzero(labels == c).squeeze(1) for c in range(num_classes)]
    dst = torch.randint(0, num_nodes, (num_edges,), generator=generator)
    for c, members in enumerate(by_class):
        pick = same & (labels[src] == c)
        dst[pick] = members[torch.randint(0, len(members), (int(pick.sum()),), generator=generator)]
    hub = torch.randint(0, num_nodes, (hub_degree,), generator=generator)
    src, dst = torch.cat([src, hub]), torch.cat([dst, torch.zeros(hub_degree, dtype=torch.int64)])
    return src, dst, labels


def copy_u_sum(src, dst, feat, num_nodes):
    out = torch.zeros(num_nodes, feat.size(1), dtype=torch.float32)
    return out.index_add_(0, dst, feat[src].float())


def in_degrees(dst, num_nodes):
    return torch.bincount(dst, minlength=num_nodes).clamp(min=1)


class SAGEConv(nn.Module):
    def __init__(self, in_feats, out_feats):
        super().__init__()
        self.fc_self = nn.Linear(in_feats, out_feats)
        self.fc_neigh = nn.Linear(in_feats, out_feats, bias=False)

    def forward(self, graph, feat):
        src, dst, n = graph
        neigh = copy_u_sum(src, dst, feat, n) / in_degrees(dst, n).unsqueeze(1)
        return self.fc_self(feat.float()) + self.fc_neigh(neigh)


class GraphSAGE(nn.Module):
    def __init__(self, in_feats, hidden, num_classes):
        super().__init__()
        self.conv1 = SAGEConv(in_feats, hidden)
        self.conv2 = SAGEConv(hidden, num_classes)

    def forward(self, graph, feat):
        return self.conv2(graph, F.relu(self.conv1(graph, feat)))


def train(model, graph, feat, labels, mask, epochs=25):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        loss = F.cross_entropy(model(graph, feat)[mask], labels[mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        pred = model(graph, feat).argmax(dim=1)
    return loss.item(), (pred[~mask] == labels[~mask]).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    n, classes = 600, 4
    src, dst, labels = build_graph(n, classes, 3000, 5000, generator)
    feat = (F.one_hot(labels, 8).float() + torch.randn(n, 8, generator=generator)).half()
    graph = (src, dst, n)
    hub_sum = copy_u_sum(src, dst, torch.ones(n, 1, dtype=torch.float16), n)[0].item()
    print(f"hub in-degree {int(in_degrees(dst, n)[0])} sum of ones {hub_sum:.0f}")
    loss, acc = train(GraphSAGE(8, 16, classes), graph, feat, labels, torch.arange(n) < 300)
    print(f"loss {loss:.3f} test accuracy {acc:.3f}")
