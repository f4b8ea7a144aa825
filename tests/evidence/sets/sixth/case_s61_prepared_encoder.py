"""
title: accelerate gives a prepared encoder's outputs back in float32, the frozen speaker head was cast by hand
expect: collision
needs: accelerate
fix_at: 45, 49, 52

After https://github.com/huggingface/accelerate/issues/2513 and https://github.com/huggingface/accelerate/issues/3620.
Right: the features are cast for the head, which stays outside of accelerate.
"""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn

torch.manual_seed(615)


class Encoder(nn.Module):
    def __init__(self, mels=20, dim=32):
        super().__init__()
        self.first, self.second = nn.Conv1d(mels, dim, 3, padding=1), nn.Conv1d(dim, dim, 3, padding=1)

    def forward(self, mel):
        frames = F.gelu(self.second(F.gelu(self.first(mel))))
        return {"frames": frames, "summary": frames.mean(-1)}


class SpeakerHead(nn.Module):
    """Trained elsewhere, frozen here; pulls the encoder towards speakers."""

    def __init__(self, dim=32, speakers=5):
        super().__init__()
        self.out = nn.Linear(dim, speakers, bias=False)

    def forward(self, summary):
        return self.out(F.gelu(summary))  # COLLIDES


class Trainer:
    def __init__(self, dtype=torch.bfloat16):
        self.accelerator = Accelerator(mixed_precision="bf16", cpu=True)
        encoder = Encoder()
        optimizer = torch.optim.AdamW(encoder.parameters(), lr=3e-3)
        self.encoder, self.optimizer = self.accelerator.prepare(encoder, optimizer)
        self.head = SpeakerHead().to(dtype).requires_grad_(False)

    def features(self, mel):
        out = self.encoder(mel)  # BORN
        return out["summary"]

    def step(self, mel, speaker):
        logits = self.head(self.features(mel))
        loss = F.cross_entropy(logits.float(), speaker)
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        self.optimizer.step()
        return loss.item()


class Logged(Trainer):
    def run(self, steps):
        for _ in range(steps):
            speaker = torch.randint(0, 5, (16,))
            loss = self.step(torch.randn(16, 20, 30) + speaker[:, None, None], speaker)
        return loss


print("loss", round(Logged().run(6), 3))
