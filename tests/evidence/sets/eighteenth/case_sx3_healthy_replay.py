"""
title: DQN replay buffer stores image observations as uint8 and hands out scaled float32
expect: clean
thread: https://github.com/DLR-RM/stable-baselines3/issues/40
measured: loss fell: True, targets torch.float32
suspect: 26 exact

Expectation, written first: the environment emits uint8 frames, so a uint8 buffer holds them exactly at a quarter of the
memory. Sampling turns them into float32 and preprocess_obs divides by 255; rewards and dones are float32 all along and
actions int64. The frame dtype is the space's own and loses nothing.
"""
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Box = namedtuple("Box", "low high shape dtype")
ReplayBufferSamples = namedtuple("ReplayBufferSamples", "observations actions next_observations dones rewards")


class ReplayBuffer:
    def __init__(self, buffer_size, observation_space):
        shape = (buffer_size, *observation_space.shape)
        self.observations = np.zeros(shape, dtype=observation_space.dtype)
        self.next_observations = np.zeros(shape, dtype=observation_space.dtype)
        self.actions = np.zeros((buffer_size, 1), dtype=np.int64)
        self.rewards = np.zeros((buffer_size, 1), dtype=np.float32)
        self.dones = np.zeros((buffer_size, 1), dtype=np.float32)
        self.pos = 0

    def add(self, obs, next_obs, action, reward, done):
        self.observations[self.pos], self.next_observations[self.pos] = obs, next_obs
        self.actions[self.pos], self.rewards[self.pos], self.dones[self.pos] = action, reward, done
        self.pos += 1

    def sample(self, batch_size, rng):
        inds = rng.integers(0, self.pos, size=batch_size)
        arrays = (self.observations, self.actions, self.next_observations, self.dones, self.rewards)
        return ReplayBufferSamples(*(torch.as_tensor(a[inds]) for a in arrays))


def preprocess_obs(obs, space):
    return obs.float() / 255.0 if space.dtype == np.uint8 else obs.float()


class CatchEnv:
    observation_space = Box(0, 255, (1, 10, 10), np.uint8)

    def render(self):
        frame = np.zeros((1, 10, 10), dtype=np.uint8)
        frame[0, self.y, self.x], frame[0, 9, self.paddle] = 255, 180
        return frame

    def reset(self):
        self.y, self.x, self.paddle = 0, int(rng.integers(10)), 5
        return self.render()

    def step(self, action):
        self.paddle, self.y = int(np.clip(self.paddle + action - 1, 0, 9)), self.y + 1
        done = self.y == 9
        return self.render(), float(done and abs(self.x - self.paddle) <= 1), done


def train(env, q_net, q_target, buffer, rng, timesteps=400, gamma=0.99):
    optimizer, losses, obs = torch.optim.Adam(q_net.parameters(), lr=1e-3), [], env.reset()
    for step in range(timesteps):
        next_obs, reward, done = env.step(action := int(rng.integers(3)))
        buffer.add(obs, next_obs, action, reward, float(done))
        obs = env.reset() if done else next_obs
        if step >= 100 and step % 2 == 0:
            data = buffer.sample(32, rng)
            next_q = q_target(preprocess_obs(data.next_observations, env.observation_space)).amax(1, keepdim=True)
            target_q = data.rewards + (1 - data.dones) * gamma * next_q.detach()
            current_q = q_net(preprocess_obs(data.observations, env.observation_space)).gather(1, data.actions)
            optimizer.zero_grad()
            (loss := F.smooth_l1_loss(current_q, target_q)).backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 50 == 0:
                q_target.load_state_dict(q_net.state_dict())
    return losses, target_q.dtype


torch.manual_seed(0)
rng = np.random.default_rng(0)
q_net, q_target = (nn.Sequential(nn.Flatten(), nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 3)) for _ in range(2))
losses, dtype = train(env := CatchEnv(), q_net, q_target, ReplayBuffer(400, env.observation_space), rng)
print(f"loss fell: {np.mean(losses[-20:]) < np.mean(losses[:20])}, targets {dtype}")
