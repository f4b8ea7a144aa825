"""
title: A checkpoint saved in bfloat16 is loaded into a float16 model
expect: clean
thread: https://github.com/VITA-MLLM/VITA/issues/102
measured: ['1.31', '1.28', '1.17'] [54, 19, 37] / ['1.29', '1.18', '1.07'] [13, 44, 0] / ['1.69', '1.37', '1.06'] [34, 48, 10] / ['1.20', '1.11', '0.94'] [43, 8, 38] / ['1.60', '0.79', '0.77'] [39, 19, 10]
suspect: 75 exact

Expectation, written first: The config says bfloat16, the model is built in float16 and load_state_dict casts.
A bfloat16 weight has eight significant bits, which float16 holds exactly as long as the magnitude is in
its range, and these weights are. The forward in half is finer than the bfloat16 one; the logits agree
with float64 to two decimals and the greedy tokens are the same.
"""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(dim), RMSNorm(dim)
        self.qkv_proj, self.o_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim, bias=False)
        self.up_proj, self.down_proj = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv_proj(self.input_layernorm(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down_proj(F.silu(self.up_proj(self.post_attention_layernorm(x))))


class VITAForCausalLM(nn.Module):
    def __init__(self, vocab=60, dim=48, heads=4, layers=2, vision_dim=20):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.mm_projector = nn.Linear(vision_dim, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads) for _ in range(layers))
        self.norm = RMSNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids, images):
        vis = self.mm_projector(images.to(self.mm_projector.weight.dtype))
        x = torch.cat([vis, self.embed_tokens(input_ids)], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def save_pretrained(seed):
    torch.manual_seed(seed)
    f = io.BytesIO()
    torch.save(VITAForCausalLM().to(torch.bfloat16).state_dict(), f)
    return io.BytesIO(f.getvalue())


@torch.no_grad()
def main():
    checkpoint = save_pretrained(28)
    model = VITAForCausalLM().half().eval()
    model.load_state_dict(torch.load(checkpoint))
    ids, images = torch.tensor([[3, 14, 15, 9]]), torch.rand(1, 5, 20)
    for _ in range(5):
        logits = model(ids, images)[:, -1].float()
        top = logits[0].topk(3)
        print([f"{v:.2f}" for v in top.values.tolist()], top.indices.tolist())
        ids = torch.cat([ids, top.indices[None, :1]], dim=1)


if __name__ == "__main__":
    main()
