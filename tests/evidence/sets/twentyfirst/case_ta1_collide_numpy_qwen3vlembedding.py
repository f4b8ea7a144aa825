"""
title: retrieval scores of bfloat16 embeddings go to NumPy
expect: collision
thread: https://github.com/QwenLM/Qwen3-VL-Embedding/issues/53
fix_at: none

Expectation, written first: the embedder is loaded in bfloat16, so its normalised embeddings and their similarity
are bfloat16; NumPy has no such type and .numpy() raises TypeError. The scores must be made float32 (at the
product or before .numpy()), or the embedder be loaded in float32.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyVLEncoder(nn.Module):
    def __init__(self, vocab=97, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.mixer = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, input_ids, pixel_feats=None):
        x = self.embed(input_ids)
        if pixel_feats is not None:
            x = torch.cat([pixel_feats.to(x.dtype), x], dim=1)
        return self.norm(x + torch.tanh(self.mixer(x)))


class Qwen3VLEmbedder:
    def __init__(self, torch_dtype=torch.float32, max_length=24, seed=0):
        torch.manual_seed(seed)
        self.model = TinyVLEncoder().to(torch_dtype).eval()
        self.max_length = max_length

    def _tokenize(self, texts):
        rows = [[ord(c) % 96 + 1 for c in t][: self.max_length] for t in texts]
        width = max(map(len, rows))
        ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
        return ids, (ids != 0).long()

    @staticmethod
    def _pooling_last(hidden_state, attention_mask):
        last = attention_mask.shape[1] - attention_mask.flip(1).argmax(1) - 1
        return hidden_state[torch.arange(len(last)), last]

    @torch.no_grad()
    def process(self, inputs, normalize=True):
        texts = [f"{item.get('instruction', 'Represent the input.')} {item['text']}"[::-1] for item in inputs]
        input_ids, attention_mask = self._tokenize(texts)
        embeddings = self._pooling_last(self.model(input_ids), attention_mask)
        return F.normalize(embeddings, p=2, dim=-1) if normalize else embeddings


def retrieve_topk(query_embeddings, corpus_embeddings, k):
    similarity_scores = query_embeddings @ corpus_embeddings.T  # BORN
    results = []
    for i in range(len(query_embeddings)):
        scores = similarity_scores[i].cpu().numpy()  # BORN COLLIDES
        ranked_indices = np.argsort(scores)[::-1][:k]
        results.append(list(zip(ranked_indices.tolist(), scores[ranked_indices].tolist())))
    return results


LABELS = ["World", "Sports", "Business", "Sci/Tech"]
QUERIES = [
    {"text": "Stocks fall as oil climbs", "instruction": "Classify the news article."},
    {"text": "Rover finds ice on Mars", "instruction": "Classify the news article."},
]

if __name__ == "__main__":
    embedder = Qwen3VLEmbedder(torch_dtype=torch.bfloat16)  # BORN
    query_embeddings = embedder.process(QUERIES)
    corpus_embeddings = embedder.process([{"text": label} for label in LABELS])
    for query, hits in zip(QUERIES, retrieve_topk(query_embeddings, corpus_embeddings, k=2)):
        print(query["text"], "->", [(LABELS[j], round(s, 2)) for j, s in hits])
