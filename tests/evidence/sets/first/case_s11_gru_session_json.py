"""
title: a streaming detector's GRU state comes back from a JSON session as float32
expect: collision

After snakers4/silero-vad style streaming and pytorch/pytorch#45048 (recurrent cells with mixed dtypes). Between two chunks the
session keeps the state as a list; torch.tensor() of a list of floats is float32, the detector is bfloat16.
Right change: give the model's dtype where the state is restored.
"""
import json

import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self, bands=6, hidden=10):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(bands, hidden, 3, padding=1), nn.ReLU())
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, chunk, state=None):
        features = self.front(chunk).transpose(1, 2)
        features, state = self.rnn(features, state)  # COLLIDES
        return self.head(features).sigmoid().squeeze(-1), state


class Sessions:
    """What a web worker keeps of each call between two requests: text only."""

    def __init__(self):
        self.store = {}

    def save(self, call, state):
        self.store[call] = json.dumps({"h": state.tolist()})

    def load(self, call):
        if call not in self.store:
            return None
        return torch.tensor(json.loads(self.store[call])["h"])  # BORN


class Service:
    def __init__(self, detector):
        self.detector, self.sessions = detector, Sessions()
        self.dtype = next(detector.parameters()).dtype

    @torch.no_grad()
    def handle(self, call, samples):
        chunk = torch.as_tensor(samples, dtype=self.dtype).unsqueeze(0)
        speech, state = self.detector(chunk, self.sessions.load(call))
        self.sessions.save(call, state)
        return speech.float().mean().item()


torch.manual_seed(0)
service = Service(Detector().to(torch.bfloat16).eval())
for request in range(3):
    print(request, 0 < service.handle("call-7", torch.randn(6, 8).tolist()) < 1)
