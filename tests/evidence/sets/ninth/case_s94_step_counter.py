"""
title: capturable Adam keeps step counter and learning rate as bf16 tensors
expect: silent:lost-update
thread: https://github.com/pytorch/ao/pull/4915
measured: walked 1.836 of 3.000
widened: walked 2.998 of 3.000

Expectation, written first: the counter is a bf16 tensor and stops at 256, so the bias
correction of the second moment stays at 0.23 and all later steps are half as large.
The learning rate is a bf16 tensor too, off by a part in a thousand; making it float32
alone changes nothing one could see.
"""
import torch


class CapturableAdam:
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        self.params = list(params)
        self.betas, self.eps = betas, eps
        self.lr = torch.tensor(lr, dtype=torch.bfloat16)
        self.state = {}
        for p in self.params:
            self.state[p] = {
                "step": torch.zeros((), dtype=torch.bfloat16),  # BORN
                "m": torch.zeros_like(p),
                "v": torch.zeros_like(p),
            }

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for p in self.params:
            st = self.state[p]
            st["step"] += 1
            n = st["step"].float()
            st["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
            st["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            c1, c2 = 1 - b1 ** n, 1 - b2 ** n
            p.sub_(self.lr.float() / c1 * st["m"] / ((st["v"] / c2).sqrt() + self.eps))
            p.grad = None


def drift(total, lr):
    """A parameter under a constant gradient walks lr per step."""
    p = torch.nn.Parameter(torch.ones(8))
    opt = CapturableAdam([p], lr=lr)
    for _ in range(total):
        (0.1 * p.sum()).backward()
        opt.step()
    return (1 - p.detach()).mean().item()


def main():
    total, lr = 3000, 1e-3
    walked = drift(total, lr)
    print(f"walked {walked:.3f} of {total * lr:.3f}")


main()
