"""
title: ReFT units added to a bfloat16 Llama are initialised in float32
expect: collision
thread: https://github.com/adapter-hub/adapters/issues/766
fix_at: 44

Expectation, written first: the base model is bfloat16. add_adapter builds the ReFT units with nn.Linear's default
dtype, float32, and nobody casts them to the dtype of the model, so in the hook the bfloat16 hidden states meet float32
weights in the unit's projection.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class LoReftConfig:
    r: int = 4
    prefix_positions: int = 3


class ReftUnit(nn.Module):
    def __init__(self, in_dim, config):
        super().__init__()
        self.projection = nn.Linear(in_dim, config.r, bias=False)  # BORN
        self.learned_source = nn.Linear(in_dim, config.r)  # BORN
        nn.init.orthogonal_(self.projection.weight)

    def forward(self, x):
        source_states = self.learned_source(x)  # COLLIDES
        return x + (source_states - self.projection(x)) @ self.projection.weight


class ReftModule(nn.Module):
    def __init__(self, in_features, config):
        super().__init__()
        self.prefix = config.prefix_positions
        self.unit = ReftUnit(in_features, config)

    def forward(self, hidden_states):
        pref, rest = hidden_states[:, : self.prefix], hidden_states[:, self.prefix :]
        return torch.cat([self.unit(pref), rest], dim=1)


class ReftLayer(nn.Module):
    def __init__(self, location, hidden_size):
        super().__init__()
        self.location, self.hidden_size, self.refts = location, hidden_size, nn.ModuleDict()

    def add_adapter(self, adapter_name, config):
        self.refts[adapter_name] = ReftModule(self.hidden_size, config)  # BORN

    def forward(self, hidden_states, active):
        return self.refts[active](hidden_states) if active in self.refts else hidden_states


def hook_fn(module, args, output):
    return module.reft_layer(output, "reft")


def init_reft(model):
    for i, layer in enumerate(model.model.layers):
        layer.reft_layer = ReftLayer(i, model.config.hidden_size)
        layer.register_forward_hook(hook_fn)


def add_adapter(model, name, config):
    for layer in model.model.layers:
        layer.reft_layer.add_adapter(name, config)  # BORN
    for n, p in model.named_parameters():
        p.requires_grad_("reft_layer" in n)


def main():
    torch.manual_seed(0)
    kw = dict(vocab_size=80, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    model = LlamaForCausalLM(LlamaConfig(**kw)).to(torch.bfloat16)
    init_reft(model)
    add_adapter(model, "reft", LoReftConfig())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for _ in range(2):
        ids = torch.randint(0, 80, (2, 10))
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()


main()
