"""
title: A corpus is binarized to uint16 word indices
expect: clean
thread: https://github.com/facebookresearch/XLM/issues/14
measured: words 260 indices 751 uint16 sentence kept True / epoch 0 loss 5.35 / epoch 1 loss 4.02
suspect: 40 (the vocabulary has far fewer than 65536 words)

Expectation, written first: Word indices are whole numbers below the size of the vocabulary, which is checked to be
under 2**16 before the cast, so uint16 holds each of them. The batches are made int64 again for the embedding.
The corpus is the same before and after.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

BOS_WORD, EOS_WORD, PAD_WORD, UNK_WORD = "<s>", "</s>", "<pad>", "<unk>"


class Dictionary:
    def __init__(self, counts):
        words = [BOS_WORD, EOS_WORD, PAD_WORD, UNK_WORD] + sorted(counts, key=lambda w: (-counts[w], w))
        self.word2id = {w: i for i, w in enumerate(words)}
        self.id2word = {i: w for w, i in self.word2id.items()}
        self.eos_index, self.pad_index, self.unk_index = 1, 2, 3

    def __len__(self):
        return len(self.id2word)

    @staticmethod
    def index_data(sentences, dico):
        positions, indices = [], []
        for sentence in sentences:
            start = len(indices)
            indices.extend(dico.word2id.get(w, dico.unk_index) for w in sentence.split())
            positions.append([start, len(indices)])
            indices.append(dico.eos_index)
        positions = np.int64(positions)
        if len(dico) < 1 << 16:
            indices = np.array(indices).astype(np.uint16)
        else:
            indices = np.array(indices).astype(np.int32)
        return {"dico": dico, "positions": positions, "sentences": indices}


class StreamDataset:
    def __init__(self, sent, bs, bptt):
        n_batches = len(sent) // bs
        self.data = sent[:n_batches * bs].reshape(bs, n_batches).T
        self.bptt = bptt

    def __iter__(self):
        for a in range(0, len(self.data) - 1, self.bptt):
            yield torch.from_numpy(self.data[a:a + self.bptt + 1].astype(np.int64))


class LanguageModel(nn.Module):
    def __init__(self, n_words, dim):
        super().__init__()
        self.embeddings = nn.Embedding(n_words, dim)
        self.rnn = nn.GRU(dim, dim)
        self.pred_layer = nn.Linear(dim, n_words)

    def forward(self, x):
        return self.pred_layer(self.rnn(self.embeddings(x))[0])


def make_corpus(rng, n_sentences=80, n_words=300):
    words = [f"w{i}" for i in range(n_words)]
    sentences = []
    for _ in range(n_sentences):
        start = int(rng.integers(n_words))
        sentences.append(" ".join(words[(start + 7 * j) % n_words] for j in range(int(rng.integers(5, 12)))))
    return sentences


def main():
    torch.manual_seed(14)
    sentences = make_corpus(np.random.default_rng(14))
    counts = {}
    for w in " ".join(sentences).split():
        counts[w] = counts.get(w, 0) + 1
    dico = Dictionary(counts)
    data = Dictionary.index_data(sentences, dico)
    start, stop = data["positions"][3]
    same = " ".join(dico.id2word[int(i)] for i in data["sentences"][start:stop]) == sentences[3]
    print("words", len(dico), "indices", len(data["sentences"]), data["sentences"].dtype, "sentence kept", same)
    model = LanguageModel(len(dico), 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for epoch in range(2):
        losses = []
        for x in StreamDataset(data["sentences"], bs=8, bptt=12):
            loss = F.cross_entropy(model(x[:-1]).flatten(0, 1), x[1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print("epoch", epoch, "loss", round(sum(losses) / len(losses), 2))


if __name__ == "__main__":
    main()
