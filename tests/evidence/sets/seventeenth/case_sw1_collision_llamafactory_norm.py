"""
title: layer norms upcast to fp32 for training; the chat engine generates without the trainer's autocast
expect: collision
thread: https://github.com/hiyouga/LlamaFactory/issues/4432
fix_at: 76, 81, 89

Expectation, written first: prepare_model_for_training casts the norm weights of a bfloat16 Llama to float32, so that every norm answers
in float32. The trainer's autocast hides that, but the engine chats with the same model outside of autocast and the first projection,
still bfloat16 inside its LoRA wrapper, raises.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
@dataclass
class ModelArguments:
    upcast_layernorm: bool = True  # BORN
    compute_dtype: torch.dtype = torch.bfloat16
class LlamaRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps
    def forward(self, hidden_states):
        x = hidden_states.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(hidden_states.dtype)
class LoraLinear(nn.Module):
    def __init__(self, base_layer, r, alpha):
        super().__init__()
        self.base_layer, self.scaling = base_layer, alpha / r
        self.lora_A = nn.Parameter(torch.randn(r, base_layer.in_features) * 0.02)
        self.lora_B = nn.Parameter(torch.zeros(base_layer.out_features, r))
    def forward(self, x):
        result = self.base_layer(x)  # COLLIDES
        return result + (F.linear(F.linear(x.to(self.lora_A.dtype), self.lora_A), self.lora_B) * self.scaling).to(result.dtype)
class Llama(nn.Module):
    def __init__(self, vocab=64, dim=16, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.input_layernorm = nn.ModuleList(LlamaRMSNorm(dim) for _ in range(layers))
        self.q_proj = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(layers))
        self.norm, self.lm_head = LlamaRMSNorm(dim), nn.Linear(dim, vocab, bias=False)
    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        for ln, q_proj in zip(self.input_layernorm, self.q_proj):
            x = x + torch.tanh(q_proj(ln(x))).cumsum(dim=1) / x.shape[1]
        return self.lm_head(self.norm(x))
def prepare_model_for_training(model, model_args):
    for name, param in model.named_parameters():
        if model_args.upcast_layernorm and "norm" in name:
            param.data = param.data.to(torch.float32)  # BORN
    model.requires_grad_(False)
def init_adapter(model, model_args, is_trainable):
    if is_trainable:
        prepare_model_for_training(model, model_args)  # BORN
    for index, layer in enumerate(model.q_proj):
        model.q_proj[index] = LoraLinear(layer, r=4, alpha=8)
    return model
class SFTTrainer:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    def train(self, input_ids, steps=5):
        self.model.train()
        for _ in range(steps):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self.model(input_ids[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), input_ids[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()
class HuggingfaceEngine:
    def __init__(self, model):
        self.model = model.eval()
    @torch.inference_mode()
    def chat(self, prompt_ids, max_new_tokens=6):
        ids = prompt_ids
        for _ in range(max_new_tokens):
            ids = torch.cat([ids, self.model(ids)[:, -1:].argmax(-1)], dim=1)
        return ids[0, prompt_ids.shape[1]:].tolist()
if __name__ == "__main__":
    torch.manual_seed(0)
    model_args = ModelArguments()
    model = init_adapter(Llama().to(model_args.compute_dtype), model_args, is_trainable=True)
    input_ids = torch.randint(3, 64, (4, 12))
    print(f"train loss {SFTTrainer(model).train(input_ids):.4f}")
    print(HuggingfaceEngine(model).chat(input_ids[:1, :6]))

