"""
title: a Llama is fine-tuned wholly in bfloat16 at 1e-5
expect: silent:lost-update
needs: transformers
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def load():
    config = LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    config.initializer_range = 0.3
    return LlamaForCausalLM(config).bfloat16()  # BORN


torch.manual_seed(0)
model = load()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
ids = torch.randint(0, 96, (2, 12))
for _ in range(4):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(round(loss.item(), 2))
