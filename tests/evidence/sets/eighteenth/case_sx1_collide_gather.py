"""
title: evaluation gathers float16 features into a list of float32 buffers
expect: collision
thread: https://github.com/pytorch/pytorch/issues/84525

Expectation, written first: the encoder is evaluated in half precision and returns float16 features. The receive
buffers for all_gather are made by torch.zeros with the default dtype, so the collective is called with float32 outputs
and a float16 input, which torch.distributed refuses. The buffers must have the dtype of the features.
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ImageEncoder(nn.Module):
    def __init__(self, width=16, out_dim=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.body = nn.Sequential(nn.ReLU(), nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Linear(width, out_dim)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def init_distributed_mode():
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29571")
    dist.init_process_group("gloo", rank=0, world_size=1)
    return dist.get_rank(), dist.get_world_size()


def concat_all_gather(tensor):
    world_size = dist.get_world_size()
    gather_list = [torch.zeros(tensor.shape, device=tensor.device) for _ in range(world_size)]  # BORN
    dist.all_gather(gather_list, tensor)  # COLLIDES
    return torch.cat(gather_list, dim=0)


@torch.no_grad()
def extract_features(model, loader, use_fp16):
    features, targets = [], []
    for images, labels in loader:
        if use_fp16:
            images = images.half()
        feats = F.normalize(model(images), dim=1)
        features.append(concat_all_gather(feats))
        targets.append(concat_all_gather(labels.to(feats.dtype)))
    return torch.cat(features), torch.cat(targets)


def knn_classifier(train_features, train_labels, test_features, test_labels, k=5, temperature=0.07):
    sims = (test_features @ train_features.T).float()
    distances, indices = sims.topk(k, dim=1)
    votes = F.one_hot(train_labels.long()[indices], 4) * (distances / temperature).exp()[..., None]
    pred = votes.sum(1).argmax(1)
    return (pred == test_labels.long()).float().mean().item() * 100


def build_loader(n, rank, world_size):
    dataset = TensorDataset(torch.rand(n, 3, 16, 16), torch.randint(0, 4, (n,)))
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=False)
    return DataLoader(dataset, batch_size=16, sampler=sampler)


def main():
    torch.manual_seed(0)
    rank, world_size = init_distributed_mode()
    model = ImageEncoder().eval()
    use_fp16 = True
    if use_fp16:
        model = model.half()
    train_features, train_labels = extract_features(model, build_loader(64, rank, world_size), use_fp16)
    test_features, test_labels = extract_features(model, build_loader(32, rank, world_size), use_fp16)
    print("top1", knn_classifier(train_features, train_labels, test_features, test_labels))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
