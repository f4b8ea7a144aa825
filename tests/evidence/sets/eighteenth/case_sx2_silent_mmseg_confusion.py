"""
title: confusion matrix of a 19-class model is scrambled: the flat index wraps in uint8
expect: silent:wraparound|integer-overflow|overflow
thread: https://github.com/open-mmlab/mmsegmentation/issues/3583
measured: mIoU 0.390, first 13 classes 0.504, classes 14 to 18 0.000
widened: mIoU 0.816, first 13 classes 0.811, classes 14 to 18 0.824
innocent: mIoU 0.390, first 13 classes 0.504, classes 14 to 18 0.000
suspect: line 45 harmless (counts far below 2**24)

Expectation, written first: the ground truth is uint8 and n * gt is formed in it before the prediction is added; with 19
classes every label from 14 on wraps around and lands in a wrong row, so classes 14 to 18 have IoU 0 and others lose too.
The float32 counts of the matrix are exact here.
"""
import numpy as np


class CityscapesDataset:
    CLASSES = tuple(f"class_{i}" for i in range(19))
    ignore_index = 255

    def __init__(self, rng, images=6, size=48):
        self.maps = [rng.integers(0, 19, (size // 8, size // 8)).repeat(8, 0).repeat(8, 1) for _ in range(images)]
        for seg_map in self.maps:
            seg_map[:2] = self.ignore_index

    def get_gt_seg_map_by_idx(self, idx):
        return self.maps[idx]

    def __len__(self):
        return len(self.maps)


def predict(dataset, rng, noise=0.1):
    results = []
    for idx in range(len(dataset)):
        seg_map = dataset.get_gt_seg_map_by_idx(idx).copy()
        wrong = rng.random(seg_map.shape) < noise
        seg_map[wrong] = rng.integers(0, 19, wrong.sum())
        results.append(np.minimum(seg_map, 18))
    return results


def calculate_confusion_matrix(dataset, results):
    n = len(dataset.CLASSES)
    confusion_matrix = np.zeros((n, n), dtype=np.float32)
    for idx, per_img_res in enumerate(results):
        res_segm = per_img_res
        seg_map = dataset.get_gt_seg_map_by_idx(idx)
        gt_segm = seg_map.astype(np.uint8)  # BORN
        to_ignore = gt_segm == dataset.ignore_index
        gt_segm, res_segm = gt_segm[~to_ignore], res_segm[~to_ignore]
        inds = n * gt_segm + res_segm  # BORN
        confusion_matrix += np.bincount(inds, minlength=n**2)[: n**2].reshape(n, n)
    return confusion_matrix


def iou_per_class(matrix):
    intersect = np.diag(matrix)
    union = matrix.sum(0) + matrix.sum(1) - intersect
    return intersect / np.maximum(union, 1)


def main():
    rng = np.random.default_rng(0)
    dataset = CityscapesDataset(rng)
    matrix = calculate_confusion_matrix(dataset, predict(dataset, rng))
    iou = iou_per_class(matrix)
    print(f"mIoU {iou.mean():.3f}, first 13 classes {iou[:13].mean():.3f}, classes 14 to 18 {iou[14:].mean():.3f}")


main()
