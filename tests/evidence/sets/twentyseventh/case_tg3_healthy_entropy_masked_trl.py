"""
title: Entropy of a policy with forbidden tokens
expect: clean
thread: https://github.com/huggingface/trl/pull/7224
measured: uniform over allowed 2.89 / step 0 reward 0.33 entropy 2.87 / step 13 reward 0.94 entropy 1.42 / step 26 reward 1.0 entropy 0.22 / step 39 reward 1.0 entropy 0.1
suspect: 44 (the logits of forbidden tokens are -inf by intention)

Expectation, written first: Forbidden tokens get -inf logits, their probability is exactly 0, and xlogy counts 0 for
them, so the entropy is that over the allowed tokens and finite. The loss uses the chosen tokens, which are
allowed; no nan and no inf reaches the loss or the gradients.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def entropy_from_logits(logits, chunk_size=8):
    original_shape = logits.shape[:-1]
    flat_logits = logits.reshape(-1, logits.shape[-1])
    entropies = []
    for chunk in flat_logits.split(chunk_size, dim=0):
        probs = F.softmax(chunk, dim=-1)
        entropies.append(-torch.special.xlogy(probs, probs).sum(-1))
    return torch.cat(entropies, dim=0).reshape(original_shape)


def selective_log_softmax(logits, index):
    selected = torch.gather(logits, dim=-1, index=index.unsqueeze(-1)).squeeze(-1)
    return selected - torch.logsumexp(logits, dim=-1)


class TinyPolicy(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.lm_head = nn.Linear(dim, vocab)
        self.register_buffer("allowed", torch.arange(vocab) % 4 != 3)

    def forward(self, ids):
        logits = self.lm_head(self.rnn(self.embed(ids))[0])
        return logits.masked_fill(~self.allowed, float("-inf"))


class GRPOTrainer:
    def __init__(self, model, num_generations=8, max_completion_length=6):
        self.model = model
        self.num_generations, self.max_completion_length = num_generations, max_completion_length
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)

    @torch.no_grad()
    def generate(self, prompt):
        ids = prompt.repeat(self.num_generations, 1)
        for _ in range(self.max_completion_length):
            probs = self.model(ids)[:, -1].softmax(dim=-1)
            ids = torch.cat([ids, torch.multinomial(probs, 1)], dim=1)
        return ids

    def reward(self, completions):
        return (completions < 6).float().mean(dim=1)

    def step(self, prompt):
        ids = self.generate(prompt)
        completions = ids[:, prompt.shape[1]:]
        rewards = self.reward(completions)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        logits = self.model(ids[:, :-1])[:, -self.max_completion_length:]
        logps = selective_log_softmax(logits, completions)
        with torch.no_grad():
            entropy = entropy_from_logits(logits).mean()
        loss = -(advantages[:, None] * logps).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return rewards.mean().item(), entropy.item()


def main():
    torch.manual_seed(7224)
    trainer = GRPOTrainer(TinyPolicy(vocab=24, dim=16))
    prompt = torch.tensor([[1, 2, 5]])
    print("uniform over allowed", round(math.log(int(trainer.model.allowed.sum())), 2))
    for step in range(40):
        reward, entropy = trainer.step(prompt)
        if step % 13 == 0:
            print("step", step, "reward", round(reward, 2), "entropy", round(entropy, 2))


if __name__ == "__main__":
    main()
