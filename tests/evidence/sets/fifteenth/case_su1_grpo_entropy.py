"""
title: the entropy mask of a policy-gradient trainer takes a quantile of bfloat16 entropies
expect: collision
thread: https://github.com/huggingface/trl/issues/3666
fix_at: 18, 28, 32, 33, 51, 53, 56, 57, 61, 62

Expectation, written first: the policy is loaded in bfloat16, so logits, log-probabilities and entropies are
bfloat16; the threshold of the high-entropy tokens is a quantile, and `torch.quantile` takes float or double only.
"""
from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class TrainConfig:
    model_dtype: torch.dtype = torch.bfloat16  # BORN
    top_entropy_quantile: float = 0.2
    temperature: float = 0.9
    lr: float = 1e-4


def load_policy(config):
    torch.manual_seed(11)
    arch = LlamaConfig(vocab_size=120, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    return LlamaForCausalLM(arch).to(config.model_dtype)  # BORN


def entropy_from_logits(logits):
    logps = logits.log_softmax(-1)
    return -(logps.exp() * logps).sum(-1)


class Rollouts:
    def __init__(self, prompts, length, vocab, gen):
        self.ids = torch.randint(3, vocab, (prompts, length), generator=gen)
        self.mask = torch.ones_like(self.ids)
        self.mask[0, length - 4:] = 0
        self.advantages = torch.linspace(-1, 1, prompts)


class Trainer:
    def __init__(self, config):
        self.config = config
        self.policy = load_policy(config)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=config.lr)

    def logps_and_entropies(self, ids, mask):
        logits = self.policy(input_ids=ids, attention_mask=mask).logits[:, :-1] / self.config.temperature
        logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        return logps, entropy_from_logits(logits).detach()

    def entropy_mask(self, entropies, mask):
        kept = entropies[mask.bool()]
        threshold = torch.quantile(kept, 1 - self.config.top_entropy_quantile)  # COLLIDES
        return (entropies >= threshold) & mask.bool()

    def step(self, batch):
        logps, entropies = self.logps_and_entropies(batch.ids, batch.mask)
        keep = self.entropy_mask(entropies, batch.mask[:, 1:])
        ratio = torch.exp(logps - logps.detach())
        loss = -(ratio * batch.advantages[:, None] * keep).sum() / keep.sum().clamp(min=1)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item(), int(keep.sum())


if __name__ == "__main__":
    trainer = Trainer(TrainConfig())
    batch = Rollouts(4, 16, 120, torch.Generator().manual_seed(2))
    for _ in range(2):
        print("loss %.4f on %d tokens" % trainer.step(batch))
