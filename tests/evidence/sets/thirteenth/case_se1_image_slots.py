"""
title: a half precision vision language model is prepared for adapter training with its projector upcast
expect: collision
thread: https://github.com/hiyouga/LlamaFactory/issues/3807
fix_at: 34, 35, 47, 50, 55, 56, 77, 83, 89, 94

Expectation, written first: the preparation leaves the projector in float32, so the image features are float32, and
they are written by index into the half precision embeddings of the text.
"""
import torch
import torch.nn.functional as F
from torch import nn

IMAGE = 1


class VisionTower(nn.Module):
    def __init__(self, patch=4, dim=24):
        super().__init__()
        self.patch_embedding = nn.Conv2d(3, dim, patch, stride=patch)
        self.mix = nn.Linear(dim, dim)

    def forward(self, pixels):
        x = self.patch_embedding(pixels).flatten(2).transpose(1, 2)
        return x + F.gelu(self.mix(x))


class Projector(nn.Module):
    def __init__(self, vision, hidden):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(vision, hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        x = x.to(self.linear_1.weight.dtype)
        return self.linear_2(F.gelu(self.linear_1(x)))


class Llava(nn.Module):
    def __init__(self, vocab=48, hidden=32):
        super().__init__()
        self.vision_tower, self.multi_modal_projector = VisionTower(), Projector(24, hidden)
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.body = nn.Sequential(nn.Linear(hidden, 64), nn.SiLU(), nn.Linear(64, hidden))
        self.lm_head = nn.Linear(hidden, vocab, bias=False)

    def merge(self, image_features, inputs_embeds, ids):
        final = torch.zeros_like(inputs_embeds)
        image_at = ids == IMAGE
        final[~image_at] = inputs_embeds[~image_at]
        final[image_at] = image_features.flatten(0, 1)  # COLLIDES
        return final

    def forward(self, ids, pixels):
        inputs_embeds = self.embed_tokens(ids)
        image_features = self.multi_modal_projector(self.vision_tower(pixels))
        x = self.merge(image_features, inputs_embeds, ids)
        return self.lm_head(x + self.body(x))


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(0.1 * torch.randn(rank, base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (x.float() @ self.A.T @ self.B.T).to(x.dtype)


def prepare_model_for_training(model, upcast_layernorm=True):
    """what is small and touchy is kept in float32"""
    for name, module in model.named_modules():
        if upcast_layernorm and isinstance(module, nn.LayerNorm):
            module.float()
        if name.endswith("projector"):
            module.float()  # BORN
    return model.requires_grad_(False)


def load_model(compute_dtype):
    torch.manual_seed(0)
    model = prepare_model_for_training(Llava().to(compute_dtype))
    model.body[0], model.body[2] = LoraLinear(model.body[0]), LoraLinear(model.body[2])
    return model


def main():
    model = load_model(torch.float16)
    gen = torch.Generator().manual_seed(1)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    ids = torch.randint(2, 48, (2, 14), generator=gen)
    ids[:, 2:6] = IMAGE
    pixels = torch.randn(2, 3, 8, 8, generator=gen).half()
    for _ in range(6):
        logits = model(ids, pixels)[:, 6:-1].float()
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 7:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.3f}")


main()
