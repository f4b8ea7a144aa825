"""
title: LIME explainer perturbs token ids with randn_like of the ids themselves: no normal distribution for Long
expect: collision
thread: https://github.com/DFKI-NLP/thermostat/issues/3
fix_at:

Expectation, written first: the perturbation function adds gaussian noise shaped like the original input, and the original input is the integer id
tensor of the tokenizer. randn_like inherits the dtype and torch has no normal kernel for Long. The ids are rightly integers; the perturbation is wrong.
"""
from functools import partial

import torch
import torch.nn as nn


class TinyTokenizer:
    vocab = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2}

    def __call__(self, text, max_length=12):
        ids = [self.vocab["[CLS]"]]
        for word in text.lower().split():
            ids.append(self.vocab.setdefault(word, len(self.vocab)))
        ids.append(self.vocab["[SEP]"])
        mask = [1] * len(ids) + [0] * (max_length - len(ids))
        ids = ids + [0] * (max_length - len(ids))
        return {"input_ids": torch.tensor([ids]), "attention_mask": torch.tensor([mask])}


class SentimentModel(nn.Module):
    def __init__(self, vocab_size=64, dim=16):
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, dim, padding_idx=0)
        self.classifier = nn.Linear(dim, 2)

    def forward(self, input_ids, attention_mask):
        m = attention_mask.unsqueeze(-1).to(self.embeddings.weight.dtype)
        pooled = (self.embeddings(input_ids) * m).sum(1) / m.sum(1)
        return self.classifier(pooled)


class LimeAttributor:
    def __init__(self, forward_func, perturb_func, similarity_func):
        self.forward_func = forward_func
        self.perturb_func = perturb_func
        self.similarity_func = similarity_func

    def attribute(self, inputs, additional_args, target, n_samples):
        samples, outputs, weights = [], [], []
        for _ in range(n_samples):
            curr = self.perturb_func(inputs)
            samples.append((curr == inputs).float().flatten())
            outputs.append(self.forward_func(curr, *additional_args)[0, target])
            weights.append(self.similarity_func(inputs, curr))
        x, y, w = torch.stack(samples), torch.stack(outputs), torch.stack(weights)
        gram = x.T @ (w[:, None] * x) + 0.1 * torch.eye(x.shape[1])
        return torch.linalg.solve(gram, x.T @ (w * y))


class ExplainerLime:
    def __init__(self, model, n_samples=16, scale=0.5):
        self.model = model.eval()
        self.n_samples = n_samples
        self.explainer = LimeAttributor(model, partial(self.perturb_func, scale), self.similarity_kernel)

    @staticmethod
    def perturb_func(scale, original_input):
        return original_input + scale * torch.randn_like(original_input)  # BORN COLLIDES

    @staticmethod
    def similarity_kernel(original_input, perturbed_input):
        return (original_input == perturbed_input).float().mean()

    @torch.no_grad()
    def explain(self, batch):
        predictions = self.model(batch["input_ids"], batch["attention_mask"])
        target = predictions.argmax(dim=1).item()
        return self.explainer.attribute(batch["input_ids"], (batch["attention_mask"],), target, self.n_samples)


if __name__ == "__main__":
    torch.manual_seed(0)
    tok = TinyTokenizer()
    explainer = ExplainerLime(SentimentModel())
    print(explainer.explain(tok("a warm funny and engaging film")))
