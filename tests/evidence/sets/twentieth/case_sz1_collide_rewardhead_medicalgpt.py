"""
title: reward modeling with LoRA on a bf16 base model stops at the score head
expect: collision
thread: https://github.com/shibing624/MedicalGPT/issues/456
fix_at: 39, 54, 60

Expectation, written first: the base model is loaded in bf16, and the script converts every trainable parameter to float32. Among them is the
score head (it is in `modules_to_save`), which is a plain Linear and is given bf16 hidden states; the product is refused. The head must not be
converted (or the base be loaded in float32), or the forward must run under autocast.
"""
import torch
import torch.nn.functional as F
from peft import LoraConfig, TaskType, get_peft_model
from transformers import LlamaConfig, LlamaForSequenceClassification


class RewardDataCollator:
    def __init__(self, pad_token_id=0):
        self.pad_token_id = pad_token_id

    def pad(self, rows):
        width = max(len(r) for r in rows)
        ids = torch.tensor([r + [self.pad_token_id] * (width - len(r)) for r in rows])
        return ids, (ids != self.pad_token_id).long()

    def __call__(self, features):
        chosen, chosen_mask = self.pad([f["chosen"] for f in features])
        rejected, rejected_mask = self.pad([f["rejected"] for f in features])
        keys = ("input_ids_chosen", "attention_mask_chosen", "input_ids_rejected", "attention_mask_rejected")
        return dict(zip(keys, (chosen, chosen_mask, rejected, rejected_mask)))


def load_base_model(torch_dtype):
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_labels=1, pad_token_id=0)
    return LlamaForSequenceClassification(config).to(torch_dtype)


def prepare_model(torch_dtype=torch.bfloat16, rank=4):
    model = load_base_model(torch_dtype)
    peft_config = LoraConfig(task_type=TaskType.SEQ_CLS, r=rank, lora_alpha=16, target_modules=["q_proj", "v_proj"], modules_to_save=["score"])
    model = get_peft_model(model, peft_config)
    for param in filter(lambda p: p.requires_grad, model.parameters()):
        param.data = param.data.to(torch.float32)  # BORN
    return model


class RewardTrainer:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)

    def compute_loss(self, model, inputs):
        rewards_chosen = model(inputs["input_ids_chosen"], attention_mask=inputs["attention_mask_chosen"]).logits  # COLLIDES
        rewards_rejected = model(inputs["input_ids_rejected"], attention_mask=inputs["attention_mask_rejected"]).logits
        return -F.logsigmoid(rewards_chosen.float() - rewards_rejected.float()).mean()

    def train(self, batches):
        self.model.train()
        for step, inputs in enumerate(batches):
            loss = self.compute_loss(self.model, inputs)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(f"step {step} loss {loss.item():.4f}")


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    collate = RewardDataCollator()

    def sample(n):
        return torch.randint(3, 64, (n,), generator=generator).tolist()

    batches = [collate([{"chosen": sample(9 - i), "rejected": sample(6 + i)} for i in range(4)]) for _ in range(3)]
    RewardTrainer(prepare_model()).train(batches)


if __name__ == "__main__":
    main()
