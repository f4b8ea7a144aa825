"""
title: EMA weights of the trainer are handed to a bfloat16 model for evaluation
expect: clean
thread: https://github.com/THUDM/SwissArmyTransformer/pull/159
measured: loss 0.002 EMA accuracy 1.00 shadow norm 4.09
suspect: 30 tolerant (only the copy for evaluation is narrow; the shadow itself is updated in float32)

Expectation, written first: the shadow is kept and updated in float32, so steps of 1 - 0.999 are not lost; only the copy
for evaluation is cast to bfloat16, which changes a weight by less than half a percent. The shadow follows the weights.
"""
import copy

import torch
from torch import nn


class LitEma:
    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.num_updates = 0
        self.shadow = {name: p.detach().float().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        for name, p in model.named_parameters():
            self.shadow[name].sub_((1 - decay) * (self.shadow[name] - p.float()))

    def copy_to(self, model, dtype=torch.bfloat16):
        target = copy.deepcopy(model).to(dtype)
        state = {name: value.to(dtype) for name, value in self.shadow.items()}
        target.load_state_dict(state)
        return target.eval()


class GLMClassifier(nn.Module):
    def __init__(self, dim=16, classes=4):
        super().__init__()
        self.dense = nn.Linear(dim, 32)
        self.final = nn.Linear(32, classes)

    def forward(self, x):
        return self.final(torch.tanh(self.dense(x.to(self.dense.weight.dtype))))


def make_data(num, generator):
    centres = 1.6 * torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(0, 4, (num,), generator=generator)
    return centres[labels] + torch.randn(num, 16, generator=generator), labels


def training_main(model, ema, steps, generator):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        x, y = make_data(64, generator)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
    return loss.item()


@torch.no_grad()
def evaluate(model, generator):
    x, y = make_data(1000, generator)
    return (model(x).float().argmax(-1) == y).float().mean().item()


def main():
    torch.manual_seed(159)
    generator = torch.Generator().manual_seed(160)
    model = GLMClassifier()
    ema = LitEma(model)
    loss = training_main(model, ema, steps=400, generator=generator)
    accuracy = evaluate(ema.copy_to(model), generator)
    spread = ema.shadow["dense.weight"].norm().item()
    print(f"loss {loss:.3f} EMA accuracy {accuracy:.2f} shadow norm {spread:.2f}")


main()
