"""
title: streaming speech enhancer keeps its recurrent state in the default dtype
expect: collision
thread: https://github.com/pytorch/pytorch/issues/45048
fix_at: 39, 27

Expectation, written first: the model is bf16, the state handed over between chunks
starts as float32 zeros, and the recurrent cell refuses the pair. Birth: the zeros.
"""
import torch
from torch import nn


class EnhancerCell(nn.Module):
    def __init__(self, bins=17, hidden=24):
        super().__init__()
        self.hidden = hidden
        self.enc = nn.Linear(bins, hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.mask = nn.Linear(hidden, bins)

    def init_state(self, batch):
        return torch.zeros(1, batch, self.hidden)  # BORN

    def forward(self, chunk, state):
        h = torch.relu(self.enc(chunk))
        h, state = self.rnn(h, state)  # COLLIDES
        return chunk * torch.sigmoid(self.mask(h)), state


class Streamer:
    def __init__(self, model, chunk=4):
        self.model, self.chunk = model, chunk
        self.state = None

    @torch.no_grad()
    def push(self, frames):
        if self.state is None:
            self.state = self.model.init_state(frames.shape[0])
        outs = []
        for piece in frames.split(self.chunk, dim=1):
            y, self.state = self.model(piece, self.state)
            outs.append(y)
        return torch.cat(outs, 1)


def noisy_frames(batch=2, frames=16, bins=17):
    t = torch.linspace(0, 1, frames)[None, :, None]
    f = torch.arange(bins)[None, None, :]
    clean = torch.exp(-((f - 8 - 4 * torch.sin(6.28 * t)) ** 2) / 4).expand(batch, -1, -1)
    return clean + 0.1 * torch.rand(batch, frames, bins)


def main():
    torch.manual_seed(13)
    model = EnhancerCell().to(torch.bfloat16).eval()
    streamer = Streamer(model)
    frames = noisy_frames().to(torch.bfloat16)
    enhanced = streamer.push(frames)
    print("energy kept", round((enhanced.float().pow(2).sum() / frames.float().pow(2).sum()).item(), 4))


main()
