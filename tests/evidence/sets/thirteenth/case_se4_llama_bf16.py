"""
title: a small Llama in bfloat16 scores a long text with its rotary table kept in float32
expect: clean
thread: https://github.com/huggingface/transformers/pull/29285
measured: loss 5.08, by quarter 5.08, 5.09, 5.08, 5.09

Expectation, written first: the suspects are the bfloat16 weights and the casts of cosine and sine to bfloat16, but the
angles come from float32 positions and the loss is taken from float32 logits; the printed loss is that of a wide run.
"""
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM


def tiny_llama(dtype):
    torch.manual_seed(43)
    config = LlamaConfig(
        vocab_size=160,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        attn_implementation="eager",
    )
    model = LlamaForCausalLM(config).eval()
    rotary = model.model.rotary_emb
    frequencies = rotary.inv_freq.clone()
    model = model.to(dtype)
    rotary.inv_freq = frequencies
    return model


class RepeatingText:
    """a text whose second half says the first again"""

    def __init__(self, half, gen):
        first = torch.randint(0, 160, (half,), generator=gen)
        self.ids = torch.cat([first, first])[None]


class Scorer:
    def __init__(self, model, window=1024):
        self.model, self.window = model, window

    @torch.no_grad()
    def logits(self, ids):
        return self.model(input_ids=ids).logits.float()

    def loss(self, ids):
        ids = ids[:, : self.window]
        return F.cross_entropy(self.logits(ids)[0, :-1], ids[0, 1:]).item()

    def loss_by_quarter(self, ids):
        ids = ids[:, : self.window]
        per_token = F.cross_entropy(self.logits(ids)[0, :-1], ids[0, 1:], reduction="none")
        return [part.mean().item() for part in per_token.chunk(4)]


def main():
    text = RepeatingText(512, torch.Generator().manual_seed(44))
    scorer = Scorer(tiny_llama(torch.bfloat16))
    quarters = ", ".join(f"{v:.2f}" for v in scorer.loss_by_quarter(text.ids))
    print(f"loss {scorer.loss(text.ids):.2f}, by quarter {quarters}")


main()
