"""
title: PatchCore runs the hooked backbone in half precision, the exact distance has no half kernel
expect: collision
thread: https://github.com/open-edge-platform/anomalib/issues/2066
fix_at: 34, 55, 67

Expectation, written first: precision="16" makes the engine cast the backbone and the images to float16, so the features caught by the
forward hooks and the memory bank built of them are float16. torch.cdist is not implemented for Half on this device and raises when the
first distances are wanted, in the coreset selection of fit.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

class Backbone(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.layer2 = nn.Conv2d(width, width * 2, 3, stride=2, padding=1)
        self.layer3 = nn.Conv2d(width * 2, width * 2, 3, stride=2, padding=1)
    def forward(self, x):
        return self.layer3(F.relu(self.layer2(F.relu(self.stem(x)))))

class HookedFeatureExtractor(nn.Module):
    def __init__(self, backbone, layers):
        super().__init__()
        self.backbone, self.layers, self.features = backbone, layers, {}
        for layer in layers:
            dict(backbone.named_modules())[layer].register_forward_hook(self.get_features(layer))
    def get_features(self, layer):
        def hook(_module, _input, output):
            self.features[layer] = output
        return hook
    @torch.no_grad()
    def forward(self, x):
        self.features.clear()
        self.backbone(x)
        return dict(self.features)

class KCenterGreedy:
    def __init__(self, embedding, sampling_ratio):
        self.embedding, self.size = embedding, int(embedding.shape[0] * sampling_ratio)
    def sample_coreset(self):
        selected, min_distances = [0], None
        for _ in range(self.size - 1):
            center = self.embedding[selected[-1]].unsqueeze(0)
            distance = euclidean_dist(self.embedding, center)
            min_distances = distance if min_distances is None else torch.minimum(min_distances, distance)
            selected.append(int(min_distances.argmax()))
        return self.embedding[selected]

def euclidean_dist(x, y):
    return torch.cdist(x, y, p=2.0, compute_mode="donot_use_mm_for_euclid_dist")  # COLLIDES

class PatchcoreModel(nn.Module):
    def __init__(self, layers=("layer2", "layer3"), num_neighbors=3):
        super().__init__()
        self.feature_extractor = HookedFeatureExtractor(Backbone(), layers)
        self.num_neighbors, self.memory_bank = num_neighbors, None
    def get_embedding(self, images):
        features = self.feature_extractor(images)
        first = features["layer2"]
        maps = [F.interpolate(f, size=first.shape[-2:], mode="nearest") for f in features.values()]
        embedding = torch.cat(maps, dim=1)
        return embedding.permute(0, 2, 3, 1).reshape(-1, embedding.shape[1])
    def forward(self, images):
        distances = euclidean_dist(self.get_embedding(images), self.memory_bank)
        patch_scores = distances.topk(self.num_neighbors, largest=False).values[:, 0]
        return patch_scores.reshape(images.shape[0], -1).amax(dim=1)

@dataclass
class Engine:
    precision: str = "32"
    @property
    def dtype(self):
        return {"32": torch.float32, "16": torch.float16}[self.precision]
    def fit(self, model, batches, sampling_ratio=0.1):
        model.to(self.dtype)  # BORN
        embeddings = torch.vstack([model.get_embedding(batch.to(self.dtype)) for batch in batches])  # BORN
        model.memory_bank = KCenterGreedy(embeddings, sampling_ratio).sample_coreset()
    def predict(self, model, batch):
        return model(batch.to(self.dtype))

if __name__ == "__main__":
    torch.manual_seed(0)
    engine, model = Engine(precision="16"), PatchcoreModel()  # BORN
    engine.fit(model, [torch.rand(4, 3, 32, 32) for _ in range(3)])
    print(engine.predict(model, torch.rand(2, 3, 32, 32) + 0.5))
