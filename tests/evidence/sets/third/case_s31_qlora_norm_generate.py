"""
title: norms upcast for k-bit training; the sampling callback generates outside autocast
expect: collision
fix_at: 29, 44

After huggingface/peft#1515 (QLoRA bf16 + model.generate() in a callback). Training runs inside autocast and hides it.
Right change: generate inside the same autocast, or leave the norms in bfloat16.
"""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def prepare_for_training(model):
    for name, module in model.named_modules():
        if "norm" in name:
            module.to(torch.float32)  # BORN
    for p in model.parameters():
        p.requires_grad_(False)
    return model


class SampleCallback:
    def __init__(self, prompt):
        self.prompt = prompt

    def on_evaluate(self, model):
        model.eval()
        with torch.no_grad():
            out = model.generate(input_ids=self.prompt, max_new_tokens=3, do_sample=False, pad_token_id=0)  # COLLIDES
        model.train()
        return out


def batches(n):
    gen = torch.Generator().manual_seed(1)
    for _ in range(n):
        yield torch.randint(3, 64, (2, 10), generator=gen)


torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=2, max_position_embeddings=64)
base = prepare_for_training(LlamaForCausalLM(config).to(torch.bfloat16))
model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
callback = SampleCallback(torch.randint(3, 64, (1, 5)))
model.train()
for step, ids in enumerate(batches(3)):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    print("step", step, round(loss.item(), 3))
sample = callback.on_evaluate(model)
print(sample.shape)
