"""
title: semantic class and instance of a driving scene are packed into one int16 label
expect: silent:integer-overflow|overflow|downcast
thread: https://github.com/waymo-research/waymo-open-dataset/issues/557
measured: divisor 2657, pixels with the right class and instance 44.1%
widened: divisor 2657, pixels with the right class and instance 100.0%

Expectation, written first: the divisor is the number of instances after they are made consistent over frames, near
3000; from class 13 on the product passes 32767 and other classes are read back.
"""
import torch


class PanopticCodec:
    def __init__(self, divisor, dtype=torch.int16):  # BORN
        self.divisor, self.dtype = divisor, dtype

    def encode(self, semantic, instance):
        return semantic.to(self.dtype) * self.divisor + instance.to(self.dtype)  # BORN

    def decode(self, label):
        return label // self.divisor, label % self.divisor


class InstanceRemapper:
    """gives the same number to one object over all frames"""

    def __init__(self):
        self.table = {}

    def __call__(self, sequence, instance):
        out = torch.zeros_like(instance)
        for local in instance.unique().tolist():
            if local:
                key = self.table.setdefault((sequence, local), len(self.table) + 1)
                out[instance == local] = key
        return out


def frames(count, gen, classes=28, size=24):
    for s in range(count):
        semantic = torch.randint(0, classes, (size // 4, size // 4), generator=gen)
        semantic = semantic.repeat_interleave(4, 0).repeat_interleave(4, 1)
        thing = (semantic % 2 == 0)
        local = torch.arange(1, size // 4 * (size // 4) + 1).view(size // 4, -1)
        local = local.repeat_interleave(4, 0).repeat_interleave(4, 1)
        yield s, semantic, local * thing


def main():
    gen = torch.Generator().manual_seed(0)
    remap, scenes = InstanceRemapper(), []
    for s, semantic, local in frames(150, gen):
        scenes.append((semantic, remap(s, local)))
    codec = PanopticCodec(len(remap.table) + 1)
    right = seen = 0
    for semantic, instance in scenes:
        cls, ins = codec.decode(codec.encode(semantic, instance))
        right += int(((cls == semantic) & (ins == instance)).sum())
        seen += semantic.numel()
    print(f"divisor {codec.divisor}, pixels with the right class and instance {100 * right / seen:.1f}%")


main()
