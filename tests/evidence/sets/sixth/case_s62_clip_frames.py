"""
title: the frames of a clip are numbered in the model's float16, late in a long video most numbers are no frames' own
expect: silent:precision-loss|downcast|round-trip
fix_at: 27

After https://github.com/meta-pytorch/torchcodec/pull/1294, https://github.com/huggingface/lerobot/issues/3580 and
https://github.com/heygen-com/hyperframes/issues/1317.
Right: frame numbers are integers, or float32.
"""
import torch

torch.manual_seed(706)


class Video:
    """A point that turns; decoded frame by frame."""

    def __init__(self, frames=20000, turn=0.05):
        self.frames, self.turn = frames, turn

    def __getitem__(self, index):
        angle = index.double() * self.turn
        return torch.stack([angle.cos(), angle.sin()], dim=-1).float()


class ClipSampler:
    def __init__(self, length=16, stride=2, dtype=torch.float16):
        self.length, self.stride, self.dtype = length, stride, dtype

    def __call__(self, video, start):
        index = torch.arange(start, start + self.length * self.stride, self.stride, dtype=self.dtype)  # BORN
        index = index.round().clamp(0, video.frames - 1).long()
        return index, video[index]


def speed(clip):
    """Mean turn between neighbouring frames of the clip."""
    a, b = clip[:-1], clip[1:]
    return torch.atan2(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0], (a * b).sum(-1))


video, sampler = Video(), ClipSampler()
starts = torch.randint(0, video.frames - 64, (40,)).tolist()
twice, off, jitter = 0, 0, 0.0
for start in starts:
    index, clip = sampler(video, start)
    wanted = start + torch.arange(sampler.length) * sampler.stride
    twice += sampler.length - len(index.unique())
    off += (index != wanted).sum().item()
    jitter += (speed(clip) - sampler.stride * video.turn).abs().mean().item()
total = len(starts) * sampler.length
print("wrong frames", round(off / total, 3), "seen twice", round(twice / total, 3), "error of the turn", round(jitter / len(starts), 4))
