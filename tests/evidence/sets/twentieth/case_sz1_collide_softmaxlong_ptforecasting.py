"""
title: the classifying forecaster trains its loss, but logging the cross entropy as a metric stops at the softmax
expect: collision
thread: https://github.com/sktime/pytorch-forecasting/issues/645

Expectation, written first: for the logging metrics the network's output is first turned into a point prediction, and for the cross entropy
that is an argmax, an int64 class index. `F.cross_entropy` then takes the softmax of Long, which is not implemented. The metric must be given
the raw output, or the point prediction must not be an argmax for it.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHorizonMetric(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, y_pred, target):
        losses = self.loss(y_pred, target)
        return losses.mean()

    def to_prediction(self, y_pred):
        return y_pred.mean(-1) if y_pred.ndim == 3 else y_pred


class CrossEntropy(MultiHorizonMetric):
    def __init__(self):
        super().__init__("CrossEntropy")

    def loss(self, y_pred, target):
        return F.cross_entropy(y_pred.view(-1, y_pred.size(-1)), target.view(-1), reduction="none").view(-1, target.size(-1))  # COLLIDES

    def to_prediction(self, y_pred):
        return y_pred.argmax(dim=-1)  # BORN


class RecurrentClassifier(nn.Module):
    def __init__(self, n_features, n_classes, horizon, hidden=16):
        super().__init__()
        self.horizon = horizon
        self.loss = CrossEntropy()
        self.logging_metrics = nn.ModuleList([CrossEntropy()])
        self.encoder = nn.LSTM(n_features, hidden, batch_first=True)
        self.decoder = nn.LSTM(n_features, hidden, batch_first=True)
        self.output_layer = nn.Linear(hidden, n_classes)
        self.history = []

    def forward(self, x):
        _, state = self.encoder(x["encoder_cont"])
        out, _ = self.decoder(x["decoder_cont"], state)
        return {"prediction": self.output_layer(out)}

    def to_prediction(self, out):
        return self.loss.to_prediction(out["prediction"])

    def log_metrics(self, y, out, prefix):
        y_hat_point = self.to_prediction(out)  # BORN
        for metric in self.logging_metrics:
            self.history.append((f"{prefix}_{metric.name}", metric(y_hat_point.detach(), y).item()))

    def step(self, batch, prefix):
        x, y = batch
        out = self(x)
        loss = self.loss(out["prediction"], y)
        self.log_metrics(y, out, prefix)
        return loss


def make_loader(n_batches, encoder_length=12, horizon=4, n_features=3, n_classes=5):
    loader = []
    for _ in range(n_batches):
        series = torch.randn(8, encoder_length + horizon, n_features).cumsum(dim=1)
        y = torch.bucketize(series[:, encoder_length:, 0], torch.linspace(-4, 4, n_classes - 1))
        loader.append(({"encoder_cont": series[:, :encoder_length], "decoder_cont": series[:, encoder_length:]}, y))
    return loader


if __name__ == "__main__":
    torch.manual_seed(9)
    model = RecurrentClassifier(3, 5, horizon=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for batch in make_loader(4):
        loss = model.step(batch, "train")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print([(name, round(value, 4)) for name, value in model.history])
