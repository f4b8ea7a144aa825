"""
title: The lagged evaluation adapter never follows the trained LoRA adapter
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/AndreasBergmeister/ram/issues/6
measured: start loss 0.268 | default adapter 0.102  evaluation adapter 0.213
widened: start loss 0.268 | default adapter 0.102  evaluation adapter 0.163
innocent: start loss 0.268 | default adapter 0.102  evaluation adapter 0.213
suspect: 47 read-only

Expectation, written first (for float16; with it the damage was slight, so the program uses bfloat16): The loop that casts everything without requires_grad to the mixed-precision dtype also takes the inactive evaluation adapter,
whose EMA is then updated in place in bfloat16. Increments of three thousandths of the gap lie below half an ulp of the stored weights and are
rounded away, so the evaluation adapter stays behind. The bfloat16 backbone is only read in the forward and costs nothing of note.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LoraProjection(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base
        self.rank = rank
        self.adapters = nn.ModuleDict()
        self.active = "default"

    def add_adapter(self, name):
        out_f, in_f = self.base.weight.shape
        adapter = nn.Sequential(nn.Linear(in_f, self.rank, bias=False), nn.Linear(self.rank, out_f, bias=False))
        if self.adapters:
            adapter.load_state_dict(self.adapters["default"].state_dict())
        adapter.requires_grad_(name == "default")
        self.adapters[name] = adapter

    def forward(self, x):
        hidden = self.base(x.to(self.base.weight.dtype)).float()
        adapter = self.adapters[self.active]
        return hidden + adapter(x.to(adapter[0].weight.dtype)).float()


def load_transformer(torch_dtype):
    torch.manual_seed(1)
    return nn.Linear(64, 64).requires_grad_(False).to(torch_dtype)


def build_pipeline(dtype):
    model = LoraProjection(load_transformer(torch_dtype=dtype))
    model.add_adapter("default")
    model.add_adapter("evaluation")
    for p in model.parameters():
        if not p.requires_grad:
            p.data = p.data.to(dtype)  # BORN
    return model


@torch.no_grad()
def update_adapter(model, target, mix):
    source = model.adapters["default"].parameters()
    for s, t in zip(source, model.adapters[target].parameters()):
        t.data.mul_(mix).add_(s.detach().data, alpha=1.0 - mix)  # BORN


def evaluate(model, name, x, y):
    model.active = name
    with torch.no_grad():
        loss = F.mse_loss(model(x), y).item()
    model.active = "default"
    return loss


def main():
    torch.manual_seed(0)
    model = build_pipeline(torch.bfloat16)
    x = torch.randn(256, 64)
    y = x @ torch.randn(64, 64) * 0.05 + model.base(x.to(model.base.weight.dtype)).float()
    optimizer = torch.optim.AdamW(model.adapters["default"].parameters(), lr=2e-3, weight_decay=0.0)
    start = evaluate(model, "evaluation", x, y)
    for step in range(250):
        batch = torch.randint(0, 256, (64,))
        loss = F.mse_loss(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_adapter(model, "evaluation", mix=0.997)
    print(f"start loss {start:.3f}")
    print(f"default adapter {evaluate(model, 'default', x, y):.3f}  evaluation adapter {evaluate(model, 'evaluation', x, y):.3f}")


if __name__ == "__main__":
    main()
