"""
title: full-scale samples are multiplied by 32768 and cast to int16, so each peak flips its sign and clicks
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/microsoft/VibeVoice/pull/281
measured: samples with the wrong sign 6258 of 96000 ; largest error 2.0000 ; speech frames 280 of 400
widened: samples with the wrong sign 0 of 96000 ; largest error 0.0001 ; speech frames 280 of 400
innocent: samples with the wrong sign 6258 of 96000 ; largest error 2.0000 ; speech frames 280 of 400
suspect: 34 promotes (the sum of int8 flags is taken in int64)

Expectation, written first: normalised audio reaches exactly +1.0, times 32768 is 32768, one more than int16 holds, so the cast wraps to -32768 and the
largest jump between neighbours becomes twice full scale. Voice activity is kept in int8 flags, of which there are far more than 127, but torch sums
them in int64.
"""
import math
import torch


def normalize_peak(audio):
    return audio / audio.abs().amax()


def convert_to_16_bit_wav(audio):
    audio = audio.clamp(-1.0, 1.0)
    return (audio * 32768.0).to(torch.int16)  # BORN


class VoiceActivity:
    def __init__(self, frame=240, threshold=0.01):
        self.frame, self.threshold = frame, threshold

    def __call__(self, audio):
        frames = audio.unfold(0, self.frame, self.frame)
        energy = frames.pow(2).mean(-1)
        return (energy > self.threshold).to(torch.int8)


class AudioStreamer:
    def __init__(self, sample_rate=24000):
        self.sample_rate = sample_rate
        self.chunks = []

    def put(self, chunk):
        self.chunks.append(chunk)

    def finish(self):
        return torch.cat(self.chunks)


def synthesize(sample_rate=24000, seconds=4):
    g = torch.Generator().manual_seed(3)
    t = torch.arange(sample_rate * seconds) / sample_rate
    tone = torch.sign(torch.sin(2 * math.pi * 110 * t)) * 0.5 + 0.3 * torch.sin(2 * math.pi * 220 * t)
    envelope = torch.where((t % 1.0) < 0.7, 1.0, 0.0)
    return (tone * envelope + 0.001 * torch.randn(t.shape, generator=g)).clamp(-0.75, 0.75)


def main():
    streamer, vad = AudioStreamer(), VoiceActivity()
    audio = normalize_peak(synthesize())
    for chunk in audio.split(6000):
        streamer.put(convert_to_16_bit_wav(chunk))
    pcm = streamer.finish()
    flags = vad(audio)
    flipped = int(((audio > 0.5) & (pcm < 0)).sum())
    error = (pcm.float() / 32768 - audio).abs().max().item()
    print(f"samples with the wrong sign {flipped} of {pcm.numel()}")
    print(f"largest error {error:.4f}")
    print(f"speech frames {int(flags.sum())} of {flags.numel()}")


main()
