"""
title: Memory features kept in bfloat16 meet a float32 predictor at the second object
expect: collision
thread: https://github.com/facebookresearch/sam2/issues/577
fix_at: (none beside the marked)

Expectation, written first: The video predictor stores each frame's memory in bfloat16 to save space and expects
to run under autocast. Without autocast the first object is only encoded; the second object attends to the stored
memory, and its value projection, a float32 linear layer, gets BFloat16 input and raises.
"""
import torch
import torch.nn as nn


class ImageEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 4, stride=4)

    def forward(self, frame):
        return self.patch_embed(frame).flatten(2).transpose(1, 2)


class MemoryAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, curr, memory, memory_pos):
        q = self.q_proj(curr)
        k = self.k_proj(memory + memory_pos)
        v = self.v_proj(memory)  # COLLIDES
        attn = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, dim=-1)
        return curr + attn @ v


class SAM2VideoPredictor(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.image_encoder = ImageEncoder(dim)
        self.memory_attention = MemoryAttention(dim)
        self.mask_downsampler = nn.Conv2d(1, dim, 4, stride=4)
        self.mask_decoder = nn.Linear(dim, 16)
        self.maskmem_tpos_enc = nn.Parameter(torch.randn(7, dim) * 0.02)

    def init_state(self, frames):
        return {"frames": frames, "memory": [], "masks": {}}

    def _encode_new_memory(self, feats, mask):
        maskmem_features = feats + self.mask_downsampler(mask[None, None]).flatten(2).transpose(1, 2)
        return maskmem_features.to(torch.bfloat16)  # BORN

    def _prepare_memory(self, state):
        memory = torch.cat(state["memory"], dim=1)  # BORN
        pos = torch.cat([self.maskmem_tpos_enc[t % 7].expand(m.shape) for t, m in enumerate(state["memory"])], 1)
        return memory, pos

    def add_new_mask(self, state, frame_idx, obj_id, mask):
        feats = self.image_encoder(state["frames"][frame_idx:frame_idx + 1])
        if state["memory"]:
            feats = self.memory_attention(feats, *self._prepare_memory(state))  # BORN
        state["masks"][obj_id] = mask
        state["memory"].append(self._encode_new_memory(feats, mask))  # BORN

    def propagate_in_video(self, state):
        for frame_idx in range(len(state["frames"])):
            feats = self.image_encoder(state["frames"][frame_idx:frame_idx + 1])
            feats = self.memory_attention(feats, *self._prepare_memory(state))
            yield frame_idx, list(state["masks"]), self.mask_decoder(feats)


@torch.inference_mode()
def main():
    torch.manual_seed(577)
    predictor = SAM2VideoPredictor().eval()
    state = predictor.init_state(torch.rand(3, 3, 16, 16))
    for obj_id in range(1, 3):
        mask = (torch.rand(16, 16) > 0.5).float()
        predictor.add_new_mask(state, 0, obj_id, mask)
        print("object", obj_id, "added")
    for frame_idx, obj_ids, logits in predictor.propagate_in_video(state):
        print("frame", frame_idx, "objects", obj_ids, "positive", int((logits > 0).sum()))


if __name__ == "__main__":
    main()
