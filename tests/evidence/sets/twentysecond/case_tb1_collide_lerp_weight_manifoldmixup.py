"""
title: manifold mixup with to_fp16: torch.lerp refuses a float32 weight for half activations
expect: collision
thread: https://github.com/nestordemeure/ManifoldMixupV2/issues/1

Expectation, written first: the mixing coefficients come from a Beta distribution in float32. The forward hook mixes the
float16 output of a module with torch.lerp and hands the float32 coefficients as weight, and lerp wants one dtype.
"""
import torch
from torch import nn
from torch.distributions.beta import Beta


def unsqueeze(x, n):
    for _ in range(n):
        x = x.unsqueeze(-1)
    return x


class ManifoldMixUp:
    def __init__(self, alpha=0.4):
        self.distrib = Beta(torch.tensor(alpha), torch.tensor(alpha))
        self.mixup_has_been_applied = False
        self.handles = []

    def before_fit(self, model):
        for module in model.modules():
            if isinstance(module, nn.Linear):
                self.handles.append(module.register_forward_hook(self.hook_mixup))

    def before_batch(self, yb):
        lam = self.distrib.sample((yb.size(0),))  # BORN
        self.lam = torch.stack([lam, 1 - lam], 1).max(1)[0]
        self.shuffle = torch.randperm(yb.size(0))
        self.mixup_has_been_applied = False

    def hook_mixup(self, module, input, output):
        if not self.mixup_has_been_applied:
            output_dims = len(output.size())
            weight = unsqueeze(self.lam, n=output_dims - 1)  # BORN
            output = torch.lerp(output[self.shuffle], output, weight=weight)  # BORN COLLIDES
            self.mixup_has_been_applied = True
        return output

    def lf(self, loss_func, pred, yb):
        loss = loss_func(pred.float(), yb)
        loss_shuffled = loss_func(pred.float(), yb[self.shuffle])
        return torch.lerp(loss_shuffled, loss, self.lam).mean()


class Learner:
    def __init__(self, model, loss_func, cb, lr=0.05):
        self.model, self.loss_func, self.cb, self.lr = model, loss_func, cb, lr
        self.dtype = torch.float32

    def to_fp16(self):
        self.model.half()
        self.dtype = torch.float16
        return self

    def fit(self, batches):
        self.cb.before_fit(self.model)
        opt = torch.optim.SGD(self.model.parameters(), lr=self.lr)
        for xb, yb in batches:
            self.cb.before_batch(yb)
            pred = self.model(xb.to(self.dtype))
            loss = self.cb.lf(self.loss_func, pred, yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"train_loss {loss.item():.4f}")


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
    batches = [(torch.randn(16, 10), torch.randint(0, 3, (16,))) for _ in range(3)]
    learner = Learner(model, nn.CrossEntropyLoss(reduction="none"), ManifoldMixUp()).to_fp16()
    learner.fit(batches)


if __name__ == "__main__":
    main()
