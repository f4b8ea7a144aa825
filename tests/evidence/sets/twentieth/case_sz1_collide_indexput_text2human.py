"""
title: painting the texture attribute into the parsing mask stops: the mask is Int, the predicted attribute is Long
expect: collision
thread: https://github.com/yumingj/Text2Human/issues/21
fix_at: 60

Expectation, written first: the parsing map is decoded from the palette image as int32, and the texture mask is made `zeros_like` of it, so it
is Int. The attribute head gives an argmax, which is Long; the indexed assignment does not convert and torch refuses it. The decoder's dtype,
the mask's dtype or a cast at the assignment are equally good places.
"""
import numpy as np
import torch
import torch.nn as nn


class AttributeHead(nn.Module):
    def __init__(self, channels, num_classes=18):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.upper = nn.Linear(channels, num_classes)
        self.lower = nn.Linear(channels, num_classes)

    def forward(self, feats):
        x = self.pool(feats).flatten(1)
        return self.upper(x), self.lower(x)


class SampleFromParsing:
    upper_cls = (1, 4)
    lower_cls = (3, 5, 21)
    no_texture = 17

    def __init__(self, batch_size=2, size=16):
        self.batch_size = batch_size
        self.size = size
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.head = AttributeHead(8)

    def feed_segm(self, index_maps):
        decoded = [np.asarray(m).astype(np.int32) for m in index_maps]  # BORN
        self.segm = torch.from_numpy(np.stack(decoded))

    def fill_region(self, mask, cls, attr):
        sample_idx, rows, cols = torch.nonzero(self.segm == cls, as_tuple=True)
        keep = attr[sample_idx] != self.no_texture
        sample_idx, rows, cols = sample_idx[keep], rows[keep], cols[keep]
        mask[sample_idx, rows, cols] = attr[sample_idx] + 1  # BORN COLLIDES

    def generate_texture_map(self):
        mask = torch.zeros_like(self.segm)  # BORN
        for cls in self.upper_cls:
            self.fill_region(mask, cls, self.upper_attr)
        for cls in self.lower_cls:
            self.fill_region(mask, cls, self.lower_attr)
        self.mask = mask.unsqueeze(1)

    @torch.no_grad()
    def predict_attributes(self, images):
        upper, lower = self.head(self.backbone(images))
        self.upper_attr, self.lower_attr = upper.argmax(1), lower.argmax(1)


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    model = SampleFromParsing()
    model.feed_segm(rng.integers(0, 24, size=(2, 16, 16), dtype=np.uint8))
    model.predict_attributes(torch.rand(2, 3, 16, 16))
    model.generate_texture_map()
    print("texture map", tuple(model.mask.shape), "values", model.mask.unique().tolist())


if __name__ == "__main__":
    main()
