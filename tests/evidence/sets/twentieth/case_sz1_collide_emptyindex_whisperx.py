"""
title: forced alignment of a one-character segment stops: the token tensor that indexes the emissions is Float
expect: collision
thread: https://github.com/m-bain/whisperX/issues/1173

Expectation, written first: the trellis asks for the emissions of `tokens[1:]`. For a segment with one character that list is empty, and
`torch.tensor([])` is float32, not int64. Used as an index it is refused with an IndexError. The tensor must be made with an integer dtype, or
be made long where it indexes.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

DICTIONARY = {c: i for i, c in enumerate("-|etaoinhsrdlu")}


class AlignModel(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.conv = nn.Conv1d(1, 24, kernel_size=20, stride=10)
        self.lm_head = nn.Linear(24, vocab)

    def forward(self, wave):
        return self.lm_head(F.gelu(self.conv(wave.unsqueeze(1))).transpose(1, 2))


def get_wildcard_emission(frame_emission, tokens, blank_id):
    tokens = torch.tensor(tokens) if not isinstance(tokens, torch.Tensor) else tokens  # BORN
    wildcard_mask = tokens == -1
    regular_scores = frame_emission[tokens.clamp(min=0)]  # BORN COLLIDES
    max_valid_score = frame_emission.clone()
    max_valid_score[blank_id] = float("-inf")
    return torch.where(wildcard_mask, max_valid_score.max(), regular_scores)


def get_trellis(emission, tokens, blank_id=0):
    num_frame, num_tokens = emission.size(0), len(tokens)
    trellis = torch.zeros((num_frame, num_tokens))
    trellis[1:, 0] = torch.cumsum(emission[1:, blank_id], 0)
    trellis[0, 1:] = -float("inf")
    trellis[-num_tokens + 1:, 0] = float("inf")
    for t in range(num_frame - 1):
        stay = trellis[t, 1:] + emission[t, blank_id]
        change = trellis[t, :-1] + get_wildcard_emission(emission[t], tokens[1:], blank_id)
        trellis[t + 1, 1:] = torch.maximum(stay, change)
    return trellis


def backtrack(trellis, emission, tokens, blank_id=0):
    t, j = trellis.size(0) - 1, trellis.size(1) - 1
    path = [(j, t)]
    while j > 0 and t > 0:
        stayed = emission[t - 1, blank_id]
        changed = get_wildcard_emission(emission[t - 1], [tokens[j]], blank_id)[0]
        t -= 1
        if changed > stayed:
            j -= 1
        path.append((j, t))
    return path[::-1]


@torch.no_grad()
def align(segments, model, audio, sample_rate=1000):
    aligned = []
    for segment in segments:
        wave = audio[int(segment["start"] * sample_rate):int(segment["end"] * sample_rate)]
        emission = torch.log_softmax(model(wave[None]), dim=-1)[0]
        tokens = [DICTIONARY.get(c, -1) for c in segment["text"].lower().replace(" ", "|")]
        trellis = get_trellis(emission, tokens)
        path = backtrack(trellis, emission, tokens)
        aligned.append((segment["text"], len(path), tuple(trellis.shape)))
    return aligned


if __name__ == "__main__":
    torch.manual_seed(5)
    model = AlignModel(len(DICTIONARY)).eval()
    audio = torch.randn(3000)
    segments = [{"text": "these 2 lines", "start": 0.0, "end": 1.4}, {"text": "I", "start": 1.4, "end": 1.9}, {"text": "he is", "start": 1.9, "end": 3.0}]
    for text, steps, shape in align(segments, model, audio):
        print(repr(text), steps, shape)
