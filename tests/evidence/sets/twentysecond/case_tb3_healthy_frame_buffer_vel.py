"""
title: replay buffer keeps 8-bit frames and the network scales them to float32 on its input
expect: clean
thread: https://github.com/MillionIntegrals/vel/issues/47
measured: uint8 buffer loss 0.6916 float32 buffer loss 0.6916 equal True
suspect: 44 frames-are-8-bit

Expectation, written first: the environment renders uint8 frames, so a uint8 buffer holds them without loss, and the input
block of the network divides by 255 in float32. A float32 buffer gives the very same losses, bit for bit.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class PongLike:
    def __init__(self, size=20, seed=0):
        self.size, self.rng = size, np.random.default_rng(seed)

    def reset(self):
        self.ball = self.rng.integers(2, self.size - 2, 2)
        return self.frame()

    def frame(self):
        image = np.full((1, self.size, self.size), 17, dtype=np.uint8)
        image[0, self.ball[0], self.ball[1]] = 236
        return image

    def step(self, action):
        move = [(0, 1), (0, -1), (1, 0), (-1, 0)][action]
        self.ball = np.clip(self.ball + move, 0, self.size - 1)
        return self.frame(), 1.0 if self.ball[1] > self.size // 2 else -1.0


class CircularBuffer:
    def __init__(self, capacity, frame_shape, frame_dtype):
        self.state_buffer = torch.zeros((capacity, *frame_shape), dtype=frame_dtype)
        self.action_buffer, self.reward_buffer = torch.zeros(capacity, dtype=torch.long), torch.zeros(capacity)
        self.capacity, self.index = capacity, 0

    def store(self, frame, action, reward):
        i = self.index % self.capacity
        self.state_buffer[i] = torch.from_numpy(frame)
        self.action_buffer[i], self.reward_buffer[i] = action, reward
        self.index += 1

    def sample(self, batch_size, generator):
        idx = torch.randint(0, min(self.index, self.capacity), (batch_size,), generator=generator)
        return self.state_buffer[idx], self.action_buffer[idx], self.reward_buffer[idx]


class QNetwork(nn.Module):
    def __init__(self, actions=4):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 4, stride=4)
        self.head = nn.Linear(8 * 25, actions)

    def forward(self, obs):
        image = obs.float() / 255.0
        return self.head(torch.relu(self.conv(image)).flatten(1))


def run(frame_dtype, steps=60):
    torch.manual_seed(0)
    env, model, generator = PongLike(), QNetwork(), torch.Generator().manual_seed(5)
    buffer = CircularBuffer(400, (1, 20, 20), frame_dtype)
    frame = env.reset()
    for _ in range(400):
        action = int(env.rng.integers(0, 4))
        following, reward = env.step(action)
        buffer.store(frame, action, reward)
        frame = following
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        states, actions, rewards = buffer.sample(32, generator)
        loss = F.mse_loss(model(states).gather(1, actions[:, None]).squeeze(1), rewards)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    compact, wide = run(torch.uint8), run(torch.float32)
    print(f"uint8 buffer loss {compact:.4f} float32 buffer loss {wide:.4f} equal {compact == wide}")


if __name__ == "__main__":
    main()
