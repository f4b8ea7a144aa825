"""
title: Gradients are divided by sqrt(N), reduced in half precision and divided again
expect: clean
thread: https://github.com/facebookresearch/fairscale/pull/565
measured: predivide 4.0 postdivide 4.0 / loss ['3.59', '3.15', '2.43', '1.55', '0.82'] gnorm ['0.95', '0.91', '0.82', '0.68', '0.48']
suspect: 37 exact enough (values between 1e-4 and 1e3 in float16 after the predivide)

Expectation, written first: The shards are reduced in float16. Dividing before the sum by a factor near sqrt(N) keeps the sum
far below 65504 and the addends far above the subnormals; one rounding of 2**-11 a term is left, and the norms printed
agree with float32.
"""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ReducedShards:
    """The ranks of one process group, simulated in one process."""

    def __init__(self, world_size, fp16_reduce_scatter=True):
        self.world_size = world_size
        self.reduce_dtype = torch.float16 if fp16_reduce_scatter else torch.float32
        self.gradient_predivide_factor = self._get_gradient_predivide_factor(world_size)
        self.gradient_postdivide_factor = world_size / self.gradient_predivide_factor

    @staticmethod
    def _get_gradient_predivide_factor(world_size):
        factor = 1
        while world_size % factor == 0 and world_size / factor > factor:
            factor *= 2
        return float(factor)

    def reduce_scatter(self, grads):
        flat = [(g / self.gradient_predivide_factor).to(self.reduce_dtype) for g in grads]
        total = flat[0].clone()
        for other in flat[1:]:
            total += other
        total = total.float() / self.gradient_postdivide_factor
        return total


class FFN(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)
        self.out = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.out(x + self.fc2(F.gelu(self.fc1(x))))


def local_grads(model, batch, loss_scale):
    model.zero_grad()
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    (loss * loss_scale).backward()
    return [p.grad.clone() for p in model.parameters()], loss.item()


def train(world_size=16, updates=5, loss_scale=128.0):
    torch.manual_seed(565)
    model = FFN(32, 24)
    replicas = [copy.deepcopy(model) for _ in range(world_size)]
    group = ReducedShards(world_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    log = []
    for _ in range(updates):
        per_rank, losses = [], []
        for replica in replicas:
            replica.load_state_dict(model.state_dict())
            start = torch.randint(0, 32, (8, 1))
            batch = (start + torch.arange(13) * 3) % 32
            grads, loss = local_grads(replica, batch, loss_scale)
            per_rank.append(grads)
            losses.append(loss)
        for p, shards in zip(model.parameters(), zip(*per_rank)):
            p.grad = group.reduce_scatter(list(shards)) / loss_scale
        gnorm = math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters()))
        optimizer.step()
        log.append((sum(losses) / world_size, gnorm))
    print("predivide", group.gradient_predivide_factor, "postdivide", group.gradient_postdivide_factor)
    print("loss", [f"{loss:.2f}" for loss, _ in log], "gnorm", [f"{g:.2f}" for _, g in log])


if __name__ == "__main__":
    train()
