"""
title: the gradient norm over pipeline stages is summed in bfloat16 and the small stages vanish from it
expect: silent:precision-loss|lost-update|downcast
thread: https://github.com/NVIDIA-NeMo/Automodel/pull/825
measured: layers 401 length of all gradients 18.87 | grad_norm 16.00 after clipping 1.18
widened: layers 401 length of all gradients 18.87 | grad_norm 18.87 after clipping 1.00; innocent: layers 401 length of all gradients 18.87 | grad_norm 16.00 after clipping 1.18
suspect: line 55 - innocent: a coefficient rounded to bfloat16 moves the clipped gradients by 0.4 % at most

Expectation, written first: each stage hands over its norm in the gradients' bfloat16, and the running sum of squares
stays in that type. Once the embedding's square stands at 256, a layer's 0.25 is below half a step and is dropped, so
the total stays at 16 and the clipped gradients are longer than allowed. The coefficient's own cast matters little.
"""
import torch
from torch import nn

MAX_NORM = 1.0


class Stage(nn.Module):
    def __init__(self, n_layers, dim):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(n_layers))


def build_pipeline(num_stages=4, layers_per_stage=100, dim=8, dtype=torch.bfloat16):
    embed = nn.Embedding(64, dim).to(dtype)
    stages = [Stage(layers_per_stage, dim).to(dtype) for _ in range(num_stages)]
    return [embed] + stages


def fill_grads(parts, gen):
    for index, part in enumerate(parts):
        for p in part.parameters():
            g = torch.randn(p.shape, generator=gen)
            target = 16.0 if index == 0 else 0.5
            p.grad = (g * (target / g.norm())).to(p.dtype)


def local_norms(part, norm_type):
    grads = [p.grad.detach() for p in part.parameters() if p.grad is not None]
    return [torch.linalg.vector_norm(g, norm_type) for g in grads]  # BORN


@torch.no_grad()
def clip_grad_norm(parts, max_norm, norm_type=2.0):
    total = None
    for part in parts:
        for norm in local_norms(part, norm_type):
            powered = norm ** norm_type  # BORN
            total = powered if total is None else total + powered  # BORN
    total_norm = total ** (1.0 / norm_type)
    coef = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for part in parts:
        for p in part.parameters():
            p.grad.mul_(coef.to(p.grad.dtype))
    return total_norm


def length_after(parts):
    sq = sum(p.grad.double().pow(2).sum().item() for part in parts for p in part.parameters())
    return sq ** 0.5


def main():
    gen = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    parts = build_pipeline()
    fill_grads(parts, gen)
    before = length_after(parts)
    total = clip_grad_norm(parts, MAX_NORM)
    print(f"layers {sum(len(list(p.parameters())) for p in parts)} length of all gradients {before:.2f}")
    print(f"grad_norm {total.item():.2f} after clipping {length_after(parts):.2f}")


if __name__ == "__main__":
    main()
