"""
title: int8 quantization of embeddings wraps outside the calibration range and ruins the retrieval
expect: silent:integer-overflow|wraparound|overflow|downcast
thread: https://github.com/huggingface/sentence-transformers/pull/3847
measured: recall@10 0.119 | top-1 agreement 0.050 | components outside the calibration range 19.4%
widened: recall@10 0.982 | top-1 agreement 1.000 | components outside the calibration range 19.4%
innocent: recall@10 0.119 | top-1 agreement 0.050 | components outside the calibration range 19.4%
suspect: line 43, the order of the rescored hits is the same in half

Expectation, written first: the buckets are computed from the calibration ranges and cast to int8 without clipping. Components beyond the
range of the small calibration set land at 128 and more and come out as large negative numbers, so near neighbours look far apart and
recall drops. Clipping before the cast cures it. Rescoring with half precision queries costs nothing.
"""
import torch


def quantize_embeddings(embeddings, precision, ranges=None, calibration_embeddings=None):
    if precision == "float32":
        return embeddings.float()
    if ranges is None:
        ranges = torch.stack([calibration_embeddings.amin(0), calibration_embeddings.amax(0)])
    starts = ranges[0]
    steps = (ranges[1] - ranges[0]) / 255
    steps = torch.where(steps == 0, torch.ones_like(steps), steps)
    buckets = (embeddings - starts) / steps
    if precision == "uint8":
        return buckets.to(torch.uint8)
    if precision == "int8":
        return (buckets - 128).to(torch.int8)  # BORN
    raise ValueError(f"Precision {precision} is not supported")


class SemanticSearchIndex:
    def __init__(self, corpus, calibration):
        self.corpus = corpus
        self.ranges = torch.stack([calibration.amin(0), calibration.amax(0)])
        self.codes = quantize_embeddings(corpus, "int8", ranges=self.ranges)

    def search(self, query, top_k=10, rescore_multiplier=2):
        codes = quantize_embeddings(query, "int8", ranges=self.ranges)
        scores = codes.float() @ self.codes.float().T
        cand = scores.topk(top_k * rescore_multiplier, dim=-1).indices
        rescore = query.to(torch.float16)
        exact = torch.einsum("qd,qkd->qk", rescore.float(), self.corpus[cand])
        order = exact.topk(top_k, dim=-1).indices
        return cand.gather(1, order)


def encode(n, topics, g, noise=0.55, scale=0.6):
    which = torch.randint(0, topics.shape[0], (n,), generator=g)
    emb = topics[which] + noise * torch.randn(n, topics.shape[1], generator=g)
    return emb * (1 + scale * torch.rand(n, 1, generator=g))


g = torch.Generator().manual_seed(1)
topics = torch.randn(60, 48, generator=g)
calibration = encode(40, topics, g, scale=0.0) * 0.85
corpus = encode(1500, topics, g)
query = encode(80, topics, g)
query = query / query.norm(dim=-1, keepdim=True) * 7.0

index = SemanticSearchIndex(corpus, calibration)
found = index.search(query)
truth = (query @ corpus.T).topk(10, dim=-1).indices
recall = torch.stack([torch.isin(t, f).float().mean() for t, f in zip(truth, found)]).mean()
top1 = (truth[:, 0] == found[:, 0]).float().mean()
print("recall@10 %.3f" % float(recall))
print("top-1 agreement %.3f" % float(top1))
print("components outside the calibration range %.1f%%" % (100 * ((corpus < index.ranges[0]) | (corpus > index.ranges[1])).float().mean()))
