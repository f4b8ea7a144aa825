"""
title: AWQ linears dequantise their weights to float16 inside a bfloat16 Llama
expect: collision
thread: https://github.com/casper-hansen/AutoAWQ/pull/740

Expectation, written first: the checkpoint's model runs in bfloat16, the packed linears hold their scales in float16
and the dequantisation therefore yields float16 weights. The fallback matmul multiplies the bfloat16 activations by
them as they are; the weights need a cast to the dtype of x (or scales in the dtype of the model).
"""
import torch
import torch.nn as nn
from transformers import LlamaConfig, LlamaForCausalLM


def unpack_awq(qweight, bits):
    shifts = torch.arange(0, 32, bits)
    return ((qweight[:, :, None] >> shifts[None, None, :]) & (2**bits - 1)).view(qweight.shape[0], -1)


def dequantize_gemm(qweight, qzeros, scales, bits, group_size):
    iweight, izeros = unpack_awq(qweight, bits), unpack_awq(qzeros, bits)
    scales = scales.repeat_interleave(group_size, dim=0)
    izeros = izeros.repeat_interleave(group_size, dim=0)
    return (iweight - izeros) * scales  # BORN


class WQLinearMMFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, qweight, qzeros, scales, w_bit, group_size, out_features):
        ctx.out_features = out_features
        out_shape = x.shape[:-1] + (out_features,)
        out = dequantize_gemm(qweight, qzeros, scales, w_bit, group_size)  # BORN
        out = torch.matmul(x, out)  # BORN COLLIDES
        return out.reshape(out_shape)


class WQLinear_GEMM(nn.Module):
    def __init__(self, w_bit, group_size, in_features, out_features):
        super().__init__()
        self.w_bit, self.group_size = w_bit, group_size
        self.in_features, self.out_features = in_features, out_features
        pack = 32 // w_bit
        self.register_buffer("qweight", torch.zeros((in_features, out_features // pack), dtype=torch.int32))
        self.register_buffer("qzeros", torch.zeros((in_features // group_size, out_features // pack), dtype=torch.int32))
        self.register_buffer("scales", torch.zeros((in_features // group_size, out_features), dtype=torch.float16))  # BORN

    @classmethod
    def from_linear(cls, linear, w_bit, group_size):
        awq_linear = cls(w_bit, group_size, linear.in_features, linear.out_features)
        w = linear.weight.data.float().T
        groups = w.view(-1, group_size, w.shape[1])
        lo, hi = groups.amin(1), groups.amax(1)
        scales = (hi - lo).clamp(min=1e-5) / (2**w_bit - 1)
        zeros = (-lo / scales).round().int()
        intweight = (groups / scales[:, None] + zeros[:, None]).round().clamp(0, 2**w_bit - 1).int().view_as(w)
        shifts = torch.arange(0, 32, w_bit)
        awq_linear.qweight.copy_((intweight.view(w.shape[0], -1, 32 // w_bit) << shifts).sum(-1))
        awq_linear.qzeros.copy_((zeros.view(zeros.shape[0], -1, 32 // w_bit) << shifts).sum(-1))
        awq_linear.scales.copy_(scales)
        return awq_linear

    @torch.no_grad()
    def forward(self, x):
        args = (self.qweight, self.qzeros, self.scales, self.w_bit, self.group_size, self.out_features)
        return WQLinearMMFunction.apply(x, *args)


def replace_with_awq_linear(model, quant_config):
    for layer in model.model.layers:
        for parent in (layer.self_attn, layer.mlp):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Linear):
                    q = WQLinear_GEMM.from_linear(child, quant_config["w_bit"], quant_config["q_group_size"])
                    setattr(parent, name, q)
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    kw = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    model = LlamaForCausalLM(LlamaConfig(**kw)).to(torch.bfloat16).eval()
    model = replace_with_awq_linear(model, {"w_bit": 4, "q_group_size": 16})
    print(model.generate(torch.randint(3, 64, (1, 6)), max_new_tokens=4, do_sample=False, pad_token_id=0))
