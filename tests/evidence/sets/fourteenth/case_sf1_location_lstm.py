"""
title: the backbone runs under autocast and its features go into a per-location LSTM outside the region
expect: collision
thread: https://github.com/cassidylaidlaw/minecraft-building-assistance-game/pull/61
fix_at: 34, 47, 48, 49, 50, 51

Expectation, written first: the convolutions of the region give bfloat16 features; they leave the region as they are
and the LSTM, whose weights are float32 and which no longer runs under autocast, refuses the input.
"""
import torch
from torch import nn


class BlockWorld:
    """a small voxel world; one observation is the block ids around the builder"""

    def __init__(self, size=5, blocks=6, seed=1):
        self.gen = torch.Generator().manual_seed(seed)
        self.size, self.blocks = size, blocks

    def observe(self, batch, steps):
        shape = (batch, steps, self.size, self.size, self.size)
        return torch.randint(0, self.blocks, shape, generator=self.gen)


class Backbone(nn.Module):
    def __init__(self, blocks, width=12):
        super().__init__()
        self.embed = nn.Embedding(blocks, 4)
        self.convs = nn.Sequential(nn.Conv3d(4, width, 3, padding=1), nn.LeakyReLU(), nn.Conv3d(width, width, 1))

    def forward(self, obs):
        x = self.embed(obs).permute(0, 4, 1, 2, 3)
        return self.convs(x)


class BuilderPolicy(nn.Module):
    def __init__(self, blocks, width=12, actions=7):
        super().__init__()
        self.backbone = Backbone(blocks, width)
        self.per_location_lstm = nn.LSTM(width, width)
        self.action_head = nn.Linear(width, actions)
        self.value_head = nn.Linear(width, 1)

    def forward(self, obs):
        b, t = obs.shape[:2]
        with torch.autocast("cpu", dtype=torch.bfloat16):  # BORN
            x = self.backbone(obs.flatten(0, 1))  # BORN
        x = x.unflatten(0, (b, t)).flatten(3)
        x = x.permute(1, 0, 3, 2).flatten(1, 2)
        out, _ = self.per_location_lstm(x)  # COLLIDES
        out = out[-1].view(b, -1, out.shape[-1])
        return self.action_head(out), self.value_head(out.mean(1)).squeeze(-1)


def main():
    torch.manual_seed(1)
    world = BlockWorld()
    policy = BuilderPolicy(world.blocks)
    logits, value = policy(world.observe(batch=3, steps=4))
    print(tuple(logits.shape), [round(v, 4) for v in value.tolist()])


main()
