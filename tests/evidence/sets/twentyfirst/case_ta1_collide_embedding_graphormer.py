"""
title: brain graphs with float node features are looked up in the atom embedding
expect: collision
thread: https://github.com/microsoft/Graphormer/issues/37
fix_at: 47, 63

Expectation, written first: the custom dataset stores its discretised node features as a float tensor. The
single-embedding trick only adds an integer offset, so the ids stay float, and the embedding wants integer
indices. The features must be stored as long, or be cast where the item is preprocessed.
"""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Item:
    x: torch.Tensor
    attn_bias: torch.Tensor
    in_degree: torch.Tensor
    y: torch.Tensor


class BrainConnectivityDataset:
    def __init__(self, num_graphs, num_rois=10, num_features=3, threshold=0.6):
        rng = np.random.default_rng(8)
        self.conn = [np.corrcoef(rng.normal(size=(num_rois, 6))) for _ in range(num_graphs)]
        self.feats = [rng.integers(0, 30, (num_rois, num_features)) for _ in range(num_graphs)]
        self.score = rng.normal(size=num_graphs)
        self.threshold = threshold

    def __len__(self):
        return len(self.conn)

    def __getitem__(self, idx):
        x = torch.tensor(self.feats[idx], dtype=torch.float)  # BORN
        adj = torch.from_numpy(np.abs(self.conn[idx]) > self.threshold)
        return preprocess_item(x, adj, torch.tensor(self.score[idx], dtype=torch.float))


def convert_to_single_emb(x, offset=64):
    feature_num = x.size(1)
    feature_offset = 1 + torch.arange(0, feature_num * offset, offset, dtype=torch.long)
    return x + feature_offset


def preprocess_item(x, adj, y):
    x = convert_to_single_emb(x)  # BORN
    attn_bias = torch.zeros(len(adj), len(adj)).masked_fill(~adj, -4.0)
    return Item(x, attn_bias, adj.long().sum(1), y)


class GraphNodeFeature(nn.Module):
    def __init__(self, num_atoms, num_in_degree, hidden_dim):
        super().__init__()
        self.atom_encoder = nn.Embedding(num_atoms + 1, hidden_dim, padding_idx=0)
        self.in_degree_encoder = nn.Embedding(num_in_degree, hidden_dim, padding_idx=0)

    def forward(self, x, in_degree):
        return self.atom_encoder(x).sum(dim=-2) + self.in_degree_encoder(in_degree)  # COLLIDES


class Graphormer(nn.Module):
    def __init__(self, hidden_dim=16):
        super().__init__()
        self.graph_node_feature = GraphNodeFeature(64 * 3, 16, hidden_dim)
        self.qkv = nn.Linear(hidden_dim, 3 * hidden_dim)
        self.head = nn.Linear(hidden_dim, 1)

    def forward(self, batch):
        h = self.graph_node_feature(batch["x"], batch["in_degree"])
        q, k, v = self.qkv(h).chunk(3, dim=-1)
        h = h + F.scaled_dot_product_attention(q, k, v, attn_mask=batch["attn_bias"])
        return self.head(h.mean(1)).squeeze(-1)


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = BrainConnectivityDataset(6)
    items = [dataset[i] for i in range(len(dataset))]
    batch = {key: torch.stack([getattr(it, key) for it in items]) for key in ("x", "attn_bias", "in_degree", "y")}
    loss = F.l1_loss(Graphormer()(batch), batch["y"])
    loss.backward()
    print("mae", f"{loss.item():.4f}")
