"""
title: the score table of a peptide beam search keeps the default dtype while the decoder predicts in half
expect: collision
thread: https://github.com/Noble-Lab/casanovo/issues/508
fix_at: 36, 38, 50, 51

Expectation, written first: the decoder is half, so its softmax is half; the table of beam scores is
made without a dtype and is float32, and the masked write refuses the half source.
"""
import torch
from torch import nn


class SpectrumDecoder(nn.Module):
    def __init__(self, peaks=16, vocab=12, dim=24):
        super().__init__()
        self.peak_proj = nn.Linear(2, dim)
        self.residues = nn.Embedding(vocab, dim)
        self.mix = nn.GRUCell(dim, dim)
        self.head = nn.Linear(dim, vocab)

    def encode(self, spectra):
        return self.peak_proj(spectra).mean(1)

    def step(self, token, state):
        state = self.mix(self.residues(token), state)
        return self.head(state), state


class BeamSearch:
    def __init__(self, decoder, beams=3, max_length=6, stop=0):
        self.decoder, self.beams = decoder, beams
        self.max_length, self.stop = max_length, stop

    def buffers(self, n, vocab):
        scores = torch.full((n, self.max_length, vocab), float("nan"))  # BORN
        tokens = torch.zeros(n, self.max_length, dtype=torch.int64)
        return scores, tokens

    @torch.no_grad()
    def decode(self, spectra):
        spectra = spectra.repeat_interleave(self.beams, 0)
        state = self.decoder.encode(spectra)
        vocab = self.decoder.head.out_features
        scores, tokens = self.buffers(len(spectra), vocab)
        alive = torch.ones(len(spectra), dtype=torch.bool)
        last = torch.full((len(spectra),), 1)
        for t in range(self.max_length):
            logits, state = self.decoder.step(last, state)
            probs = torch.softmax(logits, -1)
            scores[alive, t] = probs[alive]  # COLLIDES
            last = probs.argmax(-1)
            tokens[alive, t] = last[alive]
            alive = alive & (last != self.stop)
            if not alive.any():
                break
        return tokens, scores


def precision_to_dtype(name):
    return {"32-true": torch.float32, "16": torch.float16, "16-true": torch.float16}[name]


def main(config={"precision": "16", "beams": 3}):
    torch.manual_seed(4)
    dtype = precision_to_dtype(config["precision"])
    decoder = SpectrumDecoder().eval().to(dtype)
    spectra = torch.rand(4, 16, 2).to(dtype)
    tokens, scores = BeamSearch(decoder, config["beams"]).decode(spectra)
    print(tokens.shape, torch.nanmean(scores.float()).item())


main()
