"""
title: what is trained was set to float32 for mixed precision, the saved head too; validation runs without autocast
expect: collision
needs: transformers, peft, diffusers
fix_at: 41

After https://github.com/huggingface/peft/issues/1249, https://github.com/huggingface/trl/issues/1398 and https://github.com/huggingface/peft/issues/1070.
Right: validation runs under the autocast of the training.
"""
import torch
from diffusers.training_utils import cast_training_params
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(614)


def build(dtype):
    config = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=32,
                        num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    base = BertForSequenceClassification(config).to(dtype)
    return get_peft_model(base, LoraConfig(r=4, target_modules=["query", "value"], modules_to_save=["classifier"], task_type="SEQ_CLS"))


class Run:
    def __init__(self, model, lr=5e-3):
        self.model = model
        cast_training_params(model, dtype=torch.float32)  # BORN
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)

    def train(self, batches):
        self.model.train()
        for ids, labels in batches:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = self.model(input_ids=ids, labels=labels).loss
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self, batches):
        self.model.eval()
        right, total = 0, 0
        for ids, labels in batches:
            logits = self.model(input_ids=ids).logits  # COLLIDES
            right += (logits.argmax(-1) == labels).sum().item()
            total += len(labels)
        return right / total


def batches(count, size=16):
    for _ in range(count):
        ids = torch.randint(3, 60, (size, 8))
        yield ids, ids[:, 0] % 3


run = Run(build(torch.bfloat16))
loss = run.train(batches(5))
print("loss", round(loss, 3), "accuracy", round(run.validate(batches(2)), 3))
