"""
title: a simplified SSM block decays its state at a wrong rate, as exp(A_log) is taken in bfloat16
expect: silent:precision-loss|downcast
thread: https://github.com/state-spaces/mamba/pull/923
measured: output at the impulse 2.00 | decay rates [3.01, 4.28, 5.58, 6.83, 8.12, 9.49, 10.75, 11.99] | what is left, as a share of what should be left [0.9, 1.03, 1.06, 1.1, 1.13, 0.61, 0.78, 1.0]
widened: output at the impulse 2.00 | decay rates [3.0, 4.29, 5.57, 6.86, 8.14, 9.43, 10.71, 12.0] | what is left, as a share of what should be left [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]; innocent: output at the impulse 2.00 | decay rates [3.01, 4.28, 5.58, 6.83, 8.12, 9.49, 10.75, 11.99] | what is left, as a share of what should be left [0.9, 1.03, 1.06, 1.1, 1.13, 0.61, 0.78, 1.0]
suspect: line 25 - innocent: the skip weights D start as ones, exact in bfloat16

Expectation, written first: A_log is put into the model's bfloat16 when it is made and exponentiated in that type, so
the decay rates are off by up to one percent. Over a few hundred steps the error in the exponent is multiplied and
what is left of an impulse is off by tens of percent. The skip connection's D in bfloat16 changes nothing.
"""
import torch
from torch import nn


class Mamba2Simple(nn.Module):
    def __init__(self, nheads=8, dt=0.01, A_init_range=(3.0, 12.0), dtype=torch.bfloat16):
        super().__init__()
        self.nheads = nheads
        self.dt = dt
        A = torch.linspace(*A_init_range, nheads, dtype=torch.float32)
        A_log = torch.log(A).to(dtype=dtype)  # BORN
        self.A_log = nn.Parameter(A_log)
        self.D = nn.Parameter(torch.ones(nheads, dtype=torch.bfloat16))
        self.rates = A

    def ssd_scan(self, u, A):
        decay = torch.exp(self.dt * A.float())
        state = torch.zeros(u.shape[0], self.nheads)
        outputs = []
        for t in range(u.shape[1]):
            state = state * decay + u[:, t]
            outputs.append(state)
        return torch.stack(outputs, dim=1)

    def forward(self, u):
        A = -torch.exp(self.A_log)  # BORN
        y = self.ssd_scan(u, A)
        return y + u * self.D.float()


def impulse(length, nheads):
    u = torch.zeros(1, length, nheads)
    u[:, 0] = 1.0
    return u


def expected_tail(block, lag):
    return torch.exp(-block.rates.double() * block.dt * lag)


@torch.no_grad()
def main(lag=700):
    torch.manual_seed(0)
    block = Mamba2Simple()
    y = block(impulse(lag + 1, block.nheads))
    tail = y[0, lag].double()
    share = tail / expected_tail(block, lag)
    rates = torch.exp(block.A_log.double())
    print(f"output at the impulse {y[0, 0].mean():.2f}")
    print("decay rates", [round(v, 2) for v in rates.tolist()])
    print("what is left, as a share of what should be left", [round(v, 2) for v in share.tolist()])


if __name__ == "__main__":
    main()
