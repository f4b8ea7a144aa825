"""
title: mixture of experts in bfloat16 with a float32 router gate, checkpointed, float32 norms and loss
expect: clean
thread: https://github.com/areal-project/AReaL/pull/1009
measured: loss 4.32 grad norm 0.59
suspect: 33 deliberate: the gate product and its gradient are formed in float32, the gradient is stored in the weight's dtype

Expectation, written first: experts and activations are bfloat16; the gate multiplies float32 copies, softmax and
top-k stay float32, only the chosen weights are cast; RMSNorm and cross entropy are float32, the block is recomputed
by checkpoint. The gate's gradient is formed in float32 and rounded once. Loss and gradient norm equal those of the
float32 model to bfloat16's two digits.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

PARAM_DTYPE = torch.bfloat16


class RouterGatingLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp, weight, router_dtype):
        ctx.save_for_backward(inp, weight)
        ctx.router_dtype, ctx.input_dtype, ctx.weight_dtype = router_dtype, inp.dtype, weight.dtype
        return torch.mm(inp.to(router_dtype), weight.to(router_dtype).t())

    @staticmethod
    def backward(ctx, grad_output):
        inp, weight = ctx.saved_tensors
        grad = grad_output.to(ctx.router_dtype)
        grad_input = torch.mm(grad, weight.to(ctx.router_dtype)).to(ctx.input_dtype)
        grad_weight = torch.mm(grad.t(), inp.to(ctx.router_dtype)).to(ctx.weight_dtype)
        return grad_input, grad_weight, None


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + self.eps)
        return (h * self.weight.float()).to(x.dtype)


class MoE(nn.Module):
    def __init__(self, dim, hidden, num_experts, top_k):
        super().__init__()
        self.norm, self.top_k = RMSNorm(dim), top_k
        self.gate = nn.Parameter(torch.randn(num_experts, dim) * 0.5)
        self.w1 = nn.Parameter(torch.randn(num_experts, dim, hidden) / dim**0.5)
        self.w2 = nn.Parameter(torch.randn(num_experts, hidden, dim) / hidden**0.5)

    def forward(self, x):
        tokens = self.norm(x).flatten(0, 1)
        scores = RouterGatingLinear.apply(tokens, self.gate, torch.float32).softmax(dim=-1)
        top_scores, selected = scores.topk(self.top_k, dim=-1)
        top_scores = top_scores / top_scores.sum(-1, keepdim=True)
        out = torch.zeros_like(tokens, dtype=torch.float32)
        for e in range(self.gate.shape[0]):
            row, slot = (selected == e).nonzero(as_tuple=True)
            y = F.silu(tokens[row] @ self.w1[e]) @ self.w2[e]
            out = out.index_add(0, row, y.float() * top_scores[row, slot].unsqueeze(-1))
        return x + out.view(x.shape).to(x.dtype)


class MoEModel(nn.Module):
    def __init__(self, vocab=64, dim=32, layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([MoE(dim, 48, num_experts=4, top_k=2) for _ in range(layers)])
        self.norm, self.output = RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h = self.tok_embeddings(ids)
        for layer in self.layers:
            h = checkpoint(layer, h, use_reentrant=False)
        return self.output(self.norm(h))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = MoEModel().to(torch.bfloat16).to(PARAM_DTYPE)
    ids = torch.randint(0, 64, (4, 33))
    loss = F.cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    norm = torch.stack([p.grad.float().norm() for p in model.parameters()]).norm()
    print("loss", f"{loss.item():.2f}", "grad norm", f"{norm.item():.2f}")
