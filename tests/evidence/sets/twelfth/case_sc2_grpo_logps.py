"""
title: the trainer's log-probabilities are taken with a bf16 log_softmax, the sampler's in float32
expect: silent:precision-loss|downcast
thread: https://github.com/billy-enrizky/openbrowser-ai/pull/63
measured: first pass: sequences clipped 50%, largest |ratio - 1| 0.190
widened: first pass: sequences clipped 0%, largest |ratio - 1| 0.000

Expectation, written first: on the first pass policy and sampler are the same model, each ratio should be one and
nothing clipped; rounded to bf16 the log-probs are off by hundredths and the ratio of a whole sequence leaves the
clip range often. Advantages in float16 make no visible difference.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass
class GRPOConfig:
    num_generations: int = 8
    prompt_len: int = 6
    max_completion_length: int = 48
    epsilon: float = 0.05
    temperature: float = 0.8
    seed: int = 1


class Rollout:
    """samples completions and keeps the behaviour log-probs"""

    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg

    @torch.no_grad()
    def generate(self, prompts, gen):
        ids, logps = prompts, []
        for _ in range(self.cfg.max_completion_length):
            logits = self.model(input_ids=ids).logits[:, -1].float() / self.cfg.temperature
            lp = F.log_softmax(logits, dim=-1)
            nxt = torch.multinomial(lp.exp(), 1, generator=gen)
            logps.append(lp.gather(-1, nxt))
            ids = torch.cat([ids, nxt], dim=1)
        return ids, torch.cat(logps, dim=1)


def reward_fn(completions):
    return (completions % 2 == 0).float().mean(1)


class GRPOTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        config = LlamaConfig(
            vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.15,
        )
        self.model = LlamaForCausalLM(config).eval()
        self.rollout = Rollout(self.model, cfg)
        self.gen = torch.Generator().manual_seed(cfg.seed)

    def per_token_logps(self, ids):
        logits = self.model(input_ids=ids).logits[:, self.cfg.prompt_len - 1 : -1] / self.cfg.temperature
        logps = F.log_softmax(logits, dim=-1, dtype=torch.bfloat16)  # BORN
        return logps.gather(-1, ids[:, self.cfg.prompt_len :, None]).squeeze(-1).float()

    def advantages(self, rewards):
        groups = rewards.view(-1, self.cfg.num_generations)
        adv = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        return adv.flatten().to(torch.float16)

    def step(self, prompts):
        prompts = prompts.repeat_interleave(self.cfg.num_generations, 0)
        ids, old = self.rollout.generate(prompts, self.gen)
        adv = self.advantages(reward_fn(ids[:, self.cfg.prompt_len :])).float()
        new = self.per_token_logps(ids)
        ratio = (new - old).sum(1).exp()
        clipped = ratio.clamp(1 - self.cfg.epsilon, 1 + self.cfg.epsilon)
        loss = -torch.minimum(ratio * adv, clipped * adv).mean()
        return loss.item(), (ratio != clipped).double().mean().item(), (ratio - 1).abs().max().item()


cfg = GRPOConfig()
trainer = GRPOTrainer(cfg)
prompts = torch.randint(0, 512, (8, cfg.prompt_len), generator=torch.Generator().manual_seed(4))
loss, share, worst = trainer.step(prompts)
print(f"first pass: sequences clipped {100 * share:.0f}%, largest |ratio - 1| {worst:.3f}")
