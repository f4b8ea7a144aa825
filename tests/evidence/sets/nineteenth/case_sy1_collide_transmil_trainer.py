"""
title: TransMIL under a half-precision Lightning Trainer: mat1 and mat2 must have the same dtype
expect: collision
thread: https://github.com/szc19990412/TransMIL/issues/18
fix_at: 87 (a mixed precision in its stead)

Expectation, written first: Lightning's bf16-true turns the module and the batch into bfloat16, but the model's forward begins with .float()
on the bag of features, so float32 goes into the bfloat16 _fc1 and the Linear refuses it. The .float() must go (or follow the weights' dtype).
"""
import math

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class TransLayer(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x):
        h = self.norm(x)
        return x + self.attn(h, h, h, need_weights=False)[0]


class PPEG(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Conv2d(dim, dim, 7, 1, 7 // 2, groups=dim)
        self.proj1 = nn.Conv2d(dim, dim, 5, 1, 5 // 2, groups=dim)

    def forward(self, x, H, W):
        B, _, C = x.shape
        cls_token, feat_token = x[:, 0], x[:, 1:]
        cnn_feat = feat_token.transpose(1, 2).view(B, C, H, W)
        x = self.proj(cnn_feat) + cnn_feat + self.proj1(cnn_feat)
        return torch.cat((cls_token.unsqueeze(1), x.flatten(2).transpose(1, 2)), dim=1)


class TransMIL(nn.Module):
    def __init__(self, n_classes, in_dim=48, dim=32):
        super().__init__()
        self.pos_layer = PPEG(dim=dim)
        self._fc1 = nn.Sequential(nn.Linear(in_dim, dim), nn.ReLU())
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.layer1, self.layer2 = TransLayer(dim), TransLayer(dim)
        self.norm = nn.LayerNorm(dim)
        self._fc2 = nn.Linear(dim, n_classes)

    def forward(self, **kwargs):
        h = kwargs["data"].float()  # BORN
        h = self._fc1(h)  # COLLIDES
        side = math.ceil(math.sqrt(h.shape[1]))
        h = torch.cat([self.cls_token, h, h[:, : side * side - h.shape[1], :]], dim=1)
        h = self.layer2(self.pos_layer(self.layer1(h), side, side))
        logits = self._fc2(self.norm(h)[:, 0])
        return {"logits": logits, "Y_prob": logits.softmax(dim=1)}


class CamelData(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(idx)
        return torch.randn(14, 48, generator=g), idx % 2


class ModelInterface(L.LightningModule):
    def __init__(self, n_classes=2):
        super().__init__()
        self.model, self.loss = TransMIL(n_classes), nn.CrossEntropyLoss()

    def training_step(self, batch, batch_idx):
        return self.loss(self.model(data=batch[0])["logits"], batch[1])

    def configure_optimizers(self):
        return torch.optim.RAdam(self.parameters(), lr=2e-4)


if __name__ == "__main__":
    torch.manual_seed(2021)
    trainer = L.Trainer(
        accelerator="cpu", precision="bf16-true", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(ModelInterface(), DataLoader(CamelData(), batch_size=1))
