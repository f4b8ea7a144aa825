"""
title: a grown vocabulary gets a new embedding in the default dtype, the model around it is bfloat16
expect: collision
needs: transformers, peft
fix_at: 32

After https://github.com/huggingface/transformers/pull/11572 and https://github.com/RBLN-SW/optimum-rbln/pull/674.
Right: the new embedding is made in the old one's dtype.
"""
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(107)


def base_model(vocab=48, dtype=torch.bfloat16):
    config = LlamaConfig(vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=4, max_position_embeddings=64, tie_word_embeddings=False)
    return LlamaForCausalLM(config).to(dtype)


@torch.no_grad()
def grow(model, extra):
    """New rows start at the mean of the old ones, with a little noise."""
    old = model.get_input_embeddings()
    count, dim = old.weight.shape
    new = nn.Embedding(count + extra, dim)  # BORN
    new.weight[:count] = old.weight
    new.weight[count:] = old.weight.mean(0) + 0.01 * torch.randn(extra, dim)
    model.set_input_embeddings(new)
    return model


def adapt(model):
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    return get_peft_model(model, config)


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)

    def step(self, ids):
        labels = ids.masked_fill(ids >= 48, -100)
        loss = self.model(input_ids=ids, labels=labels).loss  # COLLIDES
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


trainer = Trainer(adapt(grow(base_model(), extra=4)))
for start in range(3):
    ids = (torch.arange(10)[None] * 5 + start) % 52
    print(start, round(trainer.step(ids), 4))
