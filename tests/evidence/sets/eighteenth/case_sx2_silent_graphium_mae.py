"""
title: validation MAE over the whole split is infinite, each batch being fine
expect: silent:overflow|downcast
thread: https://github.com/datamol-io/graphium/issues/406
measured: mae of the batches 83.32, mae of the epoch inf
widened: mae of the batches 83.32, mae of the epoch 83.32
innocent: mae of the batches 82.71, mae of the epoch inf
suspect: line 49 harmless (the forward's rounding is far below the error of the model)

Expectation, written first: predictions and targets of the validation steps are kept in float16 to save memory and joined
at the end of the epoch; the metric sums the absolute errors of all graphs in float16, passes 65504 and reports inf,
though the mean is below a hundred. Autocast in the forward has no part in it.
"""
import torch
import torch.nn as nn


def mean_absolute_error(preds, target):
    sum_abs_error = torch.sum(torch.abs(preds - target))  # BORN
    return sum_abs_error / target.numel()


class MetricWrapper:
    def __init__(self, metric):
        self.metric = metric

    def compute(self, preds, target):
        keep = ~torch.isnan(target)
        return self.metric(preds[keep], target[keep])  # BORN


class TaskHead(nn.Module):
    def __init__(self, in_dim=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(in_dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, graph_feat):
        return self.layers(graph_feat).squeeze(-1)


class PredictorModule:
    def __init__(self, model, metric):
        self.model = model
        self.metric = metric
        self.step_outputs = []
        self.lr = 2.0

    def _forward(self, feats):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(feats).float()

    def training_step(self, feats, targets):
        loss = nn.functional.l1_loss(self._forward(feats), targets)
        self.model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.model.parameters():
                p.sub_(self.lr * p.grad)

    @torch.no_grad()
    def validation_step(self, feats, targets):
        preds = self._forward(feats)
        self.step_outputs.append({"preds": preds.detach().half(),  # BORN
                                  "targets": targets.half()})  # BORN
        return mean_absolute_error(preds, targets)

    def on_validation_epoch_end(self):
        preds = torch.cat([o["preds"] for o in self.step_outputs])
        targets = torch.cat([o["targets"] for o in self.step_outputs])
        self.step_outputs.clear()
        return self.metric.compute(preds, targets)


def main():
    torch.manual_seed(0)
    true = torch.randn(16) * 20
    module = PredictorModule(TaskHead(), MetricWrapper(mean_absolute_error))
    sample = lambda n: (lambda f: (f, f @ true + 60 * torch.randn(n)))(torch.randn(n, 16))
    for _ in range(8):
        module.training_step(*sample(64))
    batch_mae = torch.stack([module.validation_step(*sample(128)) for _ in range(14)])
    epoch_mae = module.on_validation_epoch_end()
    print(f"mae of the batches {batch_mae.mean():.2f}, mae of the epoch {epoch_mae:.2f}")


main()
