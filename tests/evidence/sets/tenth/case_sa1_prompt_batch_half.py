"""
title: the whole tokenizer output is cast to the encoder's half precision, token ids included
expect: collision
thread: https://github.com/Comfy-Org/ComfyUI/issues/7370
fix_at: 38

Expectation, written first: the helper casts each tensor of the batch; the ids become half
and the embedding only takes integers.
"""
import torch
from transformers import BertConfig, BertModel


class CharTokenizer:
    def __call__(self, prompts, length=16):
        ids = torch.zeros(len(prompts), length, dtype=torch.long)
        for row, text in enumerate(prompts):
            codes = [ord(c) % 90 + 5 for c in text.lower()[:length]]
            ids[row, :len(codes)] = torch.tensor(codes)
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def send_to(batch, device, dtype):
    return {name: value.to(device=device, dtype=dtype) for name, value in batch.items()}  # BORN


class Conditioner:
    def __init__(self, dtype):
        torch.manual_seed(0)
        config = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                            intermediate_size=64, max_position_embeddings=32)
        self.dtype = dtype
        self.tokenizer = CharTokenizer()
        self.encoder = BertModel(config).eval().to(dtype)

    @torch.no_grad()
    def encode(self, prompts):
        batch = send_to(self.tokenizer(prompts), "cpu", self.dtype)
        hidden = self.encoder(**batch).last_hidden_state  # COLLIDES
        keep = batch["attention_mask"].unsqueeze(-1)
        return (hidden * keep).sum(1) / keep.sum(1)


cond = Conditioner(torch.float16).encode(["a red fox", "two boats at dusk"])
print(tuple(cond.shape), cond.float().norm(dim=-1).tolist())
