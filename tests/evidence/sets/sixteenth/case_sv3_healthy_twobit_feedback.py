"""
title: workers send two-bit gradients and keep what was not sent
expect: clean
thread: https://github.com/apache/mxnet/pull/7512
measured: accuracy 0.99, uncompressed 0.99

Expectation, written first: the quantisation is crude by design (three values in an int8), its error stays with the
worker as a float32 residual and is sent later; training arrives at the loss of uncompressed training.
"""
import torch
import torch.nn.functional as F
from torch import nn


class TwoBit:
    def __init__(self, threshold):
        self.threshold, self.residual = threshold, {}

    def compress(self, name, grad):
        pending = self.residual.get(name, torch.zeros_like(grad)) + grad
        code = (pending > self.threshold).to(torch.int8) - (pending < -self.threshold).to(torch.int8)
        self.residual[name] = pending - self.expand(code)
        return code

    def expand(self, code):
        return code.float() * self.threshold


class Plain:
    def compress(self, name, grad):
        return grad

    def expand(self, code):
        return code


class Worker:
    def __init__(self, x, y, codec):
        self.x, self.y, self.codec, self.at = x, y, codec, 0

    def gradients(self, model, batch=32):
        rows = torch.arange(self.at, self.at + batch) % len(self.x)
        self.at += batch
        model.zero_grad()
        F.cross_entropy(model(self.x[rows]), self.y[rows]).backward()
        return {n: self.codec.compress(n, p.grad) for n, p in model.named_parameters()}


class Server:
    def __init__(self, model, workers, lr):
        self.model, self.workers, self.lr = model, workers, lr

    def step(self):
        sent = [(w, w.gradients(self.model)) for w in self.workers]
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                mean = sum(w.codec.expand(codes[name]) for w, codes in sent) / len(sent)
                p.sub_(mean, alpha=self.lr)


def train(make_codec, steps=300):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(5)
    x = torch.randn(1024, 12, generator=gen)
    y = (x @ torch.randn(12, 4, generator=gen)).argmax(1)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    workers = [Worker(x[i::4], y[i::4], make_codec()) for i in range(4)]
    server = Server(model, workers, lr=0.2)
    for _ in range(steps):
        server.step()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    two_bit, plain = train(lambda: TwoBit(0.01)), train(Plain)
    print(f"accuracy {two_bit:.2f}, uncompressed {plain:.2f}")


main()
