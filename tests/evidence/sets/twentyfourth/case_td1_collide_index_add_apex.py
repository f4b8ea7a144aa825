"""
title: index_add_ under mixed precision: float accumulator, half messages
expect: collision
thread: https://github.com/NVIDIA/apex/issues/455
fix_at: (none beside the marked)

Expectation, written first: Under autocast the message layer gives bfloat16 while the accumulator is
allocated with torch.zeros in the default float32. index_add_ is on no cast list, wants both alike and
raises.
"""
import contextlib

import torch
import torch.nn as nn


class MessageLayer(nn.Module):
    def __init__(self, node_dim, edge_dim):
        super().__init__()
        self.message = nn.Linear(2 * node_dim + edge_dim, node_dim)
        self.update = nn.Linear(2 * node_dim, node_dim)

    def forward(self, nodes, edges, src, dst):
        messages = self.message(torch.cat([nodes[src], nodes[dst], edges], dim=-1))  # BORN
        received = torch.zeros(nodes.shape[0], messages.shape[1], device=nodes.device)  # BORN
        received.index_add_(0, dst, messages)  # BORN COLLIDES
        return torch.relu(self.update(torch.cat([nodes, received], dim=-1)))


class GraphNet(nn.Module):
    def __init__(self, node_dim=16, edge_dim=4, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(MessageLayer(node_dim, edge_dim) for _ in range(layers))
        self.readout = nn.Linear(node_dim, 1)

    def forward(self, nodes, edges, src, dst):
        for layer in self.layers:
            nodes = layer(nodes, edges, src, dst)
        return self.readout(nodes.mean(dim=0))


def random_graph(generator, n_nodes=10, n_edges=30):
    src = torch.randint(0, n_nodes, (n_edges,), generator=generator)
    dst = torch.randint(0, n_nodes, (n_edges,), generator=generator)
    nodes = torch.randn(n_nodes, 16, generator=generator)
    edges = torch.randn(n_edges, 4, generator=generator)
    return (nodes, edges, src, dst), nodes.sum().view(1) / 10


class Trainer:
    def __init__(self, model, opt_level):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.opt_level = opt_level

    def precision(self):
        if self.opt_level == "O0":
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def step(self, graph, target):
        with self.precision():
            out = self.model(*graph)
            loss = (out.float() - target).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    for opt_level in ("O0", "O1"):
        torch.manual_seed(19)
        generator = torch.Generator().manual_seed(19)
        trainer = Trainer(GraphNet(), opt_level)
        losses = [trainer.step(*random_graph(generator)) for _ in range(3)]
        print(opt_level, [round(x, 4) for x in losses])


if __name__ == "__main__":
    main()
