"""
title: test_image feeds the P-Net a double image tensor
expect: collision
thread: https://github.com/kuaikuaikim/dface/issues/39
fix_at: (none beside the marked)

Expectation, written first: convert_image_to_tensor turns the uint8 picture into float64 in NumPy before the
mean is taken off and divides; torch.from_numpy keeps the double. The P-Net is float32, so its first
convolution raises for the Double input. The training loader casts on its own and is not affected.
"""
import numpy as np
import torch
import torch.nn as nn


def convert_image_to_tensor(image):
    image = image.astype(np.float64)  # BORN
    image = (image - 127.5) * 0.0078125
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))  # BORN


def resize_image(img, scale):
    height, width, _ = img.shape
    rows = (np.arange(int(height * scale)) / scale).astype(np.int64)
    cols = (np.arange(int(width * scale)) / scale).astype(np.int64)
    return img[rows][:, cols]


class PNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre_layer = nn.Sequential(
            nn.Conv2d(3, 10, kernel_size=3), nn.PReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(10, 16, kernel_size=3), nn.PReLU(),
            nn.Conv2d(16, 32, kernel_size=3), nn.PReLU())
        self.conv4_1 = nn.Conv2d(32, 1, kernel_size=1)
        self.conv4_2 = nn.Conv2d(32, 4, kernel_size=1)

    def forward(self, x):
        x = self.pre_layer(x)  # COLLIDES
        return torch.sigmoid(self.conv4_1(x)), self.conv4_2(x)


class MtcnnDetector:
    def __init__(self, pnet_detector, min_face_size=12, thresh=0.5, scale_factor=0.709):
        self.pnet_detector = pnet_detector
        self.min_face_size = min_face_size
        self.thresh = thresh
        self.scale_factor = scale_factor

    def generate_bounding_box(self, cls_map, reg, scale):
        stride, cellsize = 2, 12
        t_index = np.where(cls_map > self.thresh)
        score = cls_map[t_index]
        dx = np.stack([reg[t_index[0], t_index[1], i] for i in range(4)], axis=1)
        boxes = np.stack([t_index[1] * stride, t_index[0] * stride,
                          t_index[1] * stride + cellsize, t_index[0] * stride + cellsize], axis=1) / scale
        return np.hstack([boxes, score[:, None], dx])

    @torch.no_grad()
    def detect_pnet(self, im):
        current_scale = 12.0 / self.min_face_size
        im_resized = resize_image(im, current_scale)
        all_boxes = []
        while min(im_resized.shape[:2]) > 12:
            feed_imgs = convert_image_to_tensor(im_resized).unsqueeze(0)
            cls_map, reg = self.pnet_detector(feed_imgs)
            boxes = self.generate_bounding_box(cls_map[0, 0].numpy(), reg[0].permute(1, 2, 0).numpy(), current_scale)
            all_boxes.append(boxes)
            current_scale *= self.scale_factor
            im_resized = resize_image(im, current_scale)
        return np.vstack(all_boxes)


def main():
    torch.manual_seed(39)
    pnet = PNet().eval()
    img = np.random.default_rng(39).integers(0, 256, size=(48, 64, 3), dtype=np.uint8)
    boxes = MtcnnDetector(pnet, min_face_size=12).detect_pnet(img)
    print("pnet boxes", boxes.shape, "mean score", round(float(boxes[:, 4].mean()), 4))


if __name__ == "__main__":
    main()
