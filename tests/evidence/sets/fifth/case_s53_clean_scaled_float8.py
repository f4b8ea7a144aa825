"""
title: weights stored as float8 with a float32 scale per row, widened to the activations' bfloat16 for each product
expect: clean
needs: transformers

The right way round of https://github.com/kohya-ss/musubi-tuner/issues/236 and https://github.com/llvm/torch-mlir/pull/4616.
"""
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

torch.manual_seed(310)
LIMIT = torch.finfo(torch.float8_e4m3fn).max


class Float8(nn.Module):
    """Replaces a layer of GPT-2 (whose weight is in x out)."""

    def __init__(self, layer):
        super().__init__()
        weight = layer.weight.detach().float().t()
        scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / LIMIT
        self.register_buffer("code", (weight / scale).to(torch.float8_e4m3fn))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", layer.bias.detach().clone())

    def forward(self, x):
        weight = (self.code.float() * self.scale).to(x.dtype)
        return F.linear(x, weight, self.bias.to(x.dtype))


def store(model):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Conv1D):
                setattr(module, name, Float8(child))
    return model


def fit(model, steps=40):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        ids = (torch.randint(0, 40, (8, 1)) + 3 * torch.arange(10)) % 40
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.inference_mode()
def score(model):
    ids = (torch.arange(40)[:, None] + 3 * torch.arange(10)) % 40
    logits = model(input_ids=ids).logits.float()
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()


config = GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
model = fit(GPT2LMHeadModel(config))
before = score(model)
print("loss", round(before, 4), "from float8", round(score(store(model.to(torch.bfloat16))), 4))
