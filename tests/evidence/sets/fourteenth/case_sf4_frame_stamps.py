"""
title: the frames of an episode are looked up by float32 timestamps at thirty frames a second
expect: clean
thread: https://github.com/huggingface/lerobot/pull/2447
measured: wrong frames 0 of 1032, largest deviation 0.0 ms

Expectation, written first: an episode lasts a minute, float32 keeps steps of four millionths of a second there, and the
stamp is rounded to the nearest frame; each query finds its own frame as in float64.
"""
import torch


class Episode:
    def __init__(self, frames, fps):
        self.fps = fps
        self.stamps = torch.tensor([k / fps for k in range(frames)], dtype=torch.float32)
        self.action = torch.sin(torch.arange(frames) / 9.0)

    def __len__(self):
        return len(self.stamps)

    def window(self, k, offsets):
        query = self.stamps[k] + torch.tensor(offsets)
        last = (len(self) - 1) / self.fps
        return query.clamp(0, last)


class Video:
    """a decoder that counts frames; the picture is the number of the frame"""

    def __init__(self, frames, fps, tolerance=1e-3):
        self.frames, self.fps, self.tolerance = frames, fps, tolerance

    def decode(self, query):
        index = (query.double() * self.fps).round().long().clamp(0, self.frames - 1)
        off = (index / self.fps - query.double()).abs().max().item()
        if off > self.tolerance:
            raise ValueError(f"timestamps violate the tolerance by {off}")
        return index, off


class Loader:
    def __init__(self, episode, video, history):
        self.episode, self.video = episode, video
        self.offsets = [-j / episode.fps for j in reversed(range(history))]

    def __iter__(self):
        for k in range(0, len(self.episode), 7):
            pictures, off = self.video.decode(self.episode.window(k, self.offsets))
            yield k, pictures, off


def main():
    frames, fps = 1800, 30
    loader = Loader(Episode(frames, fps), Video(frames, fps), history=4)
    wrong, count, worst = 0, 0, 0.0
    for k, pictures, off in loader:
        expected = torch.arange(k - 3, k + 1).clamp(min=0)
        wrong += (pictures != expected).sum().item()
        count += len(pictures)
        worst = max(worst, off)
    print(f"wrong frames {wrong} of {count}, largest deviation {1000 * worst:.1f} ms")


main()
