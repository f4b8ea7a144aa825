"""
title: a block neural autoregressive flow keeps its weight masks as uint8 and multiplies weights by them
expect: clean
thread: https://github.com/kamenbliznashki/normalizing_flows/issues/9
measured: log determinants [3.6637, 2.5725, 0.9076, 2.1826, 2.2647] ; by autograd      [3.6637, 2.5725, 0.9076, 2.1826, 2.2647] ; loss 9.0048, gradient 4.0833
suspect: 21 exact (ones and zeros, and the product with a float weight is float)

Expectation, written first: the diagonal and off-diagonal masks are uint8 buffers; times a float32 weight the result is float32, and the diagonal mask is
made boolean where it indexes. The Jacobian determinant from the masked blocks equals the one autograd gives, so no number is lost.
"""
import math
import torch
from torch import nn


class MaskedLinear(nn.Module):
    def __init__(self, in_features, out_features, data_dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) / in_features ** 0.5)
        self.bias = nn.Parameter(0.1 * torch.randn(out_features))
        diag = torch.zeros(out_features, in_features, dtype=torch.uint8)
        off = torch.zeros_like(diag)
        for i in range(data_dim):
            rows = slice(i * out_features // data_dim, (i + 1) * out_features // data_dim)
            diag[rows, i * in_features // data_dim:(i + 1) * in_features // data_dim] = 1
            off[rows, :i * in_features // data_dim] = 1
        self.register_buffer("mask_d", diag)
        self.register_buffer("mask_o", off)
        self.data_dim = data_dim

    def forward(self, x, log_jac):
        w = torch.exp(self.weight) * self.mask_d + self.weight * self.mask_o
        block = self.weight[self.mask_d.bool()].view(self.data_dim, w.shape[0] // self.data_dim, -1)
        if log_jac is None:
            log_jac = block.expand(x.shape[0], -1, -1, -1)
        else:
            log_jac = torch.logsumexp(block[None, :, :, :, None] + log_jac[:, :, None], dim=3)
        return x @ w.t() + self.bias, log_jac


class Tanh(nn.Module):
    def forward(self, x, log_jac):
        d = -2 * (x - math.log(2) + nn.functional.softplus(-2 * x))
        return torch.tanh(x), log_jac + d.view(x.shape[0], log_jac.shape[1], -1, 1)


class BNAF(nn.Module):
    def __init__(self, data_dim=3, hidden=4):
        super().__init__()
        self.layers = nn.ModuleList([
            MaskedLinear(data_dim, data_dim * hidden, data_dim),
            Tanh(),
            MaskedLinear(data_dim * hidden, data_dim, data_dim),
        ])

    def forward(self, x):
        log_jac = None
        for layer in self.layers:
            x, log_jac = layer(x, log_jac)
        return x, log_jac.flatten(1).sum(-1)


def main():
    torch.manual_seed(1)
    flow = BNAF()
    x = torch.randn(5, 3)
    z, logdet = flow(x)
    exact = [torch.autograd.functional.jacobian(lambda v: flow(v[None])[0][0], row).logdet().item() for row in x]
    loss = (0.5 * z.pow(2).sum(-1) - logdet).mean()
    loss.backward()
    print("log determinants", [round(v, 4) for v in logdet.tolist()])
    print("by autograd     ", [round(v, 4) for v in exact])
    print(f"loss {loss.item():.4f}, gradient {flow.layers[0].weight.grad.norm().item():.4f}")


main()
