"""
title: a trained adapter is merged into a base model that was loaded in bfloat16
expect: silent:lost-update|precision-loss
thread: https://github.com/huggingface/peft/issues/1388
measured: shift by the adapter 0.117, after the merge 0.033
widened: shift by the adapter 0.117, after the merge 0.117

Expectation, written first: the adapter shifts many weights by a little in the same direction, each less than half a
step of its bfloat16 weight, so most of the sum is rounded away by the merge. The innocent suspect is the adapter file,
written in float16: a reload of it in full gives the same numbers.
"""
import copy

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import nn


class Scorer(nn.Module):
    def __init__(self, width=768, out=8):
        super().__init__()
        self.proj = nn.Linear(width, out, bias=False)

    def forward(self, x):
        return self.proj(x)


def load_base(dtype):
    torch.manual_seed(5)
    model = Scorer()
    nn.init.normal_(model.proj.weight, std=0.6)
    return model.to(dtype)


def requests(n, gen):
    return 1 + 0.2 * torch.randn(n, 768, generator=gen)


def finetune(model, gen, wanted, steps=60):
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    reference = model.get_base_model().proj.base_layer.weight.detach().float()
    for _ in range(steps):
        x = requests(32, gen)
        loss = (model(x) - (x @ reference.T + wanted)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def save_adapter(model):
    return {k: v.to(torch.float16) for k, v in get_peft_model_state_dict(model).items()}


def load_adapter(base, config, file):
    model = get_peft_model(base, config)
    set_peft_model_state_dict(model, {k: v.float() for k, v in file.items()})
    return model.eval()


@torch.no_grad()
def shift(model, base, x):
    return (model(x) - base(x)).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(6)
    config = LoraConfig(r=4, lora_alpha=4, target_modules=["proj"], init_lora_weights=True)
    plain = load_base(torch.float32)
    trained = get_peft_model(load_base(torch.float32), copy.deepcopy(config))
    finetune(trained, gen, wanted=0.12)
    file = save_adapter(trained)

    served = load_adapter(load_base(torch.bfloat16), copy.deepcopy(config), file).merge_and_unload()  # BORN
    x = requests(512, gen)
    print(f"shift by the adapter {shift(trained, plain, x):.3f}, after the merge {shift(served.float(), plain, x):.3f}")


main()
