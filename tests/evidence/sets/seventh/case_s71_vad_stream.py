"""
title: Streaming voice activity detector in half precision starts its LSTM from a float32 state
expect: collision
thread: https://github.com/pytorch/TensorRT/issues/2666

Expectation, written first.  The detector runs in float16 and its chunks are
float16.  reset_state() makes the hidden and cell tensors with torch.zeros and
no dtype, so the first chunk multiplies a float32 hidden state by float16
recurrent weights.  BORN is the torch.zeros in reset_state; COLLIDES is the
call of the LSTM.
"""
import torch
from torch import nn

torch.manual_seed(0)


class ChunkEncoder(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.conv = nn.Conv1d(1, hidden, kernel_size=16, stride=8)
        self.norm = nn.GroupNorm(1, hidden)

    def forward(self, chunk):
        return self.norm(self.conv(chunk[:, None])).relu().mean(-1)


class StreamingVAD(nn.Module):
    def __init__(self, hidden=24, layers=2):
        super().__init__()
        self.encoder = ChunkEncoder(hidden)
        self.lstm = nn.LSTM(hidden, hidden, num_layers=layers, batch_first=True)
        self.head = nn.Linear(hidden, 1)
        self.layers, self.hidden = layers, hidden
        self.reset_state()

    def reset_state(self, batch=1):
        self.state = tuple(torch.zeros(2, self.layers, batch, self.hidden))  # BORN

    @torch.no_grad()
    def forward(self, chunk):
        if self.state[0].size(1) != chunk.size(0):
            self.reset_state(chunk.size(0))
        feature = self.encoder(chunk)
        out, self.state = self.lstm(feature[:, None], self.state)  # COLLIDES
        return torch.sigmoid(self.head(out[:, -1])).squeeze(-1)


def microphone(seconds=1.0, rate=16000, chunk=512):
    t = torch.arange(int(seconds * rate)) / rate
    speech = torch.sin(2 * torch.pi * 180 * t) * ((t > 0.3) & (t < 0.7))
    audio = speech * 0.5 + 0.01 * torch.randn(t.numel())
    yield from audio.unfold(0, chunk, chunk)


if __name__ == "__main__":
    vad = StreamingVAD().half().eval()
    probs = [vad(chunk[None].half()).item() for chunk in microphone()]
    print(f"{len(probs)} chunks, mean speech probability {sum(probs) / len(probs):.3f}")
