"""
title: cached prompt embeddings of a video LoRA trainer come back in float32
expect: collision
thread: https://github.com/THUDM/CogKit/issues/32
fix_at: 33, 58, 62, 80, 85

Expectation, written first: the latents are cast to the training dtype, the prompt embeddings are not; the text
projection of the bfloat16 transformer refuses the float32 embeddings of the cache.
"""
import hashlib

import numpy as np
import torch
from diffusers import CogVideoXDPMScheduler, CogVideoXTransformer3DModel
from torch.utils.data import DataLoader, Dataset

CONFIG = {"mixed_precision": "bf16", "batch_size": 2, "lr": 1e-3, "steps": 2, "max_text_len": 8}


class PromptCache:
    """one array per prompt, as the .npy files of the real trainer"""

    def __init__(self):
        self.files = {}

    def key(self, prompt):
        return hashlib.sha256(prompt.encode()).hexdigest()

    def write(self, prompt, embedding):
        self.files[self.key(prompt)] = embedding.float().numpy()

    def read(self, prompt):
        return torch.from_numpy(self.files[self.key(prompt)].astype(np.float32))  # BORN


class TextEncoder(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length, self.table = length, torch.nn.Embedding(128, 8)

    def forward(self, prompt):
        ids = [ord(c) % 128 for c in prompt][: self.length]
        return self.table(torch.tensor(ids + [0] * (self.length - len(ids))))


class T2VDataset(Dataset):
    def __init__(self, prompts, encoder, cache):
        self.prompts, self.cache = prompts, cache
        with torch.no_grad():
            for p in prompts:
                cache.write(p, encoder(p))
        self.videos = torch.randn(len(prompts), 2, 4, 8, 8, generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.prompts)

    def __getitem__(self, i):
        return {"prompt_embedding": self.cache.read(self.prompts[i]), "encoded_video": self.videos[i]}


def collate_fn(samples):
    return {k: torch.stack([s[k] for s in samples]) for k in samples[0]}


class LoraTrainer:
    def __init__(self, config):
        self.config = config
        self.transformer = CogVideoXTransformer3DModel(
            num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, time_embed_dim=2,
            text_embed_dim=8, num_layers=1, sample_width=8, sample_height=8, sample_frames=5,
            max_text_seq_length=config["max_text_len"],
        ).to(self.training_dtype())
        self.scheduler = CogVideoXDPMScheduler()
        self.optimizer = torch.optim.SGD(self.transformer.parameters(), lr=config["lr"])

    def training_dtype(self):
        return {"bf16": torch.bfloat16, "no": torch.float32}[self.config["mixed_precision"]]

    def compute_loss(self, batch):
        prompt_embeds = batch["prompt_embedding"]
        latents = batch["encoded_video"].to(self.training_dtype())
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, self.scheduler.config.num_train_timesteps, (len(latents),))
        noisy = self.scheduler.add_noise(latents, noise, timesteps)
        pred = self.transformer(noisy, prompt_embeds, timesteps, return_dict=False)[0]  # COLLIDES
        velocity = self.scheduler.get_velocity(pred, noisy, timesteps)
        return (velocity.float() - latents.float()).square().mean()

    def train(self, loader):
        for _, batch in zip(range(self.config["steps"]), loader):
            loss = self.compute_loss(batch)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    prompts = ["a cat on a sofa", "waves at dusk", "city traffic", "falling snow"]
    data = T2VDataset(prompts, TextEncoder(CONFIG["max_text_len"]), PromptCache())
    trainer = LoraTrainer(CONFIG)
    print(f"last loss {trainer.train(DataLoader(data, CONFIG['batch_size'], collate_fn=collate_fn)):.2f}")
