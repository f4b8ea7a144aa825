"""
title: word vectors put into a bfloat16 text classifier without its dtype
expect: collision

The vectors come from an array and make an embedding of their own dtype. The convolution that follows compares its
input with its bias first, so the message speaks of the bias.
"""
import numpy as np
import torch
from torch import nn


class TextClassifier(nn.Module):
    def __init__(self, vocabulary, width, classes):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.drop = nn.Dropout(0.2)
        self.grams = nn.ModuleList(nn.Conv1d(width, 16, size) for size in (2, 3, 4))
        self.out = nn.Linear(3 * 16, classes)

    def forward(self, ids):
        x = self.drop(self.words(ids)).transpose(1, 2)
        pooled = [
            torch.relu(gram(x)).amax(dim=-1)  # COLLIDES
            for gram in self.grams
        ]
        return self.out(torch.cat(pooled, dim=-1))


def with_vectors(model, vectors):
    assert vectors.shape == model.words.weight.shape
    model.words = nn.Embedding.from_pretrained(torch.from_numpy(vectors), freeze=False)  # BORN
    return model


torch.manual_seed(0)
vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
classifier = with_vectors(TextClassifier(40, 8, 3).to(torch.bfloat16), vectors)
print(classifier(torch.randint(0, 40, (2, 9))).shape)
