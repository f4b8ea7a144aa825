"""
title: int32 annotation labels are written into the int64 assignment of the max-IoU assigner
expect: collision
thread: https://github.com/open-mmlab/mmdetection/issues/6706
fix_at: 42

Expectation, written first: the dataset parses the category ids into an int32 array and the formatting step keeps that
dtype. The assigner builds assigned_labels with new_full from an int64 tensor and fills it by index, where torch wants
the same dtype on both sides. Either the annotation must be int64 or the assigner must cast.
"""
import numpy as np
import torch
import torch.nn as nn


class CocoDataset:
    def __init__(self, data_infos, pipeline):
        self.data_infos, self.pipeline = data_infos, pipeline

    def get_ann_info(self, idx):
        gt_bboxes, gt_labels = [], []
        for ann in self.data_infos[idx]["annotations"]:
            x1, y1, w, h = ann["bbox"]
            gt_bboxes.append([x1, y1, x1 + w, y1 + h])
            gt_labels.append(ann["category_id"])
        return dict(
            bboxes=np.array(gt_bboxes, dtype=np.float32),
            labels=np.array(gt_labels, dtype=np.int32),  # BORN
        )

    def __getitem__(self, idx):
        ann = self.get_ann_info(idx)
        results = dict(img=self.data_infos[idx]["img"], gt_bboxes=ann["bboxes"], gt_labels=ann["labels"])
        return self.pipeline(results)


class DefaultFormatBundle:
    def __call__(self, results):
        img = np.ascontiguousarray(results["img"].transpose(2, 0, 1))
        results["img"] = torch.from_numpy(img).float() / 255
        for key in ("gt_bboxes", "gt_labels"):
            results[key] = torch.from_numpy(results[key])
        return results


def bbox_overlaps(a, b):
    lt, rb = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = lambda t: (t[:, 2:] - t[:, :2]).prod(-1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


class MaxIoUAssigner:
    def __init__(self, pos_iou_thr=0.3, neg_iou_thr=0.3):
        self.pos_iou_thr, self.neg_iou_thr = pos_iou_thr, neg_iou_thr

    def assign_wrt_overlaps(self, overlaps, gt_labels):
        num_bboxes = overlaps.size(1)
        assigned_gt_inds = overlaps.new_full((num_bboxes,), -1, dtype=torch.long)
        max_overlaps, argmax_overlaps = overlaps.max(dim=0)
        assigned_gt_inds[max_overlaps < self.neg_iou_thr] = 0
        pos = max_overlaps >= self.pos_iou_thr
        assigned_gt_inds[pos] = argmax_overlaps[pos] + 1
        assigned_labels = assigned_gt_inds.new_full((num_bboxes,), -1)
        pos_inds = torch.nonzero(assigned_gt_inds > 0, as_tuple=False).squeeze(1)
        if pos_inds.numel() > 0:
            assigned_labels[pos_inds] = gt_labels[assigned_gt_inds[pos_inds] - 1]  # BORN COLLIDES
        return assigned_gt_inds, assigned_labels


class RetinaHead(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.cls, self.assigner = nn.Conv2d(3, num_classes + 1, 3, stride=8, padding=1), MaxIoUAssigner()

    def loss(self, img, gt_bboxes, gt_labels):
        score = self.cls(img[None])
        h, w = score.shape[-2:]
        yy, xx = torch.meshgrid(torch.arange(h) * 8.0, torch.arange(w) * 8.0, indexing="ij")
        anchors = torch.stack([xx, yy, xx + 16, yy + 16], -1).view(-1, 4)
        _, labels = self.assigner.assign_wrt_overlaps(bbox_overlaps(gt_bboxes, anchors), gt_labels)
        return nn.functional.cross_entropy(score.flatten(2)[0].T, labels.clamp(min=-1) + 1)


if __name__ == "__main__":
    torch.manual_seed(0)
    img = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    anns = [dict(bbox=[8, 8, 16, 16], category_id=1), dict(bbox=[32, 24, 18, 16], category_id=2)]
    sample = CocoDataset([dict(img=img, annotations=anns)], DefaultFormatBundle())[0]
    print(RetinaHead(3).loss(sample["img"], sample["gt_bboxes"], sample["gt_labels"]))
