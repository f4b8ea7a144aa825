"""
title: 8-bit matmul of a frozen layer: the backward dequantises to the dtype of the cast input
expect: collision
thread: https://github.com/mymusise/ChatGLM-Tuning/issues/179
fix_at: none

Expectation, written first: the forward casts float32 activations to half for the 8-bit product and returns the
output in float32 again, but it remembers the dtype of the cast copy. In the backward the weight is dequantised to
half while the gradient comes in float32, and the matmul raises out of loss.backward(). The remembered dtype must
be that of the input that came in (or the matmul must bring both to one dtype).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MatMul8bitLt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, CB, SCB, bias):
        A16 = A.to(torch.float16)
        weight = (CB.float() * (SCB.unsqueeze(1) / 127.0)).to(torch.float16)
        output = F.linear(A16, weight)
        if bias is not None:
            output = output + bias.to(output.dtype)
        ctx.grad_shape = A.shape
        ctx.dtype_A = A16.dtype  # BORN
        ctx.save_for_backward(CB, SCB)
        return output.to(A.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        CB, SCB = ctx.saved_tensors
        CB = CB.to(ctx.dtype_A, copy=True).mul_(SCB.unsqueeze(1).mul(1.0 / 127.0))  # BORN
        grad_A = torch.matmul(grad_output, CB).view(ctx.grad_shape)  # BORN COLLIDES
        return grad_A, None, None, None


class Linear8bitLt(nn.Module):
    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.data.float()
        scb = weight.abs().amax(dim=1)
        self.register_buffer("CB", torch.round(weight / scb.unsqueeze(1) * 127).to(torch.int8))
        self.register_buffer("SCB", scb)
        self.register_buffer("bias", linear.bias.data.half() if linear.bias is not None else None)

    def forward(self, x):
        return MatMul8bitLt.apply(x, self.CB, self.SCB, self.bias)


class LoraLinear(nn.Module):
    def __init__(self, base, in_features, out_features, r=4, alpha=16):
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(in_features, r, bias=False)
        self.lora_B = nn.Linear(r, out_features, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.scaling = alpha / r

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x)) * self.scaling


class TinyGLM(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mlp = nn.ModuleList([LoraLinear(Linear8bitLt(nn.Linear(dim, dim)), dim, dim) for _ in range(2)])
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.mlp:
            x = x + F.gelu(layer(x))
        return self.lm_head(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = TinyGLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, 40, (4, 12))
    for step in range(3):
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 40), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()  # COLLIDES
        optimizer.step()
    print("loss", f"{loss.item():.4f}")
