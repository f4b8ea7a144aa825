"""
title: parameters of the reward model become NaN after the first optimizer step
expect: silent:underflow
thread: https://github.com/CambioML/pykoi/pull/69
measured: loss nan finite parameters 0.00
widened: loss 0.675 finite parameters 1.00; innocent: loss nan finite parameters 0.00
suspect: 27 exact (zeros and ones; the counts stay below 2048)

Expectation, written first: the model is loaded in half and Adam keeps its moments and denominator in half; eps=1e-8
rounds to zero there, so every entry with no gradient (unused rows of the embedding) is 0/0 and becomes NaN. Remedy: an
eps that half can hold, or the model in float32. The pooling mask in half is exact.
"""
import torch
from torch import nn
import torch.nn.functional as F


class RewardBackbone(nn.Module):
    def __init__(self, vocab=200, hidden=32):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, hidden)
        self.mlp = nn.Linear(hidden, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, input_ids, attention_mask):
        hidden = torch.tanh(self.mlp(self.embed_tokens(input_ids)))
        mask = attention_mask.to(torch.float16).unsqueeze(-1)
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        return self.score(pooled.to(self.score.weight.dtype)).squeeze(-1)


class RLHFConfig:
    learning_rate = 1e-3
    adam_epsilon = 1e-8  # BORN
    reward_dtype = torch.float16  # BORN
    max_steps = 6


class RewardFinetuning:
    def __init__(self, config):
        self.config = config
        self.model = RewardBackbone().to(config.reward_dtype)  # BORN
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, eps=config.adam_epsilon, weight_decay=0.0  # BORN
        )

    def compute_loss(self, batch):
        chosen = self.model(batch["input_ids_x"], batch["attention_mask_x"])
        rejected = self.model(batch["input_ids_y"], batch["attention_mask_y"])
        return -F.logsigmoid(chosen - rejected).mean()

    def train(self, batches):
        loss = None
        for batch in batches:
            self.optimizer.zero_grad()
            loss = self.compute_loss(batch)
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def finite_share(self):
        flat = torch.cat([p.detach().flatten() for p in self.model.parameters()])
        return torch.isfinite(flat).float().mean().item()


def make_batches(num, generator):
    batches = []
    for _ in range(num):
        batch = {}
        for side in "xy":
            low, high = (0, 80) if side == "x" else (60, 140)
            batch[f"input_ids_{side}"] = torch.randint(low, high, (8, 12), generator=generator)
            batch[f"attention_mask_{side}"] = (torch.arange(12) < 9).long().expand(8, 12)
        batches.append(batch)
    return batches


def main():
    torch.manual_seed(3)
    trainer = RewardFinetuning(RLHFConfig())
    loss = trainer.train(make_batches(RLHFConfig.max_steps, torch.Generator().manual_seed(4)))
    print(f"loss {loss:.3f} finite parameters {trainer.finite_share():.2f}")


main()
