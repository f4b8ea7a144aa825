"""
title: a callback samples text from a LoRA model whose norms were upcast for training
expect: collision
thread: https://github.com/huggingface/peft/issues/1515
fix_at: 20, 41, 64, 88

Expectation, written first: training runs under bfloat16 autocast and never notices that the norms are float32; the
callback generates without autocast, the first norm returns float32 and the projection behind it refuses.
"""
from dataclasses import dataclass

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class TrainArgs:
    bf16: bool = True
    upcast_layernorm: bool = True
    lr: float = 2e-3
    steps: int = 4
    sample_every: int = 2


def load_base():
    config = LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(torch.bfloat16)


def prepare_model(model, args):
    for p in model.parameters():
        p.requires_grad = False
    if args.upcast_layernorm:
        for name, p in model.named_parameters():
            if p.ndim == 1 and "norm" in name:
                p.data = p.data.to(torch.float32)  # BORN
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return get_peft_model(model, lora)


class Corpus:
    def __init__(self, text, block=12):
        self.ids, self.block = torch.tensor([3 + ord(c) % 90 for c in text]), block

    def batch(self, n, g):
        start = torch.randint(0, len(self.ids) - self.block, (n,), generator=g)
        return torch.stack([self.ids[s : s + self.block] for s in start])


class SampleCallback:
    def __init__(self, prompt):
        self.prompt = prompt

    @torch.no_grad()
    def on_step_end(self, model, step, args):
        if step % args.sample_every:
            return None
        model.eval()
        ids = model.generate(  # COLLIDES
            input_ids=self.prompt, attention_mask=torch.ones_like(self.prompt), max_new_tokens=4, do_sample=False,
        )
        model.train()
        return ids[0].tolist()


class Trainer:
    def __init__(self, model, args, corpus, callbacks):
        self.model, self.args, self.corpus, self.callbacks = model, args, corpus, callbacks
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.lr)

    def compute_loss(self, ids):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.bf16):
            return self.model(input_ids=ids, labels=ids).loss

    def train(self):
        g = torch.Generator().manual_seed(1)
        for step in range(1, self.args.steps + 1):
            loss = self.compute_loss(self.corpus.batch(4, g))
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            for callback in self.callbacks:
                callback.on_step_end(self.model, step, self.args)
        return loss.item()


args = TrainArgs()
model = prepare_model(load_base(), args)
corpus = Corpus("the quick brown fox jumps over the lazy dog and runs into the forest again")
trainer = Trainer(model, args, corpus, [SampleCallback(corpus.ids[None, :5])])
print(f"loss {trainer.train():.3f}")
