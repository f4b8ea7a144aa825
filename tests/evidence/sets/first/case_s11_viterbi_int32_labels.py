"""
title: pseudo-labels from an int32 decoder are written into int64 labels
expect: collision
fix_at: 17, 22

After ZheLi2020/TimestampActionSeg#6 ("Index put requires the source and destination dtypes match, got Long for the destination and
Int for the source"). No floating dtype is involved: the dynamic program keeps its path in int32 and torch.from_numpy keeps that.
Right change: .long() where the path becomes a tensor (the loss wants int64 labels).
"""
import numpy as np
import torch
from torch import nn


def best_path(scores, stay=0.5):
    length, classes = scores.shape
    total, back = scores[0].copy(), np.zeros((length, classes), dtype=np.int32)
    for t in range(1, length):
        move = total.max() - stay
        back[t] = np.where(total >= move, np.arange(classes), total.argmax())
        total = np.maximum(total, move) + scores[t]
    path = np.empty(length, dtype=np.int32)
    path[-1] = total.argmax()
    for t in range(length - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return path


class Annotator:
    """Single annotated frames per action; the frames between them are filled in by the model's own best path."""

    def __init__(self, timestamps, ignore=-100):
        self.timestamps, self.ignore = timestamps, ignore

    def decode(self, logits):
        scores = logits.detach().log_softmax(-1).numpy()
        return torch.from_numpy(best_path(scores))  # BORN

    def labels(self, logits, confidence=0.2):
        labels = torch.full((len(logits),), self.ignore)
        for frame, action in self.timestamps.items():
            labels[frame] = action
        sure = (logits.softmax(-1).amax(-1) > confidence) & (labels == self.ignore)
        path = self.decode(logits)
        labels[sure] = path[sure]  # COLLIDES
        return labels


torch.manual_seed(0)
net = nn.Sequential(nn.Conv1d(5, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 4, 3, padding=1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
annotator = Annotator({3: 0, 11: 2, 19: 1})
for epoch in range(2):
    logits = net(torch.randn(1, 5, 24))[0].T
    loss = nn.functional.cross_entropy(logits, annotator.labels(logits))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(epoch, loss.isfinite().item())
