"""
title: image features are written into token embeddings under autocast, one is bfloat16 and the other float32
expect: collision
thread: https://github.com/huggingface/transformers/pull/47691
fix_at: 23, 25, 37, 39, 40, 44

Expectation, written first: an embedding is not on the list of autocast and stays float32, the projection of the image
is a linear layer and comes out in bfloat16 (as does the product that is returned); writing by a mask does not
promote. Mend: cast the features to the dtype of the embeddings where they are merged (only the device is moved now).
"""
import torch
import torch.nn.functional as F
from torch import nn


class ImageToText(nn.Module):
    def __init__(self, vision, text, queries):
        super().__init__()
        self.latent = nn.Parameter(torch.randn(queries, text) * 0.02)
        self.dense = nn.Linear(vision, text)

    def forward(self, patches):
        keys = self.dense(patches)
        weights = (self.latent @ keys.transpose(1, 2)).softmax(-1)
        return weights.to(keys.dtype) @ keys  # BORN


class TextModel(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(64, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, vocab)

    def forward_embedding(self, ids, image, image_mask):
        embeds = self.embed_tokens(ids)
        if image is not None:
            image = image.to(embeds.device).reshape(-1, image.shape[-1])  # BORN
            embeds[image_mask] = image  # BORN COLLIDES
        return embeds + self.positions(torch.arange(ids.shape[1]))

    def forward(self, ids, image=None, image_mask=None):
        hidden = self.forward_embedding(ids, image, image_mask)
        return self.head(self.layer(hidden))


class Kosmos(nn.Module):
    def __init__(self, vocab=80, width=32, vision=20, queries=4):
        super().__init__()
        self.queries = queries
        self.image = ImageToText(vision, width, queries)
        self.text = TextModel(vocab, width)

    def forward(self, ids, patches):
        mask = torch.zeros_like(ids, dtype=torch.bool)
        mask[:, 1 : 1 + self.queries] = True
        return self.text(ids, self.image(patches), mask)


def main():
    torch.manual_seed(0)
    model = Kosmos()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids, patches = torch.randint(0, 80, (4, 16)), torch.randn(4, 9, 20)
    for step in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids, patches)
        loss = F.cross_entropy(logits[:, 5:-1].flatten(0, 1).float(), ids[:, 6:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, f"{loss.item():.2f}")


main()
