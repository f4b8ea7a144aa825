"""
title: LTX latent guide with an fp8 UNet: key frame latents cast to the storage dtype cannot be concatenated with bf16 latents
expect: collision
thread: https://github.com/logtd/ComfyUI-LTXTricks/issues/25
fix_at:

Expectation, written first: with fp8 weights the model reports float8 as its dtype, while it computes in bfloat16. The guide node casts the key frame
latents to the reported dtype and concatenates them with the bfloat16 latents in the forward pass; torch has no promotion for float8. The cast must
follow the compute dtype, or the guide must be cast where it joins the latents.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ManualCastLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


class LTXVTransformer(nn.Module):
    def __init__(self, channels=8, dim=16):
        super().__init__()
        self.patchify_proj = ManualCastLinear(channels, dim)
        self.block = ManualCastLinear(dim, dim)
        self.proj_out = ManualCastLinear(dim, channels)

    @property
    def dtype(self):
        return self.patchify_proj.weight.dtype

    def forward(self, x, timestep, guides=()):
        b, c, frames, h, w = x.shape
        for guide in guides:
            x = torch.cat([x, guide], dim=2)  # BORN COLLIDES
        tokens = x.flatten(2).transpose(1, 2)
        hidden = self.patchify_proj(tokens) * (1 + timestep.view(-1, 1, 1).to(x.dtype))
        hidden = hidden + F.gelu(self.block(hidden))
        out = self.proj_out(hidden).transpose(1, 2).view(b, c, -1, h, w)
        return out[:, :, :frames]


class ModelPatcher:
    def __init__(self, model, weight_dtype, manual_cast_dtype):
        self.model = model.to(weight_dtype)
        self.manual_cast_dtype = manual_cast_dtype
        self.guides = []

    def model_dtype(self):
        return self.model.dtype

    def clone(self):
        other = object.__new__(ModelPatcher)
        other.__dict__.update(self.__dict__, guides=list(self.guides))
        return other

    def apply_model(self, x, t):
        return self.model(x.to(self.manual_cast_dtype), t, self.guides).float()


class AddLatentGuideNode:
    def add_guide(self, model, latent, guiding_latent, strength):
        model = model.clone()
        guide = guiding_latent["samples"] * strength
        model.guides.append(guide.to(model.model_dtype()))  # BORN
        return model, latent


def sample_euler(model, latent, sigmas):
    x = latent["samples"] * sigmas[0]
    for sigma, sigma_next in zip(sigmas[:-1], sigmas[1:]):
        velocity = model.apply_model(x, sigma.expand(x.shape[0]))
        x = x + (sigma_next - sigma) * velocity
    return x


def main():
    torch.manual_seed(11)
    patcher = ModelPatcher(LTXVTransformer(), torch.float8_e4m3fn, torch.bfloat16)
    latent = {"samples": torch.randn(1, 8, 3, 4, 4)}
    guide = {"samples": torch.randn(1, 8, 1, 4, 4)}
    patcher, latent = AddLatentGuideNode().add_guide(patcher, latent, guide, strength=0.9)
    with torch.no_grad():
        out = sample_euler(patcher, latent, torch.linspace(1, 0, 5))
    print("sampled", tuple(out.shape), out.std().item())


if __name__ == "__main__":
    main()
