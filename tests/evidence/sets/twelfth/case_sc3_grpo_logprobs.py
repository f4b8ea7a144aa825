"""
title: GRPO on a bfloat16-autocast policy: log-probabilities, advantages, ratio and KL in float32
expect: clean
thread: https://github.com/huggingface/trl/pull/2799
measured: loss 0.0435 -> -0.0780 (float64 -0.0780), KL 0.0297, worst 3.3e-05

Expectation, written first: the logits are widened before log_softmax, group statistics and their 1e-4 guard are
float32, and the loss is divided by a count of tokens. It agrees with a float64 run of the same policy.
"""
from argparse import Namespace

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM


def build_policy(dtype):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
    )).to(dtype)


def selective_log_softmax(logits, index):
    return logits.log_softmax(dim=-1).gather(-1, index.unsqueeze(-1)).squeeze(-1)


def make_group(args):
    g = torch.Generator().manual_seed(1)
    prompt = torch.randint(3, 50, (1, 6), generator=g).repeat(args.num_generations, 1)
    completion = torch.randint(3, 50, (args.num_generations, 10), generator=g)
    lengths = torch.randint(4, 11, (args.num_generations,), generator=g)
    mask = torch.arange(10)[None] < lengths[:, None]
    return prompt, completion.masked_fill(~mask, 0), mask


def reward_fn(completion, mask):
    """share of even tokens; counted in float64, as the logger wants it"""
    even = ((completion % 2 == 0) & mask).sum(1).double()
    return even / mask.sum(1).double()


class GRPOTrainer:
    def __init__(self, args):
        self.args = args
        self.wide = torch.float64 if args.dtype == torch.float64 else torch.float32
        self.model, self.ref = build_policy(args.dtype), build_policy(args.dtype).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate)

    def logps(self, model, prompt, completion, mask):
        ids = torch.cat([prompt, completion], dim=1)
        attention_mask = torch.cat([torch.ones_like(prompt), mask.long()], dim=1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.args.bf16):
            logits = model(input_ids=ids, attention_mask=attention_mask).logits
        logits = logits[:, prompt.shape[1] - 1 : -1].to(self.wide) / self.args.temperature
        return selective_log_softmax(logits, completion)

    def advantages(self, rewards):
        rewards = rewards.to(self.wide)
        return (rewards - rewards.mean()) / (rewards.std() + 1e-4)

    def compute_loss(self, prompt, completion, mask, old_logps, ref_logps, advantages):
        logps = self.logps(self.model, prompt, completion, mask)
        ratio = torch.exp(logps - old_logps)
        clipped = ratio.clamp(1 - self.args.epsilon, 1 + self.args.epsilon)
        policy = -torch.min(ratio * advantages[:, None], clipped * advantages[:, None])
        delta = ref_logps - logps
        kl = torch.exp(delta) - delta - 1
        per_token = (policy + self.args.beta * kl) * mask
        return per_token.sum() / mask.sum().clamp(min=1), (kl.detach() * mask).sum() / mask.sum()

    def train(self):
        prompt, completion, mask = make_group(self.args)
        advantages = self.advantages(reward_fn(completion, mask))
        with torch.no_grad():
            old = self.logps(self.model, prompt, completion, mask)
            ref = self.logps(self.ref, prompt, completion, mask)
        history = []
        for _ in range(self.args.num_iterations):
            loss, kl = self.compute_loss(prompt, completion, mask, old, ref, advantages)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            history.append((loss.item(), kl.item()))
        return history


def run(dtype, bf16):
    return GRPOTrainer(Namespace(
        dtype=dtype, bf16=bf16, learning_rate=1e-3, num_generations=8, num_iterations=6, beta=0.04, epsilon=0.2,
        temperature=0.9,
    )).train()


mixed, exact = run(torch.float32, True), run(torch.float64, False)
worst = max(abs(a - b) for m, e in zip(mixed, exact) for a, b in zip(m, e))
assert worst < 0.03, (mixed, exact)
print(f"loss {mixed[0][0]:.4f} -> {mixed[-1][0]:.4f} (float64 {exact[-1][0]:.4f}), KL {mixed[-1][1]:.4f}, worst {worst:.1e}")
