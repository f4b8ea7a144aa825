"""
title: ControlNet-LLLite embeds a float32 hint image with modules that were loaded in half
expect: collision
thread: https://github.com/kohya-ss/ControlNet-LLLite-ComfyUI/issues/10

Expectation, written first: the node converts the LLLite modules to the dtype of the float16 diffusion model. The hint
comes from an IMAGE input in float32, is scaled and stored, and the module's first call feeds it to conditioning1 with
only a device move. The convolution refuses the float input; the hint must be cast to the dtype of x.
"""
import torch
import torch.nn as nn


class CrossAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.to_q, self.to_k, self.to_v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.patches = []

    def forward(self, x, context):
        q, k, v = x, context, context
        for patch in self.patches:
            q, k, v = patch(q, k, v)
        return nn.functional.scaled_dot_product_attention(self.to_q(q), self.to_k(k), self.to_v(v))


class LLLiteModule(nn.Module):
    def __init__(self, name, in_dim, depth, cond_emb_dim, mlp_dim, multiplier):
        super().__init__()
        self.lllite_name, self.multiplier = name, multiplier
        self.cond_image, self.cond_emb = None, None
        modules = [nn.Conv2d(3, cond_emb_dim // 2, kernel_size=4, stride=4)]
        for _ in range(depth):
            modules += [nn.ReLU(inplace=True), nn.Conv2d(cond_emb_dim // 2, cond_emb_dim // 2, kernel_size=2, stride=2)]
        modules += [nn.ReLU(inplace=True), nn.Conv2d(cond_emb_dim // 2, cond_emb_dim, kernel_size=1)]
        self.conditioning1 = nn.Sequential(*modules)
        self.down = nn.Sequential(nn.Linear(in_dim, mlp_dim), nn.ReLU(inplace=True))
        self.mid = nn.Sequential(nn.Linear(mlp_dim + cond_emb_dim, mlp_dim), nn.ReLU(inplace=True))
        self.up = nn.Sequential(nn.Linear(mlp_dim, in_dim))

    def set_cond_image(self, cond_image):
        self.cond_image = cond_image  # BORN
        self.cond_emb = None

    def forward(self, x):
        if self.cond_emb is None:
            cx = self.conditioning1(self.cond_image.to(x.device))  # BORN COLLIDES
            n, c, h, w = cx.shape
            self.cond_emb = cx.view(n, c, h * w).permute(0, 2, 1)
        cx = self.cond_emb.repeat(x.shape[0] // self.cond_emb.shape[0], 1, 1)
        return self.up(self.mid(torch.cat([cx, self.down(x)], dim=2))) * self.multiplier


class LLLiteLoader:
    def load_lllite(self, model, cond_image, strength):
        cond_image = cond_image.permute(0, 3, 1, 2)
        cond_image = cond_image * 2.0 - 1.0  # BORN
        dtype = next(model.parameters()).dtype
        for i, attn in enumerate(model.blocks):
            module = LLLiteModule(f"lllite_unet_attn{i}", 32, 1, 16, 8, strength).to(dtype)
            module.set_cond_image(cond_image)  # BORN
            attn.patches.append(lambda q, k, v, m=module: (q + m(q), k, v))
        return (model,)


class DiffusionModel(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.proj_in, self.proj_out = nn.Linear(4, dim), nn.Linear(dim, 4)
        self.blocks = nn.ModuleList(CrossAttention(dim) for _ in range(2))

    def forward(self, latent, context):
        h = self.proj_in(latent.flatten(2).transpose(1, 2))
        for block in self.blocks:
            h = h + block(h, context)
        return self.proj_out(h).transpose(1, 2).view_as(latent)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    unet = DiffusionModel().half()
    (unet,) = LLLiteLoader().load_lllite(unet, torch.rand(1, 64, 64, 3), strength=0.8)
    x = torch.randn(2, 4, 8, 8).half()
    for _ in range(3):
        x = x - 0.1 * unet(x, torch.randn(2, 7, 32).half())
    print(x.float().std())


main()
