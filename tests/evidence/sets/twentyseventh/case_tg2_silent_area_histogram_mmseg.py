"""
title: pixel areas of a large seg map stop counting and the IoU comes out as 1.0
expect: silent:lost-update|precision-loss|overflow
thread: https://github.com/open-mmlab/mmsegmentation/pull/534
measured: label areas [16777216, 3262000, 1500000] of 24800000 pixels / IoU ['1.000', '0.824', '0.524'] mIoU 0.782
widened: label areas [20038000, 3262000, 1500000] of 24800000 pixels / IoU ['0.916', '0.824', '0.524'] mIoU 0.754; innocent: label areas [16777216, 3262000, 1500000] of 24800000 pixels / IoU ['1.000', '0.824', '0.524'] mIoU 0.782
suspect: 49 exact (three classes and 255 fit a byte)

Expectation, written first: histc of the float map counts in float32 and cannot count beyond 2**24. The orthophoto has
about 20 million background pixels, so intersection, prediction and label areas all stay at 16777216 and the background
IoU is 1.0 although many pixels differ. Remedy: bincount on integers, or double. The labels as bytes are exact.
"""
import torch


def intersect_and_union(pred_label, label, num_classes, ignore_index):
    mask = label != ignore_index
    pred_label = pred_label[mask]
    label = label[mask]

    intersect = pred_label[pred_label == label]
    area_intersect = torch.histc(intersect.float(), bins=num_classes, min=0, max=num_classes - 1)  # BORN
    area_pred_label = torch.histc(pred_label.float(), bins=num_classes, min=0, max=num_classes - 1)  # BORN
    area_label = torch.histc(label.float(), bins=num_classes, min=0, max=num_classes - 1)  # BORN
    area_union = area_pred_label + area_label - area_intersect
    return area_intersect, area_union, area_pred_label, area_label


class Orthophoto:
    size = 5000
    num_classes = 3
    ignore_index = 255

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def load(self):
        n = self.size
        label = torch.zeros(n, n, dtype=torch.uint8)
        label[:, n - 700:] = 1
        label[n - 300:, :] = 2
        label[:40] = self.ignore_index
        return label

    def predict(self, label):
        n_tiles = 100
        coarse = torch.rand(3, n_tiles, n_tiles, generator=self.generator)
        coarse[0] += 0.45
        pred = coarse.argmax(0).to(torch.uint8)
        step = self.size // n_tiles
        pred = pred.repeat_interleave(step, 0).repeat_interleave(step, 1)
        keep = torch.zeros(self.size, self.size, dtype=torch.bool)
        keep[:, n_tiles * 12:] = True
        return torch.where(keep, torch.clamp(label, max=2), pred)


def main():
    torch.set_num_threads(1)
    dataset = Orthophoto(534)
    label = dataset.load()
    pred = dataset.predict(label)
    inter, union, _, area_label = intersect_and_union(pred, label, dataset.num_classes, dataset.ignore_index)
    iou = inter / union
    print("label areas", [int(v) for v in area_label.tolist()], f"of {int((label != 255).sum())} pixels")
    print("IoU", [f"{v:.3f}" for v in iou.tolist()], f"mIoU {iou.mean():.3f}")


main()
