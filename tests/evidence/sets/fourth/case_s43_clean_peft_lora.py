"""
title: peft adapters in float32 over a frozen bfloat16 Llama, the loss in float32
expect: clean
needs: transformers, peft

What https://github.com/pytorch/torchdistx/pull/52 says of mixed precision with LoRA: only the adapters are kept in float32.
"""
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(42)


def build():
    config = LlamaConfig(vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64)
    base = LlamaForCausalLM(config).to(torch.bfloat16)
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"])
    return get_peft_model(base, lora)


def collate(rows, pad=0):
    longest = max(len(r) for r in rows)
    ids = torch.full((len(rows), longest), pad)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for k, r in enumerate(rows):
        ids[k, :len(r)], mask[k, :len(r)] = r, 1
    labels = ids.masked_fill(mask == 0, -100)
    return ids, mask, labels


def rows(n):
    for _ in range(n):
        length = int(torch.randint(8, 17, ()))
        yield (torch.randint(0, 48, ()) + torch.arange(length)) % 48


def main(steps=10, accumulate=2):
    model = build()
    trainable = [p for p in model.parameters() if p.requires_grad]
    assert all(p.dtype == torch.float32 for p in trainable)
    optimizer = torch.optim.AdamW(trainable, lr=5e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, total_iters=3)
    for step in range(steps):
        for _ in range(accumulate):
            ids, mask, labels = collate(list(rows(8)))
            logits = model(input_ids=ids, attention_mask=mask).logits.float()
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
            (loss / accumulate).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print("loss", round(loss.item(), 3))


main()
