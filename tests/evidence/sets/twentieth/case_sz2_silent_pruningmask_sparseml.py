"""
title: a pruning mask is cast to the half parameter's dtype before its ones are counted, and the reported sparsity is minus infinity
expect: silent:overflow|downcast
thread: https://github.com/neuralmagic/sparseml/pull/821
measured: steps taken 5 ; reported sparsity [-inf, 0.5] zeros in the weights [0.5, 0.5]
widened: steps taken 4 ; reported sparsity [0.4, 0.4] zeros in the weights [0.4, 0.4]
innocent: steps taken 5 ; reported sparsity [-inf, 0.5] zeros in the weights [0.5, 0.5]
suspect: 20 exact (the parameter is already half, and ranks survive)

Expectation, written first: the boolean threshold mask is made float16 like the parameter; a layer with more than 65504 kept weights sums to inf, so the
sparsity of the large layer is minus infinity and the pruner goes on until its last step, far beyond the 40 percent asked for. The scores that are ranked
are float16 too, which looks too coarse to rank by, but so is the parameter they come from.
"""
import torch
from torch import nn


class MagnitudeScorer:
    def score_parameters(self, params):
        return [p.detach().abs().to(torch.float16) for p in params]


class UnstructuredMaskCreator:
    def create_sparsity_masks(self, params, scores, target):
        masks = []
        for param, score in zip(params, scores):
            k = max(1, int(target * score.numel()))
            threshold = score.flatten().float().kthvalue(k).values
            masks.append((score.float() > threshold).to(param.dtype))  # BORN
        return masks


def tensor_sparsity(mask):
    return 1 - mask.sum().item() / mask.numel()  # BORN


class ModuleParamPruningMask:
    def __init__(self, layers):
        self.layers = layers
        self.scorer, self.creator = MagnitudeScorer(), UnstructuredMaskCreator()
        self.masks = None

    def update(self, target):
        params = [layer.weight for layer in self.layers]
        self.masks = self.creator.create_sparsity_masks(params, self.scorer.score_parameters(params), target)
        with torch.no_grad():
            for param, mask in zip(params, self.masks):
                param.mul_(mask)
        return [tensor_sparsity(m) for m in self.masks]


class PruningModifier:
    def __init__(self, final_sparsity, step=0.1, max_steps=5):
        self.final_sparsity, self.step, self.max_steps = final_sparsity, step, max_steps

    def run(self, pruning):
        for i in range(1, self.max_steps + 1):
            reached = pruning.update(self.step * i)
            if min(reached) >= self.final_sparsity - 0.01:
                break
        return i, reached


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(384, 384, bias=False), nn.ReLU(), nn.Linear(384, 64, bias=False)).half()
    layers = [m for m in model if isinstance(m, nn.Linear)]
    steps, reached = PruningModifier(0.4).run(ModuleParamPruningMask(layers))
    true = [round((layer.weight == 0).double().mean().item(), 3) for layer in layers]
    print(f"steps taken {steps}")
    print("reported sparsity", [round(v, 3) for v in reached], "zeros in the weights", true)


main()
