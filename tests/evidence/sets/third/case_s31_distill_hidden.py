"""
title: a bfloat16 teacher's hidden states reach the student's float32 projection
expect: collision
fix_at: 44, 49, 55

After unslothai/unsloth#3723 (on-policy distillation) and intersun/PKD-for-BERT-Model-Compression#6.
Right change: teacher_hidden.to(student dtype) before the projection.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim, depth, vocab=40):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 2, 2 * dim, dropout=0.0, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h, hidden = self.embed(ids), []
        for layer in self.layers:
            h = layer(h)
            hidden.append(h)
        return self.head(h), hidden


def load_teacher():
    teacher = Encoder(24, 4)
    teacher.to(dtype=torch.bfloat16)  # BORN
    return teacher.eval().requires_grad_(False)


class Distiller(nn.Module):
    def __init__(self, teacher, student, temperature=2.0):
        super().__init__()
        self.teacher, self.student, self.t = teacher, student, temperature
        self.match = nn.Linear(24, 16)

    def forward(self, ids):
        with torch.no_grad():
            t_logits, t_hidden = self.teacher(ids)
        s_logits, s_hidden = self.student(ids)
        kd = F.kl_div(F.log_softmax(s_logits / self.t, -1), F.softmax(t_logits.float() / self.t, -1),
                      reduction="batchmean")
        feats = 0.0
        for s, t in zip(s_hidden, t_hidden[1::2]):
            feats = feats + F.mse_loss(s, self.match(t))  # COLLIDES
        return kd + feats


torch.manual_seed(0)
distiller = Distiller(load_teacher(), Encoder(16, 2))
params = [p for p in distiller.parameters() if p.requires_grad]
opt = torch.optim.AdamW(params, lr=1e-3)
for step in range(3):
    loss = distiller(torch.randint(0, 40, (2, 6)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item())
