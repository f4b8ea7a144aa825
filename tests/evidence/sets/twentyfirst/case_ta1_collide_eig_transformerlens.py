"""
title: eigenvalues of the OV circuit of a model loaded in bfloat16
expect: collision
thread: https://github.com/TransformerLensOrg/TransformerLens/issues/934
fix_at: none

Expectation, written first: the model is built in bfloat16, the OV circuit is a factored matrix of bfloat16
weights, and torch.linalg.eig has no bfloat16 kernel. Either the decomposition is done in float32 or the model of
the analysis is loaded in float32.
"""
from dataclasses import dataclass
from typing import List

import torch
import torch.nn as nn


class FactoredMatrix:
    def __init__(self, A, B):
        self.A, self.B = A, B
        self.ldim, self.mdim, self.rdim = A.size(-2), A.size(-1), B.size(-1)

    @property
    def AB(self):
        return self.A @ self.B

    @property
    def BA(self):
        assert self.ldim == self.rdim, "Can only take ba if ldim==rdim"
        return self.B @ self.A

    @property
    def eigenvalues(self):
        return torch.linalg.eig(self.BA).eigenvalues  # BORN COLLIDES

    def norm(self):
        return self.AB.norm(dim=(-2, -1))


@dataclass
class HookedTransformerConfig:
    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    dtype: torch.dtype = torch.float32


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        shape = (cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_V = nn.Parameter(torch.empty(shape, dtype=cfg.dtype))
        self.W_O = nn.Parameter(torch.empty(shape[0], shape[2], shape[1], dtype=cfg.dtype))
        for w in self.parameters():
            nn.init.normal_(w, std=0.8 / cfg.d_model**0.5)


class HookedTransformer(nn.Module):
    def __init__(self, cfg: HookedTransformerConfig):
        super().__init__()
        self.cfg = cfg
        self.blocks = nn.ModuleList([Attention(cfg) for _ in range(cfg.n_layers)])

    def _stack(self, name: str) -> torch.Tensor:
        return torch.stack([getattr(block, name) for block in self.blocks], dim=0)

    @property
    def OV(self) -> FactoredMatrix:
        return FactoredMatrix(self._stack("W_V"), self._stack("W_O"))

    def all_head_labels(self) -> List[str]:
        return [f"L{l}H{h}" for l in range(self.cfg.n_layers) for h in range(self.cfg.n_heads)]


@torch.no_grad()
def copying_scores(model):
    eigs = model.OV.eigenvalues
    return (eigs.sum(-1).real / eigs.abs().sum(-1)).flatten()


if __name__ == "__main__":
    torch.manual_seed(1)
    cfg = HookedTransformerConfig(n_layers=2, n_heads=3, d_model=24, d_head=8, dtype=torch.bfloat16)  # BORN
    model = HookedTransformer(cfg)
    for label, score in zip(model.all_head_labels(), copying_scores(model)):
        print(label, f"{score.item():+.4f}")
