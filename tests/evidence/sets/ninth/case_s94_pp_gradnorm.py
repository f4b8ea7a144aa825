"""
title: global gradient norm summed over pipeline stages in bf16, gradients bf16 too
expect: silent:lost-update
thread: https://github.com/NVIDIA-NeMo/Automodel/pull/825
measured: reported norm 5.66, length of the step 7.75 (limit 4.00)
widened: reported norm 10.96, length of the step 4.00 (limit 4.00)

Expectation, written first: the norm adds one squared norm per tensor in bf16; once the
total is 256 times a term nothing arrives, so the norm of 3000 small tensors is far too
low and clipping does not happen. The gradients themselves are bf16, which is fine.
"""
import torch


class Stage:
    def __init__(self, n_tensors, gen, scale):
        self.params = [torch.nn.Parameter(torch.zeros(16)) for _ in range(n_tensors)]
        self.scale, self.gen = scale, gen

    def backward(self):
        self.grads = [self.scale * torch.randn(16, generator=self.gen) for _ in self.params]
        self.grads = [g.bfloat16() for g in self.grads]

    def local_sq(self, acc):
        for g in self.grads:
            acc += g.float().pow(2).sum().to(acc.dtype)
        return acc

    def apply(self, lr, coef):
        with torch.no_grad():
            for p, g in zip(self.params, self.grads):
                p -= lr * coef * g.float()


class Pipeline:
    def __init__(self, stages=3, per_stage=1000, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.stages = [Stage(per_stage, gen, 0.05) for _ in range(stages)]

    def backward(self):
        for s in self.stages:
            s.backward()

    def clip_and_step(self, max_norm, lr):
        total = torch.zeros((), dtype=torch.bfloat16)  # BORN
        for s in self.stages:
            total = s.local_sq(total)
        norm = total.float().sqrt()
        coef = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for s in self.stages:
            s.apply(lr, coef)
        return norm.item()

    def update_norm(self):
        return sum(p.detach().double().pow(2).sum() for s in self.stages for p in s.params).sqrt().item()


def main():
    pipe = Pipeline()
    pipe.backward()
    norm = pipe.clip_and_step(max_norm=4.0, lr=1.0)
    print(f"reported norm {norm:.2f}, length of the step {pipe.update_norm():.2f} (limit 4.00)")


main()
