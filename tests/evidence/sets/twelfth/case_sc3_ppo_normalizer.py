"""
title: PPO with running statistics in float64, float32 networks and a 1e-8 guard in the advantages
expect: clean
thread: https://github.com/wild-firefox/FreeRL/issues/8
measured: reward -0.049 -> 0.722 (float64 0.722)

Expectation, written first: the simulator and the running mean work in float64, observations are normalized there and
only then cast to float32 for the networks; returns agree with those of a float64 run.
"""
from argparse import Namespace

import numpy as np
import torch
from torch import nn


BASE = dict(steps=128, iterations=6, epochs=4, minibatch=32, gamma=0.98, lam=0.95, clip=0.2, lr=3e-3)


class RunningMeanStd:
    def __init__(self, shape):
        self.mean, self.var, self.count = np.zeros(shape, np.float64), np.ones(shape, np.float64), 1e-4

    def update(self, x):
        mean, var, n = np.mean(x, 0, dtype=np.float64), np.var(x, 0, dtype=np.float64), len(x)
        delta, total = mean - self.mean, self.count + n
        self.mean = self.mean + delta * n / total
        self.var = (self.var * self.count + var * n + delta**2 * self.count * n / total) / total
        self.count = total

    def normalize(self, x):
        return np.clip((x - self.mean) / np.sqrt(self.var + 1e-8), -10, 10)


class Cart:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state, self.t = np.array([self.rng.uniform(-1, 1), 0.0, 1000.0 + self.rng.normal()]), 0
        return self.state.copy()

    def step(self, action):
        self.t += 1
        self.state[1] = 0.95 * self.state[1] + (0.1 if action else -0.1)
        self.state[0] += 0.1 * self.state[1]
        return self.state.copy(), 1.0 - self.state[0] ** 2, self.t >= 32 or abs(self.state[0]) > 2


def mlp(out, dtype):
    return nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, out)).to(dtype)


class PPO:
    def __init__(self, cfg):
        torch.manual_seed(0)
        self.cfg, self.env, self.rms = cfg, Cart(0), RunningMeanStd(3)
        self.actor, self.critic = mlp(2, torch.float32).to(cfg.dtype), mlp(1, torch.float32).to(cfg.dtype)
        params, self.rng, self.obs = [*self.actor.parameters(), *self.critic.parameters()], np.random.default_rng(1), self.env.reset()
        self.optimizer = torch.optim.Adam(params, lr=cfg.lr, eps=1e-5)

    def rollout(self):
        raw, rows = [], []
        for _ in range(self.cfg.steps):
            raw.append(self.obs)
            obs = torch.as_tensor(self.rms.normalize(self.obs), dtype=self.cfg.dtype)
            with torch.no_grad():
                logp, value = self.actor(obs).log_softmax(-1), self.critic(obs).item()
            action = int(self.rng.random() > logp[0].exp().item())
            self.obs, reward, done = self.env.step(action)
            rows.append((obs, action, logp[action].item(), value, reward, done))
            self.obs = self.env.reset() if done else self.obs
        self.rms.update(raw)
        return rows

    def gae(self, rows):
        adv, last, following = np.zeros(len(rows)), 0.0, 0.0
        for i in reversed(range(len(rows))):
            *_, value, reward, done = rows[i]
            discount = 0.0 if done else self.cfg.gamma
            last = reward + discount * following - value + discount * self.cfg.lam * last
            adv[i], following = last, value
        return adv

    def update(self, rows):
        adv = self.gae(rows)
        obs, actions, old, values, *_ = zip(*rows)
        obs, actions, returns = torch.stack(obs), torch.tensor(actions), adv + np.array(values)
        old, returns, adv = (torch.as_tensor(np.asarray(x), dtype=self.cfg.dtype) for x in (old, returns, adv))
        for _ in range(self.cfg.epochs):
            for idx in torch.as_tensor(self.rng.permutation(len(rows))).split(self.cfg.minibatch):
                a = (adv[idx] - adv[idx].mean()) / (adv[idx].std() + 1e-8)
                logp = self.actor(obs[idx]).log_softmax(-1).gather(1, actions[idx, None])[:, 0]
                ratio = (logp - old[idx]).exp()
                policy = -torch.min(ratio * a, ratio.clamp(1 - self.cfg.clip, 1 + self.cfg.clip) * a).mean()
                loss = policy + 0.5 * (self.critic(obs[idx])[:, 0] - returns[idx]).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.optimizer.param_groups[0]["params"], 0.5)
                self.optimizer.step()

    def train(self):
        for _ in range(self.cfg.iterations):
            rows = self.rollout()
            self.update(rows)
            yield float(np.mean([r[4] for r in rows]))


single, double = (list(PPO(Namespace(dtype=d, **BASE)).train()) for d in (torch.float32, torch.float64))
assert max(abs(a - b) for a, b in zip(single, double)) < 0.05, (single, double)
print(f"reward {single[0]:.3f} -> {single[-1]:.3f} (float64 {double[-1]:.3f})")
