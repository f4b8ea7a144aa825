"""
title: a textual-inversion vector from a float32 file is index-put into half embeddings
expect: collision
fix_at: 23

After Sygil-Dev/sygil-webui#199 and sd-enable-textual-inversion#4 ("Index put requires the source and destination dtypes match,
got Half for the destination and Float for the source"). The model was halved, the concept's file was trained and saved in
float32 and comes out of torch.load as it is. Right change: cast the vector to the embeddings' dtype, where it is loaded (or put).
"""
import tempfile

import torch
from torch import nn


class Concepts:
    def __init__(self):
        self.vectors = {}

    def load(self, path):
        blob = torch.load(path)  # BORN
        for token, vector in blob["string_to_param"].items():
            self.vectors[token] = vector.detach()
        return sorted(self.vectors)

    def replace(self, ids, embedded):
        for token, vector in self.vectors.items():
            where = ids == token
            if where.any():
                embedded[where] = vector  # COLLIDES
        return embedded


class TextEncoder(nn.Module):
    def __init__(self, concepts, vocab=64, width=16):
        super().__init__()
        self.concepts = concepts
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(12, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, dropout=0.0)

    def forward(self, ids):
        hidden = self.concepts.replace(ids, self.tokens(ids))
        hidden = hidden + self.positions(torch.arange(ids.shape[1]))
        return self.block(hidden)


def write_concept(path):
    torch.save({"string_to_param": {60: torch.randn(16)}, "name": "kirby"}, path)


torch.manual_seed(0)
concepts = Concepts()
encoder = TextEncoder(concepts).half().eval()
with torch.no_grad():
    print(encoder(torch.tensor([[1, 5, 9, 2]])).dtype)
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        write_concept(file.name)
        print("concepts:", concepts.load(file.name))
    print(encoder(torch.tensor([[1, 5, 60, 2]])).dtype)
