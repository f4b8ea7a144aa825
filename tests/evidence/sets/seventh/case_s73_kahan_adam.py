"""
title: Pure bfloat16 training with Kahan-compensated updates
expect: clean
thread: https://github.com/warner-benjamin/optimi/pull/15

Expectation, written first.  Nothing is wrong.  The weights are bfloat16 and a
single update is smaller than half a step of the weight, but what the addition
loses is kept in a compensation buffer and added to the next update.  After a
thousand updates the weight has moved as far as in float32, within one step of
bfloat16.
"""
import torch

torch.manual_seed(0)
torch.set_num_threads(1)


class KahanSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["velocity"] = torch.zeros_like(p, dtype=torch.float32)
                    state["compensation"] = torch.zeros_like(p)
                state["velocity"].mul_(group["momentum"]).add_(p.grad.float())
                update = -group["lr"] * state["velocity"]
                corrected = (update + state["compensation"].float()).to(p.dtype)
                before = p.clone()
                p.add_(corrected)
                applied = p.float() - before.float()
                state["compensation"].copy_(update + state["compensation"].float() - applied)


def quadratic(p, target):
    return 0.5 * ((p.float() - target) ** 2).sum()


def main(steps=1000):
    target = torch.tensor([1.5, -2.25, 3.125, 0.75])
    start = target + torch.tensor([1.0, 1.0, -1.0, 1.0])
    parameter = start.to(torch.bfloat16).requires_grad_(True)
    reference = start.to(torch.bfloat16).float().requires_grad_(True)
    kahan = KahanSGD([parameter], lr=2e-4)
    plain = torch.optim.SGD([reference], lr=2e-4, momentum=0.9)
    for _ in range(steps):
        kahan.zero_grad()
        quadratic(parameter, target).backward()
        kahan.step()
        plain.zero_grad()
        quadratic(reference, target).backward()
        plain.step()
    gap = (parameter.float() - reference).abs().max().item()
    print(f"distance to the target {(parameter.float() - target).norm().item():.4f}, gap to float32 {gap:.4f}")


if __name__ == "__main__":
    main()
