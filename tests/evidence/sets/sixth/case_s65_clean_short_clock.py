"""
title: a click is timed on a float16 clock of 512 samples per second, two seconds long, from eight-bit samples in bfloat16
expect: clean
"""
import torch

torch.manual_seed(951)


class Recorder:
    def __init__(self, rate=512, seconds=2):
        self.rate, self.count = rate, rate * seconds

    def click(self, at):
        t = torch.arange(self.count) / self.rate
        wave = 100 * torch.exp(-((t - at) / 0.02) ** 2) + 2 * torch.randn(self.count)
        return wave.round().clamp(-127, 127)


def when(recorder, samples):
    """The centre of what is loud."""
    samples = samples.bfloat16().float()
    t = (torch.arange(recorder.count) / recorder.rate).half().float()
    weight = (samples - 20).clamp(min=0)
    return (weight * t).sum() / weight.sum()


recorder = Recorder()
error = [when(recorder, recorder.click(at)).item() - at for at in (0.3, 0.75, 1.2, 1.6)]
print("milliseconds off", [round(1000 * e, 1) for e in error])
