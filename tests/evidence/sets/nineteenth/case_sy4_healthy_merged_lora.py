"""
title: LoRA weights merged in bf16 give slightly different logits and the same tokens
expect: clean
thread: https://github.com/meta-pytorch/torchtune/issues/1101
measured: tokens equal to mounted adapter 1.000 | accuracy after merge 1.000  (with the suspect widened: tokens equal to mounted adapter 1.000 | accuracy after merge 1.000)
suspect: 42 last-digits

Expectation, written first: The delta is added to the base weight and the sum is rounded to bf16, so the logits of the merged model differ in the third digit
from those with the adapter mounted. The delta is as large as the weights themselves, hence nothing of it gets lost but its last digits; the
greedy tokens and the accuracy are the same as with a merge in float32.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, in_dim, out_dim, rank, alpha):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_dim, in_dim) * 0.05, requires_grad=False)
        self.lora_a = nn.Linear(in_dim, rank, bias=False)
        self.lora_b = nn.Linear(rank, out_dim, bias=False)
        nn.init.zeros_(self.lora_b.weight)
        self.scaling = alpha / rank

    def forward(self, x):
        return F.linear(x, self.weight) + self.scaling * self.lora_b(self.lora_a(x))


class Classifier(nn.Module):
    def __init__(self, dim=64, classes=16):
        super().__init__()
        self.tok_embeddings = nn.Embedding(classes, dim)
        self.output = LoRALinear(dim, classes, rank=16, alpha=32)

    def forward(self, tokens):
        return self.output(self.tok_embeddings(tokens))


def get_merged_lora_ckpt(state_dict, scaling):
    merged = state_dict.pop("output.weight") + scaling * state_dict.pop("output.lora_b.weight") @ state_dict.pop("output.lora_a.weight")
    state_dict["output.weight"] = merged.to(torch.bfloat16)
    return state_dict


class MergedModel(nn.Module):
    def __init__(self, state_dict):
        super().__init__()
        self.embedding = state_dict["tok_embeddings.weight"]
        self.weight = state_dict["output.weight"]

    def forward(self, tokens):
        return F.linear(self.embedding[tokens].to(self.weight.dtype), self.weight).float()


@torch.no_grad()
def generate(model, prompt, steps=24):
    tokens = prompt
    for _ in range(steps):
        tokens = torch.cat([tokens, model(tokens[:, -1:]).argmax(-1)], dim=1)
    return tokens


def main():
    torch.manual_seed(0)
    model = Classifier()
    successor = torch.randperm(16)
    optimizer = torch.optim.AdamW(model.output.parameters(), lr=5e-3)
    for step in range(80):
        tokens = torch.randint(0, 16, (64,))
        loss = F.cross_entropy(model(tokens), successor[tokens])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    prompt = torch.arange(16)[:, None]
    mounted = generate(model, prompt)
    state_dict = {k: v.detach().clone() for k, v in model.state_dict().items()}
    merged = generate(MergedModel(get_merged_lora_ckpt(state_dict, model.output.scaling)), prompt)
    print(f"tokens equal to mounted adapter {(mounted == merged).float().mean():.3f}")
    print(f"accuracy after merge {(merged[:, 1] == successor).float().mean():.3f}")


if __name__ == "__main__":
    main()
