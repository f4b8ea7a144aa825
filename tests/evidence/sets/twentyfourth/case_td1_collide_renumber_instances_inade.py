"""
title: Renumbering instances writes long ids into a float instance map
expect: collision
thread: https://github.com/tzt101/INADE/issues/2
fix_at: the np.float32 of the loader

Expectation, written first: The instance map is read as float32, the new ids are a torch.arange (int64).
The indexed assignment of the id to the pixels of an instance does not cast, so index_put raises for Float
destination and Long source.
"""
import numpy as np
import torch


def load_annotation(rng, height, width):
    label = np.zeros((height, width), dtype=np.float32)
    for obj in rng.choice(np.arange(1, 150), size=6, replace=False):
        y, x = rng.integers(0, height - 8), rng.integers(0, width - 8)
        label[y:y + 8, x:x + 8] = obj
    return label


def connected_rows(label):
    inst = np.zeros_like(label)
    for i, v in enumerate(np.unique(label)):
        inst[label == v] = 1000 * (i % 3) + v
    return inst


class InstanceMaker:
    def __init__(self, max_instances=64, void_id=0):
        self.max_instances = max_instances
        self.void_id = void_id

    def to_tensor(self, inst):
        return torch.from_numpy(inst)  # BORN

    def renumber(self, inst_map):
        ori_idx = torch.unique(inst_map)
        ori_idx = ori_idx[ori_idx != self.void_id][: self.max_instances]
        new_idx = torch.arange(1, len(ori_idx) + 1)  # BORN
        tmp = inst_map.clone()
        for idx in range(len(ori_idx)):
            rows, cols = torch.nonzero(inst_map == ori_idx[idx], as_tuple=True)
            tmp[rows, cols] = new_idx[idx].expand(len(rows))  # BORN COLLIDES
        return tmp

    def centers(self, inst_map):
        out = []
        for i in torch.unique(inst_map):
            if i == self.void_id:
                continue
            ys, xs = torch.nonzero(inst_map == i, as_tuple=True)
            out.append((int(i), ys.float().mean().item(), xs.float().mean().item()))
        return out


def main():
    rng = np.random.default_rng(5)
    maker = InstanceMaker()
    for n in range(2):
        label = load_annotation(rng, 48, 64)
        inst_map = maker.to_tensor(connected_rows(label))
        inst_map = maker.renumber(inst_map)
        for i, cy, cx in maker.centers(inst_map):
            print(f"image {n} instance {i}: {cy:.1f} {cx:.1f}")


if __name__ == "__main__":
    main()
