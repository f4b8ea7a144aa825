"""
title: fp16 AMP training: the loss scaler overflows in the first steps, skips them and settles, as it is meant to
expect: clean
thread: https://github.com/JDAI-CV/fast-reid/issues/403
measured: amp: skipped 4, scale 4096.0, loss 8.82, accuracy 1.0, finite True; fp32: loss 8.82, accuracy 1.0
suspect: 51 recovered

Expectation, written first: the initial loss scale of 2^16 makes some half gradients infinite in the first iterations. GradScaler finds the infs, skips
the optimizer step and halves the scale; after that every step counts. No inf reaches the float32 weights and the run ends where float32 ends.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Baseline(nn.Module):
    def __init__(self, feat=32, classes=6):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, feat))
        self.bottleneck = nn.BatchNorm1d(feat)
        self.classifier = nn.Linear(feat, classes, bias=False)
        nn.init.normal_(self.classifier.weight, std=0.05)

    def forward(self, x):
        feat = self.bottleneck(self.backbone(x).float())
        return self.classifier(feat), feat


def triplet_loss(feat, targets, margin=0.3):
    dist = torch.cdist(feat, feat)
    same = targets[:, None] == targets[None, :]
    hardest_pos = (dist * same).amax(dim=1)
    hardest_neg = dist.masked_fill(same, 1e4).amin(dim=1)
    return F.relu(hardest_pos - hardest_neg + margin).mean()


class AMPTrainer:
    def __init__(self, model, lr, enabled):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 80)
        self.grad_scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=2000, enabled=enabled)
        self.enabled = enabled
        self.skipped = 0

    def run_step(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.enabled):
            logits, feat = self.model(x)
        loss = 20 * F.cross_entropy(logits.float(), y, label_smoothing=0.1) + 20 * triplet_loss(feat, y)
        self.optimizer.zero_grad()
        self.grad_scaler.scale(loss).backward()
        before = self.grad_scaler.get_scale()
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()
        if self.grad_scaler.get_scale() < before:
            self.skipped += 1
        else:
            self.scheduler.step()
        return loss.item()


def run(enabled):
    torch.manual_seed(0)
    centers = torch.randn(6, 20) * 2
    y = torch.arange(6).repeat_interleave(8)
    trainer = AMPTrainer(Baseline(), lr=0.002, enabled=enabled)
    for _ in range(80):
        loss = trainer.run_step(centers[y] + torch.randn(48, 20), y)
    finite = all(torch.isfinite(p).all() for p in trainer.model.parameters())
    trainer.model.eval()
    acc = (trainer.model(centers[y] + torch.randn(48, 20))[0].argmax(1) == y).float().mean()
    print("amp" if enabled else "fp32", "skipped", trainer.skipped, "scale", trainer.grad_scaler.get_scale())
    print("  loss", round(loss, 2), "accuracy", round(acc.item(), 3), "finite", finite)


if __name__ == "__main__":
    run(True)
    run(False)
