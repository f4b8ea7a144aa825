"""
title: 1 - input_mask with a mask that is bool
expect: collision
thread: https://github.com/deepspeedai/DeepSpeed/issues/3319
fix_at: (none beside the marked)

Expectation, written first: The injected attention was written for masks of 0 and 1 and inverts them with 1 - mask. The
calling model passes a bool mask (input_ids != pad); torch refuses to subtract a bool tensor.
"""
import math

import torch
import torch.nn as nn


class DeepSpeedInferenceConfig:
    hidden_size = 24
    heads = 4
    mlp_size = 48
    layers = 2
    vocab = 40
    pad_token_id = 0


class DeepSpeedSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads = config.heads
        self.head_dim = config.hidden_size // config.heads
        self.attn_qkvw = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.attn_ow = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm_factor = math.sqrt(self.head_dim)

    def _split(self, t):
        return t.view(*t.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def compute_attention(self, qkv_out, input_mask):
        q, k, v = (self._split(t) for t in qkv_out.chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / self.norm_factor
        if input_mask is not None:
            if input_mask.dim() == 2:
                input_mask = input_mask[:, None, None, :]
            minus_inf = torch.finfo(scores.dtype).min
            scores = scores + (1 - input_mask) * minus_inf  # BORN COLLIDES
        context = scores.softmax(dim=-1) @ v
        return context.transpose(1, 2).flatten(2)

    def forward(self, hidden, input_mask):
        return self.attn_ow(self.compute_attention(self.attn_qkvw(hidden), input_mask))


class DeepSpeedTransformerInference(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = DeepSpeedSelfAttention(config)
        self.norm_a = nn.LayerNorm(config.hidden_size)
        self.norm_m = nn.LayerNorm(config.hidden_size)
        self.mlp = nn.Sequential(nn.Linear(config.hidden_size, config.mlp_size), nn.GELU(),
                                 nn.Linear(config.mlp_size, config.hidden_size))

    def forward(self, hidden, input_mask=None):
        hidden = hidden + self.attention(self.norm_a(hidden), input_mask)
        return hidden + self.mlp(self.norm_m(hidden))


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.hidden_size)
        self.layers = nn.ModuleList(DeepSpeedTransformerInference(config) for _ in range(config.layers))

    def forward(self, input_ids):
        attention_mask = input_ids != self.config.pad_token_id  # BORN
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden, attention_mask)  # BORN
        lengths = attention_mask.sum(dim=1, keepdim=True)
        return (hidden * attention_mask.unsqueeze(-1)).sum(dim=1) / lengths


@torch.inference_mode()
def main():
    torch.manual_seed(3319)
    config = DeepSpeedInferenceConfig()
    engine = Encoder(config).eval()
    prompts = [[5, 9, 12, 7], [3, 22], [31, 8, 2, 17, 19, 4]]
    width = max(map(len, prompts))
    input_ids = torch.tensor([p + [config.pad_token_id] * (width - len(p)) for p in prompts])
    embeddings = engine(input_ids)
    print(embeddings.shape, [round(n, 2) for n in embeddings.norm(dim=1).tolist()])


if __name__ == "__main__":
    main()
