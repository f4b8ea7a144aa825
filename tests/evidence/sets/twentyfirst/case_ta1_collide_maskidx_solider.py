"""
title: part masks of a self-supervised re-identification run: an empty index list becomes a float64 index
expect: collision
thread: https://github.com/tinyvision/SOLIDER/issues/12
fix_at: none

Expectation, written first: when no image of a batch has enough foreground, the list of kept images is empty, and
np.array of an empty list is float64. torch.from_numpy hands that on as a double index, and indexing raises. The
array must be built with an integer dtype, or the index cast to long where it is used.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def kmeans(features, k, iters=5):
    centers = features[np.linspace(0, len(features) - 1, k).astype(int)]
    for _ in range(iters):
        labels = ((features[:, None] - centers[None]) ** 2).sum(-1).argmin(1)
        centers = np.stack([features[labels == i].mean(0) if (labels == i).any() else centers[i] for i in range(k)])
    return labels


def get_mask(feats, partnum, min_fg=0.2, threshold=0.9):
    masks, mask_idxs = [], []
    for idx, feat in enumerate(feats.permute(0, 2, 3, 1).cpu().numpy()):
        h, w, c = feat.shape
        norm = np.linalg.norm(feat.reshape(-1, c), axis=1)
        fg = norm > threshold * norm.max()
        if fg.mean() < min_fg or fg.sum() < partnum:
            continue
        mask = np.zeros(h * w, dtype=np.int64)
        mask[fg] = kmeans(feat.reshape(-1, c)[fg], partnum) + 1
        masks.append(mask.reshape(h, w))
        mask_idxs.append(idx)
    return np.array(masks), np.array(mask_idxs)  # BORN


class SemanticBackbone(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 4, stride=4)
        self.semantic = nn.Linear(2, width)
        self.out = nn.Linear(width, 5)

    def forward(self, x, semantic_weight):
        feat = self.conv(x)
        gate = torch.sigmoid(self.semantic(semantic_weight))[:, :, None, None]
        feat = feat * gate
        return self.out(feat.mean((2, 3))), feat


def build_onehot_semantic_weight(dim):
    w = torch.randint(2, (dim, 1)).float()
    return torch.cat([w, 1 - w], dim=-1)


def train_one_epoch(student, teacher, part_classifier, loader, optimizer, partnum):
    for images in loader:
        weight_unit = build_onehot_semantic_weight(images.shape[0])
        semantic_weight = [weight_unit, weight_unit]
        with torch.no_grad():
            target, feats = teacher(images, weight_unit)
        mask, mask_idxs = get_mask(feats, partnum)
        kept_weight = torch.cat(semantic_weight)[torch.from_numpy(mask_idxs)]  # BORN COLLIDES
        output, student_feats = student(images, weight_unit)
        loss = F.kl_div(F.log_softmax(output, -1), F.softmax(target, -1), reduction="batchmean")
        if len(mask_idxs) != 0:
            pred = part_classifier(student_feats[torch.from_numpy(mask_idxs)].permute(0, 2, 3, 1).flatten(0, 2))
            part_loss = F.cross_entropy(pred, torch.from_numpy(mask.flatten()), reduction="none")
            loss = loss + (kept_weight[:, :1] * part_loss.view(len(mask_idxs), -1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), len(mask_idxs)


if __name__ == "__main__":
    torch.manual_seed(4)
    student, teacher, part_classifier = SemanticBackbone(), SemanticBackbone(), nn.Linear(8, 4)
    optimizer = torch.optim.SGD([*student.parameters(), *part_classifier.parameters()], lr=0.05)
    loader = [torch.rand(4, 3, 32, 32) for _ in range(2)] + [torch.randn(4, 3, 32, 32) * 2]
    print("loss %.4f kept %d" % train_one_epoch(student, teacher, part_classifier, loader, optimizer, partnum=3))
