"""
title: Attack on labels that were read as int32 from NumPy
expect: collision
thread: https://github.com/bethgelab/foolbox/issues/647
fix_at: (none beside the marked)

Expectation, written first: The sample labels are made as an int32 array and torch.from_numpy keeps that. The
accuracy compares classes and runs; the gradient attack hands the labels to CrossEntropyLoss, which takes only Long
(or Byte) class indices and raises for Int.
"""
import numpy as np
import torch
import torch.nn as nn


class PyTorchModel:
    def __init__(self, model, bounds, preprocessing):
        self.model, self.bounds = model.eval(), bounds
        self.mean = torch.tensor(preprocessing["mean"]).view(1, -1, 1, 1)
        self.std = torch.tensor(preprocessing["std"]).view(1, -1, 1, 1)

    def __call__(self, x):
        return self.model((x - self.mean) / self.std)


def samples(batchsize, num_classes, rng):
    images = rng.random((batchsize, 3, 16, 16)).astype(np.float32)
    labels = rng.integers(0, num_classes, size=batchsize, dtype=np.int32)  # BORN
    return torch.from_numpy(images), torch.from_numpy(labels)  # BORN


def accuracy(fmodel, images, labels):
    with torch.no_grad():
        return (fmodel(images).argmax(-1) == labels).float().mean().item()


class LinfPGD:
    def __init__(self, steps=4, rel_stepsize=0.3):
        self.steps, self.rel_stepsize = steps, rel_stepsize

    def get_loss_fn(self, model, labels):
        def loss_fn(inputs):
            return nn.functional.cross_entropy(model(inputs), labels, reduction="sum")  # COLLIDES
        return loss_fn

    def run(self, model, inputs, labels, epsilon):
        loss_fn = self.get_loss_fn(model, labels)
        x = inputs.clone()
        for _ in range(self.steps):
            x.requires_grad_(True)
            grad, = torch.autograd.grad(loss_fn(x), x)
            x = x.detach() + epsilon * self.rel_stepsize * grad.sign()
            x = inputs + (x - inputs).clamp(-epsilon, epsilon)
            x = x.clamp(*model.bounds)
        return x

    def __call__(self, model, inputs, labels, epsilons):
        advs = [self.run(model, inputs, labels, eps) for eps in epsilons]
        success = [model(adv).argmax(-1) != labels for adv in advs]
        return advs, torch.stack(success)


def resnet_like(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, num_classes),
    )


def main():
    torch.manual_seed(647)
    preprocessing = dict(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    fmodel = PyTorchModel(resnet_like(10), bounds=(0, 1), preprocessing=preprocessing)
    images, labels = samples(16, 10, np.random.default_rng(647))
    print(f"clean accuracy: {accuracy(fmodel, images, labels) * 100:.1f} %")
    attack = LinfPGD()
    epsilons = [0.0, 0.01, 0.1]
    advs, success = attack(fmodel, images, labels, epsilons)
    for eps, acc in zip(epsilons, 1 - success.float().mean(-1)):
        print(f"  Linf norm <= {eps:<6}: {acc.item() * 100:4.1f} %")


if __name__ == "__main__":
    main()
