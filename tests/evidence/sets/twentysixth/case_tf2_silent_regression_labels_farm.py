"""
title: regression labels between 0 and 1 all become 0 on their way into the dataset
expect: silent:downcast
thread: https://github.com/deepset-ai/FARM/issues/395
measured: mean label 0.000 mean prediction 0.000 / mean absolute error against the file 0.46
widened: mean label 0.456 mean prediction 0.456 / mean absolute error against the file 0.01; innocent: mean label 0.000 mean prediction 0.000 / mean absolute error against the file 0.46
suspect: 53 exact (segment ids are 0 or 1, halves of them have an exact float16)

Expectation, written first: convert_features_to_dataset tries torch.long first and torch.tensor cuts the fraction of a
float label without an error, so similarities in [0, 1) all become 0 and the head learns to answer 0. Remedy: choose the
dtype from the label list (float32 for regression). The segment feature in float16 is exact.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def convert_features_to_dataset(features):
    tensor_names = list(features[0].keys())
    all_tensors = []
    for t_name in tensor_names:
        try:
            cur_tensor = torch.tensor([sample[t_name] for sample in features], dtype=torch.long)  # BORN
        except ValueError:
            cur_tensor = torch.tensor([sample[t_name] for sample in features], dtype=torch.float32)
        all_tensors.append(cur_tensor)
    return TensorDataset(*all_tensors), tensor_names


class RegressionProcessor:
    def __init__(self, vocab=40, max_seq_len=12):
        self.vocab = vocab
        self.max_seq_len = max_seq_len

    def _dict_to_features(self, generator, n):
        features = []
        for _ in range(n):
            ids = torch.randint(0, self.vocab, (self.max_seq_len,), generator=generator).tolist()
            score = sum(i >= self.vocab // 2 for i in ids) / (self.max_seq_len + 1)
            half = self.max_seq_len // 2
            features.append({"input_ids": ids, "segment_ids": [0] * half + [1] * half, "label": score})
        return features


class AdaptiveModel(nn.Module):
    def __init__(self, vocab, dim=16):
        super().__init__()
        self.language_model = nn.Embedding(vocab, dim)
        self.prediction_head = nn.Linear(dim + 1, 1)

    def forward(self, input_ids, segment_ids):
        pooled = self.language_model(input_ids).mean(dim=1)
        segment = segment_ids.to(dtype=torch.float16) / 2
        pooled = torch.cat([pooled, segment.mean(dim=1, keepdim=True).float()], dim=1)
        return self.prediction_head(pooled).squeeze(1)


def train(model, dataset, epochs=15):
    loader = DataLoader(dataset, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(epochs):
        for input_ids, segment_ids, label in loader:
            loss = nn.functional.mse_loss(model(input_ids, segment_ids), label.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    torch.manual_seed(395)
    processor = RegressionProcessor()
    features = processor._dict_to_features(torch.Generator().manual_seed(3), 256)
    dataset, names = convert_features_to_dataset(features)
    model = AdaptiveModel(processor.vocab)
    train(model, dataset)
    gold = torch.tensor([f["label"] for f in features])
    with torch.no_grad():
        preds = model(dataset.tensors[0], dataset.tensors[1])
    print(f"mean label {dataset.tensors[2].float().mean():.3f} mean prediction {preds.mean():.3f}")
    print(f"mean absolute error against the file {(preds - gold).abs().mean():.2f}")


if __name__ == "__main__":
    main()
