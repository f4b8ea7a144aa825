"""
title: the vectors of (IA)3 start at one and are kept in the base's bfloat16, steps of a thousandth do not move them
expect: silent:lost-update|precision-loss|downcast
needs: transformers, peft

After https://github.com/huggingface/peft/pull/1634 and https://github.com/axolotl-ai-cloud/axolotl/issues/3310.
Right: peft's own default, the trained vectors in float32. The bfloat16 base is innocent.
"""
import torch
from peft import IA3Config, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(213)


def base_model():
    config = LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=4, max_position_embeddings=32)
    return LlamaForCausalLM(config).to(torch.bfloat16)


def with_vectors(model):
    config = IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"])
    return get_peft_model(model, config, autocast_adapter_dtype=False)  # BORN


def batches(count):
    for _ in range(count):
        yield (torch.randint(0, 48, (8, 1)) + torch.arange(12)) % 48


def train(lr=1e-3, steps=20):
    model = with_vectors(base_model())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=0.0)
    for ids in batches(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    away = torch.cat([(p.detach().float() - 1).abs().flatten() for p in trained])
    return loss.item(), (away > 0).float().mean().item(), away.mean().item()


loss, moved, way = train()
print("loss", round(loss, 4), "entries that moved", round(moved, 3), "mean way", f"{way:.2e}")
