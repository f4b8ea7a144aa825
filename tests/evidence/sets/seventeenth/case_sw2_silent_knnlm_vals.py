"""
title: kNN-LM never retrieves tokens with a high id: the datastore keeps token ids in int16
expect: silent:overflow|integer-overflow|wraparound|downcast
thread: https://github.com/urvashik/knnlm/issues/6
measured: perplexity with kNN 80.446, targets retrieved 59.5%
widened: perplexity with kNN 3.999, targets retrieved 100.0%
innocent: perplexity with kNN 80.446, targets retrieved 59.5%
suspect: 19 half keys: small (distances of order ten move in the fourth digit, the neighbours stay)

Expectation, written first: With the fp16 datastore the token ids are stored in int16 as well; ids from 32768 on wrap to negative numbers
    and never equal a target, so p_knn of those is zero. The float16 keys look guilty but the nearest neighbours stay the same.
"""
import torch
import torch.nn.functional as F


class KNNDatastore:
    def __init__(self, size, dim, fp16=True):
        self.keys = torch.zeros(size, dim, dtype=torch.float16 if fp16 else torch.float32)
        self.vals = torch.zeros(size, 1, dtype=torch.int16 if fp16 else torch.int64)  # BORN
        self.n = 0

    def add(self, hidden, targets):
        m = hidden.shape[0]
        self.keys[self.n:self.n + m] = hidden
        self.vals[self.n:self.n + m] = targets[:, None]
        self.n += m


class KNNModel:
    def __init__(self, dstore, k=8, temperature=4.0):
        self.dstore, self.k, self.temperature = dstore, k, temperature

    def log_prob(self, queries, targets):
        dists = torch.cdist(queries, self.dstore.keys.float()) ** 2
        d, idx = dists.topk(self.k, dim=1, largest=False)
        hit = self.dstore.vals[idx].squeeze(-1).long() == targets[:, None]
        logp = F.log_softmax(-d / self.temperature, dim=1)
        return torch.logsumexp(torch.where(hit, logp, torch.full_like(logp, -1e4)), dim=1)


def combine(lm_logp, knn_logp, lmbda=0.25):
    return torch.logaddexp(lm_logp + torch.log(torch.tensor(1 - lmbda)), knn_logp + torch.log(torch.tensor(lmbda)))


torch.manual_seed(0)
vocab, dim, contexts = 60000, 32, 400
centers = torch.randn(contexts, dim)
context_token = torch.randint(0, vocab, (contexts,))
dstore = KNNDatastore(4000, dim)
for _ in range(10):
    which = torch.randint(0, contexts, (400,))
    dstore.add(centers[which] + 0.2 * torch.randn(400, dim), context_token[which])
which = torch.randint(0, contexts, (600,))
queries = centers[which] + 0.2 * torch.randn(600, dim)
knn_logp = KNNModel(dstore).log_prob(queries, context_token[which])
lm_logp = -(8.0 + torch.rand(600))
total = combine(lm_logp, knn_logp)
print(f"perplexity with kNN {(-total.mean()).exp():.3f}, targets retrieved {100 * (knn_logp > -50).float().mean():.1f}%")
