"""
title: image features of an upcast vision tower written into half text embeddings
expect: collision
thread: https://github.com/hiyouga/LlamaFactory/issues/3807
fix_at: 46

Expectation, written first: the language model is half, the projector is upcast to
float32 as "norms and small layers" are; its output is put with a boolean index into
half embeddings, and index_put refuses. Birth: the upcast of the projector.
"""
import torch
from torch import nn

IMAGE_ID = 0


def upcast_for_stability(model, keywords):
    for name, module in model.named_modules():
        if any(k in name for k in keywords) and not list(module.children()):
            module.to(torch.float32)  # BORN
    return model


class Projector(nn.Module):
    def __init__(self, vision_dim, text_dim):
        super().__init__()
        self.linear = nn.Linear(vision_dim, text_dim)

    def forward(self, feats):
        return self.linear(feats.to(self.linear.weight.dtype))


class TinyLlava(nn.Module):
    def __init__(self, vocab=40, dim=16, patch=12):
        super().__init__()
        self.vision = nn.Linear(patch, 20)
        self.projector = Projector(20, dim)
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.final_layernorm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, input_ids, patches):
        embeds = self.embed_tokens(input_ids).clone()
        feats = self.projector(torch.relu(self.vision(patches.to(self.vision.weight.dtype))))
        where = input_ids == IMAGE_ID
        embeds[where] = feats.flatten(0, 1)  # COLLIDES
        hidden = self.final_layernorm(embeds.to(self.final_layernorm.weight.dtype))
        return self.lm_head(hidden.to(self.lm_head.weight.dtype))


class Collator:
    def __init__(self, n_patches=4):
        self.n = n_patches

    def __call__(self, size):
        ids = torch.randint(1, 40, (size, 10))
        ids[:, 1 : 1 + self.n] = IMAGE_ID
        return ids, torch.randn(size, self.n, 12)


torch.manual_seed(9)
model = TinyLlava().half()
model = upcast_for_stability(model, ("layernorm", "projector"))
collate = Collator()
for step in range(2):
    ids, patches = collate(3)
    logits = model(ids, patches).float()
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    print("step", step, "loss", round(loss.item(), 3))
