"""
title: fused LoRA MLP with fp16 activations over a checkpoint quantized from bf16: backward matmul of Half with BFloat16
expect: collision
thread: https://github.com/unslothai/unsloth/pull/4005
fix_at: 27, 78 (the quant state's dtype, and the checkpoint it comes from)

Expectation, written first: fast_dequantize gives weights back in the dtype kept in the quant state, bfloat16 from the checkpoint, while the
model trains in float16. The forward casts the dequantized weight to the activations' dtype, the backward does not, so its matmul of the
float16 gradient with a bfloat16 weight is refused. The backward needs the same cast after fast_dequantize.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class QuantState:
    def __init__(self, absmax, dtype, blocksize):
        self.absmax, self.dtype, self.blocksize = absmax, dtype, blocksize


def quantize_blockwise(W, blocksize=16):
    blocks = W.float().reshape(-1, blocksize)
    absmax = blocks.abs().amax(dim=1, keepdim=True).clamp(min=1e-8)
    q = torch.round(blocks / absmax * 127).to(torch.int8).reshape(W.shape)
    return q, QuantState(absmax, W.dtype, blocksize)


def fast_dequantize(W, quant_state):
    blocks = W.reshape(-1, quant_state.blocksize).float() * (quant_state.absmax / 127)
    return blocks.reshape(W.shape).to(quant_state.dtype)  # BORN


def matmul_lora(X, W, W_quant, A, B, s):
    W = fast_dequantize(W, W_quant).to(X.dtype)
    return X @ W.t() + s * (X @ A.to(X.dtype).t()) @ B.to(X.dtype).t()


class LoRA_W(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, W, W_quant, A, B, s):
        ctx.custom_saved = (W, W_quant, s)
        ctx.save_for_backward(A, B, X)
        return matmul_lora(X, W, W_quant, A, B, s)

    @staticmethod
    def backward(ctx, dY):
        W, W_quant, s = ctx.custom_saved
        A, B, X = ctx.saved_tensors
        batch, seq_len, hd = X.shape
        dY, X = dY.reshape(-1, dY.shape[-1]), X.reshape(-1, hd)
        dtype = X.dtype
        A, B = A.to(dtype), B.to(dtype)
        d_A = s * (dY @ B).t() @ X
        d_B = s * dY.t() @ (X @ A.t())
        W = fast_dequantize(W, W_quant)  # BORN
        dX = dY @ W  # BORN COLLIDES
        dX += s * (dY @ B) @ A
        return dX.view(batch, seq_len, hd), None, None, d_A.float(), d_B.float(), None


class FastLoraLinear(nn.Module):
    def __init__(self, weight, r=4, alpha=8):
        super().__init__()
        self.weight, self.quant_state = quantize_blockwise(weight)
        self.lora_A = nn.Parameter(torch.empty(r, weight.shape[1]))
        self.lora_B = nn.Parameter(torch.zeros(weight.shape[0], r))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / r

    def forward(self, x):
        return LoRA_W.apply(x, self.weight, self.quant_state, self.lora_A, self.lora_B, self.scaling)


def main():
    torch.manual_seed(3407)
    checkpoint = {k: torch.randn(s, dtype=torch.bfloat16) * 0.1 for k, s in (("up", (64, 32)), ("down", (32, 64)))}
    up, down = FastLoraLinear(checkpoint["up"]), FastLoraLinear(checkpoint["down"])
    optimizer = torch.optim.AdamW([*up.parameters(), *down.parameters()], lr=2e-4)
    x = torch.randn(2, 6, 32, dtype=torch.float16)
    loss = F.mse_loss(down(F.silu(up(x))).float(), torch.randn(2, 6, 32))
    loss.backward()  # COLLIDES
    optimizer.step()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
