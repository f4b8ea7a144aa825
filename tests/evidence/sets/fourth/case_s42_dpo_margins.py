"""
title: DPO sums the log-probabilities of 200 tokens as the model's bfloat16 gives them
expect: silent:precision-loss|downcast|round-trip
needs: transformers

After https://github.com/huggingface/trl/pull/942 (the cast of the logits to float was taken out with pull 885) and
https://github.com/vllm-project/vllm/pull/19. A sum near -830 has steps of 4 in bfloat16, the margins are differences of such sums.
The completion mask in bfloat16 is innocent (ones and zeros). Here all margins come out as multiples of beta * 4 (0, 0.4, 0.8)
where they are 0.24 to 0.45. Right: take the log-softmax of logits.float().
"""
import copy

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(25)


def build(dtype):
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=2, max_position_embeddings=256)
    return LlamaForCausalLM(config).to(dtype)


def sequence_logps(logits, labels, mask):
    logits, labels, mask = logits[:, :-1], labels[:, 1:], mask[:, 1:]
    per_token = logits.log_softmax(-1).gather(2, labels[..., None])[..., 0]  # BORN
    return (per_token * mask).sum(-1)


class DPO:
    def __init__(self, policy, beta=0.1):
        self.policy, self.beta = policy, beta
        self.reference = copy.deepcopy(policy).eval().requires_grad_(False)

    def margins(self, chosen, rejected, mask):
        ids = torch.cat([chosen, rejected])
        mask = torch.cat([mask, mask])
        logps = sequence_logps(self.policy(input_ids=ids).logits, ids, mask)
        with torch.no_grad():
            base = sequence_logps(self.reference(input_ids=ids).logits, ids, mask)
        gain = (logps - base) * self.beta
        return gain.chunk(2)


def pairs(n, batch=4, length=200):
    for _ in range(n):
        mask = torch.ones(batch, length, dtype=torch.bfloat16)
        mask[:, :8] = 0
        yield torch.randint(0, 32, (batch, length)), torch.randint(32, 64, (batch, length)), mask


policy = build(torch.bfloat16)
trainer = DPO(policy)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.005)
for step, (chosen, rejected, mask) in enumerate(pairs(4)):
    good, bad = trainer.margins(chosen, rejected, mask)
    loss = -F.logsigmoid(good - bad).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, "loss", round(loss.item(), 4), "margins", [round(m, 4) for m in (good - bad).float().tolist()])
