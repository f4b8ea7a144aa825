"""
title: a full fine-tune holds its weights in bfloat16 and steps them with a small learning rate
expect: silent:lost-update|downcast|precision-loss
thread: https://github.com/meta-pytorch/torchtune/issues/2254
measured: loss 4.43 -> 4.09, weights that moved 12%
widened: loss 4.43 -> 2.35, weights that moved 96%

Expectation, written first: steps of 5e-5 are below half a bfloat16 step for all but the smallest weights, so most of
the network does not move and the loss stands still. Labels in int16 and loss weights of zero and one in
bfloat16 lose nothing.
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM


class PatternData:
    """lines of tokens that repeat with a period; the instruction part is not trained on"""

    def __init__(self, vocab, length, n, seed):
        gen = torch.Generator().manual_seed(seed)
        period = torch.randint(0, vocab, (4, 6), generator=gen)
        line = period.repeat(1, length // 6 + 1)[:, :length]
        self.tokens = line[torch.randint(0, 4, (n,), generator=gen)].to(torch.int16)
        self.weight = torch.ones(n, length, dtype=torch.bfloat16)
        self.weight[:, :6] = 0

    def batches(self, size):
        for start in range(0, len(self.tokens), size):
            at = slice(start, start + size)
            yield self.tokens[at].long(), self.weight[at].float()


class Recipe:
    def __init__(self, dtype="bf16", lr=5e-5):  # BORN
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=64, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                             initializer_range=0.1, tie_word_embeddings=False)
        self.dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]  # BORN
        self.model = LlamaForCausalLM(config).to(self.dtype)  # BORN
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.0)

    def loss(self, tokens, weight):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(input_ids=tokens).logits
        each = torch.nn.functional.cross_entropy(logits[:, :-1].float().transpose(1, 2), tokens[:, 1:], reduction="none")
        return (each * weight[:, 1:]).sum() / weight[:, 1:].sum()

    def train(self, data, epochs):
        for _ in range(epochs):
            for tokens, weight in data.batches(16):
                self.optimizer.zero_grad()
                self.loss(tokens, weight).backward()
                self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, data):
        return sum(self.loss(*b).item() for b in data.batches(32)) / 2


def main():
    data = PatternData(64, 24, 64, seed=3)
    recipe = Recipe()
    before = recipe.evaluate(data)
    start = [p.detach().clone() for p in recipe.model.parameters()]
    recipe.train(data, epochs=24)
    moved = sum(int((p != s).sum()) for p, s in zip(recipe.model.parameters(), start))
    total = sum(p.numel() for p in start)
    print(f"loss {before:.2f} -> {recipe.evaluate(data):.2f}, weights that moved {100 * moved / total:.0f}%")


main()
