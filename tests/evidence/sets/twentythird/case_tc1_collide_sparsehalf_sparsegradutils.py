"""
title: finite element smoothing with a float16 CSR operator: no sparse matmul kernel for half
expect: collision
thread: https://github.com/cai4cai/torchsparsegradutils/issues/53
fix_at:

Expectation, written first: the user builds the stiffness operator and the fields in float16 to save memory. The custom sparse matmul calls the CSR
product, which has no half kernel. The product must be computed in float32, or the operator must not be built in float16.
"""
import torch
import torch.nn as nn


class SparseMatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B):
        ctx.save_for_backward(A, B)
        return torch.sparse.mm(A.detach(), B.detach())  # BORN COLLIDES

    @staticmethod
    def backward(ctx, grad):
        A, B = ctx.saved_tensors
        rows = torch.repeat_interleave(torch.arange(A.shape[0]), A.crow_indices().diff())
        cols = A.col_indices()
        values = (grad[rows] * B[cols]).sum(dim=1)
        grad_A = torch.sparse_csr_tensor(A.crow_indices(), cols, values, A.shape)
        grad_B = torch.zeros_like(B).index_add_(0, cols, A.values()[:, None] * grad[rows])
        return grad_A, grad_B


def sparse_mm(A, B):
    if A.dim() != 2 or B.dim() != 2:
        raise ValueError("Both A and B should be 2-dimensional tensors")
    return SparseMatMul.apply(A, B)


def chain_laplacian(n, dtype):
    main = torch.full((n,), 2.0)
    off = torch.full((n - 1,), -1.0)
    dense = torch.diag(main) + torch.diag(off, 1) + torch.diag(off, -1)
    return dense.to(dtype).to_sparse_csr()  # BORN


class DiffusionSmoother(nn.Module):
    def __init__(self, n_nodes, n_fields, dtype):
        super().__init__()
        self.register_buffer("crow", chain_laplacian(n_nodes, dtype).crow_indices())
        self.operator = chain_laplacian(n_nodes, dtype)
        self.log_tau = nn.Parameter(torch.full((n_fields,), -2.0, dtype=dtype))

    def forward(self, field, steps=3):
        for _ in range(steps):
            field = field - self.log_tau.exp() * sparse_mm(self.operator, field)
        return field


def fit(dtype, iters=4):
    torch.manual_seed(0)
    smoother = DiffusionSmoother(32, 3, dtype)
    noisy = torch.randn(32, 3).to(dtype)
    target = noisy.float().cumsum(0).div(torch.arange(1, 33)[:, None]).to(dtype)
    optimizer = torch.optim.SGD(smoother.parameters(), lr=0.05)
    for _ in range(iters):
        loss = (smoother(noisy) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    print("fit loss", fit(torch.float16))  # BORN
