"""
title: float32 LoRA adapters in a bfloat16 model, with a float32 EMA of the adapters
expect: clean
thread: https://github.com/huggingface/peft/pull/1706
measured: adapters True, base untouched True, loss falls True

Expectation, written first: PEFT raises the adapters to float32 by itself and casts at the borders of each layer; the
optimizer and the average move float32 numbers, so small updates and a decay of 0.9 lose nothing. The bfloat16 base
never changes. The loss falls, with the average too.
"""
import copy

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def build():
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"])
    return get_peft_model(model, lora)


class AdapterEMA:
    def __init__(self, params, decay):
        self.params, self.decay = params, decay
        self.shadow = [p.detach().clone() for p in params]

    @torch.no_grad()
    def update(self):
        for s, p in zip(self.shadow, self.params):
            s.lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def copy_to(self):
        for s, p in zip(self.shadow, self.params):
            p.copy_(s)


def main():
    torch.manual_seed(0)
    model = build()
    adapters = [p for p in model.parameters() if p.requires_grad]
    frozen = [p for p in model.parameters() if not p.requires_grad]
    before = copy.deepcopy([p.detach() for p in frozen])
    ema = AdapterEMA(adapters, decay=0.9)
    optimizer = torch.optim.AdamW(adapters, lr=1e-2, weight_decay=0.0)
    ids = torch.randint(1, 64, (4, 8)).repeat(1, 2)
    losses = []
    for _ in range(30):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update()
        losses.append(loss.item())
    ema.copy_to()
    with torch.no_grad():
        averaged = model(input_ids=ids, labels=ids).loss.item()
    dtypes = {p.dtype for p in adapters}
    same = all(torch.equal(a, b) for a, b in zip(before, frozen))
    falls = losses[-1] < 0.8 * losses[0] and averaged < 0.9 * losses[0]
    print(f"adapters {dtypes == {torch.float32}}, base untouched {same}, loss falls {falls}")


if __name__ == "__main__":
    main()
