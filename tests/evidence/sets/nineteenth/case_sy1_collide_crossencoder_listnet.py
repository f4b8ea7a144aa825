"""
title: learning-to-rank loss of a bf16 CrossEncoder: Index put requires the source and destination dtypes match
expect: collision
thread: https://github.com/huggingface/sentence-transformers/pull/3800
fix_at: 53 (the labels' cast, which must follow if the matrix takes the logits' dtype)

Expectation, written first: ListNetLoss lays the scores out in a matrix made by torch.full, float32 by default, and writes the bfloat16 logits
of the model into it by index. index_put_ takes no other dtype than the matrix's. The logits must be cast to float32 after the activation, or
the matrix be made in the logits' dtype.
"""
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification


class CrossEncoder(nn.Module):
    def __init__(self, config, torch_dtype):
        super().__init__()
        self.model = BertForSequenceClassification(config).to(torch_dtype)

    def forward(self, features):
        return self.model(**features)

    def tokenize(self, pairs, vocab_size):
        rows = [[2] + [3 + (sum(map(ord, w)) % (vocab_size - 3)) for w in (q + " " + d).split()] for q, d in pairs]
        width = max(map(len, rows))
        ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}


class ListNetLoss(nn.Module):
    def __init__(self, model, activation_fn=nn.Identity()):
        super().__init__()
        self.model = model
        self.activation_fn = activation_fn
        self.cross_entropy_loss = nn.CrossEntropyLoss()

    def forward(self, inputs, labels):
        queries, docs_list = inputs
        docs_per_query = [len(docs) for docs in docs_list]
        max_docs, batch_size = max(docs_per_query), len(queries)
        pairs = [(query, doc) for query, docs in zip(queries, docs_list) for doc in docs]
        tokens = self.model.tokenize(pairs, self.model.model.config.vocab_size)
        logits = self.model(tokens)[0].view(-1)
        logits = self.activation_fn(logits)  # BORN

        batch_indices = torch.repeat_interleave(torch.arange(batch_size), torch.tensor(docs_per_query))
        doc_indices = torch.cat([torch.arange(n) for n in docs_per_query])

        logits_matrix = torch.full((batch_size, max_docs), -1e16, device=logits.device)  # BORN
        logits_matrix[batch_indices, doc_indices] = logits  # BORN COLLIDES
        labels_matrix = torch.full_like(logits_matrix, float("-inf"))
        labels_matrix[batch_indices, doc_indices] = torch.cat(labels).float()
        return self.cross_entropy_loss(logits_matrix, labels_matrix.softmax(dim=1))


def main():
    torch.manual_seed(12)
    config = BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, num_labels=1
    )
    model = CrossEncoder(config, torch_dtype=torch.bfloat16)
    loss_fn = ListNetLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    queries = ["where is the station", "how old is the bridge"]
    docs = [["the station is in town", "a red apple", "trains leave at noon"], ["it was built in 1890", "boats pass under it"]]
    labels = [torch.tensor([1.0, 0.0, 0.5]), torch.tensor([1.0, 0.0])]
    for step in range(2):
        loss = loss_fn((queries, docs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
