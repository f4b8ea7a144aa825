"""
title: Two-hop adjacency of a half-precision user-item graph
expect: collision
thread: https://github.com/pytorch/pytorch/issues/56231

Expectation, written first.  The normalised adjacency of a LightGCN-like
recommender is cast to float16 to save memory.  Sparse @ dense has a half
kernel on the CPU, so one-hop propagation works; the two-hop operator is
sparse @ sparse, which has none ("sparse_matmul" not implemented for Half).
BORN is the .half() that builds the adjacency.
"""
import torch
from torch import nn

torch.manual_seed(0)


def interactions(n_users=40, n_items=60, per_user=5):
    g = torch.Generator().manual_seed(7)
    users = torch.arange(n_users).repeat_interleave(per_user)
    items = torch.randint(0, n_items, (n_users * per_user,), generator=g)
    return users, items, n_users, n_items


def normalised_adjacency(users, items, n_users, n_items):
    n = n_users + n_items
    rows = torch.cat([users, items + n_users])
    cols = torch.cat([items + n_users, users])
    adj = torch.sparse_coo_tensor(torch.stack([rows, cols]), torch.ones(rows.numel()), (n, n)).coalesce()
    deg = torch.sparse.sum(adj, 1).to_dense().clamp(min=1)
    r, c = adj.indices()
    values = adj.values() * deg[r].rsqrt() * deg[c].rsqrt()
    return torch.sparse_coo_tensor(adj.indices(), values, (n, n)).coalesce().half()  # BORN


class TwoHopGCN(nn.Module):
    def __init__(self, adj, n_users, dim=16):
        super().__init__()
        self.adj, self.n_users = adj, n_users
        self.embedding = nn.Parameter(torch.randn(adj.size(0), dim) * 0.1)
        self.two_hop = torch.sparse.mm(adj, adj)  # COLLIDES

    def forward(self):
        e = self.embedding.to(self.adj.dtype)
        hop1 = torch.sparse.mm(self.adj, e).float()
        hop2 = torch.sparse.mm(self.two_hop, e).float()
        return (self.embedding + hop1 + hop2) / 3


def recommend(model, user, k=5):
    with torch.no_grad():
        final = model()
        return (final[model.n_users:] @ final[user]).topk(k).indices.tolist()


if __name__ == "__main__":
    users, items, n_users, n_items = interactions()
    model = TwoHopGCN(normalised_adjacency(users, items, n_users, n_items), n_users)
    print("for user 3:", recommend(model, 3))
