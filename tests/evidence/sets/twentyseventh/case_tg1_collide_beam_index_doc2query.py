"""
title: Beam search divides flat ids into a long buffer
expect: collision
thread: https://github.com/nyu-dl/dl4ir-doc2query/issues/10
fix_at: (none beside the marked)

Expectation, written first: torch.div of integers has been a true division since torch 1.6, so its result is
float and cannot be written to the long buffer given as out. The first advance of the beam raises; with
rounding_mode="floor" the queries are predicted.
"""
import torch
import torch.nn as nn


class DecodeStrategy:
    def __init__(self, pad, bos, eos, batch_size, parallel_paths, max_length):
        self.pad, self.bos, self.eos = pad, bos, eos
        self.alive_seq = torch.full([batch_size * parallel_paths, 1], bos, dtype=torch.long)
        self.max_length = max_length
        self.done = False

    def __len__(self):
        return self.alive_seq.shape[1]


class BeamSearch(DecodeStrategy):
    def __init__(self, beam_size, batch_size, n_best, **kwargs):
        super().__init__(batch_size=batch_size, parallel_paths=beam_size, **kwargs)
        self.beam_size, self.batch_size, self.n_best = beam_size, batch_size, n_best
        self._beam_offset = torch.arange(0, batch_size * beam_size, step=beam_size)
        self.topk_log_probs = torch.tensor([0.0] + [float("-inf")] * (beam_size - 1)).repeat(batch_size, 1)
        self.topk_scores = torch.empty((batch_size, beam_size))
        self.topk_ids = torch.empty((batch_size, beam_size), dtype=torch.long)
        self._batch_index = torch.empty([batch_size, beam_size], dtype=torch.long)  # BORN

    @property
    def current_predictions(self):
        return self.alive_seq[:, -1]

    def advance(self, log_probs):
        vocab_size = log_probs.size(-1)
        if len(self) < 3:
            log_probs[:, self.eos] = -1e20
        log_probs = log_probs + self.topk_log_probs.view(-1, 1)
        curr_scores = log_probs.reshape(self.batch_size, self.beam_size * vocab_size)
        torch.topk(curr_scores, self.beam_size, dim=-1, out=(self.topk_scores, self.topk_ids))
        self.topk_log_probs = self.topk_scores.clone()
        torch.div(self.topk_ids, vocab_size, out=self._batch_index)  # BORN COLLIDES
        self._batch_index += self._beam_offset.unsqueeze(1)
        self.select_indices = self._batch_index.view(-1)
        self.topk_ids.fmod_(vocab_size)
        self.alive_seq = torch.cat([self.alive_seq.index_select(0, self.select_indices),
                                    self.topk_ids.view(-1, 1)], dim=-1)
        self.done = len(self) >= self.max_length

    def best(self):
        best = self.topk_log_probs.argmax(dim=1) + self._beam_offset
        return self.alive_seq[best], self.topk_log_probs.amax(dim=1)


class QueryModel(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRUCell(dim, dim)
        self.generator = nn.Linear(dim, vocab)

    def decode(self, tokens, state):
        state = self.rnn(self.emb(tokens), state)
        return self.generator(state).log_softmax(dim=-1), state


class Translator:
    def __init__(self, model, beam_size):
        self.model, self.beam_size = model, beam_size

    @torch.no_grad()
    def translate(self, docs):
        batch_size = docs.size(0)
        state = self.model.emb(docs).mean(dim=1).repeat_interleave(self.beam_size, dim=0)
        beam = BeamSearch(self.beam_size, batch_size, n_best=1, pad=0, bos=1, eos=2, max_length=8)
        while not beam.done:
            log_probs, state = self.model.decode(beam.current_predictions, state)
            beam.advance(log_probs)
            state = state.index_select(0, beam.select_indices)
        return beam.best()


if __name__ == "__main__":
    torch.manual_seed(10)
    queries, scores = Translator(QueryModel(50, 24), beam_size=5).translate(torch.randint(3, 50, (3, 12)))
    print("queries", queries.tolist(), "scores", [round(s, 3) for s in scores.tolist()])
