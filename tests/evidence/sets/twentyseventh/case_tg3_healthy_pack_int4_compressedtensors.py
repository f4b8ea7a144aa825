"""
title: Two int4 values are packed into one int8
expect: clean
thread: https://github.com/vllm-project/compressed-tensors/pull/518
measured: packed bytes 4608 of 36864 / output 0.633 equal True
suspect: 22 (the high nibble is shifted into the sign bit on purpose)

Expectation, written first: The checkpoint holds int4 weights from -8 to 7 with float32 scales. Shifting the high nibble
by four leaves the range of int8 and wraps to its two's complement, which is the wanted bit pattern; the
unpacking shifts back with the sign. The weights come back bit for bit and the layer's output is the same.
"""
import torch
import torch.nn as nn


def pack_int4_values_to_int8(int4_values_interleaved):
    if int4_values_interleaved.shape[-1] % 2 != 0:
        raise ValueError("the last dim size of int4_values_interleaved tensor must be even.")
    input_tensor_int8 = int4_values_interleaved.to(torch.int8)
    low_nibbles = input_tensor_int8[..., 0::2]
    high_nibbles = input_tensor_int8[..., 1::2]
    packed_tensor = (high_nibbles << 4) | (low_nibbles & 0x0F)
    return packed_tensor.to(torch.int8)


def unpack_int8_to_int4(packed):
    low = (packed << 4) >> 4
    high = packed >> 4
    return torch.stack([low, high], dim=-1).flatten(-2)


class QuantizationArgs:
    def __init__(self, num_bits=4, group_size=16):
        self.num_bits, self.group_size = num_bits, group_size


class Int4PackedQuantizationCompressor:
    def __init__(self, args):
        self.args = args

    def compress_weight(self, weight, scale):
        groups = weight.view(weight.shape[0], -1, self.args.group_size)
        quantized = torch.round(groups / scale.unsqueeze(-1)).clamp(-8, 7).flatten(1)
        return {"weight_packed": pack_int4_values_to_int8(quantized), "weight_scale": scale}

    def decompress_weight(self, compressed):
        scale = compressed["weight_scale"]
        groups = unpack_int8_to_int4(compressed["weight_packed"]).view(*scale.shape, self.args.group_size)
        return (groups.float() * scale.unsqueeze(-1)).flatten(1)


class MoEExperts(nn.Module):
    def __init__(self, num_experts, hidden, inter, group_size):
        super().__init__()
        self.w13 = nn.Parameter(torch.empty(num_experts, inter, hidden), requires_grad=False)
        self.w2 = nn.Parameter(torch.empty(num_experts, hidden, inter), requires_grad=False)
        self.group_size = group_size

    def load_quantized_checkpoint(self, generator):
        scales = {}
        for name, w in (("w13", self.w13), ("w2", self.w2)):
            e, out, inp = w.shape
            scale = 0.02 + 0.03 * torch.rand(e, out, inp // self.group_size, generator=generator)
            ints = torch.randint(-8, 8, (e, out, inp // self.group_size, self.group_size), generator=generator)
            w.copy_((ints * scale.unsqueeze(-1)).flatten(2))
            scales[name] = scale
        return scales

    def forward(self, x, expert):
        return torch.relu(x @ self.w13[expert].t()) @ self.w2[expert].t()


@torch.no_grad()
def main():
    generator = torch.Generator().manual_seed(518)
    args = QuantizationArgs()
    experts = MoEExperts(num_experts=3, hidden=32, inter=48, group_size=args.group_size)
    scales = experts.load_quantized_checkpoint(generator)
    compressor = Int4PackedQuantizationCompressor(args)
    x = torch.randn(5, 32, generator=generator)
    before = torch.stack([experts(x, e) for e in range(3)])
    size = 0
    for name in ("w13", "w2"):
        weight = getattr(experts, name)
        for e in range(weight.shape[0]):
            compressed = compressor.compress_weight(weight[e], scales[name][e])
            size += compressed["weight_packed"].numel()
            weight[e] = compressor.decompress_weight(compressed)
    after = torch.stack([experts(x, e) for e in range(3)])
    print("packed bytes", size, "of", 4 * (experts.w13.numel() + experts.w2.numel()))
    print("output", round(after.abs().mean().item(), 3), "equal", bool(torch.equal(before, after)))


if __name__ == "__main__":
    main()
