"""
title: a blanket cast of a processor's batch takes token ids to bfloat16; .long() brings back other tokens
expect: silent:round-trip|downcast|precision-loss
modes: diagnose

NVIDIA/TensorRT-LLM#13612 (processor(...).to(dtype=...)), pytorch#70179. Ids beyond 256 are rounded.
Measured: 40 of 48 tokens become other tokens.
BORN is the cast of everything in the batch. Change: only tensors that are floating.
"""
import torch
from torch import nn


class Batch(dict):
    def to(self, dtype):
        return Batch({name: value.to(dtype) for name, value in self.items()})  # BORN


class Processor:
    def __call__(self, seed):
        g = torch.Generator().manual_seed(seed)
        return Batch(input_ids=torch.randint(0, 3000, (2, 24), generator=g), pixel_values=torch.rand(2, 3, 16, 16, generator=g))


class VisionLanguage(nn.Module):
    def __init__(self, vocab=3000, width=16):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.mix, self.head = nn.Linear(width, width), nn.Linear(width, vocab)

    def forward(self, input_ids, pixel_values):
        words = self.words(input_ids.long())
        image = self.patches(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat([image, words], 1)
        return self.head(torch.relu(self.mix(x)))


torch.manual_seed(0)
model, processor = VisionLanguage().bfloat16().eval(), Processor()
raw = processor(1)
batch = raw.to(torch.bfloat16)
with torch.no_grad():
    logits = model(**batch)
wrong = int((batch["input_ids"].long() != raw["input_ids"]).sum())
print("tokens that are other tokens now:", wrong, "of", raw["input_ids"].numel(), tuple(logits.shape))
