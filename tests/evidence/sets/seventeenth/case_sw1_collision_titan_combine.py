"""
title: grouped experts always answer in bfloat16, the token combine scatters them into an fp32 buffer
expect: collision
thread: https://github.com/pytorch/torchtitan/pull/3567
fix_at: 62

Expectation, written first: the grouped matmul supports bfloat16 only, so the experts cast tokens and weights down and return bfloat16
whatever the model dtype is. The dispatcher's combine allocates its output like the float32 input and scatter_add raises on the mixture.
"""
import torch
import torch.nn.functional as F
from torch import nn

def grouped_mm(x, w, offs):
    assert x.dtype == torch.bfloat16 and w.dtype == torch.bfloat16, "grouped_mm only supports bf16"
    out, start = [], 0
    for expert, end in enumerate(offs.tolist()):
        out.append(x[start:end] @ w[expert])
        start = end
    return torch.cat(out)

class GroupedExperts(nn.Module):
    def __init__(self, dim, hidden_dim, num_experts):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(num_experts, dim, hidden_dim) * 0.1)
        self.w2 = nn.Parameter(torch.randn(num_experts, hidden_dim, dim) * 0.1)
        self.w3 = nn.Parameter(torch.randn(num_experts, dim, hidden_dim) * 0.1)

    def forward(self, x, num_tokens_per_expert):
        offs = torch.cumsum(num_tokens_per_expert, dim=0)
        x_bf16 = x.bfloat16()  # BORN
        h = F.silu(grouped_mm(x_bf16, self.w1.bfloat16(), offs))
        h = h * grouped_mm(x_bf16, self.w3.bfloat16(), offs)
        return grouped_mm(h, self.w2.bfloat16(), offs)  # BORN

class TokenChoiceTopKRouter(nn.Module):
    def __init__(self, dim, num_experts, top_k):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.num_experts, self.top_k = num_experts, top_k

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x).float())
        top_scores, selected = torch.topk(scores, k=self.top_k, dim=1)
        counts = torch.bincount(selected.view(-1), minlength=self.num_experts)
        return top_scores, selected, counts

class LocalTokenDispatcher:
    def __init__(self, top_k):
        self.top_k = top_k

    def dispatch(self, x, top_scores, selected):
        order = torch.argsort(selected.view(-1), stable=True)
        token_indices = order // self.top_k
        routed = x[token_indices]
        routed = (routed.float() * top_scores.view(-1)[order].unsqueeze(-1)).to(x.dtype)
        return routed, token_indices

    def combine(self, routed_output, x, token_indices):
        out = torch.zeros_like(x)
        index = token_indices.unsqueeze(-1).expand(-1, x.size(-1))
        return out.scatter_add(0, index, routed_output)  # COLLIDES

class MoE(nn.Module):
    def __init__(self, dim=16, hidden_dim=32, num_experts=4, top_k=2):
        super().__init__()
        self.router = TokenChoiceTopKRouter(dim, num_experts, top_k)
        self.experts = GroupedExperts(dim, hidden_dim, num_experts)
        self.dispatcher = LocalTokenDispatcher(top_k)

    def forward(self, x):
        bs, slen, dim = x.shape
        x = x.view(-1, dim)
        top_scores, selected, counts = self.router(x)
        routed, token_indices = self.dispatcher.dispatch(x, top_scores, selected)
        routed_output = self.experts(routed, counts)  # BORN
        return self.dispatcher.combine(routed_output, x, token_indices).view(bs, slen, dim)

def main():
    torch.manual_seed(0)
    moe = MoE()
    x = torch.randn(2, 12, 16)
    out = x + moe(x)
    out.square().mean().backward()
    print(out.shape, f"{moe.experts.w1.grad.norm().item():.5f}")

if __name__ == "__main__":
    main()
