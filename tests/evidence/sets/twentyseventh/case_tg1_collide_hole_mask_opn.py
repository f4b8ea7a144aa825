"""
title: The valid region is one minus a boolean hole mask
expect: collision
thread: https://github.com/seoungwugoh/opn-demo/issues/8
fix_at: (none beside the marked)

Expectation, written first: the holes are made by a comparison, which gives a bool tensor since torch 1.2.
One minus a bool tensor is refused; with ~ or a float mask the onion peeling runs.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class OPN(nn.Module):
    """Peels one layer of the hole after the other and fills it from the reference frames."""

    def __init__(self, mdim=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(5, mdim, 5, stride=2, padding=2), nn.LeakyReLU(0.2),
                                     nn.Conv2d(mdim, mdim, 3, padding=1), nn.LeakyReLU(0.2))
        self.key = nn.Conv2d(mdim, mdim // 2, 3, padding=1)
        self.value = nn.Conv2d(mdim, mdim, 3, padding=1)
        self.decoder = nn.Conv2d(2 * mdim, 3, 3, padding=1)

    def memory(self, frame, valid, hole):
        f = self.encoder(torch.cat([frame, valid, hole], dim=1))
        return self.key(f), self.value(f), F.interpolate(valid, size=f.shape[-2:])

    def forward(self, mem, frame, valid, hole):
        f = self.encoder(torch.cat([frame, valid, hole], dim=1))
        q, v = self.key(f), self.value(f)
        mkey, mval, mvalid = mem
        b, c, h, w = q.shape
        p = torch.einsum("bcn,bcm->bnm", mkey.flatten(2), q.flatten(2)) / c ** 0.5
        p = p.masked_fill(mvalid.flatten(1)[:, :, None] < 0.5, -1e4).softmax(dim=1)
        read = torch.einsum("bcn,bnm->bcm", mval.flatten(2), p).view(b, -1, h, w)
        out = self.decoder(F.interpolate(torch.cat([v, read], dim=1), scale_factor=2.0))
        return torch.sigmoid(out)


def load_sequence(num_frames, size):
    frames = torch.rand(num_frames, 3, size, size)
    masks = torch.zeros(num_frames, 1, size, size)
    masks[:, :, size // 4: size // 2, size // 4: size // 2] = 1.0
    return frames, masks


def peel(hole, width=3):
    inner = -F.max_pool2d(-hole, kernel_size=2 * width + 1, stride=1, padding=width)
    return hole - inner, inner


@torch.no_grad()
def inpaint(model, frames, masks):
    holes = masks > 0.5  # BORN
    valids = 1 - holes  # BORN COLLIDES
    holes, valids = holes.float(), valids.float()
    frames = frames * valids + 0.5 * holes
    mem = model.memory(frames[:1], valids[:1], holes[:1])
    comps = frames.clone()
    for f in range(1, len(frames)):
        hole, valid = holes[f:f + 1], valids[f:f + 1]
        for _ in range(3):
            ring, inner = peel(hole)
            pred = model(mem, comps[f:f + 1], valid, hole)
            comps[f:f + 1] = comps[f:f + 1] * (1 - ring) + pred * ring
            hole, valid = inner, 1 - inner
    return comps


if __name__ == "__main__":
    torch.manual_seed(8)
    frames, masks = load_sequence(num_frames=3, size=24)
    result = inpaint(OPN().eval(), frames, masks)
    print("filled mean", round(result[masks.expand_as(result) > 0.5].mean().item(), 4))
