"""
title: token counts of the auxiliary-loss-free router are rounded and the expert bias walks the wrong way
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/NVIDIA/Megatron-LM/pull/7081
measured: routed 36000 counted 16408 experts with the wrong sign 5 of 8
widened: routed 36000 counted 36000 experts with the wrong sign 0 of 8; innocent: routed 36000 counted 16408 experts with the wrong sign 5 of 8
suspect: 24 exact (2 ** -10)

Expectation, written first: local_tokens_per_expert is a float buffer and Float16Module turns it into bfloat16. A count
beyond 256 is rounded at every addition: small micro-batches are dropped or doubled, the counts differ from the tokens
that were routed and the sign of the update is wrong for some experts. Remedy: integer counts. The update rate is exact.
"""
import torch
import torch.nn as nn


class TopKRouter(nn.Module):
    def __init__(self, hidden, num_experts, topk):
        super().__init__()
        self.topk = topk
        self.weight = nn.Parameter(torch.randn(num_experts, hidden) * hidden ** -0.5)
        self.register_buffer("local_tokens_per_expert", torch.zeros(num_experts))  # BORN
        self.register_buffer("expert_bias", torch.zeros(num_experts), persistent=True)
        self.update_rate = torch.tensor(2.0 ** -10, dtype=torch.bfloat16)

    def _maintain_float32_expert_bias(self):
        self.expert_bias = self.expert_bias.float()

    def forward(self, x):
        scores = torch.sigmoid(x @ self.weight.t()).float()
        _, idx = (scores + self.expert_bias).topk(self.topk, dim=-1)
        routing_map = torch.zeros(scores.shape, dtype=torch.bool).scatter_(1, idx, True)
        self.local_tokens_per_expert += routing_map.sum(dim=0)  # BORN
        return routing_map


class Float16Module(nn.Module):
    def __init__(self, module, dtype):
        super().__init__()
        self.module = module.to(dtype)  # BORN
        self.module._maintain_float32_expert_bias()

    def forward(self, x):
        return self.module(x.to(self.module.weight.dtype))


def get_updated_expert_bias(tokens_per_expert, bias, rate):
    average = tokens_per_expert.sum().float() / tokens_per_expert.numel()
    offset = average - tokens_per_expert.float()
    return bias + torch.sign(offset) * rate.float()


@torch.no_grad()
def main():
    torch.manual_seed(7081)
    router = Float16Module(TopKRouter(32, 8, 2), torch.bfloat16)
    routed = torch.zeros(8, dtype=torch.long)
    for _ in range(1500):
        routed += router(torch.randn(12, 32)).sum(dim=0)
    inner = router.module
    counted = inner.local_tokens_per_expert
    bias = get_updated_expert_bias(counted, inner.expert_bias, inner.update_rate)
    right = get_updated_expert_bias(routed, inner.expert_bias, inner.update_rate)
    print(f"routed {routed.sum().item()} counted {int(counted.double().sum().item())}",
          f"experts with the wrong sign {(bias != right).sum().item()} of 8")


main()
