"""
title: subtoken embeddings of a bfloat16 encoder are pooled into words with a float32 mask
expect: collision
thread: https://github.com/flairNLP/flair/pull/3651
fix_at: 38, 43, 44, 45, 64

Expectation, written first: the padding mask is turned into float32, so the masked states that are to be scattered are
float32 while the destination was made in the encoder's bfloat16; scatter_add wants one dtype.
"""
import torch
from torch import nn
from transformers import BertConfig, BertModel


class WordPieces:
    """splits words into pieces of three letters"""

    def __init__(self, size=120):
        self.size = size

    def __call__(self, sentences):
        rows = []
        for words in sentences:
            ids, owner = [1], [-1]
            for w, word in enumerate(words):
                for i in range(0, len(word), 3):
                    ids.append(3 + sum(map(ord, word[i : i + 3])) % (self.size - 3))
                    owner.append(w)
            rows.append((ids + [2], owner + [-1]))
        longest = max(len(r[0]) for r in rows)
        input_ids = torch.tensor([r[0] + [0] * (longest - len(r[0])) for r in rows])
        word_ids = torch.tensor([r[1] + [-1] * (longest - len(r[1])) for r in rows])
        return input_ids, word_ids


def insert_missing(word_ids):
    """-1 marks special and padding pieces; they are sent to word 0 with weight 0"""
    valid = (word_ids >= 0).float()  # BORN
    return word_ids.clamp(min=0), valid


def fill_mean_token_embeddings(all_tokens, hidden, word_ids):
    index, valid = insert_missing(word_ids)
    weighted = hidden * valid.unsqueeze(-1)
    all_tokens.scatter_add_(1, index.unsqueeze(-1).expand_as(hidden), weighted)  # COLLIDES
    counts = torch.zeros(all_tokens.shape[:2], dtype=torch.float32)
    counts.scatter_add_(1, index, valid.float())
    return all_tokens / counts.clamp(min=1).unsqueeze(-1)


class TransformerEmbeddings(nn.Module):
    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        config = BertConfig(
            vocab_size=120, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48,
            max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
        self.pieces, self.model = WordPieces(), BertModel(config, add_pooling_layer=False).to(dtype)

    def forward(self, sentences):
        input_ids, word_ids = self.pieces(sentences)
        hidden = self.model(input_ids, attention_mask=(input_ids > 0).long()).last_hidden_state
        words = max(len(s) for s in sentences)
        out = torch.zeros(len(sentences), words, hidden.shape[-1], dtype=hidden.dtype)
        return fill_mean_token_embeddings(out, hidden, word_ids)


class SequenceTagger(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.embeddings, self.linear = TransformerEmbeddings(), nn.Linear(24, tags)

    def forward_loss(self, sentences, labels):
        features = self.embeddings(sentences).float()
        return nn.functional.cross_entropy(self.linear(features).flatten(0, 1), labels.flatten(), ignore_index=-100)


torch.manual_seed(0)
tagger = SequenceTagger(tags=4)
sentences = [["George", "Washington", "went", "to", "Washington"], ["Flair", "tags", "words"]]
labels = torch.tensor([[1, 1, 0, 0, 2], [3, 0, 0, -100, -100]])
loss = tagger.forward_loss(sentences, labels)
loss.backward()
print(f"loss {loss.item():.3f}")
