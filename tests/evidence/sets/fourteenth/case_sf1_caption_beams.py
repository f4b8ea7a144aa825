"""
title: the beam of every caption candidate is found by dividing the flat index
expect: collision
thread: https://github.com/zhangxuying1004/RSTNet/issues/29
fix_at: 45, 46, 58

Expectation, written first: the flat index is int64; since true division gives floats for integers, the beam numbers
are float32; gathering the states of the beams with them is refused.
"""
import torch
from torch import nn


class Captioner(nn.Module):
    def __init__(self, vocab=40, width=24, regions=10):
        super().__init__()
        self.vocab = vocab
        self.project = nn.Linear(regions, width)
        self.embed = nn.Embedding(vocab, width)
        self.cell = nn.GRUCell(2 * width, width)
        self.attend = nn.Linear(width, width)
        self.out = nn.Linear(width, vocab)

    def start(self, regions):
        return self.project(regions)

    def step(self, words, state, memory):
        b, k = words.shape
        weights = (self.attend(state) @ memory.transpose(1, 2)).softmax(-1)
        x = torch.cat((self.embed(words), weights @ memory), -1)
        state = self.cell(x.flatten(0, 1), state.flatten(0, 1)).unflatten(0, (b, k))
        return self.out(state).log_softmax(-1), state


class BeamSearch:
    def __init__(self, model, max_len=7, beam_size=3, bos=0):
        self.model, self.max_len, self.beam_size, self.bos = model, max_len, beam_size, bos

    def select(self, candidate):
        b = len(candidate)
        logprob, idx = torch.sort(candidate.view(b, -1), -1, descending=True)
        return idx[:, : self.beam_size], logprob[:, : self.beam_size]

    def expand_state(self, state, beam):
        index = beam[..., None].expand(-1, -1, state.shape[-1])
        return torch.gather(state, 1, index)  # COLLIDES

    def apply(self, regions):
        memory = self.model.start(regions)
        b = len(regions)
        words = torch.full((b, 1), self.bos)
        state = memory.mean(1, keepdim=True)
        score = torch.zeros(b, 1)
        outputs = torch.empty(b, 1, 0)
        for _ in range(self.max_len):
            logp, state = self.model.step(words, state, memory)
            idx, score = self.select(score[..., None] + logp)
            beam = idx / self.model.vocab  # BORN
            words = idx % self.model.vocab
            state = self.expand_state(state, beam)
            outputs = self.expand_state(outputs, beam)
            outputs = torch.cat((outputs, words[..., None].float()), -1)
        return outputs[:, 0].long(), score[:, 0]


@torch.no_grad()
def main():
    torch.manual_seed(6)
    captions, score = BeamSearch(Captioner().eval()).apply(torch.randn(2, 5, 10))
    print(captions.tolist(), [round(s, 3) for s in score.tolist()])


main()
