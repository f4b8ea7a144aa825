"""
title: a frequency penalty fades its token counts in place, they are integers since the prompt was counted
expect: collision
needs: transformers
fix_at: 28

After https://github.com/huggingface/candle/pull/3731 and https://github.com/InternLM/lmdeploy/pull/4852 (frequency penalties keep counts per token).
Right: the counts are float32 from the start.
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList

torch.manual_seed(605)


class FadingPenalty(LogitsProcessor):
    """Subtracts strength * count; older tokens count less and less."""

    def __init__(self, vocab, strength=0.8, fade=0.9):
        self.vocab, self.strength, self.fade = vocab, strength, fade
        self.counts, self.seen = None, 0

    def start(self, prompt):
        rows = []
        for ids in prompt:
            rows.append(torch.bincount(ids, minlength=self.vocab))  # BORN
        self.seen = prompt.shape[1]
        return torch.stack(rows)

    def __call__(self, input_ids, scores):
        if self.counts is None:
            self.counts = self.start(input_ids)
        elif input_ids.shape[1] > self.seen:
            self.counts.mul_(self.fade)  # COLLIDES
            self.counts.scatter_add_(1, input_ids[:, -1:], torch.ones_like(input_ids[:, -1:], dtype=self.counts.dtype))
            self.seen = input_ids.shape[1]
        return scores - self.strength * self.counts


class Chat:
    def __init__(self, vocab=60):
        config = GPT2Config(vocab_size=vocab, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=None, pad_token_id=0)
        self.model = GPT2LMHeadModel(config).eval()
        self.vocab = vocab

    def reply(self, prompt, count=12, fading=True):
        processors = LogitsProcessorList([FadingPenalty(self.vocab)] if fading else [])
        ids = self.model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False, logits_processor=processors)
        return ids[:, prompt.shape[1]:]


chat = Chat()
prompt = torch.randint(1, 60, (2, 7))
plain = chat.reply(prompt, fading=False)
faded = chat.reply(prompt)
print("different tokens", len(set(plain[0].tolist())), len(set(faded[0].tolist())))
