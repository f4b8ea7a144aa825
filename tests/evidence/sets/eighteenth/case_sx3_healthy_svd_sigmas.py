"""
title: EDM training of a video UNet draws float32 sigmas and widens the float16 latents on purpose
expect: clean
thread: https://github.com/pixeli99/SVD_Xtend/issues/66
measured: latents torch.float16, noisy torch.float32, loss fell: True
suspect: 67 wanted

Expectation, written first: the VAE gives float16 latents, the sigmas are drawn in float32 and promote the noisy latents
to float32, where sigmas up to hundreds and the loss weight have room. Autocast narrows the scaled input, of unit size,
for the UNet's convolutions; the denoised prediction and the loss are float32 again. Trained parameters are float32.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def rand_log_normal(shape, loc=0.0, scale=1.0, dtype=torch.float32):
    u = torch.rand(shape, dtype=dtype) * (1 - 2e-7) + 1e-7
    return torch.distributions.Normal(loc, scale).icdf(u).exp()


class FrameVAE(nn.Module):
    scaling_factor = 0.18215

    def __init__(self):
        super().__init__()
        self.encoder = nn.Conv2d(3, 4, 4, stride=4)

    def encode(self, x):
        return self.encoder(x)


class SpatioTemporalUNet(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.time_embedding = nn.Sequential(nn.Linear(1, ch), nn.SiLU(), nn.Linear(ch, ch))
        self.conv_in = nn.Conv3d(8, ch, 3, padding=1)
        self.temporal = nn.Conv3d(ch, ch, (3, 1, 1), padding=(1, 0, 0))
        self.conv_out = nn.Conv3d(ch, 4, 3, padding=1)

    def forward(self, sample, timestep):
        emb = self.time_embedding(timestep[:, None])[:, :, None, None, None]
        h = F.silu(self.conv_in(sample.transpose(1, 2)) + emb)
        return self.conv_out(h + F.silu(self.temporal(h))).transpose(1, 2)


def tensor_to_vae_latent(t, vae):
    video_length = t.shape[1]
    latents = vae.encode(t.flatten(0, 1))
    return latents.unflatten(0, (-1, video_length)) * vae.scaling_factor


def main():
    torch.manual_seed(0)
    weight_dtype = torch.float16
    vae, unet = FrameVAE().requires_grad_(False).to(weight_dtype), SpatioTemporalUNet()
    optimizer = torch.optim.AdamW(unet.parameters(), lr=2e-3)
    videos = torch.rand(8, 4, 3, 32, 32) * 2 - 1
    history = []
    for step in range(40):
        pixel_values = videos[torch.randint(0, 8, (4,))].to(weight_dtype)
        conditional_pixel_values = pixel_values[:, 0:1]
        latents = tensor_to_vae_latent(pixel_values, vae) * 4

        noise = torch.randn_like(latents)
        sigmas = rand_log_normal(shape=[latents.shape[0]], loc=0.7, scale=1.6)[:, None, None, None, None]
        noisy_latents = latents + noise * sigmas
        timesteps = 0.25 * sigmas.log()[:, 0, 0, 0, 0]
        inp_noisy_latents = noisy_latents / ((sigmas**2 + 1) ** 0.5)

        conditional_latents = tensor_to_vae_latent(conditional_pixel_values, vae) / vae.scaling_factor
        conditional_latents = conditional_latents.repeat(1, latents.shape[1], 1, 1, 1)
        inp = torch.cat([inp_noisy_latents, conditional_latents], dim=2)

        with torch.autocast("cpu", dtype=torch.bfloat16):
            model_pred = unet(inp, timesteps)
        c_out, c_skip = -sigmas / ((sigmas**2 + 1) ** 0.5), 1 / (sigmas**2 + 1)
        denoised_latents = model_pred.float() * c_out + c_skip * noisy_latents
        weighing = (1 + sigmas**2) * (sigmas**-2.0)

        loss = (weighing.float() * (denoised_latents.float() - latents.float()) ** 2).flatten(1).mean(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append(loss.item())
    print(f"latents {latents.dtype}, noisy {noisy_latents.dtype}, loss fell: {sum(history[-10:]) < sum(history[:10])}")


if __name__ == "__main__":
    main()
