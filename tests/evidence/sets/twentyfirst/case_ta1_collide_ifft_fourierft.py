"""
title: FourierFT adapter in a bfloat16 model: inverse FFT of a bfloat16 spectrum
expect: collision
thread: https://github.com/Chaos96/fourierft/issues/17
fix_at: 31, 32

Expectation, written first: after the adapters are injected, the whole model is turned to bfloat16, the trainable
spectrum with it. The dense spectrum is built in its dtype and ifft2 rejects bfloat16. The transform has to be
taken in float32, or the spectrum kept in float32 when the model is cast.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class FourierFTLinear(nn.Module):
    def __init__(self, base_layer, n_frequency=50, scaling=30.0, random_loc_seed=777):
        super().__init__()
        self.base_layer = base_layer
        self.base_layer.weight.requires_grad_(False)
        self.in_features, self.out_features = base_layer.in_features, base_layer.out_features
        self.scaling = scaling
        generator = torch.Generator().manual_seed(random_loc_seed)
        flat = torch.randperm(self.in_features * self.out_features, generator=generator)[:n_frequency]
        self.register_buffer(
            "indices", torch.stack([flat // self.in_features, flat % self.in_features]), persistent=False
        )
        self.spectrum = nn.Parameter(torch.randn(n_frequency) * 0.1)

    def get_delta_weight(self):
        dense_spectrum = torch.zeros(self.out_features, self.in_features, dtype=self.spectrum.dtype)
        dense_spectrum[self.indices[0, :], self.indices[1, :]] = self.spectrum
        return torch.fft.ifft2(dense_spectrum).real * self.scaling  # BORN COLLIDES

    def forward(self, x):
        previous_dtype = x.dtype
        result = self.base_layer(x)
        delta_w = self.get_delta_weight()
        result = result + F.linear(x.to(delta_w.dtype), delta_w)
        return result.to(previous_dtype)


class Decoder(nn.Module):
    def __init__(self, vocab=50, dim=24):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        q, v = self.q_proj(x)[:, None], self.v_proj(x)[:, None]
        x = x + F.scaled_dot_product_attention(q, q, v, is_causal=True)[:, 0]
        return self.lm_head(x)


def inject_fourier(model, target_modules, n_frequency):
    for name in target_modules:
        setattr(model, name, FourierFTLinear(getattr(model, name), n_frequency))
    for name, p in model.named_parameters():
        p.requires_grad_("spectrum" in name)
    return model


def train(model, input_ids, steps=3, lr=1e-2):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    for _ in range(steps):
        logits = model(input_ids[:, :-1]).float()
        loss = F.cross_entropy(logits.flatten(0, 1), input_ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = inject_fourier(Decoder(), ["q_proj", "v_proj"], n_frequency=64)
    model = model.to(torch.bfloat16)  # BORN
    input_ids = torch.randint(0, 50, (4, 10))
    print("train loss", f"{train(model, input_ids):.2f}")
