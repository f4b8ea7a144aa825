"""
title: extracting a LoRA from two bf16 checkpoints: svd of the bfloat16 task vector is not implemented
expect: collision
thread: https://github.com/arcee-ai/mergekit/issues/304
fix_at:

Expectation, written first: both models are stored in bfloat16, so the difference of their weights is bfloat16 as well. The low-rank decomposition calls
torch.linalg.svd on it and there is no kernel for bfloat16. The checkpoints are what they are; the delta must be taken to float32 before the svd.
"""
import torch
import torch.nn as nn


class MLPBlock(nn.Module):
    def __init__(self, dim=16, hidden=24):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)


class TinyModel(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(32, 16)
        self.layers = nn.ModuleList(MLPBlock() for _ in range(layers))


def save_checkpoints():
    torch.manual_seed(0)
    base = TinyModel().to(torch.bfloat16)
    tuned = TinyModel().to(torch.bfloat16)
    tuned.load_state_dict(base.state_dict())
    with torch.no_grad():
        for p in tuned.parameters():
            p.add_(0.02 * torch.randn_like(p))
    return base.state_dict(), tuned.state_dict()


def linear_module_names(state_dict):
    return [k.removesuffix(".weight") for k in state_dict if k.endswith("_proj.weight")]


def _low_rank_decomposition(weight, reduced_rank=4):
    if weight.dim() != 2:
        raise ValueError(f"Only support 2D matrix, but your input has {weight.dim()} dimensions.")
    U, S, Vh = torch.linalg.svd(weight, full_matrices=False)  # BORN COLLIDES
    A = Vh[:reduced_rank, :]
    B = U[:, :reduced_rank] @ torch.diag(S[:reduced_rank])
    return A, B


def decompose_delta_weight(new_weight, base_weight, reduced_rank):
    delta_weight = new_weight - base_weight  # BORN
    max_rank = min(delta_weight.shape)
    return _low_rank_decomposition(delta_weight, min(reduced_rank, max_rank))


def extract_lora(base_sd, tuned_sd, rank):
    lora_weights = {}
    for name in linear_module_names(base_sd):
        lora_A, lora_B = decompose_delta_weight(tuned_sd[f"{name}.weight"], base_sd[f"{name}.weight"], rank)
        lora_weights[f"base_model.model.{name}.lora_A.weight"] = lora_A.contiguous()
        lora_weights[f"base_model.model.{name}.lora_B.weight"] = lora_B.contiguous()
    return lora_weights


def main():
    base_sd, tuned_sd = save_checkpoints()
    lora = extract_lora(base_sd, tuned_sd, rank=4)
    total = sum(t.numel() for t in lora.values())
    print(f"extracted {len(lora)} tensors, {total} parameters")


if __name__ == "__main__":
    main()
