"""
title: the ranks of many pages are kept in float16, each is a few of its smallest steps
expect: silent:underflow|precision-loss|downcast
fix_at: 26

After https://github.com/GraphBLAS/LAGraph/pull/169, https://github.com/neo4j-contrib/neo4j-graph-algorithms/pull/872 and
https://github.com/commoncrawl/cc-webgraph/issues/32.
Right: ranks are float32.
"""
import torch

torch.manual_seed(717)


class Web:
    """Links that prefer early pages."""

    def __init__(self, pages=60000, links=4):
        source = torch.arange(1, pages).repeat_interleave(links)
        target = (torch.rand(len(source)) ** 2 * source).long()
        self.pages, self.source, self.target = pages, source, target
        self.out = torch.bincount(source, minlength=pages).clamp(min=1)


class PageRank:
    def __init__(self, web, damping=0.85, dtype=torch.float16):
        self.web, self.damping = web, damping
        self.rank = torch.full((web.pages,), 1 / web.pages, dtype=dtype)  # BORN

    def step(self):
        share = self.rank[self.web.source].float() / self.web.out[self.web.source]
        received = torch.zeros(self.web.pages).index_add_(0, self.web.target, share)
        rank = (1 - self.damping) / self.web.pages + self.damping * received
        self.rank = rank.to(self.rank.dtype)

    def run(self, rounds=15):
        for _ in range(rounds):
            self.step()
        return self.rank.double()


def order_error(rank, exact, first=20000, last=22000):
    """How often two pages of the middle field stand in the wrong order (ties count half)."""
    middle = exact.argsort(descending=True)[first:last]
    a, b = middle[torch.randperm(len(middle))], middle
    gap, truth = rank[a] - rank[b], exact[a] - exact[b]
    known = truth != 0
    wrong = (gap * truth < 0).double() + 0.5 * (gap == 0).double()
    return wrong[known].mean().item()


web = Web()
rank = PageRank(web).run()
exact = PageRank(web, dtype=torch.float64).run()
print("error of a rank", round(((rank - exact).abs() / exact).mean().item(), 4), "different ranks", len(rank.unique()), "wrong order",
      round(order_error(rank, exact), 3))
