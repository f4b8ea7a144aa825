"""
title: the initial state of a recurrent network made in the dtype of its weights
expect: clean

Input, state and weights are bfloat16.
"""
import torch
from torch import nn


class Speech(nn.Module):
    def __init__(self, mels, width, letters):
        super().__init__()
        self.front = nn.Conv1d(mels, width, 3, stride=2)
        self.recurrent = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, letters)

    def begin(self, batch):
        layers, width = self.recurrent.num_layers, self.recurrent.hidden_size
        return torch.zeros(2, layers, batch, width, dtype=torch.bfloat16).unbind()

    def forward(self, mel, state=None):
        frames = torch.relu(self.front(mel)).transpose(1, 2)
        hidden, state = self.recurrent(frames, state)
        return self.out(hidden).log_softmax(-1), state


class Stream:
    def __init__(self, model):
        self.model = model
        self.state = None

    def push(self, chunk):
        if self.state is None:
            self.state = self.model.begin(chunk.shape[0])
        scores, self.state = self.model(chunk, self.state)
        return scores.argmax(-1)


torch.manual_seed(0)
stream = Stream(Speech(mels=8, width=16, letters=5).bfloat16().eval())
with torch.inference_mode():
    for chunk in torch.randn(2, 1, 8, 20).bfloat16():
        print(stream.push(chunk).tolist())
