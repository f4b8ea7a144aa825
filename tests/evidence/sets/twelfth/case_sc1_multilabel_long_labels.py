"""
title: multi-hot labels of a BERT classifier are collected as integers
expect: collision
thread: https://discuss.pytorch.org/t/multi-label-binary-classification-result-type-float-cant-be-cast-to-the-desired-output-type-long/117915
fix_at: 31, 41, 47, 53, 54, 71

Expectation, written first: the multi-hot rows are int64 arrays and stay so through the collator; the binary cross
entropy of the multi-label head computes in place in a tensor like the labels and refuses.
"""
import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

LABELS = ["toxic", "threat", "insult", "obscene"]


class Vocabulary:
    def __init__(self, size=200):
        self.size = size

    def encode(self, text, max_length=12):
        ids = [2] + [4 + sum(map(ord, w)) % (self.size - 4) for w in text.lower().split()]
        return ids[: max_length - 1] + [3]


class LabelBinarizer:
    def __init__(self, classes):
        self.index = {c: i for i, c in enumerate(classes)}

    def transform(self, tag_lists):
        out = np.zeros((len(tag_lists), len(self.index)), dtype=np.int64)  # BORN
        for row, tags in zip(out, tag_lists):
            for t in tags:
                row[self.index[t]] = 1
        return out


class CommentDataset(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.encodings = [Vocabulary().encode(text) for text, _ in rows]
        self.labels = LabelBinarizer(LABELS).transform([tags for _, tags in rows])

    def __len__(self):
        return len(self.encodings)

    def __getitem__(self, i):
        return {"input_ids": self.encodings[i], "labels": self.labels[i]}


def collate(samples):
    longest = max(len(s["input_ids"]) for s in samples)
    ids = torch.tensor([s["input_ids"] + [0] * (longest - len(s["input_ids"])) for s in samples])
    labels = torch.from_numpy(np.stack([s["labels"] for s in samples]))
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def create_model():
    return BertForSequenceClassification(BertConfig(
        vocab_size=200, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32, num_labels=len(LABELS), problem_type="multi_label_classification",
    ))


class Trainer:
    def __init__(self, model, dataset, lr=1e-3, batch_size=2, epochs=2):
        self.model, self.epochs = model, epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.loader = torch.utils.data.DataLoader(dataset, batch_size, collate_fn=collate)

    def training_step(self, inputs):
        outputs = self.model(**inputs)  # COLLIDES
        outputs.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return outputs.loss.item()

    def train(self):
        losses = [self.training_step(b) for _ in range(self.epochs) for b in self.loader]
        return sum(losses) / len(losses)


torch.manual_seed(0)
rows = [
    ("you are a fool", ["toxic", "insult"]),
    ("have a nice day", []),
    ("i will find you", ["threat"]),
    ("what a dirty joke you fool", ["obscene", "insult"]),
]
print(f"mean loss {Trainer(create_model(), CommentDataset(rows)).train():.3f}")
