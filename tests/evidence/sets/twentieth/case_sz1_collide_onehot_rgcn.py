"""
title: building the test graph of the relational GCN stops in the edge normalization's one-hot
expect: collision
thread: https://github.com/JinheonBaek/RGCN/issues/13
fix_at: 60, 62

Expectation, written first: the triplets are held as int32, `torch.from_numpy` keeps that, and the edge types remain int32 up to `F.one_hot`,
which takes only int64. The array's dtype, the conversion of the relation column or a `.long()` at the one-hot is the place.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class RGCNConv(nn.Module):
    def __init__(self, dim_in, dim_out, num_relations, num_bases):
        super().__init__()
        self.basis = nn.Parameter(torch.randn(num_bases, dim_in, dim_out) * 0.2)
        self.att = nn.Parameter(torch.randn(num_relations, num_bases) * 0.2)
        self.root = nn.Linear(dim_in, dim_out)

    def forward(self, x, edge_index, edge_type, edge_norm):
        weight = torch.einsum("rb,bio->rio", self.att, self.basis)
        messages = torch.bmm(x[edge_index[0]].unsqueeze(1), weight[edge_type]).squeeze(1) * edge_norm.unsqueeze(1)
        return self.root(x).index_add(0, edge_index[1], messages)


class RGCN(nn.Module):
    def __init__(self, num_entities, num_relations, dim=16, num_bases=4):
        super().__init__()
        self.entity_embedding = nn.Embedding(num_entities, dim)
        self.relation_embedding = nn.Parameter(torch.randn(num_relations, dim))
        self.conv1 = RGCNConv(dim, dim, num_relations * 2, num_bases)
        self.conv2 = RGCNConv(dim, dim, num_relations * 2, num_bases)

    def forward(self, entity, edge_index, edge_type, edge_norm):
        x = F.relu(self.conv1(self.entity_embedding(entity), edge_index, edge_type, edge_norm))
        return self.conv2(x, edge_index, edge_type, edge_norm)

    def score(self, embedding, triplets):
        s, r, o = embedding[triplets[:, 0]], self.relation_embedding[triplets[:, 1]], embedding[triplets[:, 2]]
        return (s * r * o).sum(dim=1)


def load_triplets(num_entities, num_relations, n, rng):
    columns = [rng.integers(0, m, n) for m in (num_entities, num_relations, num_entities)]
    return np.stack(columns, axis=1).astype(np.int32)  # BORN


def edge_normalization(edge_type, edge_index, num_entity, num_relation):
    one_hot = F.one_hot(edge_type, num_classes=2 * num_relation).to(torch.float)  # BORN COLLIDES
    deg = torch.zeros(num_entity, 2 * num_relation).index_add(0, edge_index[0], one_hot)
    index = edge_type + torch.arange(len(edge_index[0])) * (2 * num_relation)
    return 1 / deg[edge_index[0]].view(-1)[index]


def build_test_graph(num_nodes, num_rels, triplets):
    src, rel, dst = triplets.transpose()
    src = torch.from_numpy(src.copy())
    rel = torch.from_numpy(rel.copy())  # BORN
    dst = torch.from_numpy(dst.copy())
    src, dst = torch.cat((src, dst)), torch.cat((dst, src))
    edge_type = torch.cat((rel, rel + num_rels))
    edge_index = torch.stack((src, dst))
    edge_norm = edge_normalization(edge_type, edge_index, num_nodes, num_rels)
    return torch.arange(num_nodes), edge_index, edge_type, edge_norm


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    num_entities, num_relations = 40, 5
    train_triplets = load_triplets(num_entities, num_relations, 120, rng)
    test_triplets = load_triplets(num_entities, num_relations, 10, rng)
    model = RGCN(num_entities, num_relations).eval()
    graph = build_test_graph(num_entities, num_relations, train_triplets)
    with torch.no_grad():
        embedding = model(*graph)
        print("scores", model.score(embedding, torch.from_numpy(test_triplets))[:3])


if __name__ == "__main__":
    main()
