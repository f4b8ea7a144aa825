"""
title: N-best rescoring by plain CTC forward probabilities in float32
expect: silent:underflow|precision-loss|downcast|zero-gradient
thread: https://github.com/githubharald/CTCWordBeamSearch/issues/36
measured: right hypothesis chosen = 0 of 12, scores that are exactly zero = 60
widened: right hypothesis chosen = 12 of 12, scores that are exactly zero = 0

Expectation, written first.  The forward variable is a product of one
probability per frame; with 160 frames it is about 1e-60 and float32 ends at
1e-45, so alpha becomes exactly zero for every hypothesis.  log(0 + tiny) ties
all candidates and the first of the list wins.  BORN is the allocation of alpha
with the default dtype; float64 (range to 1e-308) mends it for this length, as
would the log domain.
"""
import torch

torch.manual_seed(0)


def ctc_forward(probs, labels, blank=0):
    """Probability of `labels` under frame-wise `probs` (T, V), Graves' recursion."""
    extended = [blank]
    for label in labels:
        extended += [label, blank]
    frames, states = probs.size(0), len(extended)
    index = torch.tensor(extended)
    skip = torch.tensor([s > 1 and extended[s] != blank and extended[s] != extended[s - 2] for s in range(states)])
    alpha = torch.zeros(frames, states)  # BORN
    alpha[0, 0], alpha[0, 1] = probs[0, blank], probs[0, extended[1]]
    for t in range(1, frames):
        stay = alpha[t - 1]
        one = torch.roll(stay, 1)
        one[0] = 0
        two = torch.roll(stay, 2)
        two[:2] = 0
        alpha[t] = (stay + one + torch.where(skip, two, torch.zeros_like(two))) * probs[t, index]
    return alpha[-1, -1] + alpha[-1, -2]


class AcousticModel:
    def __init__(self, vocab=28, seed=0):
        self.vocab, self.g = vocab, torch.Generator().manual_seed(seed)

    def __call__(self, labels, per_symbol=8):
        rows = []
        for label in labels:
            for k in range(per_symbol):
                logits = 0.6 * torch.randn(self.vocab, generator=self.g)
                logits[label if k < per_symbol // 2 else 0] += 2.2
                rows.append(logits.softmax(-1))
        return torch.stack(rows)


def n_best(labels, g, size=5):
    out = []
    for _ in range(size - 1):
        wrong = list(labels)
        for p in torch.randint(0, len(labels), (2,), generator=g).tolist():
            wrong[p] = int(torch.randint(1, 28, (), generator=g))
        out.append(wrong)
    out.insert(1 + int(torch.randint(0, size - 1, (), generator=g)), list(labels))
    return out


def main(utterances=12):
    g = torch.Generator().manual_seed(9)
    model, right, zero = AcousticModel(), 0, 0
    for _ in range(utterances):
        labels = torch.randint(1, 28, (20,), generator=g).tolist()
        probs = model(labels)
        candidates = n_best(labels, g)
        scores = torch.stack([ctc_forward(probs, c) for c in candidates])
        right += candidates[int(torch.argmax(scores))] == labels
        zero += int((scores == 0).sum())
    print(f"right hypothesis chosen = {right} of {utterances}, scores that are exactly zero = {zero}")


if __name__ == "__main__":
    main()
