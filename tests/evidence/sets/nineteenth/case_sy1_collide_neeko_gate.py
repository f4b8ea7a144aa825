"""
title: role-gated MoE LoRA inference in half: mat1 and mat2 must have the same dtype, but got Float and Half
expect: collision
thread: https://github.com/weiyifan1023/Neeko/issues/6
fix_at: 22, 70 (the half cast of the whole model, gate and all; the file's own dtype)

Expectation, written first: base model and gate are turned into float16 for inference, the role embeddings are read from a file written in
float32 and go to the gate as they are. The gate's Linear refuses the float32 row. The embeddings must be cast to the model's dtype when they
are read, or at the gate.
"""
import os
import tempfile

import torch
import torch.nn as nn
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def save_role_embeddings(path, n_roles, dim):
    profiles = torch.randn(n_roles, 4, dim)
    torch.save({"embeddings": profiles.mean(dim=1)}, path)


class RoleGate(nn.Module):
    def __init__(self, embd_dim, num_moe):
        super().__init__()
        self.w_gate = nn.Linear(embd_dim, num_moe, bias=False)

    def forward(self, role_embd):
        return torch.softmax(self.w_gate(role_embd), dim=-1)  # BORN COLLIDES


class NeekoForCausalLM(nn.Module):
    def __init__(self, base, role_embd_path, num_moe=2, embd_dim=16):
        super().__init__()
        config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        self.llm = get_peft_model(base, config, adapter_name="moe_0")
        for i in range(1, num_moe):
            self.llm.add_adapter(f"moe_{i}", config)
        self.num_moe = num_moe
        self.gate = RoleGate(embd_dim, num_moe)
        self.role_embd = torch.load(role_embd_path)["embeddings"]  # BORN

    def set_role(self, role_id):
        gates = self.gate(self.role_embd[role_id])  # BORN
        best = int(gates.argmax())
        self.llm.set_adapter(f"moe_{best}")
        return gates

    @torch.no_grad()
    def chat(self, input_ids, role_id, max_new_tokens=4):
        gates = self.set_role(role_id)
        for _ in range(max_new_tokens):
            logits = self.llm(input_ids=input_ids).logits[:, -1]
            input_ids = torch.cat([input_ids, logits.argmax(-1, keepdim=True)], dim=-1)
        return input_ids, gates


def main():
    torch.manual_seed(6)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=64,
    )
    with tempfile.TemporaryDirectory() as work_dir:
        role_path = os.path.join(work_dir, "role_embds.pth")
        save_role_embeddings(role_path, n_roles=3, dim=16)
        model = NeekoForCausalLM(LlamaForCausalLM(config), role_path)
        model.half().eval()
        answer, gates = model.chat(torch.tensor([[1, 9, 30, 12]]), role_id=1)
    print("answer", answer.tolist(), "gates", gates.tolist())


if __name__ == "__main__":
    main()
