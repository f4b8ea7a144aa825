"""
title: ROC AUC handler gathers one-hot labels into float buffers: all_gather refuses tensors of different dtypes
expect: collision
thread: https://github.com/Project-MONAI/MONAI/pull/1532
fix_at: 50

Expectation, written first: the handler gathers predictions and labels of uneven length by padding them and allocating receive buffers. The buffers are
allocated in the default float32 whatever is sent. Predictions are float and pass; the one-hot labels are int64 and all_gather refuses the mixture. The
buffers must take the dtype of what is sent.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class ROCAUCHandler:
    def __init__(self, num_classes):
        self.num_classes = num_classes
        self.reset()

    def reset(self):
        self._y_pred = []
        self._y = []

    def update(self, output):
        y_pred, y = output
        self._y_pred.append(torch.softmax(y_pred, dim=1))
        self._y.append(F.one_hot(y, self.num_classes))

    @staticmethod
    def _lengths(data):
        length = torch.tensor([data.shape[0]])
        all_lens = [torch.zeros_like(length) for _ in range(dist.get_world_size())]
        dist.all_gather(all_lens, length)
        return [int(i) for i in all_lens]

    def evenly_divisible_all_gather(self, data):
        all_lens = self._lengths(data)
        max_len = max(all_lens)
        if data.shape[0] < max_len:
            pad = data.new_zeros((max_len - data.shape[0],) + data.shape[1:])
            data = torch.cat([data, pad])
        buffers = [torch.zeros(max_len, self.num_classes) for _ in all_lens]  # BORN
        dist.all_gather(buffers, data)  # COLLIDES
        return torch.cat([b[:n] for b, n in zip(buffers, all_lens)], dim=0)

    def compute(self):
        y_pred = self.evenly_divisible_all_gather(torch.cat(self._y_pred, dim=0))
        y = self.evenly_divisible_all_gather(torch.cat(self._y, dim=0))
        aucs = []
        for c in range(self.num_classes):
            pos, neg = y_pred[y[:, c] == 1, c], y_pred[y[:, c] == 0, c]
            aucs.append((pos[:, None] > neg[None, :]).float().mean())
        return torch.stack(aucs).mean()


def evaluate(model, batches, handler):
    model.eval()
    with torch.no_grad():
        for images, labels in batches:
            handler.update((model(images), labels))
    return handler.compute()


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    batches = [(torch.rand(n, 1, 6, 6), torch.randint(0, 3, (n,))) for n in (8, 8, 5)]
    print("auc", float(evaluate(model, batches, ROCAUCHandler(3))))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
