"""
title: GPTQ of a bf16 checkpoint stops in the Cholesky factorization of the Hessian
expect: collision
thread: https://github.com/vllm-project/llm-compressor/pull/847
fix_at: 30, 58, 59

Expectation, written first: the loader sets torch's default dtype to the checkpoint's bf16 and leaves it so. The Hessian is then allocated
without a dtype and is bf16, the float32 products are added into it, and `cholesky` is not implemented for bf16. The Hessian's dtype must be
named, or the default be restored; an upcast at the factorization would run too.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class MLPBlock(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return x + self.down_proj(F.silu(self.up_proj(x)))


def load_model(torch_dtype="bfloat16", dim=16, hidden=24, layers=2):
    torch.set_default_dtype(getattr(torch, torch_dtype))  # BORN
    return nn.Sequential(*[MLPBlock(dim, hidden) for _ in range(layers)]).eval()


def make_empty_hessian(module):
    num_columns = module.weight.shape[1]
    return torch.zeros((num_columns, num_columns), device=module.weight.device)  # BORN


def accumulate_hessian(inp, H, num_samples):
    inp = inp.reshape(-1, inp.shape[-1]).t()
    num_added = inp.shape[1]
    H *= num_samples / (num_samples + num_added)
    num_samples += num_added
    inp = math.sqrt(2 / num_samples) * inp.to(torch.float32)
    H += inp.matmul(inp.t())
    return H, num_samples


def quantize_column(w, scale):
    return (w / scale).round().clamp(-8, 7) * scale


def quantize_weight(module, H, percdamp=0.01):
    W = module.weight.data.to(torch.float32).clone()
    scale = W.abs().amax(dim=1).clamp(min=1e-6) / 7
    diag = torch.arange(H.shape[0])
    H[diag, diag] += percdamp * torch.mean(torch.diag(H))
    H = torch.linalg.cholesky(H)  # COLLIDES
    H = torch.cholesky_inverse(H)
    Hinv = torch.linalg.cholesky(H, upper=True)
    loss = 0.0
    for i in range(W.shape[1]):
        q = quantize_column(W[:, i], scale)
        err = (W[:, i] - q) / Hinv[i, i]
        loss += (err.pow(2).sum() / 2).item()
        W[:, i:] -= err.unsqueeze(1) * Hinv[i, i:].unsqueeze(0)
        W[:, i] = q
    module.weight.data = W.to(module.weight.dtype)
    return loss


@torch.no_grad()
def oneshot(model, calibration):
    for layer_idx, layer in enumerate(model):
        hessians = {m: (make_empty_hessian(m), 0) for m in layer.modules() if isinstance(m, nn.Linear)}
        handles = [m.register_forward_hook(lambda m, args, out: hessians.__setitem__(m, accumulate_hessian(args[0], *hessians[m]))) for m in hessians]
        outputs = [layer(batch) for batch in calibration]
        for handle in handles:
            handle.remove()
        for name, m in layer.named_children():
            print(f"layers.{layer_idx}.{name} error {quantize_weight(m, hessians[m][0]):.4f}")
        calibration = outputs


if __name__ == "__main__":
    torch.manual_seed(0)
    model = load_model()
    oneshot(model, [torch.randn(4, 8, 16, dtype=torch.bfloat16) for _ in range(4)])
