"""
title: a state-space cache takes its dtype from the mixer's first parameter, the one that is kept in float32
expect: collision

After huggingface/transformers#32690 (MambaCache: "Index put requires the source and destination dtypes match, got Float for the
destination and Half for the source"). A_log stays in float32 on purpose and is registered first, so
next(mixer.parameters()).dtype is float32 while what is written is bfloat16. Right change: the convolution's dtype for conv_states.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Mixer(nn.Module):
    def __init__(self, width=8, inner=12, kernel=3):
        super().__init__()
        self.inner, self.kernel = inner, kernel
        self.A_log = nn.Parameter(torch.log(torch.linspace(1, 4, inner)))
        self.in_proj = nn.Linear(width, inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x, cache, layer):
        h = self.in_proj(x).transpose(1, 2)
        cache.update(layer, h)
        h = F.silu(self.conv(h)[..., : x.shape[1]])
        decay = torch.exp(-torch.exp(self.A_log))
        state, outs = torch.zeros_like(h[..., 0], dtype=torch.float32), []
        for t in range(h.shape[-1]):
            state = decay * state + h[..., t].float()
            outs.append(state.to(h.dtype))
        return self.out_proj(torch.stack(outs, 1))


class Cache:
    def __init__(self, mixers, batch):
        self.states = [torch.zeros(batch, m.inner, m.kernel, dtype=next(m.parameters()).dtype) for m in mixers]  # BORN

    def update(self, layer, h):
        keep = min(h.shape[-1], self.states[layer].shape[-1])
        slots = torch.arange(self.states[layer].shape[-1] - keep, self.states[layer].shape[-1])
        self.states[layer][:, :, slots] = h[..., -keep:]  # COLLIDES


class LM(nn.Module):
    def __init__(self, vocab=32, width=8, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mixers = nn.ModuleList(Mixer(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, cache):
        x = self.embed(ids)
        for i, mixer in enumerate(self.mixers):
            x = x + mixer(self.norm(x), cache, i)
        return x @ self.embed.weight.T


def cast(model, dtype, keep=("A_log",)):
    for name, parameter in model.named_parameters():
        if not name.endswith(keep):
            parameter.data = parameter.data.to(dtype)
    return model


torch.manual_seed(0)
model = cast(LM(), torch.bfloat16).eval()
with torch.no_grad():
    print(model(torch.tensor([[1, 4, 7, 9, 2]]), Cache(model.mixers, 1)).shape)
