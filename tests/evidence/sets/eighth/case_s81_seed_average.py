"""
title: averaging the test hits of several graph-network runs
expect: collision
thread: https://github.com/pyg-team/pytorch_geometric/pull/7735

Expectation, written first: the table of results is made with an integer dtype since
the runs report counts of hits; mean() of it refuses (could not infer output dtype, Got: Long).
BORN is the factory of the table; a float table mends it (mean(dtype=...) as well).
"""
import torch
from torch import nn


class Ring:
    """A ring graph with two communities of labels."""

    def __init__(self, nodes, gen):
        self.labels = (torch.arange(nodes) >= nodes // 2).long()
        self.x = torch.randn(nodes, 6, generator=gen) + self.labels[:, None].float()
        i = torch.arange(nodes)
        self.edge = torch.cat([torch.stack([i, (i + 1) % nodes]), torch.stack([(i + 1) % nodes, i])], 1)
        order = torch.randperm(nodes, generator=gen)
        self.train, self.test = order[: nodes // 2], order[nodes // 2:]


class GraphConv(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.own, self.near = nn.Linear(fan_in, fan_out), nn.Linear(fan_in, fan_out)

    def forward(self, x, edge):
        agg = torch.zeros_like(x).index_add(0, edge[1], x[edge[0]])
        return self.own(x) + self.near(agg)


def run_once(seed):
    gen = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    g = Ring(40, gen)
    first, second = GraphConv(6, 12), GraphConv(12, 2)
    opt = torch.optim.Adam([*first.parameters(), *second.parameters()], 2e-2)
    for _ in range(30):
        out = second(torch.relu(first(g.x, g.edge)), g.edge)
        loss = nn.functional.cross_entropy(out[g.train], g.labels[g.train])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return (out.argmax(1) == g.labels)[g.test].sum()


class Scoreboard:
    def __init__(self, runs):
        self.hits = torch.zeros(runs, dtype=torch.long)  # BORN

    def record(self, run, value):
        self.hits[run] = value

    def report(self):
        mean = self.hits.mean()  # COLLIDES
        return "hits of 20: %.1f +- %.1f" % (mean.item(), self.hits.std().item())


def main():
    board = Scoreboard(3)
    for seed in range(3):
        board.record(seed, run_once(seed))
    print(board.report())


if __name__ == "__main__":
    main()
