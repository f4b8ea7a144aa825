"""
title: The matting model is loaded in half and gets the float image of the transform
expect: collision
thread: https://github.com/MoonHugo/ComfyUI-BiRefNet-Hugo/issues/28
fix_at: the .half() of the loader

Expectation, written first: The loader casts the matting network to half. The image transform gives float32
and the node passes it on as it is, so the first convolution gets Float input and Half bias and raises.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicDecBlk(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv_in = nn.Conv2d(cin, cout, 3, padding=1)
        self.bn_in = nn.BatchNorm2d(cout)
        self.conv_out = nn.Conv2d(cout, cout, 1)

    def forward(self, x):
        return self.conv_out(F.relu(self.bn_in(self.conv_in(x))))


class BiRefNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.decoder = BasicDecBlk(width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        feats = self.patch(x)  # COLLIDES
        pred = self.head(self.decoder(feats))
        return [F.interpolate(pred, size=x.shape[-2:], mode="bilinear", align_corners=True)]


class ImagePreprocessor:
    def __init__(self, resolution):
        self.resolution = resolution
        self.mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def proc(self, image):
        image = F.interpolate(image.permute(2, 0, 1)[None], size=self.resolution, mode="bilinear")[0]
        return (image - self.mean) / self.std


class BiRefNetHugo:
    def __init__(self):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = None

    def load_model(self):
        torch.manual_seed(17)
        model = BiRefNet().to(self.device)
        model.half()
        model.eval()
        self.model = model

    @torch.no_grad()
    def background_remove(self, images, resolution=(64, 64)):
        if self.model is None:
            self.load_model()
        preprocessor = ImagePreprocessor(resolution)
        out, masks = [], []
        for image in images:
            im_tensor = preprocessor.proc(image).unsqueeze(0).to(self.device)  # BORN
            preds = self.model(im_tensor)[-1].sigmoid().float().cpu()  # BORN
            mask = F.interpolate(preds, size=image.shape[:2], mode="bilinear")[0, 0]
            mask = (mask - mask.min()) / (mask.max() - mask.min())
            out.append(image * mask[..., None])
            masks.append(mask)
        return torch.stack(out), torch.stack(masks)


def main():
    torch.manual_seed(18)
    images = torch.rand(2, 80, 100, 3)
    rgb, masks = BiRefNetHugo().background_remove(images)
    print(tuple(rgb.shape), round(masks.mean().item(), 4))


if __name__ == "__main__":
    main()
