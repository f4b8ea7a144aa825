"""
title: a T5 whose feed-forward outputs are kept in float32 by the library
expect: clean
needs: transformers

The residual stream becomes float32 on purpose: the layer is kept wide because it overflows in half.
"""
import tempfile

import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
config = T5Config(
    vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=3, num_heads=4, decoder_start_token_id=0, feed_forward_proj="gated-gelu"
)
with tempfile.TemporaryDirectory() as folder:
    T5ForConditionalGeneration(config).save_pretrained(folder)
    model = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float16).eval()
assert {p.dtype for p in model.parameters()} == {torch.float16, torch.float32}
ids = torch.randint(1, 64, (2, 10))
with torch.inference_mode():
    loss = model(input_ids=ids, labels=ids).loss
print(loss.dtype, model.generate(ids, max_new_tokens=4).shape)