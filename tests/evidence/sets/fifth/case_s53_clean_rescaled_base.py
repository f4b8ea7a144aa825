"""
title: (IA)3 vectors in float32 over a bfloat16 base under autocast, saved as half for serving
expect: clean
needs: transformers, peft

The right way round of https://github.com/huggingface/peft/pull/1634.
"""
import io

import torch
import torch.nn.functional as F
from peft import IA3Config, get_peft_model, get_peft_model_state_dict
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(309)


def base_model(dtype=torch.bfloat16):
    config = LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=4, max_position_embeddings=32)
    return LlamaForCausalLM(config).to(dtype)


def batches(count):
    for _ in range(count):
        yield (torch.randint(0, 48, (8, 1)) + torch.arange(12)) % 48


def train(lr=2e-2, steps=40):
    model = get_peft_model(base_model(), IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.0)
    for ids in batches(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(input_ids=ids).logits
        loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, loss.item()


def pack(model):
    blob = io.BytesIO()
    torch.save({name: value.half() for name, value in get_peft_model_state_dict(model).items()}, blob)
    return blob.tell()


model, loss = train()
way = torch.cat([(p.detach() - 1).abs().flatten() for p in model.parameters() if p.requires_grad]).mean()
print("loss", round(loss, 3), "mean way", round(way.item(), 3), "bytes", pack(model) > 0)
