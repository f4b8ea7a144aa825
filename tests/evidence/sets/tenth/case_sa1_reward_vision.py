"""
title: a reward model in bfloat16 keeps its vision tower in float32, image features are scattered among the text
expect: collision
thread: https://github.com/zai-org/VisionReward/issues/7
fix_at: 38

Expectation, written first: the tower was set back to float32 after the cast, its projected
features stay float32, and masked_scatter wants source and destination in one dtype.
"""
import torch
from torch import nn

IMAGE_TOKEN = 7


class VisionTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 8, stride=8)
        self.norm = nn.LayerNorm(dim)

    def forward(self, pixels):
        weight = self.patch.weight
        x = self.patch(pixels.to(weight.dtype)).flatten(2).transpose(1, 2)
        return self.norm(x)


class RewardModel(nn.Module):
    def __init__(self, vocab=40, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.vision = VisionTower(dim)
        self.block = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))
        self.score = nn.Linear(dim, 1)

    def merge(self, ids, pixels):
        text = self.embed(ids)
        features = self.vision(pixels)
        where = (ids == IMAGE_TOKEN).unsqueeze(-1).expand_as(text)
        return text.masked_scatter(where, features)  # COLLIDES

    def forward(self, ids, pixels):
        x = self.merge(ids, pixels)
        return self.score((x + self.block(x)).mean(1)).squeeze(-1)


def load(dtype, fp32_modules=("vision",)):
    torch.manual_seed(0)
    model = RewardModel().eval().to(dtype)
    for name in fp32_modules:
        model.get_submodule(name).float()  # BORN
    return model


@torch.no_grad()
def main():
    model = load(torch.bfloat16)
    ids = torch.tensor([[1, 7, 7, 7, 7, 12, 5], [2, 7, 7, 7, 7, 30, 6]])
    print("scores", model(ids, torch.rand(2, 3, 16, 16)).float().tolist())


main()
