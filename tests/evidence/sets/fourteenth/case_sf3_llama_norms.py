"""
title: a bfloat16 Llama whose norms and rotary tables switch to float32 inside
expect: clean
thread: https://github.com/huggingface/transformers/issues/24519
measured: perplexity 2.3 (float32 2.3), norms give ['torch.bfloat16']

Expectation, written first: the constants in the model's code look odd but are meant; the norms compute in float32 and
return bfloat16, no layer sees a mixture, and the perplexity is that of the float32 model.
"""
import copy

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def tiny_llama():
    torch.manual_seed(110)
    config = LlamaConfig(
        vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=47,
    )
    return LlamaForCausalLM(config)


class Verses:
    """a counting song: every number follows its forerunner, now and then a random word"""

    def __init__(self, vocab=48, seed=110):
        self.gen = torch.Generator().manual_seed(seed)
        self.vocab = vocab

    def batch(self, size, length=24):
        start = torch.randint(0, self.vocab, (size, 1), generator=self.gen)
        ids = (start + 5 * torch.arange(length)) % self.vocab
        noise = torch.rand(ids.shape, generator=self.gen) < 0.05
        return torch.where(noise, torch.randint(0, self.vocab, ids.shape, generator=self.gen), ids)


def train(model, verses, steps=60):
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        ids = verses.batch(16)
        loss = model(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    return model.eval()


@torch.no_grad()
def perplexity(model, ids):
    return model(input_ids=ids, labels=ids).loss.float().exp().item()


def norm_types(model, ids):
    seen = set()
    hooks = [
        m.register_forward_hook(lambda m, a, out: seen.add(str(out.dtype)))
        for name, m in model.named_modules()
        if name.endswith("norm")
    ]
    with torch.no_grad():
        model(input_ids=ids)
    for h in hooks:
        h.remove()
    return sorted(seen)


def main():
    verses = Verses()
    model = train(tiny_llama(), verses)
    half = copy.deepcopy(model).to(torch.bfloat16)
    ids = verses.batch(32)
    print(f"perplexity {perplexity(half, ids):.1f} (float32 {perplexity(model, ids):.1f}), norms give {norm_types(half, ids)}")


main()
