"""
title: Short-time energy of 16-bit PCM is squared in int16
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/tyiannak/pyAudioAnalysis/issues/194
measured: recall of speech frames = 0.000, median energy of speech = -1 (true about 4.05e7)
widened: recall of speech frames = 1.000, median energy of speech = 40360296 (true about 4.05e7)

Expectation, written first.  The wav reader gives int16 samples and the frames
are views of them.  frame * frame is int16 arithmetic: any sample beyond 181
wraps, loud speech gets a random, partly negative energy, and the energy gate
keeps noise and drops speech.  BORN is the from-buffer line that makes the
int16 signal (a .to(torch.int32)/float conversion right there mends it).
"""
import array
import math

import torch

torch.manual_seed(0)
RATE, FRAME = 8000, 200


def wav_bytes(seconds=2.0):
    """Noise of amplitude 60; between 0.5 s and 1.2 s a voice of amplitude 9000."""
    g = torch.Generator().manual_seed(8)
    samples = array.array("h")
    noise = torch.randn(int(seconds * RATE), generator=g).tolist()
    for k, e in enumerate(noise):
        t = k / RATE
        voice = 9000 * math.sin(2 * math.pi * 210 * t) if 0.5 <= t < 1.2 else 0.0
        samples.append(int(max(-32768, min(32767, voice + 60 * e))))
    return samples.tobytes()


def read_audio(raw):
    signal = torch.frombuffer(bytearray(raw), dtype=torch.int16)  # BORN
    return RATE, signal


def frames(signal):
    return signal.unfold(0, FRAME, FRAME)


def short_time_energy(frame):
    return (frame * frame).sum(-1) / FRAME


def zero_crossings(frame):
    return (torch.diff(torch.sign(frame)) != 0).sum(-1)


def gate(signal, threshold=100_000):
    f = frames(signal)
    energy = short_time_energy(f)
    return energy, (energy > threshold) & (zero_crossings(f) < FRAME // 2)


def main():
    rate, signal = read_audio(wav_bytes())
    energy, speech = gate(signal)
    start = torch.arange(speech.numel()) * FRAME / rate
    truth = (start >= 0.5) & (start < 1.2)
    hit = (speech & truth).sum().item() / truth.sum().item()
    print(f"recall of speech frames = {hit:.3f}, median energy of speech = {energy[truth].double().median():.0f} (true about 4.05e7)")


if __name__ == "__main__":
    main()
