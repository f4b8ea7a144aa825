"""
title: counts of words are int32, the product of two frequent ones wraps and their association is nonsense
expect: silent:overflow|wraparound|integer-overflow
fix_at: 29, 34, 38

After https://github.com/scikit-learn/scikit-learn/pull/10414, https://github.com/elegant-scipy/elegant-scipy/pull/327 and
https://github.com/ActivitySim/activitysim/issues/285.
Right: the counts are int64 (or float64) before they are multiplied.
"""
import torch

torch.manual_seed(719)


class Corpus:
    """Words of some topics; a pair is two words of one sentence."""

    def __init__(self, words=60, topics=6, pairs=2000000):
        topic = torch.randint(0, topics, (pairs, 1))
        weight = torch.linspace(1, 6, words // topics)
        inside = torch.multinomial(weight.expand(2, -1), pairs, replacement=True).t()
        stray = torch.rand(pairs, 2) < 0.3
        word = inside * topics + topic
        self.pairs = torch.where(stray, torch.randint(0, words, (pairs, 2)), word)
        self.words, self.topic = words, torch.arange(words) % topics


class Counts:
    def __init__(self, corpus, dtype=torch.int32):
        n = corpus.words
        flat = corpus.pairs[:, 0] * n + corpus.pairs[:, 1]
        self.joint = torch.bincount(flat, minlength=n * n).view(n, n).to(dtype)  # BORN
        self.joint = self.joint + self.joint.t()
        self.single = self.joint.sum(1, dtype=dtype)

    def association(self):
        """Positive pointwise mutual information."""
        chance = self.single[:, None] * self.single[None]
        ratio = self.joint.double() * self.single.sum().double() / chance
        return ratio.clamp(min=1.0).log()


def vectors(matrix, dim=8):
    values, basis = torch.linalg.eigh(matrix)
    return basis[:, -dim:] * values[-dim:].clamp(min=0).sqrt()


def purity(vector, topic):
    """Nearest other word of the same topic."""
    near = torch.nn.functional.normalize(vector, dim=1)
    likeness = near @ near.t() - 2 * torch.eye(len(near), dtype=near.dtype)
    return (topic[likeness.argmax(1)] == topic).double().mean().item()


corpus = Corpus()
counts = Counts(corpus)
matrix = counts.association()
print("neighbours of the same topic", round(purity(vectors(matrix), corpus.topic), 3), "pairs without association",
      round((matrix == 0).double().mean().item(), 3))
