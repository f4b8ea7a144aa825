"""
title: writing int32 timestamp labels into a long target raises "Index put requires the source and destination dtypes match"
expect: collision
thread: https://github.com/ZheLi2020/TimestampActionSeg/issues/6
fix_at: 45

Expectation, written first: the ground-truth classes are read into an int32 NumPy array, and from_numpy keeps int32. The
boundary target is a long tensor that is filled through an index tensor, and index_put refuses the int32 source.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class BatchGenerator:
    def __init__(self, num_classes, num_videos=3, num_frames=40, feature_dim=8, seed=1):
        rng = np.random.default_rng(seed)
        self.num_classes = num_classes
        self.features, self.gt, self.random_index = {}, {}, {}
        for v in range(num_videos):
            vid = f"video_{v:02d}"
            content = np.sort(rng.integers(0, num_classes, num_frames))
            classes = np.zeros(num_frames, dtype=np.int32)  # BORN
            for i in range(num_frames):
                classes[i] = content[i]
            self.features[vid] = rng.normal(size=(feature_dim, num_frames)).astype(np.float32)
            self.gt[vid] = classes
            self.random_index[vid] = np.sort(rng.choice(num_frames, 5, replace=False))

    def videos(self):
        return list(self.features)

    def next_batch(self):
        vids = self.videos()
        batch_input = torch.stack([torch.from_numpy(self.features[v]) for v in vids])
        mask = torch.ones(len(vids), self.num_classes, batch_input.shape[2])
        return batch_input, mask, vids

    def get_single_timestamp(self, batch, max_frames):
        target = torch.full((len(batch), max_frames), -100, dtype=torch.long)
        for b, vid in enumerate(batch):
            timestamps = torch.from_numpy(self.random_index[vid])
            labels = torch.from_numpy(self.gt[vid][self.random_index[vid]])  # BORN
            target[b, timestamps] = labels  # COLLIDES
        return target


class SingleStageModel(nn.Module):
    def __init__(self, dim, num_f_maps, num_classes):
        super().__init__()
        self.conv_1x1 = nn.Conv1d(dim, num_f_maps, 1)
        self.dilated = nn.Conv1d(num_f_maps, num_f_maps, 3, padding=2, dilation=2)
        self.conv_out = nn.Conv1d(num_f_maps, num_classes, 1)

    def forward(self, x, mask):
        out = self.conv_1x1(x)
        out = out + F.relu(self.dilated(out))
        return self.conv_out(out) * mask


def main():
    torch.manual_seed(0)
    gen = BatchGenerator(num_classes=4)
    model = SingleStageModel(8, 16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    ce = nn.CrossEntropyLoss(ignore_index=-100)
    for epoch in range(3):
        batch_input, mask, vids = gen.next_batch()
        predictions = model(batch_input, mask)
        target = gen.get_single_timestamp(vids, batch_input.shape[2])
        loss = ce(predictions.transpose(2, 1).reshape(-1, 4), target.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"[epoch {epoch + 1}] loss = {loss.item():.4f}")


if __name__ == "__main__":
    main()
