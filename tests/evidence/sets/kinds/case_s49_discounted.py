"""
title: the discount of 0.997 is a bfloat16 tensor like the rewards, values see a horizon of 256 steps and not of 333
expect: silent:precision-loss|downcast|round-trip
"""
import torch

torch.manual_seed(8)


class Returns:
    def __init__(self, gamma=0.997, dtype=torch.bfloat16):
        self.gamma = torch.tensor(gamma, dtype=dtype)  # BORN

    def of(self, rewards):
        value, values = torch.zeros(rewards.shape[1]), []
        for reward in rewards.flip(0):
            value = reward + self.gamma.float() * value
            values.append(value)
        return torch.stack(values[::-1])


rewards = torch.rand(900, 8)
got, exact = Returns().of(rewards)[0], Returns(dtype=torch.float32).of(rewards)[0]
print("value", got.mean().item(), "exact", exact.mean().item())
