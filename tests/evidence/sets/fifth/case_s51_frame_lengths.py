"""
title: frame counts after a strided encoder are computed by true division and floor, CTC wants integers
expect: collision
fix_at: 26

After https://github.com/thu-spmi/CAT/issues/22 and https://github.com/Sierkinhane/CRNN_Chinese_Characters_Rec/issues/304.
Right: integer division.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(116)


class Subsampler(nn.Module):
    def __init__(self, mels, dim):
        super().__init__()
        self.first = nn.Conv1d(mels, dim, 3, stride=2, padding=1)
        self.second = nn.Conv1d(dim, dim, 3, stride=2, padding=1)

    def lengths(self, counts):
        for conv in (self.first, self.second):
            counts = torch.floor((counts + 2 * conv.padding[0] - conv.kernel_size[0]) / conv.stride[0] + 1)  # BORN
        return counts

    def forward(self, x, counts):
        return F.relu(self.second(F.relu(self.first(x.transpose(1, 2))))).transpose(1, 2), self.lengths(counts)


class Recogniser(nn.Module):
    def __init__(self, mels=12, dim=24, symbols=9):
        super().__init__()
        self.front = Subsampler(mels, dim)
        layer = nn.TransformerEncoderLayer(dim, 2, 48, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(dim, symbols)

    def forward(self, batch):
        x, counts = self.front(batch["frames"], batch["frame_counts"])
        padding = torch.arange(x.shape[1]) >= counts[:, None]
        return self.out(self.body(x, src_key_padding_mask=padding)).log_softmax(-1), counts


def collate(items):
    frames, words = zip(*items)
    return {"frames": pad_sequence(frames, batch_first=True), "frame_counts": torch.tensor([len(f) for f in frames]),
            "words": pad_sequence(words, batch_first=True), "word_counts": torch.tensor([len(w) for w in words])}


def criterion(output, batch):
    log_probs, counts = output
    return F.ctc_loss(log_probs.transpose(0, 1), batch["words"], counts, batch["word_counts"], zero_infinity=True)  # COLLIDES


model = Recogniser()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    items = [(torch.randn(int(n), 12), torch.randint(1, 9, (3,))) for n in torch.randint(24, 41, (4,))]
    batch = collate(items)
    loss = criterion(model(batch), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
