"""
title: the multiple-choice retrieval task stops at the similarity of the text queries to the image corpus
expect: collision
thread: https://github.com/embeddings-benchmark/mteb/issues/1456

Expectation, written first: the wrapped VLM is in bf16. The text path converts its pooled output to float32, the image path does not, and the
evaluator multiplies the two sets of embeddings, BFloat16 and Float, which torch refuses. Both paths must return one dtype, or the evaluator
must convert in front of the product.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyVLM(nn.Module):
    def __init__(self, vocab=80, dim=32, patch=8):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.vision_proj = nn.Conv2d(3, dim, patch, stride=patch)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True) for _ in range(2)])

    def forward(self, input_ids=None, pixel_values=None):
        parts = []
        if pixel_values is not None:
            parts.append(self.vision_proj(pixel_values.to(self.vision_proj.weight.dtype)).flatten(2).transpose(1, 2))
        if input_ids is not None:
            parts.append(self.embed_tokens(input_ids))
        hidden = torch.cat(parts, dim=1)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class VLM2VecWrapper:
    def __init__(self, torch_dtype=torch.bfloat16):
        self.mdl = TinyVLM().to(torch_dtype).eval()

    def pooling(self, hidden):
        return hidden[:, -1]

    @torch.no_grad()
    def get_text_embeddings(self, texts, batch_size=8):
        embeddings = []
        for batch in texts.split(batch_size):
            reps = self.pooling(self.mdl(input_ids=batch)).float()  # BORN
            embeddings.append(F.normalize(reps, dim=-1))
        return torch.cat(embeddings)

    @torch.no_grad()
    def get_image_embeddings(self, images, batch_size=4):
        embeddings = []
        for batch in images.split(batch_size):
            reps = self.pooling(self.mdl(pixel_values=batch))  # BORN
            embeddings.append(F.normalize(reps, dim=-1))
        return torch.cat(embeddings)


def cos_sim(a, b):
    a_norm, b_norm = F.normalize(a, p=2, dim=1), F.normalize(b, p=2, dim=1)
    return torch.mm(a_norm, b_norm.transpose(0, 1))  # BORN COLLIDES


class Any2AnyMultiChoiceEvaluator:
    def __init__(self, model, k_values=(1, 3)):
        self.model, self.k_values = model, k_values

    def search(self, queries, corpus):
        query_embeddings = self.model.get_text_embeddings(queries)
        corpus_embeddings = self.model.get_image_embeddings(corpus)
        return cos_sim(query_embeddings, corpus_embeddings)

    def __call__(self, queries, corpus, choices, answers):
        scores = self.search(queries, corpus)
        correct = {k: 0 for k in self.k_values}
        for i, (options, answer) in enumerate(zip(choices, answers)):
            ranked = [options[j] for j in scores[i, options].argsort(descending=True).tolist()]
            for k in self.k_values:
                correct[k] += int(answer in ranked[:k])
        return {f"accuracy@{k}": c / len(answers) for k, c in correct.items()}


if __name__ == "__main__":
    torch.manual_seed(12)
    evaluator = Any2AnyMultiChoiceEvaluator(VLM2VecWrapper())
    queries, corpus = torch.randint(0, 80, (10, 7)), torch.rand(12, 3, 32, 32)
    choices = [torch.randperm(12)[:4].tolist() for _ in range(10)]
    print(evaluator(queries, corpus, choices, [c[0] for c in choices]))
