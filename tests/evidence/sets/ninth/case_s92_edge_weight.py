"""
title: graph segmentation takes pixel differences of a uint8 picture
expect: silent:overflow
thread: https://github.com/dwave-examples/image-segmentation/issues/10
measured: regions found: 1 (drawn: 2)
widened: regions found: 2 (drawn: 2)
fix_at: 37

Expectation, written first: unsigned differences wrap, so a dark-minus-bright step
of 250 becomes 6 and counts as no edge; the two regions are merged.
"""
import torch


def draw(size=40, seed=0):
    gen = torch.Generator().manual_seed(seed)
    img = torch.full((size, size), 252.0)
    img[:, size // 2 :] = 2.0
    return (img + torch.randn(size, size, generator=gen)).clamp(0, 255)


class UnionFind:
    def __init__(self, n):
        self.parent = list(range(n))

    def find(self, i):
        while self.parent[i] != i:
            self.parent[i] = self.parent[self.parent[i]]
            i = self.parent[i]
        return i

    def union(self, i, j):
        self.parent[self.find(i)] = self.find(j)


def weight(img, a, b):
    step = img[b] - img[a]
    return float(step) ** 2


def segment(img, threshold=30.0 ** 2):
    h, w = img.shape
    uf = UnionFind(h * w)
    for y in range(h):
        for x in range(w):
            for dy, dx in ((0, 1), (1, 0)):
                yy, xx = y + dy, x + dx
                if yy < h and xx < w:
                    small, large = sorted(((y, x), (yy, xx)), key=lambda p: img[p].item())
                    if weight(img, large, small) < threshold or weight(img, small, large) < threshold:
                        uf.union(y * w + x, yy * w + xx)
    roots = [uf.find(i) for i in range(h * w)]
    return len(set(roots))


def main():
    img = draw().to(torch.uint8)  # BORN
    print("regions found:", segment(img), "(drawn: 2)")


main()
