"""
title: the merged model answers like the base model
expect: silent:lost-update|precision-loss|weights-dtype|downcast
thread: https://github.com/huggingface/peft/issues/2502
measured: adapter effect left after merging 0.00
widened: adapter effect left after merging 1.00; innocent: adapter effect left after merging 0.00
suspect: 31 exact (alpha/r is 2)

Expectation, written first: base weights of 0.5 to 1 have a bfloat16 spacing of 1/256, the LoRA delta is below 1/1000, so
merging into the bfloat16 weight leaves it as it was: nothing of the adapter survives. Unmerged, the delta acts on the
output. Remedy: merge in and keep float32 (or do not merge). The scaling in bfloat16 is exact.
"""
import torch
from torch import nn


class LoraConfig:
    r = 4
    lora_alpha = 8
    torch_dtype = torch.bfloat16  # BORN


class LoraLinear(nn.Module):
    def __init__(self, in_features, out_features, cfg):
        super().__init__()
        signs = torch.randint(0, 2, (out_features, in_features)) * 2 - 1
        weight = signs * (0.5 + 0.5 * torch.rand(out_features, in_features))
        self.weight = nn.Parameter(weight.to(cfg.torch_dtype), requires_grad=False)  # BORN
        self.lora_A = nn.Parameter(torch.randn(cfg.r, in_features))
        self.lora_B = nn.Parameter(torch.randn(out_features, cfg.r) * 7e-5)
        self.scaling = torch.tensor(cfg.lora_alpha / cfg.r, dtype=torch.bfloat16)
        self.merged = False

    def get_delta_weight(self):
        return self.lora_B @ self.lora_A * self.scaling.float()

    @torch.no_grad()
    def merge(self):
        self.weight.data += self.get_delta_weight().to(self.weight.dtype)  # BORN
        self.merged = True

    def forward(self, x):
        out = x @ self.weight.float().T
        if not self.merged:
            out = out + (x @ self.lora_A.T) @ self.lora_B.T * self.scaling.float()
        return out


class RewardModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.proj = LoraLinear(64, 32, cfg)

    def forward(self, x):
        return self.proj(x)

    def merge_and_unload(self):
        self.proj.merge()  # BORN
        return self


@torch.no_grad()
def main():
    torch.manual_seed(2502)
    model = RewardModel(LoraConfig())
    x = torch.randn(256, 64)
    base = x @ model.proj.weight.float().T
    tuned = model(x)
    merged = model.merge_and_unload()(x)
    effect = ((merged - base) * (tuned - base)).sum() / (tuned - base).square().sum()
    print(f"adapter effect left after merging {effect:.2f}")


main()
