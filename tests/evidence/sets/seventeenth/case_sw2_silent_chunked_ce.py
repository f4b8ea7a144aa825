"""
title: gradient of the output head shrinks with the number of chunks: the fused loss accumulates it in BF16
expect: silent:lost-update|precision-loss|gradient-dtype
thread: https://github.com/linkedin/Liger-Kernel/pull/1391
measured: loss 4.1874, grad norm 1.9331, mean gradient of unseen tokens 0.003161, of seen tokens -0.120411
widened: loss 4.1874, grad norm 1.8819, mean gradient of unseen tokens 0.015612, of seen tokens -0.109283
innocent: loss 4.1874, grad norm 1.9331, mean gradient of unseen tokens 0.003161, of seen tokens -0.120411
suspect: 33 bf16 chunk gradient: unbiased (0.2% on each addend, before the sum)

Expectation, written first: grad_weight is zeros_like of the BF16 weight and every chunk adds into it. After a few hundred chunks an
    addend is under half a BF16 step of the running sum and is lost. The chunk gradient is rounded to BF16 as well, which looks guilty,
    but that is 0.2% with no bias.
"""
import torch
from torch import nn
import torch.nn.functional as F


class FusedLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, target, chunk):
        grad_weight = torch.zeros_like(weight)  # BORN
        grad_input, loss = torch.zeros_like(x), 0.0
        n = x.shape[0]
        for start in range(0, n, chunk):
            xc, tc = x[start:start + chunk], target[start:start + chunk]
            logits = (xc @ weight.t()).float()
            loss = loss + F.cross_entropy(logits, tc, reduction="sum")
            grad_logits = logits.softmax(-1)
            grad_logits[torch.arange(len(tc)), tc] -= 1
            grad_logits = grad_logits / n
            grad_input[start:start + chunk] = (grad_logits @ weight.float()).to(x.dtype)
            grad_chunk = (grad_logits.t() @ xc.float()).to(torch.bfloat16)
            grad_weight += grad_chunk.to(grad_weight.dtype)  # BORN
        ctx.save_for_backward(grad_input, grad_weight.to(weight.dtype))
        return loss / n

    @staticmethod
    def backward(ctx, grad_output):
        grad_input, grad_weight = ctx.saved_tensors
        return grad_input * grad_output, grad_weight * grad_output, None, None


class LMHead(nn.Module):
    def __init__(self, hidden, vocab, chunk=1):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(vocab, hidden) * 0.05).to(torch.bfloat16))
        self.chunk = chunk

    def forward(self, x, target):
        return FusedLinearCrossEntropy.apply(x, self.weight, target, self.chunk)


torch.manual_seed(0)
hidden, vocab, tokens = 32, 64, 4096
head = LMHead(hidden, vocab)
x = (1.0 + 0.5 * torch.randn(tokens, hidden)).to(torch.bfloat16)
target = torch.randint(0, 8, (tokens,))
loss = head(x, target)
(grad,) = torch.autograd.grad(loss, [head.weight])
grad = grad.float()
print(f"loss {loss:.4f}, grad norm {grad.norm():.4f}, mean gradient of unseen tokens {grad[8:].mean():.6f}, of seen tokens {grad[:8].mean():.6f}")
