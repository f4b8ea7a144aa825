"""Two steps of inpainting with a float16 UNet, and the mask that stops them.

The network, the latents and the prompt are float16. The mask is made from 8-bit pixels, and nobody
says which dtype it is to have. Run it with:

    dtypetrace run examples/unet_mask.py
"""

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DConditionModel

TRAIN_DTYPE = torch.float16


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        latents = torch.randn(4, 16, 16, dtype=TRAIN_DTYPE)
        pixels = torch.randint(0, 256, (1, 128, 128), dtype=torch.uint8)
        return {
            "latents": latents,
            "masked_latents": latents * 0.5,
            "mask": self.scaled_mask(pixels),
            "prompt": torch.randn(7, 32, dtype=TRAIN_DTYPE),
        }

    @staticmethod
    def scaled_mask(pixels):
        mask = pixels / 255
        return F.interpolate(mask[None], scale_factor=1 / 8)[0]


def make_unet():
    return UNet2DConditionModel(
        sample_size=16,
        in_channels=9,
        out_channels=4,
        block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )


def train():
    torch.manual_seed(0)
    unet = make_unet().half()
    scheduler = DDPMScheduler()
    optimizer = torch.optim.SGD(unet.parameters(), lr=1e-3)
    for batch in torch.utils.data.DataLoader(Pictures(), batch_size=1):
        noise = torch.randn_like(batch["latents"])
        timesteps = torch.randint(0, 1000, (1,))
        noisy = scheduler.add_noise(batch["latents"], noise, timesteps)
        sample = torch.cat([noisy, batch["mask"], batch["masked_latents"]], dim=1)
        predicted = unet(sample, timesteps, encoder_hidden_states=batch["prompt"]).sample
        loss = F.mse_loss(predicted.float(), noise.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    train()
