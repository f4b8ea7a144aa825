"""
title: a QLoRA recipe keeps every norm in float32, the layers behind them are bfloat16 and no autocast is on
expect: collision
needs: transformers

After https://github.com/huggingface/transformers/issues/30236 and https://github.com/NVIDIA-NeMo/Automodel/issues/1632: a norm whose weight
is float32 returns float32, q_proj holds bfloat16.
Right: leave the norms in the model's dtype (they compute in float32 inside).
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)


class LoRALinear(torch.nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base
        dtype = base.weight.dtype
        self.down = torch.nn.Parameter(torch.randn(rank, base.in_features, dtype=dtype) * 0.02)
        self.up = torch.nn.Parameter(torch.zeros(base.out_features, rank, dtype=dtype))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.down.t()) @ self.up.t() * self.scale  # COLLIDES


def build(dtype):
    config = LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64)
    return LlamaForCausalLM(config).to(dtype)


def prepare_for_training(model):
    for p in model.parameters():
        p.requires_grad_(False)
    for name, module in model.named_modules():
        if name.endswith("norm"):
            module.to(torch.float32)  # BORN
    return model


def add_adapters(model, targets=("q_proj", "v_proj")):
    for layer in model.model.layers:
        for target in targets:
            setattr(layer.self_attn, target, LoRALinear(getattr(layer.self_attn, target)))
    return [p for p in model.parameters() if p.requires_grad]


def main():
    model = prepare_for_training(build(torch.bfloat16))
    optimizer = torch.optim.AdamW(add_adapters(model), lr=1e-3)
    for step in range(3):
        ids = torch.randint(0, 96, (2, 12))
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, round(loss.item(), 3))


main()
