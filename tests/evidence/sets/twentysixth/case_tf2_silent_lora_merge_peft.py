"""
title: accuracy of the merged model falls back to that of the base model
expect: silent:lost-update|downcast|precision-loss
thread: https://github.com/huggingface/peft/issues/1836
measured: base accuracy 0.27 / adapter accuracy 0.99 mean delta 0.0024 / merged accuracy 0.54
widened: base accuracy 0.27 / adapter accuracy 0.99 mean delta 0.0024 / merged accuracy 0.99; innocent: base accuracy 0.27 / adapter accuracy 0.99 mean delta 0.0024 / merged accuracy 0.54
suspect: 30 exact (alpha / r is 2)

Expectation, written first: the base weights are bfloat16 with entries near 2, where the spacing is 1/64; the adapter's
delta of 0.002 is added into them by merge and mostly rounds away. Unmerged, the delta acts in float32. Remedy: merge in
float32. The scaling in bfloat16 is exact.
"""
import torch
from torch import nn
import torch.nn.functional as F


class LoraConfig:
    r = 4
    lora_alpha = 8


class LoraLinear(nn.Module):
    def __init__(self, base_layer, config):
        super().__init__()
        self.base_layer = base_layer
        out_features, in_features = base_layer.weight.shape
        self.lora_A = nn.Parameter(torch.randn(config.r, in_features) * 0.02)
        self.lora_B = nn.Parameter(torch.zeros(out_features, config.r))
        self.scaling = torch.tensor(config.lora_alpha / config.r, dtype=torch.bfloat16)
        self.merged = False

    def get_delta_weight(self):
        return self.lora_B @ self.lora_A * self.scaling.float()

    @torch.no_grad()
    def merge(self):
        base_layer, delta_weight = self.base_layer, self.get_delta_weight()
        base_layer.weight.data += delta_weight.to(base_layer.weight.dtype)  # BORN
        self.merged = True

    def forward(self, x):
        result = F.linear(x, self.base_layer.weight.float())
        if not self.merged:
            result = result + F.linear(F.linear(x, self.lora_A), self.lora_B) * self.scaling.float()
        return result


class Classifier(nn.Module):
    def __init__(self, dim, n_class, config):
        super().__init__()
        base = nn.Linear(dim, n_class, bias=False).to(torch.bfloat16)  # BORN
        sign = torch.randn(1, dim).sign()
        base.weight.data.copy_(sign * (2 + 0.1 * torch.rand(1, dim)).expand(n_class, dim))
        base.weight.requires_grad_(False)
        self.score = LoraLinear(base, config)

    def forward(self, x):
        return self.score(x)


def make_data(generator, dim, n_class, n=600):
    prototypes = torch.randn(n_class, dim, generator=generator)
    y = torch.randint(0, n_class, (n,), generator=generator)
    return prototypes[y] + 0.8 * torch.randn(n, dim, generator=generator), y


def evaluate(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(-1) == y).float().mean().item()


def main():
    torch.manual_seed(1836)
    x, y = make_data(torch.Generator().manual_seed(1), dim=32, n_class=4)
    model = Classifier(32, 4, LoraConfig())
    print(f"base accuracy {evaluate(model, x, y):.2f}")
    optimizer = torch.optim.Adam([model.score.lora_A, model.score.lora_B], lr=2e-3)
    for _ in range(12):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"adapter accuracy {evaluate(model, x, y):.2f} mean delta {model.score.get_delta_weight().abs().mean():.4f}")
    model.score.merge()
    print(f"merged accuracy {evaluate(model, x, y):.2f}")


if __name__ == "__main__":
    main()
