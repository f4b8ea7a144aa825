"""
title: Face embeddings stored as float16: the same identities are found and the same pairs accepted
expect: clean
thread: https://github.com/deepinsight/insightface/issues/2092
measured: rank-1 1.000 | accepted genuine 0.90  accepted strangers 0.00  (with the suspect widened: rank-1 1.000 | accepted genuine 0.90  accepted strangers 0.00)
suspect: 32 margin

Expectation, written first: The gallery of normalized 512-d embeddings is stored as float16, which looks like a loss of search accuracy. Each entry errs by
a twentieth of a percent at random, a cosine of 512 of them by some 1e-5, while identities are tenths apart; rank-1 and the decisions at the
threshold are as with float32.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ArcFaceONNX(nn.Module):
    def __init__(self, pixels=192, dim=512):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(pixels, 256), nn.PReLU(), nn.Linear(256, dim))

    def get_feat(self, faces):
        return F.normalize(self.backbone(faces.flatten(1)), dim=1)


class FaceGallery:
    def __init__(self, dim=512):
        self.features = torch.empty(0, dim, dtype=torch.float16)
        self.names = []

    def enroll(self, features, names):
        self.features = torch.cat([self.features, features.to(torch.float16)])
        self.names.extend(names)

    def search(self, features, threshold=0.8):
        similarity = features.float() @ self.features.float().T
        score, index = similarity.max(dim=1)
        return [self.names[i] for i in index.tolist()], score >= threshold


def make_identities(count, generator):
    return torch.randn(count, 3, 8, 8, generator=generator)


def take_photo(identity, generator, noise):
    return identity + noise * torch.randn(identity.shape, generator=generator)


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = ArcFaceONNX().eval()
    g = torch.Generator().manual_seed(7)
    identities = make_identities(300, g)
    gallery = FaceGallery()
    gallery.enroll(model.get_feat(take_photo(identities, g, 0.3)), list(range(300)))
    strangers = make_identities(100, g)
    probes = torch.cat([take_photo(identities, g, 0.6), strangers])
    found, accepted = gallery.search(model.get_feat(probes))
    rank1 = sum(name == i for i, name in enumerate(found[:300])) / 300
    print(f"rank-1 {rank1:.3f}")
    print(f"accepted genuine {accepted[:300].float().mean():.2f}  accepted strangers {accepted[300:].float().mean():.2f}")


if __name__ == "__main__":
    main()
