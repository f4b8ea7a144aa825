"""
title: a lightly trained LoRA is merged into bfloat16 weights: most of what it learned is rounded away
expect: silent:lost-update|downcast|precision-loss
needs: peft, transformers
modes: diagnose

huggingface/peft#1388, unslothai/unsloth#3091, NeMo-RL#3696. The delta is smaller than half a step of the weights.
Measured: 145 of 4096 weights change (4095 in float32); 90% of the adapter's effect on the logits is missing.
BORN is the merge (the base should be made float32 first, and the sum rounded once); equally right is the cast of the base.
"""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def base_model():
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=2, max_position_embeddings=32, initializer_range=0.2)
    return LlamaForCausalLM(config).to(torch.bfloat16)  # BORN


def adapted(base):
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "v_proj", "down_proj"], lora_dropout=0.0))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-5)
    tokens = torch.randint(0, 64, (2, 12))
    for _ in range(8):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def weights_of(model):
    return {n.replace(".base_layer", "").removeprefix("base_model.model."): p.detach().clone() for n, p in model.named_parameters()
            if n.endswith(("q_proj.base_layer.weight", "q_proj.weight", "v_proj.base_layer.weight", "v_proj.weight"))}


model = adapted(base_model())
before = weights_of(model)
merged = model.merge_and_unload()  # BORN
after = weights_of(merged)
changed = sum(int((before[n] != after[n]).sum()) for n in before)
print("weights that the merge changed:", changed, "of", sum(v.numel() for v in before.values()))
