"""
title: normalisation statistics are plain attributes, so casting the policy to bfloat16 leaves them in float32
expect: collision

After kornia/kornia#4330 (mean and std as plain attributes) and huggingface/lerobot#1880: a tensor attribute that is no buffer
does not follow Module.to(). Right: register_buffer (or the input's dtype when they are used).
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(15)


class Normaliser(nn.Module):
    def __init__(self, statistics):
        super().__init__()
        self.mean = torch.tensor(statistics["mean"])  # BORN
        self.std = torch.tensor(statistics["std"])  # BORN

    def forward(self, x):
        return (x - self.mean) / self.std

    def invert(self, x):
        return x * self.std + self.mean


class Policy(nn.Module):
    def __init__(self, observation, action, hidden=24, horizon=4):
        super().__init__()
        self.normalise_inputs = Normaliser(observation)
        self.horizon, self.width = horizon, len(action["mean"])
        self.encode = nn.Linear(len(observation["mean"]), hidden)
        self.mix = nn.GRUCell(hidden, hidden)
        self.decode = nn.Linear(hidden, self.width)

    def forward(self, observation):
        x = self.normalise_inputs(observation)
        state = F.relu(self.encode(x))  # COLLIDES
        chunk = []
        for _ in range(self.horizon):
            state = self.mix(state, state)
            chunk.append(self.decode(state))
        return torch.stack(chunk, dim=1)

    @torch.no_grad()
    def act(self, observation):
        return self(observation)[:, 0]


def statistics(rows):
    return {"mean": rows.mean(0).tolist(), "std": rows.std(0).clamp(min=1e-3).tolist()}


def roll_out(policy, steps=4):
    position = torch.zeros(2, 5, dtype=torch.bfloat16)
    reward = 0.0
    for _ in range(steps):
        action = policy.act(position)
        position = position + 0.1 * F.pad(action, (0, 3))
        reward -= position.float().norm(dim=-1).mean().item()
    return reward


def main():
    observations = torch.randn(64, 5) * torch.tensor([1.0, 5.0, 0.2, 1.0, 3.0]) + 2
    actions = torch.randn(64, 2)
    policy = Policy(statistics(observations), statistics(actions)).to(torch.bfloat16).eval()
    print("reward", round(roll_out(policy), 3))


main()
