"""
title: The tokenised query is padded into a float tensor and enters the token embedding
expect: collision
thread: https://github.com/adesgautam/clip-search/issues/1
fix_at: (none beside the marked)

Expectation, written first: tokenize() fills a torch.zeros of the context length, which is float32, with the token ids.
The token embedding takes Long or Int indices only and raises.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class SimpleTokenizer:
    def __init__(self, words):
        self.encoder = {w: i + 1 for i, w in enumerate(words)}
        self.sot, self.eot = len(words) + 1, len(words) + 2

    def encode(self, text):
        return [self.encoder[w] for w in text.lower().split() if w in self.encoder]


def tokenize(tokenizer, texts, context_length=14):
    all_tokens = [[tokenizer.sot] + tokenizer.encode(t) + [tokenizer.eot] for t in texts]
    result = torch.zeros(len(all_tokens), context_length)  # BORN
    for i, tokens in enumerate(all_tokens):
        result[i, :len(tokens)] = torch.tensor(tokens)
    return result  # BORN


class CLIP(nn.Module):
    def __init__(self, vocab_size, embed_dim=16, width=24, context_length=14):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, width)
        self.positional_embedding = nn.Parameter(torch.randn(context_length, width) * 0.01)
        self.transformer = nn.TransformerEncoderLayer(width, 4, 48, batch_first=True, dropout=0.0)
        self.text_projection = nn.Parameter(torch.randn(width, embed_dim) * width ** -0.5)
        self.visual = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, embed_dim))

    def encode_image(self, image):
        return self.visual(image)

    def encode_text(self, text):
        x = self.token_embedding(text) + self.positional_embedding  # BORN COLLIDES
        x = self.transformer(x)
        return x[torch.arange(len(x)), text.argmax(dim=-1)] @ self.text_projection


class AnnoyLikeIndex:
    def __init__(self, vectors):
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def get_nns_by_vector(self, v, n):
        scores = self.vectors @ (v / np.linalg.norm(v))
        order = np.argsort(-scores)[:n]
        return order.tolist(), scores[order]


class SearchApp:
    def __init__(self, model, tokenizer, images):
        self.model, self.tokenizer = model, tokenizer
        self.index = AnnoyLikeIndex(model.encode_image(images).numpy())

    def image_search(self, query, n=3):
        text = tokenize(self.tokenizer, [query])  # BORN
        text_features = F.normalize(self.model.encode_text(text), dim=-1)
        return self.index.get_nns_by_vector(text_features[0].numpy(), n)

    def reverse_image_search(self, image, n=3):
        return self.index.get_nns_by_vector(self.model.encode_image(image[None])[0].numpy(), n)


@torch.no_grad()
def main():
    torch.manual_seed(1)
    tokenizer = SimpleTokenizer("a photo of dog cat beach car red small on the".split())
    model = CLIP(vocab_size=len(tokenizer.encoder) + 3).eval()
    images = torch.rand(12, 3, 16, 16)
    app = SearchApp(model, tokenizer, images)
    print("reverse", app.reverse_image_search(images[4])[0])
    ids, scores = app.image_search("a photo of a red car on the beach")
    print("text", ids, [round(float(s), 2) for s in scores])


if __name__ == "__main__":
    main()
