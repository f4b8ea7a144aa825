"""
title: long hypotheses are compared by log-probabilities added up in bfloat16; their lengths may be half
expect: silent:lost-update|precision-loss|downcast
"""
import torch
import torch.nn.functional as F

torch.manual_seed(906)


class Speaker:
    """A small n-gram model: logits of the next token from the last one."""

    def __init__(self, vocab=30):
        self.table = torch.randn(vocab, vocab)

    def steps(self, ids):
        logp = F.log_softmax(self.table[ids[:, :-1]], dim=-1)
        return logp.gather(-1, ids[:, 1:, None])[..., 0]


def score(speaker, ids, lengths):
    """The mean log-probability per token."""
    logp = speaker.steps(ids)
    total = torch.zeros(len(ids), dtype=torch.bfloat16)  # BORN
    for t in range(logp.shape[1]):
        total += torch.where(t < lengths, logp[:, t], 0.0).to(total.dtype)
    count = lengths.half()
    return total.float() / count.float()


speaker = Speaker()
wrong = 0
for trial in range(40):
    ids = torch.randint(0, 30, (8, 401))
    lengths = torch.randint(250, 400, (8,))
    steps = speaker.steps(ids).double()
    exact = torch.where(torch.arange(400) < lengths[:, None], steps, 0.0).sum(1) / lengths
    wrong += int(score(speaker, ids, lengths).argmax() != exact.argmax())
print("wrong hypothesis chosen", wrong, "of 40")
