"""
title: sparse MoE block under bf16 autocast: index_add_ of float32 expert output into a bfloat16 accumulator is refused
expect: collision
thread: https://github.com/Tencent/YOLO-Master/pull/124
fix_at:

Expectation, written first: the accumulator takes the dtype of the incoming feature map, which autocast made bfloat16. Each expert ends in a
group norm that is computed in float32 and is handed on as float32. index_add_ does not promote, so the first expert dies there. Either the norm
casts back, or the accumulator is made float32, or the addend is cast at index_add_.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GroupNorm32(nn.GroupNorm):
    def forward(self, x):
        return F.group_norm(x.float(), self.num_groups, self.weight, self.bias, self.eps)  # BORN


class InvertedExpert(nn.Module):
    def __init__(self, c_in, c_out, expand=2):
        super().__init__()
        hidden = c_in * expand
        self.expand = nn.Conv2d(c_in, hidden, 1, bias=False)
        self.dw = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False)
        self.project = nn.Conv2d(hidden, c_out, 1, bias=False)
        self.norm = GroupNorm32(4, c_out)

    def forward(self, x):
        x = F.silu(self.dw(F.silu(self.expand(x))))
        return self.norm(self.project(x))


class TopKRouter(nn.Module):
    def __init__(self, c_in, num_experts, top_k):
        super().__init__()
        self.top_k = top_k
        self.fc = nn.Linear(c_in, num_experts)

    def forward(self, x):
        logits = self.fc(x.mean(dim=(2, 3)))
        weights, indices = torch.softmax(logits, dim=-1).topk(self.top_k, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), indices


class DiversifiedExpertGroup(nn.Module):
    def __init__(self, c_in, c_out, num_experts=4, top_k=2):
        super().__init__()
        self.c_out = c_out
        self.router = TopKRouter(c_in, num_experts, top_k)
        self.experts = nn.ModuleList(InvertedExpert(c_in, c_out) for _ in range(num_experts))

    def forward(self, x):
        weights, indices = self.router(x)
        out = x.new_zeros(x.size(0), self.c_out, x.size(2), x.size(3))  # BORN
        for i, expert in enumerate(self.experts):
            rows, slots = torch.where(indices == i)
            y = expert(x[rows]) * weights[rows, slots].view(-1, 1, 1, 1)
            out.index_add_(0, rows, y)  # BORN COLLIDES
        return out


class TinyBackbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.moe = DiversifiedExpertGroup(16, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, images):
        feats = self.moe(F.silu(self.stem(images)))
        return self.head(feats.mean(dim=(2, 3)))


def train_step(model, optimizer, images, labels):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    net = TinyBackbone()
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    print("loss", train_step(net, opt, torch.rand(6, 3, 16, 16), torch.randint(0, 5, (6,))))
