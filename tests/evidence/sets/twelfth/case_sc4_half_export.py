"""
title: a diffusion trainer writes a float16 snapshot of its UNet for users and goes on in float32
expect: clean
thread: https://github.com/modelscope/ms-swift/issues/841
measured: loss 0.0925 (without snapshots 0.0925), weights equal True, snapshots 3

Expectation, written first: the half copy is made from the weights, its size is reported, and nothing reads it again;
the training before and after is that of a run without snapshots, to the last bit.
"""
import io
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel


@dataclass
class Args:
    max_train_steps: int = 60
    checkpointing_steps: int = 20
    save_precision: str | None = "fp16"
    learning_rate: float = 1e-3
    seed: int = 0


SAVE_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Snapshots:
    def __init__(self, precision):
        self.dtype = SAVE_DTYPES.get(precision)
        self.sizes = []

    def save(self, step, model):
        state = {k: v.detach().clone().to(self.dtype) for k, v in model.state_dict().items()}
        stream = io.BytesIO()
        torch.save(state, stream)
        self.sizes.append(stream.getbuffer().nbytes)


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.gen = torch.Generator().manual_seed(args.seed)
        self.unet = UNet2DModel(
            sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 16),
            norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
        )
        self.scheduler = DDPMScheduler(num_train_timesteps=1000)
        self.optimizer = torch.optim.AdamW(self.unet.parameters(), lr=args.learning_rate)
        self.snapshots = Snapshots(args.save_precision)
        self.images = F.interpolate(torch.randn(64, 1, 2, 2, generator=self.gen), scale_factor=4)

    def step(self):
        clean = self.images[torch.randint(0, 64, (16,), generator=self.gen)]
        noise = torch.randn(clean.shape, generator=self.gen)
        t = torch.randint(0, 1000, (16,), generator=self.gen)
        loss = F.mse_loss(self.unet(self.scheduler.add_noise(clean, noise, t), t).sample, noise)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self):
        for step in range(1, self.args.max_train_steps + 1):
            loss = self.step()
            if self.args.save_precision and step % self.args.checkpointing_steps == 0:
                self.snapshots.save(step, self.unet)
        return loss


ours, plain = Trainer(Args()), Trainer(Args(save_precision=None))
a, b = ours.train(), plain.train()
equal = all(torch.equal(p, q) for p, q in zip(ours.unet.parameters(), plain.unet.parameters()))
print(f"loss {a:.4f} (without snapshots {b:.4f}), weights equal {equal}, snapshots {len(ours.snapshots.sizes)}")
