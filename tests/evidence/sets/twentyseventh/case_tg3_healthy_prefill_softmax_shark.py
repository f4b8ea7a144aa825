"""
title: The half model's logits are lifted to float32 for the softmax and the top k is returned in half
expect: clean
thread: https://github.com/nod-ai/amd-shark-ai/pull/2062
measured: step 0 tokens [17, 9, 58] probs ['0.11', '0.19', '0.42'] / step 1 tokens [36, 11, 1] probs ['0.19', '0.08', '0.26'] / step 2 tokens [49, 7, 17] probs ['0.36', '0.17', '0.15']
suspect: 68 (the probabilities are only shown with two decimals)

Expectation, written first: The model runs in float16; its logits go to float32 before the softmax, which is what the
thread asks for. The eight best probabilities leave as float16, right to a thousandth of their value, and two
decimals are printed. The tokens are chosen before that cast. Masked vocabulary entries are -inf on purpose.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelConfig:
    activation_dtype = torch.float16
    vocab_size = 61
    padded_vocab_size = 64
    hidden = 48
    top_k = 8
    logits_normalization = "softmax"


class PagedAttentionBlock(nn.Module):
    def __init__(self, hidden, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, h):
        b, s, _ = h.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(h)).chunk(3, dim=-1))
        attn = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return h + self.out(attn.transpose(1, 2).reshape(b, s, -1))


class PagedLlmModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.token_embedding = nn.Embedding(config.padded_vocab_size, config.hidden)
        self.blocks = nn.ModuleList(PagedAttentionBlock(config.hidden) for _ in range(2))
        self.output_norm = nn.RMSNorm(config.hidden)
        self.output_lm_head = nn.Linear(config.hidden, config.padded_vocab_size, bias=False)

    def forward(self, tokens):
        h = self.token_embedding(tokens)
        for block in self.blocks:
            h = block(h)
        return self.output_lm_head(self.output_norm(h)) * 3


class ServicePagedLlmModelV1:
    def __init__(self, model, config):
        self.model, self.config = model, config

    def prefill(self, tokens, seq_lens):
        logits = self.model(tokens)
        logits = logits[torch.arange(len(tokens)), seq_lens - 1]
        logits[:, self.config.vocab_size:] = float("-inf")
        if self.config.logits_normalization == "softmax":
            logits = logits.to(dtype=torch.float32)
            logits = torch.softmax(logits, dim=-1)
        values, indices = torch.topk(logits, self.config.top_k, dim=-1)
        return values.to(self.config.activation_dtype), indices


@torch.no_grad()
def main():
    torch.manual_seed(2062)
    config = ModelConfig()
    model = PagedLlmModel(config).eval().to(config.activation_dtype)
    service = ServicePagedLlmModelV1(model, config)
    tokens, seq_lens = torch.randint(0, config.vocab_size, (3, 10)), torch.tensor([10, 7, 4])
    for step in range(3):
        values, indices = service.prefill(tokens, seq_lens)
        print("step", step, "tokens", indices[:, 0].tolist(), "probs", [f"{v:.2f}" for v in values[:, 0].tolist()])
        tokens = torch.cat([tokens, torch.zeros(3, 1, dtype=torch.long)], dim=1)
        tokens[torch.arange(3), seq_lens] = indices[:, 0]
        seq_lens = seq_lens + 1


if __name__ == "__main__":
    main()
