"""
title: The node-to-graph vector is float when global_add_pool scatters with it
expect: collision
thread: https://github.com/Shen-Lab/GraphCL/issues/44
fix_at: batch.long() in global_add_pool

Expectation, written first: the augmentation drops nodes and rebuilds the batch vector with torch.ones(n) * i,
which is float32. Nothing minds until get_embeddings pools the nodes of each graph: scatter_add_ wants an
int64 index and raises.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Data:
    def __init__(self, x, edge_index):
        self.x = x
        self.edge_index = edge_index


class Batch:
    def __init__(self, x, edge_index, batch):
        self.x, self.edge_index, self.batch = x, edge_index, batch

    @classmethod
    def from_data_list(cls, data_list):
        xs, edges, batch, offset = [], [], [], 0
        for i, data in enumerate(data_list):
            n = data.x.size(0)
            xs.append(data.x)
            edges.append(data.edge_index + offset)
            batch.append(torch.ones(n) * i)  # BORN
            offset += n
        return cls(torch.cat(xs), torch.cat(edges, dim=1), torch.cat(batch))  # BORN


def drop_nodes(data, ratio=0.2):
    n = data.x.size(0)
    keep = torch.randperm(n)[: n - int(n * ratio)].sort().values
    mapping = torch.full((n,), -1)
    mapping[keep] = torch.arange(len(keep))
    edge_index = mapping[data.edge_index]
    return Data(data.x[keep], edge_index[:, (edge_index >= 0).all(dim=0)])


def global_add_pool(x, batch, size):
    index = batch.view(-1, 1).expand_as(x)
    return torch.zeros(size, x.size(1)).scatter_add_(0, index, x)  # COLLIDES


class GINConv(nn.Module):
    def __init__(self, dim_in, dim):
        super().__init__()
        self.nn = nn.Sequential(nn.Linear(dim_in, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, x, edge_index):
        src, dst = edge_index
        return self.nn(x + torch.zeros_like(x).index_add_(0, dst, x[src]))


class Encoder(nn.Module):
    def __init__(self, num_features, dim, num_gc_layers):
        super().__init__()
        self.convs = nn.ModuleList(GINConv(num_features if i == 0 else dim, dim) for i in range(num_gc_layers))

    def forward(self, x, edge_index, batch, num_graphs):
        xs = []
        for conv in self.convs:
            x = F.relu(conv(x, edge_index))
            xs.append(x)
        xpool = [global_add_pool(x, batch, num_graphs) for x in xs]
        return torch.cat(xpool, 1)


def random_graph(num_features):
    n = int(torch.randint(8, 15, (1,)))
    return Data(torch.randn(n, num_features), torch.randint(0, n, (2, 3 * n)))


@torch.no_grad()
def get_embeddings(encoder, dataset, batch_size):
    ret = []
    for start in range(0, len(dataset), batch_size):
        graphs = [drop_nodes(g) for g in dataset[start:start + batch_size]]
        data = Batch.from_data_list(graphs)
        ret.append(encoder(data.x, data.edge_index, data.batch, len(graphs)))
    return torch.cat(ret)


if __name__ == "__main__":
    torch.manual_seed(44)
    emb = get_embeddings(Encoder(7, 16, 3), [random_graph(7) for _ in range(12)], batch_size=4)
    print("embeddings", tuple(emb.shape), "norm", round(emb.norm(dim=1).mean().item(), 4))
