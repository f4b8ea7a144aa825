"""
title: Label maps are read as float32 like the intensity images
expect: clean
thread: https://github.com/TorchIO-project/torchio/issues/375
measured: labels {0: 10804, 17: 1120, 1035: 748, 2035: 768} / resampled (1, 24, 28, 40) {0: 21608, 17: 2240, 1035: 1496, 2035: 1536} / one hot 26880 / means {0: '27.61', 17: '191.74', 1035: '654.14', 2035: '954.57'}
suspect: 20 exact

Expectation, written first: The reader casts everything to float32, label maps too. Labels are whole numbers
far below 2**24 and are resampled by nearest neighbour, so they stay exact. Counting, one-hot and volumes
come out as with integers; the image statistics are ordinary float32.
"""
import numpy as np
import torch
import torch.nn.functional as F


def read_image(array, spacing):
    data = np.asarray(array)
    if data.dtype != np.float32:
        data = data.astype(np.float32)
    return torch.from_numpy(data)[None], spacing


class Image:
    interpolation = "trilinear"

    def __init__(self, array, spacing):
        self.data, self.spacing = read_image(array, spacing)

    def resample(self, target):
        factor = tuple(s / target for s in self.spacing)
        kwargs = {} if self.interpolation == "nearest" else {"align_corners": False}
        self.data = F.interpolate(self.data[None], scale_factor=factor, mode=self.interpolation, **kwargs)[0]
        self.spacing = (target,) * 3


class ScalarImage(Image):
    pass


class LabelMap(Image):
    interpolation = "nearest"

    def count_labels(self):
        values, counts = self.data.unique(return_counts=True)
        return {int(v): int(c) for v, c in zip(values, counts)}

    def one_hot(self, num_classes):
        return F.one_hot(self.data[0].long(), num_classes).permute(3, 0, 1, 2).float()


class Subject:
    def __init__(self, t1, seg):
        self.t1, self.seg = t1, seg

    def region_means(self, labels):
        out = {}
        for label in labels:
            mask = self.seg.data == label
            out[label] = self.t1.data[mask].mean().item()
        return out


def phantom(rng, shape=(24, 28, 20)):
    seg = np.zeros(shape, dtype=np.uint16)
    seg[4:12, 5:15, 3:17] = 17
    seg[13:20, 6:20, 4:12] = 1035
    seg[8:16, 18:26, 6:18] = 2035
    img = seg.astype(np.int32) % 97 * 10 + rng.integers(0, 50, size=shape)
    return img.astype(np.int16), seg


def main():
    rng = np.random.default_rng(26)
    img, seg = phantom(rng)
    subject = Subject(ScalarImage(img, (1.0, 1.0, 2.0)), LabelMap(seg, (1.0, 1.0, 2.0)))
    print("labels", subject.seg.count_labels())
    subject.t1.resample(1.0)
    subject.seg.resample(1.0)
    counts = subject.seg.count_labels()
    print("resampled", tuple(subject.seg.data.shape), counts)
    print("one hot", int(subject.seg.one_hot(2036).sum()))
    print("means", {k: f"{v:.2f}" for k, v in subject.region_means(sorted(counts)).items()})


if __name__ == "__main__":
    main()
