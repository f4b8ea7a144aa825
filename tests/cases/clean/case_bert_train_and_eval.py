"""
title: BERT in float32 under autocast bfloat16, evaluated under inference mode after each epoch
expect: clean
needs: transformers
"""
import torch
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


def batches(count, generator):
    for _ in range(count):
        ids = torch.randint(0, 60, (4, 12), generator=generator)
        yield {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": (ids.sum(-1) % 2)}


torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
schedule = get_linear_schedule_with_warmup(optimizer, 1, 8)
generator = torch.Generator().manual_seed(1)
for epoch in range(2):
    model.train()
    for batch in batches(3, generator):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    right = total = 0
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for batch in batches(4, generator):
            right += (model(**batch).logits.argmax(-1) == batch["labels"]).sum().item()
            total += len(batch["labels"])
print(total)
