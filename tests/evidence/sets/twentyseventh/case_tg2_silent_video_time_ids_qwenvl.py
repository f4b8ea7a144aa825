"""
title: frames of a fast video share their temporal position id
expect: silent:downcast|precision-loss
thread: https://github.com/QwenLM/Qwen3-VL/issues/1031
measured: expected 12 time steps, got 6; identical neighbour keys 6
widened: expected 12 time steps, got 12; identical neighbour keys 0; innocent: expected 12 time steps, got 6; identical neighbour keys 6
suspect: 25 exact (a quarter of a second)

Expectation, written first: the time of a temporal patch in units of 1 / tokens_per_second is 0.5 per patch at 8 fps, and
long() cuts the fraction, so every two neighbouring patches get the same id and cannot be told apart by the rotary
embedding. Kept as float (or with a larger tokens_per_second) all ids differ. The half second_per_grid is exact.
"""
import torch


class VisionConfig:
    tokens_per_second = 2
    temporal_patch_size = 2
    spatial_merge_size = 2


def get_rope_index(config, video_grid_thw, fps, text_len):
    t, h, w = video_grid_thw
    llm_h, llm_w = h // config.spatial_merge_size, w // config.spatial_merge_size
    second_per_grid_t = torch.tensor(config.temporal_patch_size / fps, dtype=torch.float16)
    text = torch.arange(text_len).view(1, -1).expand(3, -1)
    range_tensor = torch.arange(t).view(-1, 1)
    expanded_range = range_tensor.expand(-1, llm_h * llm_w)
    time_tensor = expanded_range * second_per_grid_t.float() * config.tokens_per_second
    time_tensor_long = time_tensor.long()  # BORN
    t_index = time_tensor_long.flatten()
    h_index = torch.arange(llm_h).view(1, -1, 1).expand(t, -1, llm_w).flatten()
    w_index = torch.arange(llm_w).view(1, 1, -1).expand(t, llm_h, -1).flatten()
    video = torch.stack([t_index, h_index, w_index]) + text_len
    return torch.cat([text, video], dim=1)


class RotaryEmbedding:
    def __init__(self, dim, base=10000.0):
        self.inv_freq = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)

    def rotate(self, x, position):
        angle = position.float().unsqueeze(-1) * self.inv_freq
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat([x1 * angle.cos() - x2 * angle.sin(), x2 * angle.cos() + x1 * angle.sin()], dim=-1)


def main():
    torch.manual_seed(1031)
    fps, grid = 8, (12, 4, 4)
    position_ids = get_rope_index(VisionConfig, grid, fps, text_len=5)
    per_frame = position_ids[0, 5:].view(grid[0], -1)[:, 0]
    rope = RotaryEmbedding(16)
    feature = torch.randn(16)
    keys = rope.rotate(feature.expand(grid[0], -1), per_frame)
    same = ((keys[1:] - keys[:-1]).norm(dim=-1) < 1e-6).sum().item()
    print(f"expected {grid[0]} time steps, got {per_frame.unique().numel()}; identical neighbour keys {same}")


main()
