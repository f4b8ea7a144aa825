"""
title: inverting a comparison with "1 - mask" fails since comparisons give bool tensors
expect: collision
thread: https://github.com/nlpyang/PreSumm/issues/54

Expectation, written first: the batch builds its padding masks as 1 - (src == 0). The comparison yields a bool tensor, and
torch refuses the subtraction with a bool tensor; the line itself is the one to change (to ~ or to a cast).
"""
import random

import torch
from torch import nn


class Batch:
    def _pad(self, data, pad_id, width=-1):
        if width == -1:
            width = max(len(d) for d in data)
        return [d + [pad_id] * (width - len(d)) for d in data]

    def __init__(self, data, device):
        self.batch_size = len(data)
        src = torch.tensor(self._pad([x[0] for x in data], 0))
        segs = torch.tensor(self._pad([x[1] for x in data], 0))
        clss = torch.tensor(self._pad([x[2] for x in data], -1))
        labels = torch.tensor(self._pad([x[3] for x in data], 0))
        mask_src = 1 - (src == 0)  # BORN COLLIDES
        mask_cls = ~(clss == -1)
        clss = clss.masked_fill(~mask_cls, 0)
        for name, value in dict(src=src, segs=segs, clss=clss, src_sent_labels=labels,
                                mask_src=mask_src, mask_cls=mask_cls).items():
            setattr(self, name, value.to(device))

    def __len__(self):
        return self.batch_size


class ExtSummarizer(nn.Module):
    def __init__(self, vocab=120, hidden=16):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, hidden, padding_idx=0)
        self.segment = nn.Embedding(2, hidden)
        self.encoder = nn.GRU(hidden, hidden, batch_first=True)
        self.wo = nn.Linear(hidden, 1)

    def forward(self, src, segs, clss, mask_src, mask_cls):
        top_vec, _ = self.encoder(self.embeddings(src) + self.segment(segs))
        top_vec = top_vec * mask_src[:, :, None].float()
        sents_vec = top_vec[torch.arange(top_vec.size(0)).unsqueeze(1), clss]
        sent_scores = torch.sigmoid(self.wo(sents_vec)).squeeze(-1)
        return sent_scores * mask_cls.float(), mask_cls


def make_example(rng):
    n_sent = rng.randint(2, 4)
    src, segs, clss, labels = [], [], [], []
    for s in range(n_sent):
        clss.append(len(src))
        words = [101 % 120] + [rng.randint(1, 119) for _ in range(rng.randint(3, 6))]
        src += words
        segs += [s % 2] * len(words)
        labels.append(rng.randint(0, 1))
    return src, segs, clss, labels


def main():
    torch.manual_seed(0)
    rng = random.Random(7)
    model = ExtSummarizer()
    loss_fn = nn.BCELoss(reduction="none")
    batch = Batch([make_example(rng) for _ in range(4)], "cpu")
    scores, mask = model(batch.src, batch.segs, batch.clss, batch.mask_src, batch.mask_cls)
    loss = loss_fn(scores, batch.src_sent_labels.float())
    loss = (loss * mask.float()).sum() / len(batch)
    loss.backward()
    print(f"xent {loss.item():.4f}")


if __name__ == "__main__":
    main()
