"""
title: Normalized image and text features are stored as float16 and compared in float32
expect: clean
thread: https://github.com/openai/CLIP/issues/30
measured: stored (128, 64) torch.float16 16384 bytes / [100, 60, 76] ['0.276', '0.270', '0.242'] / [106, 70, 8] ['0.145', '0.140', '0.131'] / [52, 56, 89] ['0.130', '0.124', '0.122']
suspect: 46 range

Expectation, written first: The index halves its size by storing unit-length features as float16. Their
entries are well within half's range and carry three to four digits; the products are summed in float32
after a cast. The cosine similarities agree with float64 to three decimals and the ranking is the same.
"""
import torch
import torch.nn as nn


class VisualTower(nn.Module):
    def __init__(self, width, output_dim, patch=8):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, patch, stride=patch, bias=False)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(width ** -0.5 * torch.randn(width, output_dim))

    def forward(self, x):
        x = self.conv1(x).flatten(2).transpose(1, 2).mean(dim=1)
        return self.ln_post(x) @ self.proj


class TextTower(nn.Module):
    def __init__(self, vocab, width, output_dim):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, width)
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(width ** -0.5 * torch.randn(width, output_dim))

    def forward(self, text):
        x = self.token_embedding(text).mean(dim=1)
        return self.ln_final(x) @ self.text_projection


class FeatureStore:
    def __init__(self):
        self.chunks = []

    def add(self, features):
        features = features / features.norm(dim=-1, keepdim=True)
        self.chunks.append(features.half())

    def matrix(self):
        return torch.cat(self.chunks)


@torch.no_grad()
def find_best_matches(text_features, photo_features, count=3):
    text_features = text_features / text_features.norm(dim=-1, keepdim=True)
    similarities = photo_features.float() @ text_features.half().float().T
    values, ids = similarities.topk(count, dim=0)
    return ids.T.tolist(), values.T.tolist()


@torch.no_grad()
def main():
    torch.manual_seed(21)
    visual, textual = VisualTower(48, 64).eval(), TextTower(100, 48, 64).eval()
    store = FeatureStore()
    for _ in range(8):
        store.add(visual(torch.rand(16, 3, 32, 32) + torch.randn(16, 3, 1, 1)))
    photos = store.matrix()
    print("stored", tuple(photos.shape), photos.dtype, photos.element_size() * photos.nelement(), "bytes")
    ids, values = find_best_matches(textual(torch.randint(0, 100, (3, 6))), photos)
    for i, v in zip(ids, values):
        print(i, [f"{x:.3f}" for x in v])


if __name__ == "__main__":
    main()
