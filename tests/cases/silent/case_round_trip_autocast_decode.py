"""
title: a frozen float32 model decodes token by token under autocast, which casts every weight for each of them
expect: silent:round-trip
needs: transformers
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel


class Assistant:
    def __init__(self, width):
        config = GPT2Config(vocab_size=64, n_positions=32, n_embd=width, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=63)
        self.model = GPT2LMHeadModel(config).eval().requires_grad_(False)  # BORN

    def reply(self, ids, length):
        past = None
        step = ids
        for _ in range(length):
            out = self.model(step, past_key_values=past, use_cache=True)
            past, step = out.past_key_values, out.logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, step], dim=-1)
        return ids


torch.manual_seed(0)
assistant = Assistant(64)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    print(assistant.reply(torch.tensor([[1, 2, 3]]), 8).shape)
