"""
title: replay buffer keeps frames as uint8 and the network scales them to floats on the way in
expect: clean
thread: https://github.com/chandar-lab/RLHive/issues/89
measured: q gap 0.0e+00 bytes per frame 144
suspect: 45 lossless

Expectation, written first: frames are integers from 0 to 255 and survive the cast to uint8 unchanged; division by 255 happens in float32
after sampling. Q-values from stored frames equal those of the frames the environment gave.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

class CatchEnv:
    def __init__(self, size=12, seed=0):
        self.size, self.rng = size, np.random.default_rng(seed)

    def reset(self):
        self.ball, self.paddle = [0, int(self.rng.integers(self.size))], self.size // 2
        return self.render()

    def render(self):
        frame = np.zeros((1, self.size, self.size), dtype=np.float32)
        frame[0, self.ball[0], self.ball[1]] = 255.0
        frame[0, -1, self.paddle] = 128.0
        return frame

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + action - 1, 0, self.size - 1))
        self.ball[0] += 1
        done = self.ball[0] == self.size - 1
        return self.render(), float(done and self.paddle == self.ball[1]), done

class EfficientCircularBuffer:
    def __init__(self, capacity, observation_shape, observation_dtype=np.uint8):
        self.observation = np.zeros((capacity, *observation_shape), dtype=observation_dtype)
        self.action = np.zeros(capacity, dtype=np.int8)
        self.reward = np.zeros(capacity, dtype=np.float32)
        self.done = np.zeros(capacity, dtype=np.uint8)
        self.cursor = 0

    def add(self, observation, action, reward, done):
        self.observation[self.cursor] = observation.astype(self.observation.dtype)
        self.action[self.cursor], self.reward[self.cursor], self.done[self.cursor] = action, reward, done
        self.cursor += 1

    def sample(self, batch_size, rng):
        idx = rng.integers(0, self.cursor - 1, size=batch_size)
        return {"observation": torch.from_numpy(self.observation[idx]), "next": torch.from_numpy(self.observation[idx + 1]),
                "action": torch.from_numpy(self.action[idx]).long(), "reward": torch.from_numpy(self.reward[idx]),
                "done": torch.from_numpy(self.done[idx])}

class QNet(nn.Module):
    def __init__(self, size=12, actions=3):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3, stride=2), nn.Linear(4 * 25, actions)

    def forward(self, x):
        return self.head(F.relu(self.conv(x / 255.0)).flatten(1))

def main():
    torch.manual_seed(0)
    env, rng, net = CatchEnv(), np.random.default_rng(1), QNet()
    buffer, frames = EfficientCircularBuffer(512, (1, 12, 12)), []
    obs = env.reset()
    for _ in range(300):
        action = int(rng.integers(3))
        next_obs, reward, done = env.step(action)
        buffer.add(obs, action, reward, done)
        frames.append(obs)
        obs = env.reset() if done else next_obs
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(20):
        b = buffer.sample(32, rng)
        target = b["reward"] + 0.99 * net(b["next"]).amax(1).detach() * (1 - b["done"].float())
        loss = F.smooth_l1_loss(net(b["observation"]).gather(1, b["action"].unsqueeze(1)).squeeze(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    gap = (net(torch.from_numpy(np.stack(frames))) - net(torch.from_numpy(buffer.observation[:300]))).abs().max()
    print(f"q gap {gap.item():.1e} bytes per frame {buffer.observation[0].nbytes}")

if __name__ == "__main__":
    main()
