"""
title: draft model kept in bfloat16, AdamW on float32 copies of its weights, rounded back after each step
expect: clean
thread: https://github.com/sgl-project/SpecForge/pull/212
measured: loss first 10 3.750 last 10 3.525; weights of fc that moved 1.00
suspect: 38 mastered (the rounding into bf16 is of a copy; float32 weights carry the updates)

Expectation, written first: the optimizer holds a float32 copy of every trainable draft weight, takes the bfloat16 gradients up to float32,
clips and steps there, and only then copies the result into the bfloat16 weights. A tiny learning rate moves the masters all the same, and the
bfloat16 weights follow when the sum is large enough; nothing is lost.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class BF16Optimizer:
    def __init__(self, model, lr, weight_decay=0.0, max_grad_norm=0.5, total_steps=200, warmup_ratio=0.05):
        self.model_params = [p for p in model.parameters() if p.requires_grad]
        self.max_grad_norm = max_grad_norm
        self.fp32_params = [p.detach().clone().to(torch.float32) for p in self.model_params]
        for mp in self.fp32_params:
            mp.requires_grad = True
        self.optimizer = torch.optim.AdamW(self.fp32_params, lr=lr, weight_decay=weight_decay)
        warmup = max(1, int(total_steps * warmup_ratio))
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / warmup))

    def step(self):
        with torch.no_grad():
            for p, mp in zip(self.model_params, self.fp32_params):
                mp.grad = p.grad.detach().to(torch.float32) if p.grad is not None else None
        torch.nn.utils.clip_grad_norm_(self.fp32_params, self.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        with torch.no_grad():
            for p, mp in zip(self.model_params, self.fp32_params):
                p.data.copy_(mp.data.to(p.dtype))
                p.grad = None


class DraftModel(nn.Module):
    def __init__(self, hidden=32, vocab=40):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden).requires_grad_(False)
        self.fc = nn.Linear(2 * hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 64), nn.SiLU(), nn.Linear(64, hidden))
        self.lm_head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens, target_hidden):
        h = self.fc(torch.cat([self.embed(tokens), target_hidden], dim=-1))
        return self.lm_head(h + self.mlp(h))


def main():
    torch.manual_seed(0)
    draft = DraftModel().to(torch.bfloat16)
    optimizer = BF16Optimizer(draft, lr=2e-4)
    start = draft.fc.weight.detach().float().clone()
    teacher = torch.randn(40, 40)
    hidden_table = torch.randn(40, 32)
    losses = []
    for step in range(200):
        tokens = torch.randint(0, 40, (8, 6))
        target_hidden = hidden_table[tokens].to(torch.bfloat16)
        target_p = teacher[tokens].softmax(dim=-1)
        logits = draft(tokens, target_hidden)
        loss = -(target_p * F.log_softmax(logits.float(), dim=-1)).sum(-1).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    moved = (draft.fc.weight.float() != start).float().mean().item()
    print(f"loss first 10 {sum(losses[:10]) / 10:.3f} last 10 {sum(losses[-10:]) / 10:.3f}")
    print(f"weights of fc that moved {moved:.2f}")


if __name__ == "__main__":
    main()
