"""
title: D-FINE decoder boxes become NaN in fp16
expect: silent:overflow
thread: https://github.com/Peterande/D-FINE/issues/199
measured: valid boxes 2 of 80, mean area nan
widened: valid boxes 80 of 80, mean area 0.267; innocent: valid boxes 2 of 80, mean area nan
suspect: 74 tolerant (reference points in 0..1 keep three digits in half)

Expectation, written first: the decoder runs in half; the feed-forward branch of one layer grows past 65504, the sum is
inf and the layer norm after it gives NaN, so the boxes are NaN. Remedy: the feed-forward in float32 (or a clamp). The
reference points in half are harmless.
"""
import torch
from torch import nn
import torch.nn.functional as F


def inverse_sigmoid(x, eps=1e-3):
    x = x.clamp(min=0.0, max=1.0)
    return torch.log(x.clamp(min=eps) / (1 - x).clamp(min=eps))


class DecoderLayer(nn.Module):
    def __init__(self, d_model=64, dim_feedforward=256):
        super().__init__()
        self.cross = nn.Linear(d_model, d_model)
        self.norm1 = nn.LayerNorm(d_model)
        self.linear1 = nn.Linear(d_model, dim_feedforward)
        self.linear2 = nn.Linear(dim_feedforward, d_model)
        self.norm3 = nn.LayerNorm(d_model)

    def forward_ffn(self, tgt):
        hidden = F.relu(self.linear1(tgt))
        return F.linear(hidden, self.linear2.weight, self.linear2.bias)  # BORN

    def forward(self, target, memory):
        target = self.norm1(target + self.cross(memory))
        target2 = self.forward_ffn(target)
        target = target + target2  # BORN
        return F.layer_norm(target.float(), (target.shape[-1],)).to(memory.dtype)


class TransformerDecoder(nn.Module):
    def __init__(self, num_layers=3, d_model=64):
        super().__init__()
        self.layers = nn.ModuleList([DecoderLayer(d_model) for _ in range(num_layers)])
        self.bbox_head = nn.Linear(d_model, 4)

    def forward(self, target, memory, ref_points):
        for layer in self.layers:
            target = layer(target, memory)
        delta = 0.1 * self.bbox_head(target)
        return torch.sigmoid(delta.float() + inverse_sigmoid(ref_points).float())


def build_decoder():
    decoder = TransformerDecoder()
    with torch.no_grad():
        decoder.layers[1].linear1.weight.mul_(160.0)
        decoder.layers[1].linear2.weight.mul_(900.0)
    return decoder.half().eval()  # BORN


def box_area(boxes):
    return boxes[..., 2] * boxes[..., 3]


@torch.no_grad()
def main():
    torch.manual_seed(199)
    decoder = build_decoder()
    memory = torch.randn(2, 40, 64).half()
    queries = torch.randn(2, 40, 64).half()
    ref_points = torch.rand(2, 40, 4).half()
    boxes = decoder(queries, memory, ref_points)
    valid = torch.isfinite(boxes).all(-1)
    print(f"valid boxes {valid.sum().item()} of {valid.numel()}, mean area {box_area(boxes).mean().item():.3f}")


main()
