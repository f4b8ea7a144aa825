"""
title: the trainable parameters of a bfloat16 PEFT model are raised to float32, the saved head with them
expect: collision
thread: https://github.com/huggingface/peft/issues/1249
fix_at: 27, 40, 54, 58

Expectation, written first: the LoRA layers cast their input to their own dtype and cast back, so they may be float32;
the classifier that PEFT keeps in modules_to_save is a plain linear layer, and a float32 weight there meets bfloat16
hidden states (no autocast is used). Cause: the loop that raises every trainable parameter.
"""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForSequenceClassification


def tiny_model(labels):
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_labels=labels,
        pad_token_id=0,
    )
    return LlamaForSequenceClassification(config).to(torch.bfloat16)


def add_adapter(model, rank):
    config = LoraConfig(task_type="SEQ_CLS", r=rank, lora_alpha=2 * rank, target_modules=["q_proj", "v_proj"])
    return get_peft_model(model, config)


def raise_trainable(model):
    """float32 for whatever the optimizer holds, as fp16 training wants it"""
    count = 0
    for param in model.parameters():
        if param.requires_grad:
            param.data = param.data.to(torch.float32)  # BORN
            count += param.numel()
    return count


def batches(n, size, length, gen):
    for _ in range(n):
        ids = torch.randint(1, 96, (size, length), generator=gen)
        yield {"input_ids": ids, "labels": (ids[:, -1] > 48).long()}


def main():
    torch.manual_seed(0)
    model = add_adapter(tiny_model(labels=2), rank=4)
    print("trainable", raise_trainable(model))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    model.train()
    for batch in batches(4, 16, 12, torch.Generator().manual_seed(1)):
        loss = model(**batch).loss  # COLLIDES
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
