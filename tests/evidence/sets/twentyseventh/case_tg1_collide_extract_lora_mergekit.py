"""
title: Extracting a LoRA from bfloat16 checkpoints
expect: collision
thread: https://github.com/arcee-ai/mergekit/issues/525
fix_at: (none beside the marked)

Expectation, written first: both checkpoints are stored in bfloat16 and the difference of two weights stays in it.
torch.linalg.svd has no bfloat16 kernel, so the decomposition of the first task vector raises; the embeddings
before it are only copied.
"""
import torch
import torch.nn as nn


class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return x + self.down_proj(torch.nn.functional.silu(self.gate_proj(x)))


class TinyLM(nn.Module):
    def __init__(self, vocab=40, dim=24, hidden=48, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(MLP(dim, hidden) for _ in range(layers))
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


class LazyLoader:
    """Stands for the safetensors reader; the published weights are bfloat16."""

    def __init__(self, model):
        self.state = {k: v.detach().to(torch.bfloat16) for k, v in model.state_dict().items()}  # BORN

    def keys(self):
        return self.state.keys()

    def get(self, name):
        return self.state[name].clone()


class LoRAModuleExtractionTask:
    def __init__(self, max_rank, sv_epsilon=0.0):
        self.max_rank, self.sv_epsilon = max_rank, sv_epsilon

    def execute(self, base_weight, finetuned_weight):
        task_vector = finetuned_weight - base_weight  # BORN
        u, s, vh = torch.linalg.svd(task_vector, full_matrices=False)  # BORN COLLIDES
        rank = min(self.max_rank, len(s))
        if self.sv_epsilon > 0:
            rank = min(rank, int((s > self.sv_epsilon * s[0]).sum()))
        sqrt_s = torch.diag(torch.sqrt(s[:rank]))
        scale = base_weight.dtype
        return (sqrt_s @ vh[:rank]).to(scale).contiguous(), (u[:, :rank] @ sqrt_s).to(scale).contiguous()


def plan_extraction(loader, exclude=("lm_head",)):
    plan = {"decompose": [], "save": []}
    for name in loader.keys():
        if any(part in name for part in exclude):
            continue
        plan["decompose" if name.endswith("proj.weight") else "save"].append(name)
    return plan


def extract_lora(base, finetuned, max_rank):
    plan, lora = plan_extraction(base), {}
    for name in plan["save"]:
        lora[f"base_model.{name}"] = finetuned.get(name)
    task = LoRAModuleExtractionTask(max_rank)
    for name in plan["decompose"]:
        lora_a, lora_b = task.execute(base.get(name), finetuned.get(name))
        stem = name.removesuffix(".weight")
        lora[f"base_model.{stem}.lora_A.weight"], lora[f"base_model.{stem}.lora_B.weight"] = lora_a, lora_b
    return lora


@torch.no_grad()
def main():
    torch.manual_seed(525)
    base_model = TinyLM()
    instruct = TinyLM()
    instruct.load_state_dict(base_model.state_dict())
    for layer in instruct.layers:
        layer.gate_proj.weight.add_(0.3 * torch.randn(48, 4) @ torch.randn(4, 24))
    lora = extract_lora(LazyLoader(base_model), LazyLoader(instruct), max_rank=8)
    print("tensors", len(lora), "rank", lora["base_model.layers.0.gate_proj.lora_A.weight"].shape[0])
    print("logits", round(instruct(torch.arange(5)).abs().mean().item(), 3))


if __name__ == "__main__":
    main()
