"""
title: encoder GRU refuses double embeddings: RNN input dtype (torch.float64) does not match weight dtype (torch.float32)
expect: collision
thread: https://github.com/Rhuax/text-summarization/issues/1
fix_at: 50, 52

Expectation, written first: the pretrained vectors are collected in a NumPy matrix of the default float64, and the frozen
embedding is made from it as it is. The GRU has float32 weights and refuses the double input.
"""
import numpy as np
import torch
from torch import nn


def read_vectors(words, dim, seed=2):
    rng = np.random.default_rng(seed)
    return {w: rng.normal(scale=0.4, size=dim) for w in words if not w.startswith("<")}


class Lang:
    def __init__(self, sentences):
        self.index2word = ["<pad>", "<sos>", "<eos>"]
        for sentence in sentences:
            for word in sentence.split():
                if word not in self.index2word:
                    self.index2word.append(word)
        self.word2index = {w: i for i, w in enumerate(self.index2word)}

    def encode(self, sentence):
        return torch.tensor([self.word2index[w] for w in sentence.split()] + [2])


def build_matrix(lang, dim):
    vectors = read_vectors(lang.index2word, dim)
    weights_matrix = np.zeros((len(lang.index2word), dim))  # BORN
    for i, word in enumerate(lang.index2word):
        if word in vectors:
            weights_matrix[i] = vectors[word]
    return weights_matrix


class EncoderRNN(nn.Module):
    def __init__(self, weights_matrix, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.embedding = nn.Embedding.from_pretrained(torch.from_numpy(weights_matrix))  # BORN
        self.gru = nn.GRU(weights_matrix.shape[1], hidden_size)

    def forward(self, input, hidden):
        embedded = self.embedding(input).view(1, 1, -1)
        output = embedded  # BORN
        output, hidden = self.gru(output, hidden)  # COLLIDES
        return output, hidden

    def init_hidden(self):
        return torch.zeros(1, 1, self.hidden_size)


class DecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, input, hidden):
        output = torch.relu(self.embedding(input).view(1, 1, -1))
        output, hidden = self.gru(output, hidden)
        return torch.log_softmax(self.out(output[0]), dim=1), hidden


def main():
    torch.manual_seed(0)
    pairs = [("the bank raised its rate again", "bank raised rate"), ("a storm closed the port", "storm closed port")]
    lang = Lang([s for pair in pairs for s in pair])
    encoder = EncoderRNN(build_matrix(lang, 10), 16)
    decoder, criterion = DecoderRNN(16, len(lang.index2word)), nn.NLLLoss()
    for text, summary in pairs:
        hidden, loss, prev = encoder.init_hidden(), 0.0, torch.tensor([1])
        for token in lang.encode(text):
            _, hidden = encoder(token, hidden)
        for token in lang.encode(summary):
            log_prob, hidden = decoder(prev, hidden)
            loss, prev = loss + criterion(log_prob, token.view(1)), token.view(1)
        print(f"loss {loss.item() / len(lang.encode(summary)):.4f}")


if __name__ == "__main__":
    main()
