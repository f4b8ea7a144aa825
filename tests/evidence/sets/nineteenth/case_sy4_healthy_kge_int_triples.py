"""
title: Triples held as int32 rank exactly as triples held as int64
expect: clean
thread: https://github.com/uma-pi1/kge/issues/9
measured: filtered mrr 0.329  mean rank 4.66  (with the suspect widened: filtered mrr 0.329  mean rank 4.66)
suspect: 24 in-range

Expectation, written first: All triples of the dataset are int32 to halve the memory, which looks like the index overflow of large graphs. There are only some thousand
entities and no key is formed by multiplying ids in int32; the filter combines them after long(), so scores, ranks and the reciprocal rank are the
same.
"""
import torch
import torch.nn as nn


class Dataset:
    def __init__(self, num_entities, num_relations, splits):
        self.num_entities = num_entities
        self.num_relations = num_relations
        self._splits = {name: self._load_triples(triples) for name, triples in splits.items()}

    @staticmethod
    def _load_triples(triples):
        return triples.int()

    def split(self, name):
        return self._splits[name]

    def filter_index(self):
        triples = torch.cat(list(self._splits.values()))
        keys = triples[:, 0].long() * self.num_relations + triples[:, 1]
        index = {}
        for key, o in zip(keys.tolist(), triples[:, 2].tolist()):
            index.setdefault(key, []).append(o)
        return index


class ComplEx(nn.Module):
    def __init__(self, num_entities, num_relations, dim=32):
        super().__init__()
        self.entity = nn.Embedding(num_entities, dim)
        self.relation = nn.Embedding(num_relations, dim)

    def score_sp(self, s, p):
        s_re, s_im = self.entity(s).chunk(2, dim=-1)
        p_re, p_im = self.relation(p).chunk(2, dim=-1)
        o_re, o_im = self.entity.weight.chunk(2, dim=-1)
        return (s_re * p_re - s_im * p_im) @ o_re.T + (s_re * p_im + s_im * p_re) @ o_im.T


class EntityRankingJob:
    def __init__(self, dataset, model):
        self.dataset = dataset
        self.model = model
        self.index = dataset.filter_index()

    @torch.no_grad()
    def run(self, split):
        triples = self.dataset.split(split)
        s, p, o = triples.unbind(1)
        scores = self.model.score_sp(s, p)
        target = scores.gather(1, o.long()[:, None])
        keys = s.long() * self.dataset.num_relations + p
        for row, key in enumerate(keys.tolist()):
            scores[row, self.index[key]] = float("-inf")
        ranks = (scores > target).sum(dim=1) + 1
        return (1.0 / ranks).mean().item(), ranks.float().mean().item()


def make_splits(num_entities, num_relations, model, generator):
    s = torch.randint(0, num_entities, (900,), generator=generator)
    p = torch.randint(0, num_relations, (900,), generator=generator)
    with torch.no_grad():
        top = model.score_sp(s, p).topk(8, dim=1).indices
    o = top.gather(1, torch.randint(0, 8, (900, 1), generator=generator)).squeeze(1)
    triples = torch.stack([s, p, o], dim=1)
    return {"train": triples[:700], "test": triples[700:]}


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = ComplEx(3000, 12)
    dataset = Dataset(3000, 12, make_splits(3000, 12, model, generator))
    mrr, mean_rank = EntityRankingJob(dataset, model).run("test")
    print(f"filtered mrr {mrr:.3f}  mean rank {mean_rank:.2f}")


if __name__ == "__main__":
    main()
