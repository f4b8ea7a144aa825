"""
title: chunked cross entropy: the head's weight gradient, summed in bfloat16 chunk by chunk, comes out too small
expect: silent:lost-update|precision-loss|gradient-dtype
thread: https://github.com/linkedin/Liger-Kernel/pull/830
measured: loss 4.191, norm of the head's gradient 0.970 of the true one, error 0.088
widened: loss 4.191, norm of the head's gradient 1.000 of the true one, error 0.001
innocent: loss 4.191, norm of the head's gradient 0.971 of the true one, error 0.087
suspect: line 31 harmless (one rounding per chunk, in both directions)

Expectation, written first: the buffer of the weight gradient takes the weight's bfloat16, and 512 chunks are added to it.
Once it holds some 256 times a chunk's share further shares are rounded away, so entries which always get the same sign
stop growing and the gradient is too small. The cast of the logit gradient before the matmul is harmless.
"""
import torch
import torch.nn.functional as F


def fused_linear_cross_entropy_forward(x, weight, target, chunk_size=8):
    n_rows = x.shape[0]
    grad_weight = torch.zeros_like(weight)  # BORN
    grad_input = torch.zeros_like(x)
    loss = torch.zeros((), dtype=torch.float32)
    for start in range(0, n_rows, chunk_size):
        x_chunk = x[start:start + chunk_size]
        logits_chunk = (x_chunk @ weight.t()).float()
        target_chunk = target[start:start + chunk_size]
        loss += F.cross_entropy(logits_chunk, target_chunk, reduction="sum")
        grad_logits_chunk = torch.softmax(logits_chunk, dim=-1)
        grad_logits_chunk[torch.arange(len(target_chunk)), target_chunk] -= 1.0
        grad_input[start:start + chunk_size] = grad_logits_chunk.to(x.dtype) @ weight
        grad_share = grad_logits_chunk.t().to(weight.dtype) @ x_chunk
        grad_weight += grad_share  # BORN
    return loss / n_rows, grad_input / n_rows, grad_weight / n_rows


class LigerFusedLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, target):
        loss, grad_input, grad_weight = fused_linear_cross_entropy_forward(x, weight, target)
        ctx.save_for_backward(grad_input, grad_weight.to(weight.dtype))
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        grad_input, grad_weight = ctx.saved_tensors
        return grad_input * grad_output, grad_weight * grad_output, None


def reference(x, weight, target):
    w = weight.detach().float().requires_grad_()
    F.cross_entropy(x.float() @ w.t(), target).backward()
    return w.grad


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    hidden, vocab, tokens = 16, 64, 4096
    weight = (torch.randn(vocab, hidden) * 0.1).to(torch.bfloat16).requires_grad_()
    x = (torch.randn(tokens, hidden) * 0.2 + 1.0).to(torch.bfloat16)
    target = torch.randint(0, 8, (tokens,))
    loss = LigerFusedLinearCrossEntropy.apply(x, weight, target)
    loss.backward()
    want = reference(x, weight, target)
    ratio = weight.grad.float().norm() / want.norm()
    error = (weight.grad.float() - want).norm() / want.norm()
    print(f"loss {loss.item():.3f}, norm of the head's gradient {ratio:.3f} of the true one, error {error:.3f}")


main()
