"""
title: One-hot labels of the relation network are made from int32 labels
expect: collision
thread: https://github.com/floodsung/LearningToCompare_FSL/issues/30
fix_at: (none beside the marked)

Expectation, written first: The task's labels are a NumPy int32 array (as they are by default on Windows), the loader
turns them into an IntTensor. one_hot takes int64 labels only and raises.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASS_NUM, SAMPLE_NUM, BATCH_NUM_PER_CLASS, FEATURE_DIM = 4, 2, 3, 8


class OmniglotTask:
    def __init__(self, rng, num_classes, train_num, test_num):
        self.prototypes = rng.normal(size=(num_classes, 1, 10, 10)).astype(np.float32)
        self.train_labels = np.repeat(np.arange(num_classes, dtype=np.int32), train_num)
        self.test_labels = np.repeat(np.arange(num_classes, dtype=np.int32), test_num)  # BORN


class FewShotDataset(torch.utils.data.Dataset):
    def __init__(self, task, split, rng):
        self.labels = task.train_labels if split == "train" else task.test_labels  # BORN
        noise = rng.normal(scale=0.3, size=(len(self.labels), 1, 10, 10)).astype(np.float32)
        self.images = task.prototypes[self.labels] + noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        return torch.from_numpy(self.images[idx]), self.labels[idx]  # BORN


class CNNEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, FEATURE_DIM, 3), nn.BatchNorm2d(FEATURE_DIM), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        return self.layer1(x)


class RelationNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(FEATURE_DIM * 2, FEATURE_DIM, 3), nn.ReLU())
        self.fc = nn.Linear(FEATURE_DIM * 4, 1)

    def forward(self, x):
        return torch.sigmoid(self.fc(self.conv(x).flatten(1)))


def main(episodes=3):
    torch.manual_seed(30)
    rng = np.random.default_rng(30)
    feature_encoder, relation_network = CNNEncoder(), RelationNetwork()
    params = list(feature_encoder.parameters()) + list(relation_network.parameters())
    optim = torch.optim.Adam(params, lr=1e-3)
    for episode in range(episodes):
        task = OmniglotTask(rng, CLASS_NUM, SAMPLE_NUM, BATCH_NUM_PER_CLASS)
        sample_loader = torch.utils.data.DataLoader(FewShotDataset(task, "train", rng), batch_size=CLASS_NUM * SAMPLE_NUM)
        batch_loader = torch.utils.data.DataLoader(FewShotDataset(task, "test", rng), batch_size=CLASS_NUM * BATCH_NUM_PER_CLASS, shuffle=True)
        samples, _ = next(iter(sample_loader))
        batches, batch_labels = next(iter(batch_loader))  # BORN

        sample_features = feature_encoder(samples).view(CLASS_NUM, SAMPLE_NUM, FEATURE_DIM, 4, 4).sum(1)
        batch_features = feature_encoder(batches)
        n = len(batches)
        left = sample_features.unsqueeze(0).expand(n, -1, -1, -1, -1)
        right = batch_features.unsqueeze(1).expand(-1, CLASS_NUM, -1, -1, -1)
        pairs = torch.cat((left, right), 2).reshape(-1, FEATURE_DIM * 2, 4, 4)
        relations = relation_network(pairs).view(-1, CLASS_NUM)

        one_hot_labels = F.one_hot(batch_labels, CLASS_NUM).float()  # BORN COLLIDES
        loss = F.mse_loss(relations, one_hot_labels)
        optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 0.5)
        optim.step()
        print("episode:", episode + 1, "loss", round(loss.item(), 3))


if __name__ == "__main__":
    main()
