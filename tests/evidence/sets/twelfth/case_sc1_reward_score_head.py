"""
title: reward modelling with LoRA: every trainable parameter is cast to float32, the score head among them
expect: collision
thread: https://github.com/shibing624/MedicalGPT/issues/456
fix_at: 22, 37, 38, 80, 83

Expectation, written first: LoRA layers cast their input themselves, so the float32 adapters are fine; the score head is
a plain linear layer that is trained too, and refuses the bfloat16 hidden states.
"""
from dataclasses import dataclass

import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import LlamaConfig, LlamaForSequenceClassification


@dataclass
class ScriptArguments:
    torch_dtype: str = "bfloat16"
    use_peft: bool = True
    lora_rank: int = 4
    bf16: bool = False
    learning_rate: float = 1e-3
    per_device_train_batch_size: int = 2


def load_model(args):
    torch.manual_seed(0)
    model = LlamaForSequenceClassification(LlamaConfig(
        vocab_size=90, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_labels=1, pad_token_id=0, max_position_embeddings=64,
    )).to(getattr(torch, args.torch_dtype))
    if args.use_peft:
        model = get_peft_model(model, LoraConfig(
            task_type=TaskType.SEQ_CLS, r=args.lora_rank, lora_alpha=8, target_modules=["q_proj", "v_proj"],
        ))
        for param in filter(lambda p: p.requires_grad, model.parameters()):
            param.data = param.data.to(torch.float32)  # BORN
    return model


class Preferences(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(2)
        self.pairs = torch.randint(3, 90, (n, 2, 10), generator=g)
        self.lengths = torch.randint(5, 10, (n, 2), generator=g)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        chosen, rejected = (ids[:n].tolist() for ids, n in zip(self.pairs[i], self.lengths[i]))
        return {"input_ids_chosen": chosen, "input_ids_rejected": rejected}


class RewardDataCollatorWithPadding:
    def pad(self, rows):
        longest = max(map(len, rows))
        ids = torch.tensor([r + [0] * (longest - len(r)) for r in rows])
        return ids, (ids > 0).long()

    def __call__(self, features):
        batch = {}
        for side in ("chosen", "rejected"):
            ids, mask = self.pad([f[f"input_ids_{side}"] for f in features])
            batch[f"input_ids_{side}"], batch[f"attention_mask_{side}"] = ids, mask
        return batch


class RewardTrainer:
    def __init__(self, model, args, dataset):
        self.model, self.args = model, args
        self.loader = torch.utils.data.DataLoader(
            dataset, args.per_device_train_batch_size, collate_fn=RewardDataCollatorWithPadding()
        )
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.learning_rate)

    def rewards(self, batch, side):
        ids, mask = batch[f"input_ids_{side}"], batch[f"attention_mask_{side}"]
        return self.model(input_ids=ids, attention_mask=mask).logits  # COLLIDES

    def compute_loss(self, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.bf16):
            chosen, rejected = self.rewards(batch, "chosen"), self.rewards(batch, "rejected")
        return -torch.nn.functional.logsigmoid(chosen.float() - rejected.float()).mean()

    def train(self):
        for batch in self.loader:
            loss = self.compute_loss(batch)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()


args = ScriptArguments()
print(f"loss {RewardTrainer(load_model(args), args, Preferences(6)).train():.3f}")
