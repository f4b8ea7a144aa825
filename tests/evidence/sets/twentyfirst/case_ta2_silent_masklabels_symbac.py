"""
title: exported ground-truth masks lose cells because lineage numbers above 255 wrap in uint8
expect: silent:wraparound|overflow|integer-overflow|downcast
thread: https://github.com/georgeoshardo/SyMBac/pull/58
measured: 120 cells drawn, 19 cells in the exported masks, mean grey 66.4
widened: 120 cells drawn, 120 cells in the exported masks, mean grey 66.4 ; innocent: 120 cells drawn, 19 cells in the exported masks, mean grey 66.4
suspect: 46 display (the rendered image is quantised to uint8 grey levels after scaling into 0..255)

Expectation, written first: the exporter casts the simulation's persistent lineage numbers to the mask dtype, uint8; numbers that are
multiples of 256 become background and others merge with older cells, so the exported frames hold fewer cells than were drawn. The
image beside it is also cast to uint8, but is scaled into its range before.
"""
import torch


class Cell:
    def __init__(self, mask_label, centre, length, width):
        self.mask_label = mask_label
        self.centre = centre
        self.length = length
        self.width = width

    def footprint(self, yy, xx):
        cy, cx = self.centre
        return ((yy - cy) / self.length) ** 2 + ((xx - cx) / self.width) ** 2 <= 1.0


class Renderer:
    def __init__(self, shape, mask_dtype=torch.uint8):
        self.shape = shape
        self.mask_dtype = mask_dtype
        self.yy, self.xx = torch.meshgrid(torch.arange(shape[0]), torch.arange(shape[1]), indexing="ij")

    def draw_scene(self, cells):
        scene = torch.zeros(self.shape)
        mask = torch.zeros(self.shape, dtype=torch.int64)
        for cell in cells:
            inside = cell.footprint(self.yy, self.xx)
            scene[inside] += 0.6
            mask[inside] = cell.mask_label
        return scene, mask

    def generate_training_sample(self, cells):
        scene, mask = self.draw_scene(cells)
        image = scene + 0.05 * torch.rand(self.shape)
        image = (255 * image / image.max()).round().to(torch.uint8)
        return image, mask.to(self.mask_dtype)  # BORN


def frame_cells(first_label, rows=4, cols=6):
    cells, label = [], first_label
    for r in range(rows):
        for c in range(cols):
            cells.append(Cell(label, (12 + 24 * r, 10 + 20 * c), 8.0, 5.0))
            label += 64
    return cells


def count_cells(masks):
    return sum(int((torch.unique(mask) != 0).sum()) for mask in masks)


def main():
    torch.manual_seed(0)
    renderer = Renderer((96, 128), mask_dtype=torch.uint8)  # BORN
    images, masks, drawn = [], [], 0
    for frame in range(5):
        cells = frame_cells(first_label=1 + 63 * frame)
        image, mask = renderer.generate_training_sample(cells)
        images.append(image)
        masks.append(mask)
        drawn += len(cells)
    brightness = torch.stack(images).float().mean().item()
    print(f"{drawn} cells drawn, {count_cells(masks)} cells in the exported masks, mean grey {brightness:.1f}")


if __name__ == "__main__":
    main()
