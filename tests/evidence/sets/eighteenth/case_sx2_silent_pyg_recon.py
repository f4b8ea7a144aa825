"""
title: reconstruction loss of a graph autoencoder in half is inf: the guard of 1e-15 is zero there
expect: silent:underflow|precision-loss
thread: https://github.com/pyg-team/pytorch_geometric/pull/2106
measured: edges 0.000, non-edges inf, reconstruction loss inf
widened: edges 0.000, non-edges 4.447, reconstruction loss 4.448
innocent: edges 0.000, non-edges inf, reconstruction loss inf
suspect: line 36 harmless (small whole numbers, exact in half)

Expectation, written first: the edge probabilities are half, 1 - sigmoid is exactly 0 for a confident non-edge above 8.3,
and EPS = 1e-15 added in half is 0 too, so the log is -inf and the loss inf. In float32 1 - sigmoid keeps its value. The
node degrees counted in half look dangerous but stay far below 2048.
"""
import torch
import torch.nn as nn

EPS = 1e-15  # BORN


def degree(index, num_nodes, dtype):
    return torch.zeros(num_nodes, dtype=dtype).scatter_add_(0, index, torch.ones_like(index, dtype=dtype))


class InnerProductDecoder(nn.Module):
    def forward(self, z, edge_index, sigmoid=True):
        value = (z[edge_index[0]] * z[edge_index[1]]).sum(dim=1)
        return torch.sigmoid(value) if sigmoid else value  # BORN


class GCNEncoder(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x, edge_index):
        deg = degree(edge_index[1], x.shape[0], x.dtype).clamp_min(1)
        h = self.lin(x)
        gathered = torch.zeros_like(h).index_add_(0, edge_index[1], h[edge_index[0]])
        return h + gathered / deg[:, None]


class GAE(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.decoder = encoder, InnerProductDecoder()

    def recon_loss(self, z, pos_edge_index, neg_edge_index):
        pos_loss = -torch.log(self.decoder(z, pos_edge_index) + EPS).mean()
        neg_loss = -torch.log(1 - self.decoder(z, neg_edge_index) + EPS).mean()  # BORN
        return pos_loss, neg_loss


def community_graph(num_nodes=60):
    half = num_nodes // 2
    inside = torch.stack([torch.randint(0, half, (200,)), torch.randint(0, half, (200,))])
    other = inside + half
    x = torch.randn(num_nodes, 16) * 0.5
    x[:half, 0] += 3.0
    x[half:, 0] -= 3.0
    return x, torch.cat([inside, other], dim=1)


def main():
    torch.manual_seed(0)
    x, pos_edge_index = community_graph()
    neg_edge_index = torch.randint(0, 60, (2, 400))
    model = GAE(GCNEncoder(16, 16))
    nn.init.eye_(model.encoder.lin.weight)
    model.encoder.lin.weight.data.mul_(0.5)
    model = model.half()
    with torch.no_grad():
        z = model.encoder(x.half(), pos_edge_index)
        pos_loss, neg_loss = model.recon_loss(z, pos_edge_index, neg_edge_index)
    print(f"edges {pos_loss.item():.3f}, non-edges {neg_loss.item():.3f}, reconstruction loss {(pos_loss + neg_loss).item():.3f}")


main()
