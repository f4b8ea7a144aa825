"""
title: the evaluation loop sums the loss of many small batches in a tensor of the logits' dtype
expect: silent:lost-update|precision-loss|downcast|round-trip
needs: transformers
fix_at: 25, 43

After https://github.com/pytorch/xla/pull/2425 (4096 + 1 is 4096 in bfloat16, the numerator stops growing) and
https://github.com/pytorch/torchtitan/issues/2336. The logits' round trip before the loss is innocent.
Here a perplexity of about 97 is reported as 2.4. Right: sum in float32.
"""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(27)


class RunningLoss:
    def __init__(self, like):
        self.total = torch.zeros((), dtype=like.dtype)  # BORN
        self.tokens = 0

    def update(self, losses):
        for loss in losses:
            self.total += loss.to(self.total.dtype)
        self.tokens += losses.numel()

    def perplexity(self):
        return torch.exp(self.total.double() / self.tokens).item()


def corpus(documents, length=40):
    for _ in range(documents):
        yield torch.randint(0, 96, (1, length))


@torch.no_grad()
def evaluate(model, documents):
    running = None
    for ids in documents:
        logits = model(input_ids=ids).logits
        if running is None:
            running = RunningLoss(logits)
        logits = logits.to(torch.bfloat16).float()
        losses = F.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
        running.update(losses)
    return running.perplexity(), running.tokens


config = GPT2Config(vocab_size=96, n_positions=64, n_embd=32, n_layer=1, n_head=2)
model = GPT2LMHeadModel(config).to(torch.bfloat16).eval()
perplexity, tokens = evaluate(model, corpus(60))
print("tokens", tokens, "perplexity", round(perplexity, 2))
