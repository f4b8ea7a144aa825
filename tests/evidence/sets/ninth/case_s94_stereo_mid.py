"""
title: oscilloscope view averages loud int16 stereo and draws in half
expect: silent:overflow
thread: https://github.com/corrscope/corrscope/issues/63
measured: jumps in the trace 220, largest deviation 1.000 of full scale
widened: jumps in the trace 0, largest deviation 0.000 of full scale
fix_at: 43

Expectation, written first: left plus right of a loud recording exceeds int16 and wraps,
so the middle channel has full scale jumps. The drawing buffer is half with three
digits, enough for a screen; float32 there does not remove the jumps.
"""
import torch


class Recording:
    def __init__(self, seconds=0.5, rate=16000, level=0.9):
        t = torch.arange(int(seconds * rate), dtype=torch.float64) / rate
        tone = level * torch.sin(2 * torch.pi * 110 * t)
        detail = 0.05 * torch.sin(2 * torch.pi * 660 * t)
        self.left = self.quantise(tone + detail)
        self.right = self.quantise(tone - detail)
        self.reference = tone

    @staticmethod
    def quantise(x):
        return (x * 32767).round().clamp(-32768, 32767)


class StereoDecoder:
    def __init__(self, sample_dtype):
        self.sample_dtype = sample_dtype

    def channels(self, rec):
        return rec.left.to(self.sample_dtype), rec.right.to(self.sample_dtype)


class Scope:
    def __init__(self, canvas_dtype):
        self.canvas_dtype = canvas_dtype

    def trace(self, left, right):
        mid = (left + right) / 2
        return (mid / 32768).to(self.canvas_dtype)


def jumps(trace, limit=0.5):
    return (trace.double().diff().abs() > limit).sum().item()


def main():
    rec = Recording()
    decoder = StereoDecoder(torch.int16)  # BORN
    scope = Scope(canvas_dtype=torch.float16)
    trace = scope.trace(*decoder.channels(rec))
    err = (trace.double() - rec.reference).abs().max().item()
    print(f"jumps in the trace {jumps(trace)}, largest deviation {err:.3f} of full scale")


main()
