"""
title: supervised fine-tuning loads its model in fp16 and trains it with a gradient scaler
expect: collision
thread: https://github.com/LAION-AI/Open-Assistant/issues/3213
fix_at: none

Expectation, written first: the model section of the config says dtype fp16, so the parameters and their gradients
are half; the trainer unscales before clipping and the scaler raises "Attempting to unscale FP16 gradients". The
model must be loaded in float32 and only the autocast be half.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIGS = {
    "defaults": {"learning_rate": 1e-3, "max_grad_norm": 1.0, "fp16": True, "steps": 3, "seed": 42},
    "galactica-125m": {"model_name": "galactica-125m", "hidden_size": 24, "vocab_size": 80, "dtype": "fp16"},  # BORN
    "webgpt_dataset_only": {"datasets": ["webgpt"], "max_length": 16},
}
DTYPES = {"fp16": torch.float16, "float16": torch.float16, "bf16": torch.bfloat16, "float32": torch.float32}


class TinyOPT(nn.Module):
    def __init__(self, vocab_size, hidden_size):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, hidden_size)
        self.fc1 = nn.Linear(hidden_size, 2 * hidden_size)
        self.fc2 = nn.Linear(2 * hidden_size, hidden_size)
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        x = x + self.fc2(F.gelu(self.fc1(x)))
        return self.lm_head(x)


def get_model(conf):
    dtype = DTYPES[conf["dtype"]]
    model = TinyOPT(conf["vocab_size"], conf["hidden_size"])
    return model.to(dtype)  # BORN


class SFTTrainer:
    def __init__(self, model, conf):
        self.model, self.conf = model, conf
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=conf["learning_rate"])
        self.scaler = torch.amp.GradScaler("cpu", init_scale=128.0, enabled=conf["fp16"])

    def compute_loss(self, batch):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.conf["fp16"]):
            logits = self.model(batch["input_ids"])
        targets = batch["targets"].reshape(-1)
        mask = batch["label_masks"].reshape(-1)
        loss = F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets, reduction="none")
        return loss[mask].mean()

    def training_step(self, batch):
        loss = self.compute_loss(batch)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)  # COLLIDES
        nn.utils.clip_grad_norm_(self.model.parameters(), self.conf["max_grad_norm"])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


def make_batch(conf, batch_size=4):
    tokens = torch.randint(0, conf["vocab_size"], (batch_size, conf["max_length"] + 1))
    label_masks = torch.arange(conf["max_length"])[None] >= torch.randint(2, 8, (batch_size, 1))
    return {"input_ids": tokens[:, :-1], "targets": tokens[:, 1:], "label_masks": label_masks}


def main(argv):
    conf = dict(CONFIGS["defaults"])
    for name in argv:
        conf.update(CONFIGS[name])
    torch.manual_seed(conf["seed"])
    trainer = SFTTrainer(get_model(conf), conf)
    losses = [trainer.training_step(make_batch(conf)) for _ in range(conf["steps"])]
    print("sft loss", " ".join(f"{l:.2f}" for l in losses))


if __name__ == "__main__":
    main(["galactica-125m", "webgpt_dataset_only"])
