"""
title: a 16-bit recording is decoded as int16 and mixed down to mono
expect: collision
thread: https://github.com/christian-byrne/audio-separation-nodes-comfyui/issues/16
fix_at: 37, 38, 39, 49, 52, 58

Expectation, written first: the samples stay int16 after the decoding; the mean over the channels has no integer
result type and torch refuses to infer one.
"""
import array
import io
import math
import wave

import torch


def record(seconds=0.5, rate=8000):
    stream = io.BytesIO()
    with wave.open(stream, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(rate)
        samples = array.array("h")
        for n in range(int(seconds * rate)):
            samples.append(int(12000 * math.sin(2 * math.pi * 330 * n / rate)))
            samples.append(int(9000 * math.sin(2 * math.pi * 331 * n / rate)))
        out.writeframes(samples.tobytes())
    stream.seek(0)
    return stream


class LoadAudio:
    def __call__(self, stream):
        with wave.open(stream, "rb") as clip:
            raw = bytearray(clip.readframes(clip.getnframes()))
            waveform = torch.frombuffer(raw, dtype=torch.int16)  # BORN
            waveform = waveform.view(-1, clip.getnchannels()).T
            return {"waveform": waveform[None], "sample_rate": clip.getframerate()}


class Recombine:
    """the node that levels two stems before they are laid over each other"""

    def __init__(self, frame=400):
        self.frame = frame

    def mono(self, audio):
        return audio["waveform"].mean(dim=1)  # COLLIDES

    def loudness(self, audio):
        frames = self.mono(audio).unfold(-1, self.frame, self.frame)
        return 20 * torch.log10(frames.square().mean(-1).sqrt() + 1e-5)


def main():
    audio = LoadAudio()(record())
    level = Recombine().loudness(audio)
    print(audio["sample_rate"], tuple(level.shape), [round(v, 2) for v in level[0, :3].tolist()])


main()
