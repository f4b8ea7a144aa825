"""
title: teacher log-probabilities cached in bfloat16 and widened again for the KL
expect: silent:round-trip|precision-loss|downcast
modes: diagnose

After huggingface/trl-like offline distillation (logits stored in 16 bits; marin#8217: probabilities off).
Damage: for a student equal to its teacher the KL is 3e-4 or negative instead of 1e-9, its gradient 4e-3 instead of 1e-7.
Right change: cache in float32 (or the top-k in float32).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Lm(nn.Module):
    def __init__(self, vocab=200, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.body = nn.Sequential(nn.Linear(dim, 48), nn.GELU(), nn.Linear(48, dim))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.embed(ids)
        return self.head(h + self.body(h)) * 4.0


class LogitCache:
    def __init__(self, teacher, batches):
        self.rows = []
        with torch.no_grad():
            for ids in batches:
                logp = F.log_softmax(teacher(ids), -1)
                self.rows.append(logp.to(torch.bfloat16))  # BORN

    def __getitem__(self, i):
        return self.rows[i].float()  # BORN


def kl(student_logits, teacher_logp):
    return F.kl_div(F.log_softmax(student_logits, -1), teacher_logp, log_target=True, reduction="batchmean")


torch.manual_seed(0)
teacher = Lm()
batches = [torch.randint(0, 200, (32,)) for _ in range(4)]
cache = LogitCache(teacher, batches)
student = Lm()
student.load_state_dict(teacher.state_dict())
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for i, ids in enumerate(batches):
    logits = student(ids)
    loss = kl(logits, cache[i])
    opt.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    opt.step()
    mass = cache[i].exp().sum(-1).sub(1).abs().max().item()
    print("batch", i, "kl of equals", f"{loss.item():.2e}", "gradient", f"{norm.item():.2e}", "mass error", f"{mass:.1e}")
