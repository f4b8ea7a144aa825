"""
title: mixing int16 stereo audio down to mono fails with "mean(): could not infer output dtype ... Got: Short"
expect: collision
thread: https://github.com/christian-byrne/audio-separation-nodes-comfyui/issues/16

Expectation, written first: the loader keeps the 16-bit PCM samples as an int16 tensor instead of scaling them to float.
The mono mixdown takes the mean over the channels, and mean() refuses an integer input.
"""
import math
import struct

import torch
import torch.nn.functional as F


def render_pcm(seconds, sample_rate, channels=2):
    frames = []
    for n in range(int(seconds * sample_rate)):
        t = n / sample_rate
        for c in range(channels):
            value = 0.4 * math.sin(2 * math.pi * (220 + 110 * c) * t)
            frames.append(struct.pack("<h", int(value * 32767)))
    return b"".join(frames)


def load_waveform(pcm, channels):
    samples = torch.frombuffer(bytearray(pcm), dtype=torch.int16)  # BORN
    return samples.view(-1, channels).t().contiguous()  # BORN


class AudioGetTempo:
    hop_length = 64

    def to_mono(self, waveform):
        if waveform.dim() == 3:
            waveform = waveform.squeeze(0)
        if waveform.shape[0] > 1:
            return waveform.mean(dim=0, keepdim=True)  # BORN COLLIDES
        return waveform

    def onset_envelope(self, mono):
        frames = mono.unfold(1, self.hop_length, self.hop_length)
        energy = frames.float().pow(2).mean(dim=-1)
        return F.relu(energy[:, 1:] - energy[:, :-1])

    def main(self, audio):
        waveform = audio["waveform"]
        mono = self.to_mono(waveform)
        envelope = self.onset_envelope(mono)
        lag = int(envelope.mean(0).argmax().item()) + 1
        tempo = 60.0 * audio["sample_rate"] / (lag * self.hop_length)
        return tempo, mono


class AudioSpeedShift:
    def main(self, audio, rate):
        mono = AudioGetTempo().to_mono(audio["waveform"])
        length = int(mono.shape[-1] / rate)
        stretched = F.interpolate(mono[None].float(), size=length, mode="linear", align_corners=False)
        return {"waveform": stretched, "sample_rate": audio["sample_rate"]}


def main():
    sample_rate = 8000
    pcm = render_pcm(0.2, sample_rate)
    audio = {"waveform": load_waveform(pcm, channels=2)[None], "sample_rate": sample_rate}
    tempo, mono = AudioGetTempo().main(audio)
    print(f"tempo {tempo:.1f} samples {mono.shape[-1]}")
    shifted = AudioSpeedShift().main(audio, rate=1.25)
    print("shifted", tuple(shifted["waveform"].shape))


if __name__ == "__main__":
    main()
