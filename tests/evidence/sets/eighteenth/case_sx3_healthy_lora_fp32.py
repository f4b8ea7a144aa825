"""
title: LoRA parameters are upcast to float32 on a float16 base and trained with a GradScaler
expect: clean
thread: https://github.com/oobabooga/textgen/pull/5268
measured: base torch.float16, adapter torch.float32, scale 1024, loss fell: True
suspect: 45 required

Expectation, written first: the frozen base stays float16, the trainable LoRA matrices are put into float32 so that the
scaler may unscale their gradients and AdamW's steps of 1e-3 are not rounded away. Autocast brings both together in the
forward and the loss is taken from float32 logits. The saved adapter is the float32 one.
"""
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

shared = {"lora_rank": 4, "lora_alpha": 16, "learning_rate": 1e-3, "micro_batch_size": 4, "epochs": 4}


def load_model():
    config = GPT2Config(vocab_size=48, n_positions=24, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return GPT2LMHeadModel(config).half()


def tokenize(prompt, cutoff_len=16):
    ids = [3 + (ord(c) % 45) for c in prompt][:cutoff_len]
    labels = ids + [-100] * (cutoff_len - len(ids))
    return {"input_ids": torch.tensor(ids + [0] * (cutoff_len - len(ids))), "labels": torch.tensor(labels)}


def build_lora(model):
    config = LoraConfig(
        r=shared["lora_rank"],
        lora_alpha=shared["lora_alpha"],
        target_modules=["c_attn"],
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        fan_in_fan_out=True,
    )
    lora_model = get_peft_model(model, config, autocast_adapter_dtype=False)
    for param in lora_model.parameters():
        if param.requires_grad:
            param.data = param.data.float()
    return lora_model


class Trainer:
    def __init__(self, model, dataset):
        self.model = model
        self.loader = DataLoader(dataset, batch_size=shared["micro_batch_size"])
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.params, lr=shared["learning_rate"])
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def training_step(self, batch):
        with torch.autocast("cpu", dtype=torch.float16):
            logits = self.model(input_ids=batch["input_ids"]).logits
        loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=-100)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss.item()

    def train(self):
        return [self.training_step(batch) for _ in range(shared["epochs"]) for batch in self.loader]


def main():
    torch.manual_seed(0)
    lora_model = build_lora(load_model())
    base = {p.dtype for p in lora_model.parameters() if not p.requires_grad}
    prompts = ["### Instruction: add", "### Response: done", "hello world", "text generation webui"] * 4
    trainer = Trainer(lora_model, [tokenize(p) for p in prompts])
    history = trainer.train()
    adapter = {v.dtype for v in get_peft_model_state_dict(lora_model).values()}
    scale = trainer.scaler.get_scale()
    print(f"base {base.pop()}, adapter {adapter.pop()}, scale {scale:.0f}, loss fell: {history[-1] < history[0]}")


if __name__ == "__main__":
    main()
