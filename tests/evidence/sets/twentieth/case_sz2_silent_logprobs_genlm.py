"""
title: next-token log-probabilities are handed out in bfloat16, so the particles' weights no longer add up to one
expect: silent:precision-loss|downcast
thread: https://github.com/genlm/genlm-backend/pull/66
measured: probability mass 1.0030 ; particle scores [-143.19, -144.28, -143.5, -143.81]
widened: probability mass 1.0000 ; particle scores [-143.15, -144.22, -143.46, -143.76]
innocent: probability mass 1.0030 ; particle scores [-143.19, -144.28, -143.5, -143.81]
suspect: 69 fits (512 tokens fit in int16)

Expectation, written first: log_softmax is taken of bfloat16 logits and therefore returns bfloat16, whose step between -8 and -4 is a
thirty-second; the probabilities built from it do not add up to one and the scores of a sequence drift by tenths of a nat. The token ids are
kept as int16, which would be too narrow for a real vocabulary, but this one has 512 entries and nothing is lost. (After
the run: hundredths of a nat.)
"""
import torch
from torch import nn


class CausalLM(nn.Module):
    def __init__(self, vocab=512, dim=32):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h = torch.tanh(self.mix(self.wte(ids).cumsum(1)))
        return self.lm_head(h)


class TokenTrieCache:
    def __init__(self):
        self.store = {}

    def get(self, prefix):
        return self.store.get(prefix)

    def put(self, prefix, value):
        self.store[prefix] = value


class AsyncTransformer:
    def __init__(self, model):
        self.model = model.eval()
        self.cache = TokenTrieCache()

    @torch.no_grad()
    def next_token_logprobs(self, ids):
        key = tuple(ids.tolist())
        hit = self.cache.get(key)
        if hit is None:
            logits = self.model(ids.long()[None])[0, -1]
            hit = torch.log_softmax(logits, dim=-1)  # BORN
            self.cache.put(key, hit)
        return hit.float()

    def score(self, ids):
        steps = [self.next_token_logprobs(ids[:i])[int(ids[i])] for i in range(1, len(ids))]
        return torch.stack(steps).sum()


def main():
    torch.manual_seed(11)
    model = CausalLM()
    nn.init.normal_(model.lm_head.weight, std=0.02)
    llm = AsyncTransformer(model.to(torch.bfloat16))
    prompt = torch.tensor([5, 301, 77], dtype=torch.int16)
    mass = llm.next_token_logprobs(prompt).exp().sum()
    particles = torch.randint(0, 512, (4, 24)).to(torch.int16)
    scores = torch.stack([llm.score(p) for p in particles])
    print(f"probability mass {float(mass):.4f}")
    print("particle scores", [round(float(s), 2) for s in scores])


main()
