"""
title: The encoder goes through accelerator.prepare, the frozen bfloat16 head does not
expect: collision
thread: https://github.com/huggingface/accelerate/issues/2513
born_in: operations.py:_convert_to_fp32
needs: accelerate

Expectation, written first.  accelerate wraps the forward of a prepared model:
autocast inside, and on the way out every bf16 output is cast to float32.  The
author measured the encoder alone, saw bf16 activations, and therefore cast the
frozen scoring head to accelerator's weight dtype without preparing it.  The
float32 is born inside accelerate; the call of the head collides, and either
.to(weight_dtype) on the features there or accelerator.autocast() around it
mends it.
"""
import torch
from accelerate import Accelerator
from torch import nn

torch.manual_seed(0)


class SentenceEncoder(nn.Module):
    def __init__(self, vocab=200, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.project = nn.Linear(dim, dim)

    def forward(self, ids):
        return self.project(self.layer(self.embed(ids)).mean(1))


class RewardHead(nn.Module):
    """Trained earlier, frozen here, only scores the sentences."""

    def __init__(self, dim=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, h):
        return self.net(h).squeeze(-1)


def main():
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)
    weight_dtype = torch.bfloat16 if accelerator.mixed_precision == "bf16" else torch.float32

    encoder = SentenceEncoder()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    encoder, optimizer = accelerator.prepare(encoder, optimizer)
    head = RewardHead().requires_grad_(False).to(accelerator.device, dtype=weight_dtype)

    data = torch.randint(0, 200, (64, 12))
    for step in range(6):
        ids = data[(step * 8) % 64:(step * 8) % 64 + 8]
        features = encoder(ids)
        reward = head(features).float()  # COLLIDES
        loss = -reward.mean() + 0.01 * features.float().pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    print(f"mean reward = {reward.mean().item():.4f}")


if __name__ == "__main__":
    main()
