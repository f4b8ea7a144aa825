"""
title: keyword spotting with an int32 target: cross_entropy refuses the target dtype
expect: collision
thread: https://github.com/wenet-e2e/wekws/pull/141

Expectation, written first: the padding step of the pipeline collects the labels into an int32 tensor. The "ce" criterion
hands it unchanged to F.cross_entropy, which wants class indices as int64, so the first step raises.
"""
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


def padding(data):
    feats_length = torch.tensor([x["feat"].size(0) for x in data], dtype=torch.int32)
    order = torch.argsort(feats_length, descending=True)
    sorted_keys = [data[i]["key"] for i in order]
    sorted_feats = [data[i]["feat"] for i in order]
    sorted_labels = torch.tensor([data[i]["label"] for i in order], dtype=torch.int32)  # BORN
    feats_lengths = torch.tensor([x.size(0) for x in sorted_feats], dtype=torch.int32)
    padded_feats = pad_sequence(sorted_feats, batch_first=True, padding_value=0)
    return sorted_keys, padded_feats, sorted_labels, feats_lengths


def cross_entropy(logits, target):
    loss = nn.functional.cross_entropy(logits, target)  # BORN COLLIDES
    pred = logits.max(1, keepdim=True)[1]
    correct = pred.eq(target.long().view_as(pred)).sum().item()
    return loss, correct * 100.0 / logits.size(0)


def criterion(type, logits, target, lengths):
    if type == "ce":
        return cross_entropy(logits, target)
    raise NotImplementedError(type)


class KWSModel(nn.Module):
    def __init__(self, idim=20, hdim=24, odim=5):
        super().__init__()
        self.preprocessing = nn.Linear(idim, hdim)
        self.backbone = nn.GRU(hdim, hdim, batch_first=True)
        self.classifier = nn.Linear(hdim, odim)

    def forward(self, x, lengths):
        x, _ = self.backbone(torch.relu(self.preprocessing(x)))
        steps = torch.arange(x.size(1))[None, :] < lengths[:, None]
        pooled = (x * steps[..., None]).sum(1) / lengths[:, None]
        return self.classifier(pooled)


def synthesize(num, rng):
    for i in range(num):
        label = rng.randint(0, 4)
        feat = torch.randn(rng.randint(10, 20), 20) + label
        yield {"key": f"utt{i}", "feat": feat, "label": label}


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    model = KWSModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for batch_idx in range(3):
        key, feats, target, feats_lengths = padding(list(synthesize(8, rng)))
        logits = model(feats, feats_lengths)
        loss, acc = criterion("ce", logits, target, feats_lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"batch {batch_idx} loss {loss.item():.4f} acc {acc:.1f}")


if __name__ == "__main__":
    main()
