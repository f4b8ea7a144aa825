"""
title: fused LoRA backward multiplies bf16 activations with an fp32 upstream gradient
expect: collision
thread: https://github.com/unslothai/unsloth/issues/212
fix_at: 32

Expectation, written first: the residual stream is kept in float32 by the upcast layer norm, so the hand-written LoRA function receives
a float32 gradient, while its saved activations and adapters were cast to bfloat16 in the forward. Nothing in between casts dY back: the
function's own output promises float32 through the residual dtype it was given, and the matmul in backward raises.
"""
import torch
from torch import nn

class LoRA_MLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, upW, upA, upB, downW, downA, downB, S):
        in_dtype = X.dtype
        X = X.to(upA.dtype)
        e = X @ upW.t() + S * (X @ upA @ upB)
        h = torch.relu(e)
        Y = h @ downW.t() + S * (h @ downA @ downB)
        ctx.S, ctx.in_dtype = S, in_dtype
        ctx.save_for_backward(X, e, h, upW, upA, upB, downW, downA, downB)
        return Y.to(in_dtype)  # BORN
    @staticmethod
    def backward(ctx, dY):  # BORN
        X, e, h, upW, upA, upB, downW, downA, downB = ctx.saved_tensors
        S = ctx.S
        batch, seq, _ = X.shape
        dY, X = dY.reshape(-1, dY.shape[-1]), X.reshape(-1, X.shape[-1])  # BORN
        e, h = e.reshape(-1, e.shape[-1]), h.reshape(-1, h.shape[-1])
        d_downA = h.t() @ (dY @ downB.t()) * S  # COLLIDES
        d_downB = (downA.t() @ h.t()) @ dY * S
        dh = dY @ downW + S * (dY @ downB.t() @ downA.t())
        de = dh * (e > 0)
        d_upA = X.t() @ (de @ upB.t()) * S
        d_upB = (upA.t() @ X.t()) @ de * S
        dX = de @ upW + S * (de @ upB.t() @ upA.t())
        dX = dX.view(batch, seq, -1).to(ctx.in_dtype)
        return dX, None, d_upA, d_upB, None, d_downA, d_downB, None

class UpcastRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps
    def forward(self, x):
        x = x.float()
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

class FastLoraBlock(nn.Module):
    def __init__(self, dim, hidden, r=4, alpha=8, dtype=torch.bfloat16):
        super().__init__()
        self.norm, self.scale = UpcastRMSNorm(dim), alpha / r
        self.register_buffer("up_proj", (torch.randn(hidden, dim) * dim ** -0.5).to(dtype))
        self.register_buffer("down_proj", (torch.randn(dim, hidden) * hidden ** -0.5).to(dtype))
        self.upA = nn.Parameter((torch.randn(dim, r) * 0.05).to(dtype))
        self.upB = nn.Parameter((torch.randn(r, hidden) * 0.05).to(dtype))
        self.downA = nn.Parameter((torch.randn(hidden, r) * 0.05).to(dtype))
        self.downB = nn.Parameter((torch.randn(r, dim) * 0.05).to(dtype))
    def forward(self, hidden_states):
        normed = self.norm(hidden_states)
        return hidden_states + LoRA_MLP.apply(normed, self.up_proj, self.upA, self.upB,
                                              self.down_proj, self.downA, self.downB, self.scale)

class FastModel(nn.Module):
    def __init__(self, vocab=64, dim=16, hidden=32, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(FastLoraBlock(dim, hidden) for _ in range(layers))
        self.lm_head = nn.Linear(dim, vocab, bias=False)
    def forward(self, input_ids, labels):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.lm_head(x)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

if __name__ == "__main__":
    torch.manual_seed(0)
    model = FastModel()
    optimizer = torch.optim.AdamW([p for n, p in model.named_parameters() if n[-2:] in ("pA", "pB", "nA", "nB")], lr=1e-3)
    ids = torch.randint(0, 64, (2, 12))
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(ids, ids)
        loss.backward()  # COLLIDES
        optimizer.step()
    print(f"loss {loss.item():.4f}")
