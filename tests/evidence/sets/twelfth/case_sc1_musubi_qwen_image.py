"""
title: LoRA training of Qwen-Image with mixed_precision "no": float32 sigmas widen the noisy latents
expect: collision
thread: https://github.com/kohya-ss/musubi-tuner/issues/431
fix_at: 37, 38, 41, 42, 82, 83, 87, 105

Expectation, written first: latents and noise are bfloat16, the interpolation weights float32, so the model input is
float32; no autocast region is entered and the input projection of the bfloat16 transformer refuses.
"""
import contextlib
from argparse import Namespace

import torch
from diffusers import QwenImageTransformer2DModel


class CachedLatents(torch.utils.data.Dataset):
    def __init__(self, n, dtype):
        g = torch.Generator().manual_seed(3)
        self.items = [
            {"latents": torch.randn(4, 8, 8, generator=g).to(dtype), "vl_embed": torch.randn(6, 16, generator=g).to(dtype)}
            for _ in range(n)
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class FlowMatching:
    def __init__(self, shift=2.2, steps=1000):
        self.shift, self.steps = shift, steps

    def sample(self, batch):
        t = torch.sigmoid(torch.randn(batch, dtype=torch.float32))  # BORN
        return t * self.shift / (1 + (self.shift - 1) * t)

    def mix(self, latents, noise, sigma):
        sigma = sigma.view(-1, 1, 1, 1)
        return (1 - sigma) * latents + sigma * noise


def pack(latents):
    b, c, h, w = latents.shape
    latents = latents.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return latents.reshape(b, (h // 2) * (w // 2), c * 4)


class QwenImageNetworkTrainer:
    def __init__(self, args):
        self.args, self.flow = args, FlowMatching(args.discrete_flow_shift)
        self.dit_dtype = torch.bfloat16

    def autocast(self):
        if self.args.mixed_precision == "no":
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def load_transformer(self):
        model = QwenImageTransformer2DModel(
            patch_size=2, in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
            joint_attention_dim=16, guidance_embeds=False, axes_dims_rope=(8, 4, 4),
        )
        return model.to(self.dit_dtype).requires_grad_(False)

    def load_network(self, model):
        """low-rank updates of the attention's output, added by hooks"""
        network = torch.nn.ModuleDict()
        for i, block in enumerate(model.transformer_blocks):
            lin = block.attn.to_out[0]
            down = torch.nn.Linear(lin.in_features, self.args.network_dim, bias=False)
            up = torch.nn.Linear(self.args.network_dim, lin.out_features, bias=False)
            network[str(i)] = torch.nn.Sequential(down, up).to(self.dit_dtype)
            lin.register_forward_hook(lambda m, x, y, net=network[str(i)]: y + net(x[0]))
        return network

    def call_dit(self, model, batch):
        latents = batch["latents"]
        noise = torch.randn_like(latents)
        sigma = self.flow.sample(len(latents))
        noisy = self.flow.mix(latents, noise, sigma)
        shapes = [[(1, latents.shape[-2] // 2, latents.shape[-1] // 2)]] * len(latents)
        mask = torch.ones(batch["vl_embed"].shape[:2], dtype=torch.bool)
        with self.autocast():
            pred = model(pack(noisy), batch["vl_embed"], mask, sigma, img_shapes=shapes).sample  # COLLIDES
        return pred, pack(noise - latents)

    def train(self):
        model = self.load_transformer()
        network = self.load_network(model)
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
        loader = torch.utils.data.DataLoader(CachedLatents(4, self.dit_dtype), batch_size=2)
        for batch in loader:
            pred, target = self.call_dit(model, batch)
            loss = torch.nn.functional.mse_loss(pred.float(), target.float())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()


torch.manual_seed(0)
args = Namespace(mixed_precision="no", discrete_flow_shift=2.2, network_dim=2)
print(f"loss {QwenImageNetworkTrainer(args).train():.2f}")
