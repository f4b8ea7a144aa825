"""
title: Image-prompt keys and values stay in half while the UNet runs in float32
expect: collision
thread: https://github.com/cubiq/ComfyUI_IPAdapter_plus/issues/183
fix_at: (none beside the marked)

Expectation, written first: The IPAdapter model is built in half, its projected image tokens are half and so
are the k and v made from them in the patch. The UNet was started with --force-fp32, so q is float32 and
scaled_dot_product_attention refuses the mixture in the patched block.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def optimized_attention(q, k, v, heads):
    b, _, dim = q.shape
    q, k, v = (t.view(b, -1, heads, dim // heads).transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v)  # COLLIDES
    return out.transpose(1, 2).reshape(b, -1, dim)


class ImageProjModel(nn.Module):
    def __init__(self, clip_dim, cross_dim, tokens):
        super().__init__()
        self.tokens, self.cross_dim = tokens, cross_dim
        self.proj = nn.Linear(clip_dim, cross_dim * tokens)
        self.norm = nn.LayerNorm(cross_dim)

    def forward(self, embeds):
        return self.norm(self.proj(embeds).reshape(-1, self.tokens, self.cross_dim))


class To_KV(nn.Module):
    def __init__(self, cross_dim, dim):
        super().__init__()
        self.to_k_ip = nn.Linear(cross_dim, dim, bias=False)
        self.to_v_ip = nn.Linear(cross_dim, dim, bias=False)


class IPAdapter(nn.Module):
    def __init__(self, clip_dim=24, cross_dim=16, dim=32, tokens=4):
        super().__init__()
        self.image_proj_model = ImageProjModel(clip_dim, cross_dim, tokens)
        self.ip_layers = To_KV(cross_dim, dim)

    @torch.inference_mode()
    def get_image_embeds(self, clip_embed):
        return self.image_proj_model(clip_embed)


class CrossAttentionPatch:
    def __init__(self, weight, ipadapter, cond):
        self.weight, self.ipadapter, self.cond = weight, ipadapter, cond

    def __call__(self, q, k, v, extra_options):
        out = optimized_attention(q, k, v, extra_options["n_heads"])
        ip_k = self.ipadapter.ip_layers.to_k_ip(self.cond)  # BORN
        ip_v = self.ipadapter.ip_layers.to_v_ip(self.cond)  # BORN
        out_ip = optimized_attention(q, ip_k, ip_v, extra_options["n_heads"])  # BORN
        return out + out_ip * self.weight


class AttnBlock(nn.Module):
    def __init__(self, dim=32, ctx=16):
        super().__init__()
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(ctx, dim, bias=False)
        self.to_v = nn.Linear(ctx, dim, bias=False)
        self.patch = None

    def forward(self, x, context):
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        if self.patch is None:
            return optimized_attention(q, k, v, 4)
        return self.patch(q, k, v, {"n_heads": 4})


def apply_ipadapter(block, clip_embed, weight, dtype):
    ipadapter = IPAdapter().to(dtype)  # BORN
    cond = ipadapter.get_image_embeds(clip_embed.to(dtype))  # BORN
    block.patch = CrossAttentionPatch(weight, ipadapter, cond)


@torch.no_grad()
def main():
    torch.manual_seed(183)
    block = AttnBlock()
    x, context = torch.randn(1, 9, 32), torch.randn(1, 5, 16)
    print("plain", round(block(x, context).std().item(), 4))
    apply_ipadapter(block, torch.randn(1, 24), weight=0.7, dtype=torch.float16)  # BORN
    print("with ipadapter", round(block(x, context).std().item(), 4))


if __name__ == "__main__":
    main()
