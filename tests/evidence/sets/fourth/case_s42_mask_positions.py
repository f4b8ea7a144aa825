"""
title: position ids are counted with a bfloat16 attention mask, beyond 256 tokens neighbours share a position
expect: silent:precision-loss|downcast|round-trip
needs: transformers
fix_at: 45

After https://github.com/PaddlePaddle/PaddleNLP/pull/6579 (the mask's cumsum) and https://github.com/huggingface/transformers/pull/47238: the
mask was cast for the attention bias and is counted as well. The cast of the logits for the choice of a token is innocent.
Here 49 of 323 positions are doubled (repaired: none). Right: count with the integer mask.
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(21)
PAD = 0


def collate(rows, side="left"):
    longest = max(len(r) for r in rows)
    ids = torch.full((len(rows), longest), PAD)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for k, row in enumerate(rows):
        ids[k, longest - len(row):] = row
        mask[k, longest - len(row):] = 1
    return ids, mask


class Scorer:
    def __init__(self, dtype=torch.bfloat16):
        config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                             num_key_value_heads=2, max_position_embeddings=512)
        self.model = LlamaForCausalLM(config).to(dtype).eval()
        self.dtype = dtype

    def bias(self, mask):
        length = mask.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        allowed = causal[None] & (mask[:, None, :] > 0) | torch.eye(length, dtype=torch.bool)
        bias = torch.zeros(mask.shape[0], 1, length, length, dtype=self.dtype)
        return bias.masked_fill(~allowed[:, None], torch.finfo(self.dtype).min)

    @torch.no_grad()
    def next_token(self, ids, mask):
        mask = mask.to(self.dtype)  # BORN
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        out = self.model(input_ids=ids, attention_mask=self.bias(mask), position_ids=positions)
        logits = out.logits[:, -1].to(torch.bfloat16)
        return logits.argmax(-1), positions


scorer = Scorer()
ids, mask = collate([torch.randint(1, 64, (n,)) for n in (300, 320, 150)])
for step in range(4):
    token, positions = scorer.next_token(ids, mask)
    ids = torch.cat([ids, token[:, None]], dim=1)
    mask = torch.cat([mask, torch.ones_like(token)[:, None]], dim=1)
row = positions[1]
print("tokens", row.numel(), "doubled positions", row.numel() - row.unique().numel())
