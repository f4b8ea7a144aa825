"""
title: documents are searched in a float16 index, the candidates are scored again in float32
expect: clean

After https://github.com/unum-cloud/USearch/pull/779, https://github.com/matengo/Qvec/pull/31 and https://github.com/apache/lucene/issues/13564.
"""
import torch
import torch.nn.functional as F

torch.manual_seed(803)


class Index:
    """Half-precision vectors for the first pass, the originals for the second."""

    def __init__(self, vectors, dtype=torch.float16):
        self.originals = F.normalize(vectors, dim=1)
        self.coarse = self.originals.to(dtype)

    def search(self, queries, count, extra=4):
        queries = F.normalize(queries, dim=1)
        coarse = queries.to(self.coarse.dtype) @ self.coarse.t()
        candidates = coarse.topk(count * extra, dim=1).indices
        scores = torch.einsum("qd,qcd->qc", queries, self.originals[candidates])
        best = scores.topk(count, dim=1).indices
        return candidates.gather(1, best)


class Library:
    def __init__(self, documents, dim=48, topics=40):
        self.centres = torch.randn(topics, dim)
        self.topic = torch.randint(0, topics, (documents,))
        self.vectors = self.centres[self.topic] + 0.4 * torch.randn(documents, dim)

    def queries(self, count):
        pick = torch.randint(0, len(self.vectors), (count,))
        return self.vectors[pick] + 0.05 * torch.randn(count, self.vectors.shape[1]), pick


library = Library(4000)
index = Index(library.vectors)
queries, wanted = library.queries(200)
found = index.search(queries, 10)
exact = (F.normalize(queries, dim=1) @ index.originals.t()).topk(10, dim=1).indices
recall = (found[:, :, None] == exact[:, None]).any(-1).float().mean().item()
print("found again", round((found == wanted[:, None]).any(1).float().mean().item(), 3), "recall", round(recall, 3))
