"""
title: beam search gathers with a float beam index: "gather(): Expected dtype int32/int64 for index"
expect: collision
thread: https://github.com/zhangxuying1004/RSTNet/issues/29
fix_at: 45, 47, 51, 55

Expectation, written first: the beam of a flat candidate index is computed with "/", which is a true division since torch
1.5 and turns the int64 index into float32. The gather over the beams refuses the float index.
"""
import torch
from torch import nn


class CaptionDecoder(nn.Module):
    def __init__(self, vocab_size=30, d_model=16):
        super().__init__()
        self.word_emb = nn.Embedding(vocab_size, d_model)
        self.cell = nn.GRUCell(d_model, d_model)
        self.fc = nn.Linear(d_model, vocab_size)

    def step(self, prev_words, state):
        state = self.cell(self.word_emb(prev_words), state)
        return torch.log_softmax(self.fc(state), dim=-1), state


class BeamSearch:
    def __init__(self, model, max_len, eos_idx, beam_size):
        self.model = model
        self.max_len = max_len
        self.eos_idx = eos_idx
        self.beam_size = beam_size

    def select(self, candidate_logprob):
        flat = candidate_logprob.view(self.b_s, -1)
        selected_logprob, selected_idx = torch.sort(flat, -1, descending=True)
        return selected_idx[:, :self.beam_size], selected_logprob[:, :self.beam_size]

    def iter(self, t, words, state):
        cur = 1 if t == 0 else self.beam_size
        word_logprob, state = self.model.step(words.view(-1), state.view(self.b_s * cur, -1))
        word_logprob = word_logprob.view(self.b_s, cur, -1)
        candidate_logprob = self.seq_logprob + word_logprob
        selected_idx, selected_logprob = self.select(candidate_logprob)
        selected_beam = selected_idx / candidate_logprob.shape[-1]  # BORN
        selected_words = selected_idx - selected_beam * candidate_logprob.shape[-1]

        self.seq_mask = torch.gather(self.seq_mask.expand(self.b_s, cur, 1), 1, selected_beam.unsqueeze(-1))  # COLLIDES
        alive = (selected_words != self.eos_idx).float().unsqueeze(-1)
        self.seq_mask = self.seq_mask * alive
        self.seq_logprob = selected_logprob.unsqueeze(-1)
        self.outputs = [torch.gather(o, 1, selected_beam) for o in self.outputs]
        self.outputs.append(selected_words)
        state = state.view(self.b_s, cur, -1)
        index = selected_beam.unsqueeze(-1).expand(-1, -1, state.shape[-1])
        return selected_words, torch.gather(state, 1, index)

    def apply(self, features):
        self.b_s = features.shape[0]
        self.seq_mask = torch.ones(self.b_s, 1, 1)
        self.seq_logprob = torch.zeros(self.b_s, 1, 1)
        self.outputs = []
        words, state = torch.ones(self.b_s, 1, dtype=torch.long), features.unsqueeze(1)
        for t in range(self.max_len):
            words, state = self.iter(t, words, state)
        best = self.seq_logprob.argmax(1, keepdim=True).squeeze(-1)
        sequence = torch.stack(self.outputs, -1)
        return torch.gather(sequence, 1, best.unsqueeze(-1).expand(-1, 1, self.max_len)).squeeze(1)


def main():
    torch.manual_seed(0)
    search = BeamSearch(CaptionDecoder().eval(), max_len=5, eos_idx=3, beam_size=3)
    with torch.no_grad():
        captions = search.apply(torch.randn(2, 16))
    for row in captions.tolist():
        print("caption", row)


if __name__ == "__main__":
    main()
