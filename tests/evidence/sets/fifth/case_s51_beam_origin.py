"""
title: a beam's origin is found by true division, the cache is reordered with a float index
expect: collision
needs: transformers
fix_at: 35, 38

After https://github.com/BangLiu/ACS-QG/issues/51, https://github.com/pschwllr/MolecularTransformer/issues/11 and https://github.com/huggingface/transformers/pull/18165.
Right: floor division of integers.
"""
from dataclasses import dataclass

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

torch.manual_seed(108)


@dataclass
class Beams:
    tokens: torch.Tensor
    scores: torch.Tensor
    origin: torch.Tensor

    @classmethod
    def first(cls, prompt, width):
        scores = torch.full((width,), -1e9)
        scores[0] = 0.0
        return cls(prompt.repeat(width, 1), scores, torch.arange(width))

    def advance(self, log_probs):
        width, vocab = log_probs.shape
        total = (self.scores[:, None] + log_probs).flatten()
        scores, flat = total.topk(width)
        origin = (flat / vocab).floor()  # BORN
        word = flat - origin * vocab
        rows = [self.tokens[int(o)] for o in origin]
        tokens = torch.cat([torch.stack(rows), word.long()[:, None]], dim=1)
        return Beams(tokens, scores, origin)


class Searcher:
    def __init__(self, model, width):
        self.model, self.width = model.eval(), width

    def reorder(self, cache, beams):
        cache.reorder_cache(beams.origin)  # COLLIDES
        return cache

    @torch.no_grad()
    def __call__(self, prompt, length):
        beams = Beams.first(prompt, self.width)
        cache = DynamicCache()
        fed = beams.tokens
        for _ in range(length):
            logits = self.model(fed, past_key_values=cache, use_cache=True).logits[:, -1]
            beams = beams.advance(logits.log_softmax(-1))
            cache = self.reorder(cache, beams)
            fed = beams.tokens[:, -1:]
        return beams


config = GPT2Config(vocab_size=40, n_positions=32, n_embd=32, n_layer=2, n_head=4)
search = Searcher(GPT2LMHeadModel(config), width=3)
best = search(torch.tensor([[1, 5, 7]]), length=5)
print(best.tokens[0].tolist(), round(best.scores[0].item(), 3))
