"""
title: HQQ replaces the linears of a bf16 model with its default float16 compute dtype
expect: collision
thread: https://github.com/dropbox/hqq/issues/7
fix_at: 33, 36, 37, 41, 43, 45, 46, 76

Expectation, written first: HQQLinear takes compute_dtype=torch.float16 by default and the patching loop passes none, although the model
is bfloat16. Scales, zeros and the dequantized weight are therefore float16, and the matmul with the bfloat16 activations raises in the
first quantized layer.
"""
import torch
import torch.nn.functional as F
from torch import nn
def BaseQuantizeConfig(nbits=4, group_size=16):
    return {"nbits": nbits, "group_size": group_size}
class Quantizer:
    @staticmethod
    def quantize(tensor, nbits, group_size, compute_dtype):
        W = tensor.float().reshape(-1, group_size)
        w_min, w_max = W.amin(dim=1, keepdim=True), W.amax(dim=1, keepdim=True)
        scale = (2 ** nbits - 1) / (w_max - w_min).clamp(min=1e-5)
        zero = -w_min * scale
        W_q = torch.round(W * scale + zero).clamp(0, 2 ** nbits - 1).to(torch.uint8)
        meta = {"scale": (1.0 / scale).to(compute_dtype), "zero": zero.to(compute_dtype),  # BORN
                "shape": tensor.shape, "compute_dtype": compute_dtype}
        return Quantizer.pack_4bit_u8(W_q), meta
    @staticmethod
    def pack_4bit_u8(W_q):
        half = W_q.shape[0] // 2
        return (W_q[:half] << 4) | W_q[half:]
    @staticmethod
    def unpack_4bit_u8(packed, dtype):
        return torch.cat([(packed & 0xF0) >> 4, packed & 0x0F]).to(dtype)
    @staticmethod
    def dequantize(W_q, meta):
        W_r = Quantizer.unpack_4bit_u8(W_q, meta["compute_dtype"])
        return ((W_r - meta["zero"]) * meta["scale"]).reshape(meta["shape"])
class HQQLinear(nn.Module):
    def __init__(self, linear_layer, quant_config, compute_dtype=torch.float16):  # BORN
        super().__init__()
        self.compute_dtype = compute_dtype
        self.bias = None if linear_layer.bias is None else linear_layer.bias.detach()
        self.W_q, self.meta = Quantizer.quantize(linear_layer.weight.detach(), compute_dtype=compute_dtype, **quant_config)
    def forward(self, x):
        W_est = Quantizer.dequantize(self.W_q, self.meta)
        out = torch.matmul(x, W_est.t())  # COLLIDES
        return out if self.bias is None else out + self.bias
class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)
    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
class TinyLlama(nn.Module):
    def __init__(self, vocab=64, dim=32, hidden=64, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.norms = nn.ModuleList(nn.RMSNorm(dim) for _ in range(layers))
        self.layers = nn.ModuleList(MLP(dim, hidden) for _ in range(layers))
        self.lm_head = nn.Linear(dim, vocab, bias=False)
    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.lm_head(x)
def patch_linearlayers(model, quant_config, skip=("lm_head",)):
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name not in skip:
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, HQQLinear(module, quant_config))  # BORN
    return model
@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = TinyLlama().to(torch.bfloat16)
    input_ids = torch.randint(0, 64, (2, 10))
    reference = model(input_ids).float()
    logits = patch_linearlayers(model, BaseQuantizeConfig(nbits=4, group_size=16))(input_ids).float()
    agree = (logits.argmax(-1) == reference.argmax(-1)).float().mean().item()
    print(f"max diff {(logits - reference).abs().max().item():.3f} argmax agreement {agree:.2f}")
if __name__ == "__main__":
    main()
