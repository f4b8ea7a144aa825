"""
title: Depth prediction runs wholly in float16, metrics are taken in float32
expect: clean
thread: https://github.com/prs-eth/Marigold/pull/45
measured: AbsRel 0.03 delta1 1.00
suspect: 65 negligible (each prediction has about three digits; it is aligned by least squares in float32)

Expectation, written first: With half precision the checkpoint is loaded in float16 and the images too. The
predictions differ from float32 by about 1e-3 of their range; alignment and metrics are float32. AbsRel
and delta1 are printed to two decimals and do not change.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DepthNet(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, ch, 3, padding=1), nn.GroupNorm(3, ch), nn.SiLU(),
            nn.Conv2d(ch, ch, 3, padding=1), nn.SiLU(),
            nn.Conv2d(ch, 1, 3, padding=1),
        )

    def forward(self, rgb):
        return torch.sigmoid(self.net(rgb))


def make_scene(n, generator):
    coarse = torch.rand(n, 1, 4, 4, generator=generator)
    depth = F.interpolate(coarse, size=(16, 16), mode="bilinear") * 4 + 1
    shade = 1 / depth
    rgb = torch.cat([shade, shade.sqrt(), 1 - shade], 1) + 0.02 * torch.randn(n, 3, 16, 16, generator=generator)
    return rgb, depth


def pretrain(generator, steps=80):
    model = DepthNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        rgb, depth = make_scene(8, generator)
        loss = F.mse_loss(model(rgb), (depth - 1) / 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {k: v.detach().clone() for k, v in model.state_dict().items()}


class MarigoldPipeline:
    def __init__(self, model, dtype):
        self.model, self.dtype = model, dtype

    @classmethod
    def from_pretrained(cls, checkpoint, torch_dtype):
        model = DepthNet()
        model.load_state_dict(checkpoint)
        return cls(model.to(torch_dtype).eval(), torch_dtype)

    @torch.no_grad()
    def __call__(self, rgb, ensemble_size=2):
        preds = []
        for k in range(ensemble_size):
            flip = rgb.flip(-1) if k % 2 else rgb
            pred = self.model(flip.to(self.dtype))
            preds.append((pred.flip(-1) if k % 2 else pred).float())
        return torch.stack(preds).mean(0)


def align_depth_least_square(gt, pred):
    A = torch.stack([pred.flatten(), torch.ones(pred.numel())], dim=1)
    scale, shift = torch.linalg.lstsq(A, gt.flatten()[:, None]).solution.flatten()
    return pred * scale + shift


def metrics(gt, pred):
    abs_rel = ((pred - gt).abs() / gt).mean().item()
    ratio = torch.maximum(pred / gt, gt / pred)
    return abs_rel, (ratio < 1.25).float().mean().item()


def main(half_precision=True):
    torch.manual_seed(45)
    generator = torch.Generator().manual_seed(45)
    checkpoint = pretrain(generator)
    dtype = torch.float16 if half_precision else torch.float32
    pipe = MarigoldPipeline.from_pretrained(checkpoint, torch_dtype=dtype)
    rgb, depth = make_scene(16, generator)
    abs_rel, delta1 = metrics(depth, align_depth_least_square(depth, pipe(rgb)))
    print(f"AbsRel {abs_rel:.2f} delta1 {delta1:.2f}")


if __name__ == "__main__":
    main()
