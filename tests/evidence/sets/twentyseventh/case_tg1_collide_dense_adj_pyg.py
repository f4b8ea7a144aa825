"""
title: DenseGraphConv with an adjacency matrix of integers
expect: collision
thread: https://github.com/pyg-team/pytorch_geometric/issues/2330
fix_at: adj.to(x.dtype) in the layer

Expectation, written first: the graph memory of the agent keeps its adjacency as a long tensor of zeros and
ones. DenseGraphConv multiplies it with float features, and matmul of Long and Float raises. The answer in
the thread is that both have to be of one type, so the memory is the place.
"""
import torch
import torch.nn as nn


class DenseGraphConv(nn.Module):
    def __init__(self, in_channels, out_channels, aggr="add"):
        super().__init__()
        self.aggr = aggr
        self.lin_rel = nn.Linear(in_channels, out_channels, bias=False)
        self.lin_root = nn.Linear(in_channels, out_channels)

    def forward(self, x, adj, mask=None):
        out = torch.matmul(adj, x)  # COLLIDES
        if self.aggr == "mean":
            out = out / adj.sum(dim=-1, keepdim=True).clamp(min=1)
        out = self.lin_rel(out) + self.lin_root(x)
        if mask is not None:
            out = out * mask.unsqueeze(-1).to(x.dtype)
        return out


class DenseGCM(nn.Module):
    """Graph memory: every observation becomes a node and is linked to the last few."""

    def __init__(self, obs_size, hidden, graph_size=8, window=2):
        super().__init__()
        self.gnn1 = DenseGraphConv(obs_size, hidden)
        self.gnn2 = DenseGraphConv(hidden, hidden, aggr="mean")
        self.graph_size, self.window = graph_size, window
        self.obs_size = obs_size

    def initial_hidden(self, batch):
        nodes = torch.zeros(batch, self.graph_size, self.obs_size)
        adj = torch.zeros(batch, self.graph_size, self.graph_size, dtype=torch.long)  # BORN
        num_nodes = torch.zeros(batch, dtype=torch.long)
        return nodes, adj, num_nodes

    def forward(self, obs, hidden):
        nodes, adj, num_nodes = hidden
        rows = torch.arange(len(obs))
        nodes, adj = nodes.clone(), adj.clone()
        nodes[rows, num_nodes] = obs
        for back in range(1, self.window + 1):
            prev = num_nodes - back
            ok = prev >= 0
            adj[rows[ok], num_nodes[ok], prev[ok]] = 1
        mask = torch.arange(self.graph_size) <= num_nodes[:, None]
        x = torch.relu(self.gnn1(nodes, adj, mask))
        x = torch.relu(self.gnn2(x, adj, mask))
        return x[rows, num_nodes], (nodes, adj, num_nodes + 1)


class Policy(nn.Module):
    def __init__(self, obs_size, actions):
        super().__init__()
        self.memory = DenseGCM(obs_size, 16)
        self.logits = nn.Linear(16, actions)

    def rollout(self, observations):
        hidden = self.memory.initial_hidden(observations.size(1))
        log_probs = []
        for obs in observations:
            state, hidden = self.memory(obs, hidden)
            dist = torch.distributions.Categorical(logits=self.logits(state))
            log_probs.append(dist.log_prob(dist.sample()))
        return torch.stack(log_probs)


if __name__ == "__main__":
    torch.manual_seed(2330)
    policy = Policy(obs_size=5, actions=3)
    log_probs = policy.rollout(torch.randn(6, 4, 5))
    loss = -(log_probs * torch.randn(6, 4)).mean()
    loss.backward()
    print("loss", round(loss.item(), 4), "grad", round(policy.logits.weight.grad.norm().item(), 4))
