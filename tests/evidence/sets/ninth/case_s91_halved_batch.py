"""
title: engine wrapper casts every tensor of the batch to half, token ids included
expect: collision
thread: https://github.com/deepspeedai/DeepSpeed/issues/5701
fix_at: 30

Expectation, written first: the engine halves all tensors it is given, the reference
model of a DPO step gets half token ids, and the embedding refuses. Birth: the
indiscriminate cast of the engine.
"""
import torch
from torch import nn


def tree_map(fn, tree):
    if isinstance(tree, dict):
        return {k: tree_map(fn, v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(tree_map(fn, v) for v in tree)
    return fn(tree) if torch.is_tensor(tree) else tree


class PolicyLM(nn.Module):
    def __init__(self, vocab=60, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.lin = nn.Linear(dim, vocab)

    def forward(self, input_ids, attention_mask):
        h = self.embed(input_ids)  # COLLIDES
        h = h * attention_mask.unsqueeze(-1).to(h.dtype)
        return self.lin(h)


class Engine:
    def __init__(self, module, fp16=True):
        self.module = module.half() if fp16 else module
        self.fp16 = fp16

    def cast_inputs(self, inputs):
        if not self.fp16:
            return inputs
        return tree_map(lambda t: t.half(), inputs)  # BORN

    def __call__(self, **inputs):
        return self.module(**self.cast_inputs(inputs))


def sequence_logps(logits, labels, mask):
    logp = logits.float().log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    return (logp * mask).sum(-1)


def dpo_step(policy, reference, batch, beta=0.1):
    pol = sequence_logps(policy(**batch), batch["input_ids"], batch["attention_mask"])
    with torch.no_grad():
        out = reference(**batch)
    ref = sequence_logps(out, batch["input_ids"], batch["attention_mask"])
    chosen, rejected = (pol - ref).chunk(2)
    return -nn.functional.logsigmoid(beta * (chosen - rejected)).mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    policy, reference = PolicyLM(), Engine(PolicyLM())
    batch = {"input_ids": torch.randint(0, 60, (4, 9)), "attention_mask": torch.ones(4, 9, dtype=torch.long)}
    loss = dpo_step(policy, reference, batch)
    loss.backward()
    print("dpo loss", round(loss.item(), 5))
