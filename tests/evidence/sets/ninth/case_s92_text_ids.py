"""
title: sampler casts the text ids of the transformer to the train dtype
expect: silent:precision-loss|downcast
thread: https://github.com/Nerogar/OneTrainer/issues/1177
measured: distinct positions: text 385 of 512, image 256 of 256
widened: distinct positions: text 512 of 512, image 256 of 256
fix_at: 46

Expectation, written first: bf16 counts to 256; beyond that two and then more prompt
tokens share a position, so about half of a 512 token prompt cannot be told apart.
"""
import torch


class PositionEmbedder:
    def __init__(self, axes=(16, 16, 32), theta=2000):
        self.axes, self.theta = axes, theta

    def one_axis(self, pos, dim):
        scale = torch.arange(0, dim, 2, dtype=torch.float64) / dim
        omega = 1.0 / self.theta ** scale
        ang = pos.double()[:, None] * omega
        return torch.cat([ang.cos(), ang.sin()], -1)

    def __call__(self, ids):
        return torch.cat([self.one_axis(ids[:, i], d) for i, d in enumerate(self.axes)], -1)


class Sampler:
    def __init__(self, train_dtype):
        self.train_dtype = train_dtype
        self.embedder = PositionEmbedder()

    def text_ids(self, length):
        ids = torch.zeros(length, 3)
        ids[:, 2] = torch.arange(length)
        return ids

    def image_ids(self, h, w):
        ids = torch.zeros(h, w, 3)
        ids[..., 0] = torch.arange(h)[:, None]
        ids[..., 1] = torch.arange(w)[None]
        return ids.reshape(-1, 3)

    def prepare(self, length, h=16, w=16):
        txt = self.text_ids(length).to(dtype=self.train_dtype)
        img = self.image_ids(h, w).to(dtype=self.train_dtype)
        return self.embedder(txt), self.embedder(img)


def distinct(emb):
    return len({tuple(row) for row in emb.mul(1e6).round().long().tolist()})


if __name__ == "__main__":
    sampler = Sampler(train_dtype=torch.bfloat16)  # BORN
    txt, img = sampler.prepare(512)
    print(f"distinct positions: text {distinct(txt)} of 512, image {distinct(img)} of 256")
