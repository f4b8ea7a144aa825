"""
title: a peft model is cast to bfloat16 once more after its adapters were made, AdamW's steps vanish in them
expect: silent:lost-update|precision-loss|downcast|round-trip
needs: transformers, peft

After https://github.com/keras-team/keras-hub/issues/2629 and https://github.com/pytorch/ao/pull/1124: peft keeps adapters in float32 over a bfloat16
base, the second cast takes that away. A step of 2e-5 is less than half a step of bfloat16 for a weight of 0.1. The bfloat16 base is innocent.
Here 0.04 of lora_A's entries have moved after 12 steps (repaired: all). Right: no cast after get_peft_model.
"""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(35)


def base_model():
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=4, max_position_embeddings=64)
    return LlamaForCausalLM(config).to(torch.bfloat16)


def add_lora(model):
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return get_peft_model(model, config)


def batches(n):
    for _ in range(n):
        start = torch.randint(0, 64, (8, 1))
        yield (start + torch.arange(16)) % 64


def train(lr=2e-5, steps=12):
    model = add_lora(base_model())
    model = model.to(torch.bfloat16)  # BORN
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    before = {n: p.detach().clone() for n, p in trainable.items()}
    optimizer = torch.optim.AdamW(trainable.values(), lr=lr, weight_decay=0.0)
    for ids in batches(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = [(trainable[n] != before[n]).float().mean() for n in trainable if "lora_A" in n]
    way = [(trainable[n].float() - before[n].float()).abs().mean() for n in trainable if "lora_A" in n]
    return loss.item(), torch.stack(moved).mean().item(), torch.stack(way).mean().item()


loss, moved, way = train()
print("loss", round(loss, 4), "entries moved", round(moved, 3), "mean way", f"{way:.2e}")
