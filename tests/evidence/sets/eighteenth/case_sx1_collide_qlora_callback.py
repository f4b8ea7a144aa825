"""
title: a TrainerCallback generates outside autocast from a bfloat16 model whose norms were upcast
expect: collision
thread: https://github.com/huggingface/peft/issues/1515
fix_at: 39

Expectation, written first: with bf16=True the trainer casts every norm of the bfloat16 model to float32 for stability;
its training step runs under autocast and hides that. The callback calls model.generate without autocast, so the norm's
float32 output meets the bfloat16 weights of q_proj. The generation needs autocast or the norms bfloat16.
"""
from dataclasses import dataclass

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback, TrainerControl, TrainerState


@dataclass
class TrainingArguments:
    output_dir: str = "out"
    learning_rate: float = 2e-4
    max_steps: int = 2
    bf16: bool = True


def peft_module_casting_to_bf16(model):
    for name, module in model.named_modules():
        if "norm" in name:
            module.to(torch.float32)  # BORN
        elif any(x in name for x in ["lm_head", "embed_tokens"]) and hasattr(module, "weight"):
            module.to(torch.bfloat16)


class SFTTrainer:
    def __init__(self, model, args, train_dataset, peft_config, callbacks=()):
        self.args, self.train_dataset, self.callbacks = args, train_dataset, callbacks
        self.model = get_peft_model(model, peft_config)
        if args.bf16:
            peft_module_casting_to_bf16(self.model)
        params = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(params, lr=args.learning_rate)
        self.state, self.control = TrainerState(), TrainerControl()

    def compute_loss_context_manager(self):
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.bf16)

    def training_step(self, inputs):
        self.model.train()
        with self.compute_loss_context_manager():
            loss = self.model(**inputs).loss
        loss.backward()
        return loss.detach()

    def train(self):
        for step, inputs in zip(range(self.args.max_steps), self.train_dataset):
            loss = self.training_step(inputs)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.state.global_step = step + 1
            print("step", step, "loss", round(loss.item(), 3))
            for callback in self.callbacks:
                callback.on_step_end(self.args, self.state, self.control, model=self.model)


class GenerateCallback(TrainerCallback):
    def __init__(self, prompt_ids):
        self.prompt_ids = prompt_ids

    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.eval()
        with torch.no_grad():
            out = model.generate(input_ids=self.prompt_ids, max_new_tokens=3, pad_token_id=0)  # BORN COLLIDES
        print("sample", out[0].tolist())


def main():
    torch.manual_seed(0)
    kw = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    model = LlamaForCausalLM(LlamaConfig(**kw)).to(torch.bfloat16)
    ids = [torch.randint(3, 64, (2, 10)) for _ in range(4)]
    dataset = [{"input_ids": i, "labels": i} for i in ids]
    peft_config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    callback = GenerateCallback(torch.randint(3, 64, (1, 5)))
    SFTTrainer(model, TrainingArguments(), dataset, peft_config, [callback]).train()


if __name__ == "__main__":
    main()
