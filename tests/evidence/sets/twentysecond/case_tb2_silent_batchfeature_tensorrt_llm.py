"""
title: a blanket .to(dtype) on the processor's batch turns token ids into bfloat16 and prompts lose their words
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/NVIDIA/TensorRT-LLM/pull/13612
measured: ids [28800, 2096, 12160, 1040, 412] | prompt <unk> <unk> <unk> <unk> <unk> <unk> <unk> <unk> <unk> <unk> <unk> | image 0.5 tokens 12
widened: ids [28821, 2097, 12172, 1041, 413] | prompt describe the two red parrots sitting on the old wooden fence | image 0.5 tokens 12; innocent: ids [28800, 2096, 12160, 1040, 412] | prompt <unk> <unk> <unk> <unk> <unk> <unk> <unk> <unk> <unk> <unk> <unk> | image 0.5 tokens 12
suspect: line 60 - innocent: the image features are only averaged for a coarse brightness, bfloat16 is fine there

Expectation, written first: the input processor calls .to(dtype=self.dtype) on the whole batch and the batch casts
every tensor it has, integers too. Ids above 256 are rounded to 8 bits of mantissa; the cast back to long before the
embedding cannot restore them. The projected image in bfloat16 does no harm.
"""
import torch
from torch import nn

VOCAB = 32768


class BatchFeature(dict):
    def to(self, dtype):
        return BatchFeature({k: v.to(dtype) for k, v in self.items()})  # BORN


class Processor:
    def __init__(self, seed=0):
        self.gen = torch.Generator().manual_seed(seed)

    def __call__(self, text, image):
        ids = torch.tensor([[2] + [self.token_id(w) for w in text.split()]])
        return BatchFeature(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=(image - 0.5) / 0.5,
        )

    def token_id(self, word):
        return sum(ord(c) * 31 ** i for i, c in enumerate(word)) % VOCAB


class PaliGemmaInputProcessor:
    def __init__(self, processor, dtype=torch.bfloat16):
        self.processor = processor
        self.dtype = dtype

    def __call__(self, text, image):
        out = self.processor(text, image).to(dtype=self.dtype)  # BORN
        return out["input_ids"], out["pixel_values"], out["attention_mask"]


class TinyPaliGemma(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, dim, dtype=torch.bfloat16)
        self.patch = nn.Conv2d(3, dim, 4, stride=4)

    @torch.no_grad()
    def forward(self, input_ids, pixel_values):
        tokens = input_ids.long()
        feats = self.patch(pixel_values.float()).flatten(2).mean(-1)
        feats = feats.to(torch.bfloat16)
        return tokens, self.embed_tokens(tokens), feats


def main():
    torch.manual_seed(0)
    prep = PaliGemmaInputProcessor(Processor())
    model = TinyPaliGemma().eval()
    words = "describe the two red parrots sitting on the old wooden fence".split()
    back = {prep.processor.token_id(w): w for w in words}
    ids, pixels, mask = prep(" ".join(words), torch.rand(1, 3, 16, 16))
    tokens, embeds, feats = model(ids, pixels)
    print("ids", tokens[0, 1:6].tolist())
    print("prompt", " ".join(back.get(t, "<unk>") for t in tokens[0, 1:].tolist()))
    print(f"image {feats.float().norm():.1f} tokens {int(mask.sum())}")


if __name__ == "__main__":
    main()
