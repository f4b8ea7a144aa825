"""
title: an episode sampler prepares few-shot tasks with numpy for a meta learner
expect: collision
thread: https://github.com/dragen1860/MAML-Pytorch/issues/45
fix_at: 37, 61, 69, 70, 83, 84

Expectation, written first: the labels of the episodes are stored as int32, the tensor made of them is int32 too, and
cross entropy wants int64 class indices.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class NShot:
    """n_way classes, k_shot support and k_query query images of each"""

    def __init__(self, n_way=3, k_shot=2, k_query=4, batchsz=2, seed=0):
        self.n_way, self.k_shot, self.k_query, self.batchsz = n_way, k_shot, k_query, batchsz
        self.rng = np.random.default_rng(seed)
        self.x = self.rng.normal(size=(12, 10, 1, 8, 8)) + np.arange(12).reshape(-1, 1, 1, 1, 1) / 4

    def episode(self):
        x_spt, y_spt, x_qry, y_qry = [], [], [], []
        for label, cls in enumerate(self.rng.choice(len(self.x), self.n_way, replace=False)):
            picks = self.rng.choice(10, self.k_shot + self.k_query, replace=False)
            x_spt.append(self.x[cls][picks[: self.k_shot]])
            x_qry.append(self.x[cls][picks[self.k_shot :]])
            y_spt += [label] * self.k_shot
            y_qry += [label] * self.k_query
        return np.concatenate(x_spt), y_spt, np.concatenate(x_qry), y_qry

    def next(self):
        x_spts, y_spts, x_qrys, y_qrys = zip(*(self.episode() for _ in range(self.batchsz)))
        x_spts, x_qrys = np.array(x_spts).astype(np.float32), np.array(x_qrys).astype(np.float32)
        y_spts, y_qrys = np.array(y_spts).astype(np.int32), np.array(y_qrys).astype(np.int32)  # BORN
        return x_spts, y_spts, x_qrys, y_qrys


class Learner(nn.Module):
    def __init__(self, ways):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, stride=2, padding=1)
        self.fc = nn.Linear(6 * 16, ways)

    def forward(self, x, fast=None):
        w = dict(self.named_parameters()) if fast is None else fast
        x = F.relu(F.conv2d(x, w["conv.weight"], w["conv.bias"], stride=2, padding=1))
        return F.linear(x.flatten(1), w["fc.weight"], w["fc.bias"])


class Meta:
    def __init__(self, ways, update_lr=0.1, meta_lr=1e-2, update_step=2):
        self.net, self.update_lr, self.update_step = Learner(ways), update_lr, update_step
        self.opt = torch.optim.Adam(self.net.parameters(), lr=meta_lr)

    def adapt(self, x, y):
        fast = dict(self.net.named_parameters())
        for _ in range(self.update_step):
            loss = F.cross_entropy(self.net(x, fast), y)  # COLLIDES
            grads = torch.autograd.grad(loss, fast.values(), create_graph=True)
            fast = {k: p - self.update_lr * g for (k, p), g in zip(fast.items(), grads)}
        return fast

    def __call__(self, x_spt, y_spt, x_qry, y_qry):
        loss_q, correct = 0.0, 0
        for xs, ys, xq, yq in zip(x_spt, y_spt, x_qry, y_qry):
            logits = self.net(xq, self.adapt(xs, ys))
            loss_q = loss_q + F.cross_entropy(logits, yq)
            correct += (logits.argmax(1) == yq).sum().item()
        self.opt.zero_grad()
        (loss_q / len(x_spt)).backward()
        self.opt.step()
        return correct / y_qry.numel()


def main():
    torch.manual_seed(0)
    db = NShot()
    maml = Meta(db.n_way)
    for step in range(8):
        x_spt, y_spt, x_qry, y_qry = (torch.from_numpy(a) for a in db.next())  # BORN
        acc = maml(x_spt, y_spt, x_qry, y_qry)
    print(f"accuracy {acc:.2f}")


main()
