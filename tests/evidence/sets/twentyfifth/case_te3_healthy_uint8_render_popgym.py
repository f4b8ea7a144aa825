"""
title: Pixel observations are rendered as uint8 and scaled back in the network
expect: clean
thread: https://github.com/bolt-research/popgym-arcade/pull/10
measured: frames 280 / actions [126, 13, 141] return 23.0 / mean brightness 0.153
suspect: 31 exact (the palette has only multiples of 1/255) and a quarter of the memory

Expectation, written first: The canvas is drawn with colours that are whole 255ths; times 255, rounded and cast to
uint8 they come back unchanged on division by 255. Actions and returns are those of the float32 buffer.
"""
import torch
import torch.nn as nn


class CatchEnv:
    palette = {"background": 34, "ball": 255, "paddle": 140}

    def __init__(self, size=8, seed=0):
        self.size = size
        self.generator = torch.Generator().manual_seed(seed)

    def reset(self):
        self.ball = [0, int(torch.randint(0, self.size, (1,), generator=self.generator))]
        self.paddle = self.size // 2
        return self.render()

    def render(self):
        canvas = torch.full((self.size, self.size), self.palette["background"] / 255)
        canvas[self.ball[0], self.ball[1]] = self.palette["ball"] / 255
        canvas[self.size - 1, self.paddle] = self.palette["paddle"] / 255
        return (canvas * 255).round().to(torch.uint8)

    def step(self, action):
        self.paddle = min(self.size - 1, max(0, self.paddle + action - 1))
        self.ball[0] += 1
        done = self.ball[0] == self.size - 1
        reward = float(done and abs(self.ball[1] - self.paddle) <= 1)
        return self.render(), reward, done


class RolloutBuffer:
    def __init__(self):
        self.obs, self.actions, self.rewards = [], [], []

    def add(self, obs, action, reward):
        self.obs.append(obs)
        self.actions.append(action)
        self.rewards.append(reward)

    def tensors(self):
        return torch.stack(self.obs), torch.tensor(self.actions), torch.tensor(self.rewards)


class QNetwork(nn.Module):
    def __init__(self, size=8, actions=3):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(size * size, 32), nn.ReLU(), nn.Linear(32, actions))

    def forward(self, obs):
        return self.net(obs.float() / 255.0)


@torch.no_grad()
def rollout(env, network, episodes):
    buffer = RolloutBuffer()
    for _ in range(episodes):
        obs, done = env.reset(), False
        while not done:
            action = int(network(obs[None]).argmax())
            next_obs, reward, done = env.step(action)
            buffer.add(obs, action, reward)
            obs = next_obs
    return buffer


def main():
    torch.manual_seed(12)
    buffer = rollout(CatchEnv(seed=10), QNetwork(), episodes=40)
    obs, actions, rewards = buffer.tensors()
    print(f"frames {len(obs)}")
    print("actions", torch.bincount(actions, minlength=3).tolist(), "return", rewards.sum().item())
    print(f"mean brightness {(obs.float() / 255.0).mean().item():.3f}")


if __name__ == "__main__":
    main()
