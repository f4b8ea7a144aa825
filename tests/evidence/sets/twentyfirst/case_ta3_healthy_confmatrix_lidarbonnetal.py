"""
title: lidar segmentation evaluator: uint8 labels, int64 confusion matrix, ratios in double
expect: clean
thread: https://github.com/PRBonn/lidar-bonnetal/issues/74
measured: points 133410819 road 90197652 | mIoU 0.752517 acc 0.984871
suspect: 24 exact: the learning map has twenty classes, uint8 holds every label it can give

Expectation, written first: labels are mapped to train ids and stored as uint8, widened to int64 before they index;
the confusion matrix counts in int64 with index_put accumulate and already starts above 2**24; tp, fp and fn are
turned to double for the ratios. Every count is exact and the IoU equals the one of Python integers.
"""
import torch

LABEL_DTYPE = torch.uint8


class LearningMap:
    def __init__(self, mapping, size=260):
        self.lut = torch.zeros(size, dtype=torch.int32)
        for raw, train_id in mapping.items():
            self.lut[raw] = train_id

    def __call__(self, raw):
        return self.lut[raw.long() & 0xFFFF].to(LABEL_DTYPE)


class iouEval:
    def __init__(self, n_classes, ignore=None):
        self.n_classes = n_classes
        self.ignore = torch.tensor(ignore or []).long()
        self.include = torch.tensor([n for n in range(n_classes) if n not in (ignore or [])]).long()
        self.reset()

    def reset(self):
        self.conf_matrix = torch.zeros((self.n_classes, self.n_classes), dtype=torch.int64)
        self.ones = None
        self.last_scan_size = None

    def load(self, counts):
        self.conf_matrix += counts

    def addBatch(self, x, y):
        x_row, y_row = x.reshape(-1).long(), y.reshape(-1).long()
        idxs = torch.stack([x_row, y_row], dim=0)
        if self.ones is None or self.last_scan_size != idxs.shape[-1]:
            self.ones = torch.ones(idxs.shape[-1], dtype=torch.int64)
            self.last_scan_size = idxs.shape[-1]
        self.conf_matrix = self.conf_matrix.index_put_(tuple(idxs), self.ones, accumulate=True)

    def getStats(self):
        conf = self.conf_matrix.clone().double()
        conf[self.ignore] = 0
        conf[:, self.ignore] = 0
        tp = conf.diag()
        fp = conf.sum(dim=1) - tp
        fn = conf.sum(dim=0) - tp
        return tp, fp, fn

    def getIoU(self):
        tp, fp, fn = self.getStats()
        iou = tp / (tp + fp + fn + 1e-15)
        return iou[self.include].mean(), iou

    def getacc(self):
        tp, fp, fn = self.getStats()
        return tp[self.include].sum() / (tp[self.include].sum() + fp[self.include].sum() + 1e-15)


def scans(n, points, generator):
    raw_ids = torch.tensor([0, 10, 11, 40, 48, 50, 70, 252])
    for _ in range(n):
        semantic = raw_ids[torch.randint(0, 8, (points,), generator=generator)]
        instance = torch.randint(0, 30, (points,), generator=generator) << 16
        flip = torch.rand(points, generator=generator) < 0.12
        pred = torch.where(flip, raw_ids[torch.randint(0, 8, (points,), generator=generator)], semantic)
        yield (semantic | instance).to(torch.int32), pred.to(torch.int32)


if __name__ == "__main__":
    generator = torch.Generator().manual_seed(0)
    learning_map = LearningMap({0: 0, 10: 1, 252: 1, 11: 2, 40: 9, 48: 11, 50: 13, 70: 15})
    evaluator = iouEval(20, ignore=[0, *range(3, 9), 10, 12, 14, *range(16, 20)])
    previous = torch.zeros(20, 20, dtype=torch.int64)
    previous[9, 9], previous[15, 15], previous[9, 11] = 90_170_815, 41_000_003, 2_000_001
    evaluator.load(previous)
    for label, prediction in scans(12, 20_000, generator):
        evaluator.addBatch(learning_map(prediction), learning_map(label))
    m_jaccard, class_jaccard = evaluator.getIoU()
    print("points", int(evaluator.conf_matrix.sum()), "road", int(evaluator.conf_matrix[9, 9]))
    print("mIoU", f"{m_jaccard.item():.6f}", "acc", f"{evaluator.getacc().item():.6f}")
