"""
title: trained key/value prefixes are float32, the frozen model they are put before is bfloat16
expect: collision
needs: transformers
fix_at: 30, 37, 49

After https://github.com/adapter-hub/adapters/issues/559 and https://github.com/huggingface/peft/pull/688: the cache joins prefix and keys,
the wider dtype wins, and attention then sees a bfloat16 query beside float32 keys.
Right: cast the prefix to the model's dtype when the cache is filled.
"""
import torch
from torch import nn
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

torch.manual_seed(16)


class PrefixEncoder(nn.Module):
    """Reparametrised prefix: a small embedding and an MLP, trained in float32."""

    def __init__(self, config, tokens=4, hidden=16):
        super().__init__()
        self.layers, self.heads = config.num_hidden_layers, config.num_key_value_heads
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.embed = nn.Embedding(tokens, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2 * self.layers * self.heads * self.head_dim))

    def forward(self, batch):
        flat = self.mlp(self.embed.weight)  # BORN
        kv = flat.view(-1, self.layers, 2, self.heads, self.head_dim).permute(1, 2, 3, 0, 4)
        return kv[:, :, None].expand(-1, -1, batch, -1, -1, -1)


def fill_cache(prefix):
    cache = DynamicCache()
    for layer, pair in enumerate(prefix):
        cache.update(pair[0], pair[1], layer)
    return cache


config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64, attn_implementation="sdpa")
model = LlamaForCausalLM(config).to(torch.bfloat16)
model.requires_grad_(False)
encoder = PrefixEncoder(config)
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-2)
for step in range(3):
    ids = torch.randint(0, 64, (2, 8))
    cache = fill_cache(encoder(ids.shape[0]))
    mask = torch.ones(2, 12, dtype=torch.long)
    loss = model(input_ids=ids, attention_mask=mask, past_key_values=cache, labels=ids).loss  # COLLIDES
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))
