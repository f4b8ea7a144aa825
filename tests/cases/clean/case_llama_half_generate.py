"""
title: half text generation with a library's norms, rotary tables and cache
expect: clean
needs: transformers

The library's own float32 islands: norms, rotary angles, softmax. All of them are left again.
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager",
)).half().eval()
ids = torch.randint(3, 64, (2, 8))
print(model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0).shape)