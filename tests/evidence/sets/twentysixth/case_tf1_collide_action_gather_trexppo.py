"""
title: The rollout's actions become a float tensor and index gather in the PPO update
expect: collision
thread: https://github.com/ShwStone/TRex-PPO/issues/1
fix_at: (none beside the marked)

Expectation, written first: The rollout is turned into tensors with dtype float for states and actions alike. gather takes
integer indices only; it raises at the old log probabilities.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class TRexEnv:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.dist, self.t = self.rng.uniform(4, 8), 0
        return self._obs()

    def _obs(self):
        return np.array([self.dist / 8, self.t / 50, float(self.dist < 1.5)], dtype=np.float32)

    def step(self, action):
        self.t += 1
        self.dist -= 0.8
        crashed = self.dist <= 0 and action != 1
        if self.dist <= 0:
            self.dist = self.rng.uniform(4, 8)
        return self._obs(), -5.0 if crashed else 0.1, bool(crashed or self.t >= 50)


def mlp(out):
    return nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, out))


class PPOAgent:
    def __init__(self, n_actions=3, gamma=0.98, lmbda=0.95, eps=0.2, epochs=4):
        self.actor, self.critic = mlp(n_actions), mlp(1)
        self.gamma, self.lmbda, self.eps, self.epochs = gamma, lmbda, eps, epochs
        self.optim = torch.optim.Adam([*self.actor.parameters(), *self.critic.parameters()], lr=3e-3)

    @torch.no_grad()
    def take_action(self, state):
        probs = F.softmax(self.actor(torch.from_numpy(state)), dim=-1)
        action = torch.distributions.Categorical(probs).sample()
        return action.item()

    def advantage(self, td_delta):
        out, acc = [], 0.0
        for delta in reversed(td_delta.flatten().tolist()):
            acc = self.gamma * self.lmbda * acc + delta
            out.append(acc)
        return torch.tensor(out[::-1]).view(-1, 1)

    def update(self, transition_dict):
        states = torch.tensor(np.array(transition_dict["states"]), dtype=torch.float)
        actions = torch.tensor(np.array(transition_dict["actions"]), dtype=torch.float).view(-1, 1)  # BORN
        rewards = torch.tensor(transition_dict["rewards"]).view(-1, 1)
        next_states = torch.tensor(np.array(transition_dict["next_states"]), dtype=torch.float)
        dones = torch.tensor(transition_dict["dones"]).float().view(-1, 1)
        with torch.no_grad():
            target = rewards + self.gamma * self.critic(next_states) * (1 - dones)
            advantage = self.advantage(target - self.critic(states))
            old_log_probs = F.log_softmax(self.actor(states), dim=-1).gather(1, actions)  # BORN COLLIDES
        for _ in range(self.epochs):
            log_probs = F.log_softmax(self.actor(states), dim=-1).gather(1, actions)
            ratio = torch.exp(log_probs - old_log_probs)
            clipped = torch.clamp(ratio, 1 - self.eps, 1 + self.eps)
            actor_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            loss = actor_loss + 0.5 * F.mse_loss(self.critic(states), target)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
        return loss.item()


def train_ppo(env, agent, num_episodes):
    for episode in range(num_episodes):
        transition_dict = {k: [] for k in ("states", "actions", "rewards", "next_states", "dones")}
        state, done = env.reset(), False
        while not done:
            action = agent.take_action(state)
            next_state, reward, done = env.step(action)
            for key, value in zip(transition_dict, (state, action, reward, next_state, done)):
                transition_dict[key].append(value)
            state = next_state
        loss = agent.update(transition_dict)
        print("episode", episode, "return", round(sum(transition_dict["rewards"]), 1), "loss", round(loss, 2))


if __name__ == "__main__":
    torch.manual_seed(1)
    train_ppo(TRexEnv(np.random.default_rng(1)), PPOAgent(), num_episodes=3)
