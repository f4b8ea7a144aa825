"""
title: reward model puts a fresh value head on a bf16 backbone
expect: collision
thread: https://github.com/shibing624/MedicalGPT/issues/456
fix_at: 35

Expectation, written first: the backbone is bfloat16, the score head is created later
with the default float32; its Linear refuses the pooled hidden state. Birth: the head
without a dtype. Casting the hidden state up is just as right.
"""
import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, vocab=64, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        return self.layers(self.embed(ids))


class RewardModel(nn.Module):
    def __init__(self, backbone, dim=32):
        super().__init__()
        self.backbone = backbone
        self.score = nn.Linear(dim, 1, bias=False)  # BORN

    def forward(self, ids, lengths):
        hidden = self.backbone(ids)
        last = hidden[torch.arange(ids.shape[0]), lengths - 1]
        return self.score(last).squeeze(-1)  # COLLIDES


def pairwise_loss(model, batch):
    chosen = model(batch["chosen"], batch["chosen_len"])
    rejected = model(batch["rejected"], batch["rejected_len"])
    return -nn.functional.logsigmoid((chosen - rejected).float()).mean()


def fake_pairs(n=4, length=10):
    return {
        "chosen": torch.randint(0, 64, (n, length)),
        "rejected": torch.randint(0, 64, (n, length)),
        "chosen_len": torch.randint(4, length + 1, (n,)),
        "rejected_len": torch.randint(4, length + 1, (n,)),
    }


def main():
    torch.manual_seed(11)
    backbone = Backbone().to(dtype=torch.bfloat16)
    model = RewardModel(backbone)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step in range(3):
        loss = pairwise_loss(model, fake_pairs())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print("step", step, "loss", round(loss.item(), 4))


main()
