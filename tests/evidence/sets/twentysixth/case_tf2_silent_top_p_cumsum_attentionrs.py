"""
title: the nucleus of a flat distribution over a large vocabulary keeps far too many tokens
expect: silent:lost-update|precision-loss
thread: https://github.com/guoqingbao/attention.rs/pull/9
measured: share of the vocabulary in the nucleus for top_p 0.5: 1.00
widened: share of the vocabulary in the nucleus for top_p 0.5: 0.28; innocent: share of the vocabulary in the nucleus for top_p 0.5: 1.00
suspect: 26 exact (a penalty of 1.25 is exact in float16)

Expectation, written first: the running sum of sorted probabilities is kept in bfloat16. Once it is beyond 0.25 an addend of
3e-4 is less than half a spacing and is dropped, so the sum never comes to top_p and the whole tail stays in the nucleus.
Remedy: float32 (or double) for probabilities and their sum. The penalty in float16 is exact.
"""
import torch


class SamplingParams:
    temperature = 1.0
    top_p = 0.5
    repetition_penalty = 1.25


class LogitsProcessor:
    def __init__(self, params, seed):
        self.temperature = params.temperature
        self.top_p = params.top_p
        self.penalty = torch.tensor(params.repetition_penalty, dtype=torch.float16)
        self.generator = torch.Generator().manual_seed(seed)

    def apply_penalty(self, logits, context):
        picked = logits[..., context]
        logits = logits.clone()
        logits[..., context] = torch.where(picked > 0, picked / self.penalty.item(), picked * self.penalty.item())
        return logits

    def cumulative(self, sorted_probs):
        total = torch.zeros_like(sorted_probs[..., 0])  # BORN
        running = []
        for p in sorted_probs.unbind(-1):
            total = total + p  # BORN
            running.append(total)
        return torch.stack(running, dim=-1)

    def top_p_filter(self, logits):
        probs = torch.softmax(logits / self.temperature, dim=-1)  # BORN
        sorted_probs, order = probs.sort(dim=-1, descending=True)
        before = self.cumulative(sorted_probs) - sorted_probs  # BORN
        keep = before < self.top_p
        kept = torch.where(keep, sorted_probs, torch.zeros_like(sorted_probs)).float()
        return kept / kept.sum(dim=-1, keepdim=True), order, keep

    def sample(self, logits, context):
        probs, order, keep = self.top_p_filter(self.apply_penalty(logits, context))
        pick = torch.multinomial(probs, 1, generator=self.generator)
        return order.gather(-1, pick), keep.sum(dim=-1)


class TinyLM:
    def __init__(self, vocab, hidden, generator):
        self.head = (torch.randn(vocab, hidden, generator=generator) * 0.1).to(torch.bfloat16)  # BORN

    def __call__(self, hidden):
        return hidden @ self.head.T


def main():
    generator = torch.Generator().manual_seed(9)
    vocab, hidden = 4000, 32
    model = TinyLM(vocab, hidden, generator)
    processor = LogitsProcessor(SamplingParams(), seed=1)
    states = torch.randn(4, hidden, generator=generator).to(torch.bfloat16)
    _, kept = processor.sample(model(states), context=torch.tensor([3, 17, 99]))
    share = kept.float().mean().item() / vocab
    print(f"share of the vocabulary in the nucleus for top_p {processor.top_p}: {share:.2f}")


if __name__ == "__main__":
    main()
