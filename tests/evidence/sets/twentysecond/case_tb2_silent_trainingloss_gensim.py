"""
title: the cumulative training loss of word2vec stays at 134217728 and later epochs report a loss of zero
expect: silent:lost-update|precision-loss
thread: https://github.com/piskvorky/gensim/issues/2735
measured: cumulative 134217728 | loss by epoch [0, 0, 0, 0]
widened: cumulative 134231027 | loss by epoch [3327, 3326, 3325, 3320]; innocent: cumulative 134217728 | loss by epoch [0, 0, 0, 0]
suspect: line 40 - innocent: the labels are ones and zeros, exact in bfloat16

Expectation, written first: the running loss is one float32 tally over all epochs and every pair adds a few units. At
2**27 float32 has steps of 16, so an addition below 8 changes nothing and the tally stays; the difference between two
epochs is zero. The labels of the negative samples may be in any type.
"""
import torch
import torch.nn.functional as F


class LossTally:
    def __init__(self, start=0.0):
        self.running_training_loss = torch.tensor(start, dtype=torch.float32)  # BORN

    def add(self, value):
        self.running_training_loss += value  # BORN

    def latest(self):
        return float(self.running_training_loss)


class Word2Vec:
    def __init__(self, vocab, size, negative=5, tally_start=0.0, seed=1):
        self.gen = torch.Generator().manual_seed(seed)
        self.wv = (torch.rand(vocab, size, generator=self.gen) - 0.5) / size
        self.syn1neg = torch.zeros(vocab, size)
        self.negative = negative
        self.alpha = 0.025
        self.tally = LossTally(tally_start)

    def train_pair(self, word, context):
        draws = torch.randint(0, self.wv.shape[0], (self.negative,), generator=self.gen)
        targets = torch.cat([torch.tensor([context]), draws])
        labels = torch.zeros(self.negative + 1, dtype=torch.bfloat16)
        labels[0] = 1.0
        vector = self.wv[word]
        scores = self.syn1neg[targets] @ vector
        signs = 2.0 * labels.float() - 1.0
        loss = -F.logsigmoid(signs * scores).sum()
        step = (labels.float() - torch.sigmoid(scores)) * self.alpha
        self.wv[word] = vector + step @ self.syn1neg[targets]
        self.syn1neg.index_add_(0, targets, step.unsqueeze(1) * vector)
        self.tally.add(loss)


def corpus(vocab, n_pairs, seed):
    gen = torch.Generator().manual_seed(seed)
    words = torch.randint(0, vocab, (n_pairs,), generator=gen)
    contexts = (words + torch.randint(1, 3, (n_pairs,), generator=gen)) % vocab
    return list(zip(words.tolist(), contexts.tolist()))


def main():
    torch.set_num_threads(1)
    pairs = corpus(vocab=60, n_pairs=800, seed=3)
    model = Word2Vec(60, 16, tally_start=134_217_728.0)
    last, deltas = model.tally.latest(), []
    for _ in range(4):
        for word, context in pairs:
            model.train_pair(word, context)
        deltas.append(round(model.tally.latest() - last))
        last = model.tally.latest()
    print("cumulative", f"{last:.0f}")
    print("loss by epoch", deltas)


if __name__ == "__main__":
    main()
