"""
title: float32 LoRA matrices beside a base model loaded in 16 bits
expect: collision
thread: https://github.com/TUDB-Labs/mLoRA/pull/148
fix_at: (none beside the marked)

Expectation, written first: load_16bit casts the base model to bfloat16 before the adapters are made; lora_a and lora_b are
created in the default float32. The hidden states are bfloat16, so data_ @ lora_a_ gets BFloat16 and Float and raises.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Lora:
    def __init__(self, adapter_name):
        self.adapter_name_ = adapter_name

    def set_parameter(self, r, alpha, dropout, in_features, out_features):
        self.r_, self.dropout_, self.scaling_ = r, dropout, alpha / r
        self.lora_a_ = torch.randn(r, in_features).mul_(in_features ** -0.5).requires_grad_()  # BORN
        self.lora_b_ = torch.zeros(out_features, r).requires_grad_()

    def forward(self, data):
        data_ = F.dropout(data, self.dropout_)  # BORN
        data_ = data_ @ self.lora_a_.transpose(0, 1)  # BORN COLLIDES
        data_ = data_ @ self.lora_b_.transpose(0, 1)
        return data_ * self.scaling_


class Linear:
    def __init__(self, weight):
        self.weight_ = weight
        self.loras_ = {}

    def init_lora_weight(self, name, r, alpha, dropout):
        out_features, in_features = self.weight_.weight.shape
        self.loras_[name] = Lora(name)
        self.loras_[name].set_parameter(r, alpha, dropout, in_features, out_features)  # BORN

    def forward(self, data, batch_config):
        result = self.weight_(data)
        for name, start, end in batch_config:
            if name in self.loras_:
                result[start:end] = result[start:end] + self.loras_[name].forward(data[start:end])
        return result


class Model:
    def __init__(self, vocab, dim, load_16bit):
        self.token_embedding_ = nn.Embedding(vocab, dim)
        projections = [nn.Linear(dim, dim, bias=False) for _ in range(4)]
        self.norm_ = nn.LayerNorm(dim)
        self.output_ = nn.Linear(dim, vocab, bias=False)
        if load_16bit:
            for module in (self.token_embedding_, self.norm_, self.output_, *projections):
                module.to(torch.bfloat16)
        for module in (self.token_embedding_, self.norm_, self.output_, *projections):
            module.requires_grad_(False)
        self.wq_, self.wk_, self.wv_, self.wo_ = map(Linear, projections)

    def init_lora_weight(self, name, r=4, alpha=8, dropout=0.0, targets=("wq", "wv")):
        for target in targets:
            getattr(self, target + "_").init_lora_weight(name, r, alpha, dropout)

    def train_parameters(self):
        linears = (self.wq_, self.wk_, self.wv_, self.wo_)
        return [p for lin in linears for lora in lin.loras_.values() for p in (lora.lora_a_, lora.lora_b_)]

    def forward(self, tokens, batch_config):
        h = self.token_embedding_(tokens)
        x = self.norm_(h)
        q, k, v = (lin.forward(x, batch_config) for lin in (self.wq_, self.wk_, self.wv_))
        attn = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output_(h + self.wo_.forward(attn, batch_config))


def main():
    torch.manual_seed(148)
    model = Model(vocab=40, dim=24, load_16bit=True)
    model.init_lora_weight("lora_0")
    model.init_lora_weight("lora_1", r=2)
    optimizer = torch.optim.AdamW(model.train_parameters(), lr=1e-2)
    tokens = torch.randint(0, 40, (4, 12))
    batch_config = [("lora_0", 0, 2), ("lora_1", 2, 4)]
    for step in range(3):
        logits = model.forward(tokens[:, :-1], batch_config)
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, "loss", round(loss.item(), 2))


if __name__ == "__main__":
    main()
