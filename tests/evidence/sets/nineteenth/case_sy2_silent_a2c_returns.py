"""
title: Discounted returns are whole numbers: the returns tensor copies the integer dtype of the rewards
expect: silent:downcast|precision-loss|round-trip
thread: https://github.com/inoryy/tensorflow2-deep-reinforcement-learning/issues/7
measured: returns [1, 0, 1, 0, 1, 0] | mean return 0.55  mean |advantage| 0.52
widened: returns [3.78, 3.09, 3.43, 2.7, 3.0, 2.22] | mean return 2.48  mean |advantage| 2.02
innocent: returns [1, 0, 1, 0, 1, 0] | mean return 0.55  mean |advantage| 0.52
suspect: 40 thousandth

Expectation, written first: The environment's rewards are integers, so the rewards tensor is int64 and zeros_like gives an int64 tensor for the returns; each gamma * next return is cut off to a whole number when it is stored, and the value targets are wrong. The
values kept in float16 in the rollout look bad but are only subtracted, with an error of a thousandth.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class CorridorEnv:
    def __init__(self, length=12):
        self.length = length

    def reset(self):
        self.position = 0
        return self._observe()

    def _observe(self):
        return F.one_hot(torch.tensor(self.position), self.length).float()

    def step(self, action):
        self.position = self.position + 1
        done = self.position == self.length - 1
        reward = 1 if done or action == 1 else 0
        return (self.reset() if done else self._observe()), reward, done


class Rollout:
    def __init__(self, steps):
        self.rewards = []
        self.dones = []
        self.values = torch.zeros(steps, dtype=torch.float16)

    def rewards_tensor(self):
        return torch.tensor(self.rewards)  # BORN


class A2CAgent:
    def __init__(self, model, gamma=0.9, lr=0.02):
        self.model = model
        self.gamma = gamma
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def _returns_advantages(self, rewards, dones, values, next_value):
        returns = torch.zeros_like(rewards)  # BORN
        following = next_value
        for t in reversed(range(rewards.shape[0])):
            returns[t] = rewards[t] + self.gamma * following * (1 - dones[t])  # BORN
            following = returns[t]
        return returns, returns - values

    def train(self, env, updates=20, steps=55):
        obs = env.reset()
        for _ in range(updates):
            rollout, observations = Rollout(steps), []
            for t in range(steps):
                observations.append(obs)
                with torch.no_grad():
                    rollout.values[t] = self.model(obs).squeeze()
                obs, reward, done = env.step(action=int(t % 2 == 0))
                rollout.rewards.append(reward)
                rollout.dones.append(int(done))
            with torch.no_grad():
                next_value = self.model(obs).squeeze()
            returns, advantages = self._returns_advantages(rollout.rewards_tensor(), rollout.dones, rollout.values, next_value)
            loss = F.mse_loss(self.model(torch.stack(observations)).squeeze(-1), returns.float())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return returns, advantages


def main():
    torch.manual_seed(0)
    agent = A2CAgent(nn.Linear(12, 1))
    returns, advantages = agent.train(CorridorEnv())
    print("returns", [round(r, 2) for r in returns[:6].tolist()])
    print(f"mean return {returns.float().mean():.2f}  mean |advantage| {advantages.float().abs().mean():.2f}")


if __name__ == "__main__":
    main()
