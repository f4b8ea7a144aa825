"""
title: Writing bfloat16 predictions of a world model through NumPy
expect: collision
thread: https://github.com/NVlabs/X-MOBILITY/pull/25
fix_at: (none beside the marked)

Expectation, written first: The evaluation runs with precision bf16, so the decoder's image and path are bfloat16.
The segmentation goes through argmax and is Long; the RGB picture is permuted and handed to .numpy(), which has no
bfloat16 and raises TypeError.
"""
import numpy as np
import torch
import torch.nn as nn


class WorldModel(nn.Module):
    def __init__(self, latent=16, classes=5):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, latent, 4, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.rnn = nn.GRUCell(latent * 4 + 2, latent)
        self.rgb_head = nn.Linear(latent, 3 * 8 * 8)
        self.seg_head = nn.Linear(latent, classes * 8 * 8)
        self.path_head = nn.Linear(latent, 5 * 2)

    def forward(self, batch):
        outputs, h = [], None
        for t in range(batch["image"].shape[1]):
            x = self.encoder(batch["image"][:, t]).flatten(1)
            h = self.rnn(torch.cat([x, batch["speed"][:, t]], -1), h)
            outputs.append(h)
        h = outputs[-1]
        return {
            "rgb": torch.sigmoid(self.rgb_head(h)).view(-1, 3, 8, 8),
            "semantic": self.seg_head(h).view(-1, 5, 8, 8),
            "path": self.path_head(h).view(-1, 5, 2),
        }


class Config:
    precision = "bf16"  # BORN
    seq, batch, steps = 3, 2, 2


def to_dtype(batch, dtype):
    return {k: v.to(dtype) for k, v in batch.items()}


def visualise_semantic(semantic):
    palette = np.array([[0, 0, 0], [70, 70, 70], [128, 64, 128], [220, 20, 60], [0, 0, 142]], dtype=np.uint8)
    return palette[semantic.argmax(1).numpy()]


def visualise_rgb(rgb):
    img = rgb.detach().permute(0, 2, 3, 1).cpu().numpy()  # BORN COLLIDES
    return (img * 255).astype(np.uint8)


class Evaluator:
    def __init__(self, config):
        self.config = config
        self.dtype = {"bf16": torch.bfloat16, "32": torch.float32}[config.precision]  # BORN
        self.model = WorldModel().to(self.dtype).eval()  # BORN

    def batches(self):
        for _ in range(self.config.steps):
            yield {"image": torch.rand(self.config.batch, self.config.seq, 3, 16, 16),
                   "speed": torch.rand(self.config.batch, self.config.seq, 2)}

    @torch.no_grad()
    def run(self):
        for step, batch in enumerate(self.batches()):
            out = self.model(to_dtype(batch, self.dtype))  # BORN
            seg = visualise_semantic(out["semantic"])
            print("step", step, "seg", seg.shape, int(seg.max()))
            rgb = visualise_rgb(out["rgb"])
            print("step", step, "rgb", rgb.shape, rgb.dtype, "path len", out["path"].diff(dim=1).shape[1])


if __name__ == "__main__":
    torch.manual_seed(25)
    Evaluator(Config()).run()
