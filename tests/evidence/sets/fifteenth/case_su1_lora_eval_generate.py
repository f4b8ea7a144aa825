"""
title: a callback generates with a LoRA model whose norms and head were raised to float32 for training
expect: collision
thread: https://github.com/huggingface/peft/issues/1515
fix_at: 20, 28, 45, 46, 73

Expectation, written first: the base is bfloat16, the preparation makes norms and head float32; under autocast the
steps work, the generation of the callback runs outside of it and the first projection gets float32 for bfloat16 weights.
"""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def load_base():
    torch.manual_seed(21)
    config = LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
                         bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return LlamaForCausalLM(config).to(torch.bfloat16)


def prepare_for_training(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for name, module in model.named_modules():
        if "norm" in name or name.endswith("lm_head"):
            module.to(torch.float32)  # BORN
    model.config.use_cache = False
    return model


def add_adapter(model, rank=4):
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=8, target_modules=["q_proj", "v_proj"],
                                            task_type="CAUSAL_LM"))


class SampleCallback:
    def __init__(self, prompts, every=2):
        self.prompts, self.every = prompts, every

    def on_step_end(self, step, model):
        if step % self.every == 0:
            model.eval()
            with torch.no_grad():
                out = model.generate(input_ids=self.prompts, attention_mask=torch.ones_like(self.prompts), max_new_tokens=5, do_sample=False)  # COLLIDES
            model.train()
            print("step", step, out[:, self.prompts.size(1):].tolist())


class Trainer:
    def __init__(self, model, data, callbacks, bf16=True):
        self.model, self.data, self.callbacks, self.bf16 = model, data, callbacks, bf16
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)

    def compute_loss(self, ids):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            return self.model(input_ids=ids, labels=ids).loss

    def train(self):
        self.model.train()
        for step, ids in enumerate(self.data, 1):
            loss = self.compute_loss(ids)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            for callback in self.callbacks:
                callback.on_step_end(step, self.model)
        return loss.item()


def main():
    model = add_adapter(prepare_for_training(load_base()))
    gen = torch.Generator().manual_seed(5)
    data = [torch.randint(3, 96, (2, 12), generator=gen) for _ in range(4)]
    print(f"loss {Trainer(model, data, [SampleCallback(data[0][:, :4])]).train():.4f}")


main()
