"""
title: similarity of embeddings that arrive in bfloat16 is computed in bfloat16 and ranked
expect: silent:precision-loss|downcast
thread: https://github.com/embeddings-benchmark/mteb/issues/4932
measured: recall@10 85.2%, different scores among 60 documents 8
widened: recall@10 100.0%, different scores among 60 documents 60

Expectation, written first: cosines of good candidates lie between 0.9 and 1 where bfloat16 has two dozen values, so
many documents tie and the order among them is that of the list; the metric falls. Queries and documents are sign
vectors before they are scaled, so their own bfloat16 cast, and the int8 relevance grades, cost nothing.
"""
import torch


class SignEncoder:
    """binary codes: entries plus and minus one, delivered in the dtype of the checkpoint"""

    def __init__(self, dim, seed, dtype=torch.bfloat16):  # BORN
        self.gen = torch.Generator().manual_seed(seed)
        self.dim, self.dtype = dim, dtype

    def corpus(self, topics, per_topic):
        centre = torch.randint(0, 2, (topics, self.dim), generator=self.gen) * 2 - 1
        docs, grade = [], []
        for t in range(topics):
            for k in torch.randperm(per_topic, generator=self.gen).tolist():
                code = centre[t].clone()
                flip = torch.randperm(self.dim, generator=self.gen)[:k]
                code[flip] *= -1
                docs.append(code)
                grade.append(per_topic - k)
        grade = torch.tensor(grade, dtype=torch.bfloat16)
        return centre.to(self.dtype), torch.stack(docs).to(self.dtype), grade  # BORN


def _convert(x):
    if not isinstance(x, torch.Tensor):
        x = torch.tensor(x, dtype=torch.float32)
    return x


def cos_sim(a, b):
    a, b = _convert(a), _convert(b)  # BORN
    dot = a @ b.T  # BORN
    return dot / (a.norm(dim=1)[:, None] * b.norm(dim=1)[None])


class RetrievalTask:
    def __init__(self, encoder, topics=40, per_topic=60):
        self.queries, self.docs, self.grade = encoder.corpus(topics, per_topic)
        self.per_topic = per_topic

    def recall(self, k=10):
        scores = cos_sim(self.queries, self.docs)
        own = torch.arange(len(self.docs)) // self.per_topic
        found = 0
        for q in range(len(self.queries)):
            order = scores[q].sort(descending=True, stable=True).indices[:k]
            near = (own[order] == q) & (self.grade[order].float() > self.per_topic - k)
            found += int(near.sum())
        return found / (k * len(self.queries)), scores

    def ties(self, scores):
        own = [scores[q, q * self.per_topic:(q + 1) * self.per_topic] for q in range(len(scores))]
        return sum(len(s.unique()) for s in own) / len(own)


def main():
    task = RetrievalTask(SignEncoder(4000, seed=11))
    recall, scores = task.recall()
    print(f"recall@10 {100 * recall:.1f}%, different scores among {task.per_topic} documents {task.ties(scores):.0f}")


main()
