"""
title: checkpoint in bfloat16 is run in float16
expect: clean
thread: https://github.com/baichuan-inc/Baichuan2/issues/50
measured: loss 4.189 next tokens [57, 33, 48, 60]
suspect: 55 tolerant (half has three bits more than bfloat16; only weights below 6e-5 are rounded at all)

Expectation, written first: weights of about 0.02 to 1 in bfloat16 are cast to half, which represents them in
that range without loss, and the activations stay small. The answers agree with those of the float32 model.
"""
import torch
from torch import nn
import torch.nn.functional as F


class BaichuanBlock(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.input_layernorm = nn.LayerNorm(hidden)
        self.W_pack = nn.Linear(hidden, 3 * hidden, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)
        self.post_attention_layernorm = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.SiLU(), nn.Linear(2 * hidden, hidden))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.W_pack(self.input_layernorm(x)).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(attn.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.post_attention_layernorm(x))


class BaichuanForCausalLM(nn.Module):
    def __init__(self, vocab=64, hidden=48, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList([BaichuanBlock(hidden, 4) for _ in range(layers)])
        self.lm_head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x).float()


def make_checkpoint():
    return {k: v.to(torch.bfloat16) for k, v in BaichuanForCausalLM().state_dict().items()}


def init_model(checkpoint):
    model = BaichuanForCausalLM()
    model.load_state_dict(checkpoint)
    return model.to(torch.float16).eval()


@torch.no_grad()
def main():
    torch.manual_seed(50)
    checkpoint = make_checkpoint()
    model = init_model(checkpoint)
    input_ids = torch.randint(0, 64, (4, 20))
    logits = model(input_ids)
    nll = F.cross_entropy(logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten())
    print(f"loss {nll.item():.3f} next tokens {logits[:, -1].argmax(-1).tolist()}")


main()
