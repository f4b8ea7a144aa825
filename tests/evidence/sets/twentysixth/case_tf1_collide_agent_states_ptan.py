"""
title: The agent feeds gym's double observations to a float network
expect: collision
thread: https://github.com/Shmuma/ptan/pull/28
fix_at: (none beside the marked)

Expectation, written first: The environment returns float64 observations. The default preprocessor of the agent makes a
tensor of np.array(states) without a cast, so the first Linear of the network gets Double against Float and raises.
"""
import numpy as np
import torch
import torch.nn as nn


class CartPoleLike:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, size=4)  # BORN
        return self.state.copy()

    def step(self, action):
        x, v, th, w = self.state
        force = 1.0 if action == 1 else -1.0
        w += 0.02 * (9.8 * np.sin(th) - force * np.cos(th))
        self.state = np.array([x + 0.02 * v, v + 0.02 * force, th + 0.02 * w, w])  # BORN
        return self.state.copy(), 1.0, bool(abs(self.state[2]) > 0.2), {}


class EpsilonGreedyActionSelector:
    def __init__(self, epsilon, rng):
        self.epsilon, self.rng = epsilon, rng

    def __call__(self, scores):
        actions = np.argmax(scores, axis=1)
        mask = self.rng.random(len(scores)) < self.epsilon
        actions[mask] = self.rng.integers(0, scores.shape[1], mask.sum())
        return actions


def default_states_preprocessor(states):
    if len(states) == 1:
        np_states = np.expand_dims(states[0], 0)  # BORN
    else:
        np_states = np.array([np.asarray(s) for s in states])  # BORN
    return torch.tensor(np_states)  # BORN


class DQNAgent:
    def __init__(self, dqn_model, action_selector, preprocessor=default_states_preprocessor):
        self.dqn_model = dqn_model
        self.action_selector = action_selector
        self.preprocessor = preprocessor

    @torch.no_grad()
    def __call__(self, states):
        states = self.preprocessor(states)  # BORN
        q = self.dqn_model(states)
        return self.action_selector(q.numpy())


class Net(nn.Module):
    def __init__(self, obs_size, hidden_size, n_actions):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, n_actions))

    def forward(self, x):
        return self.net(x)  # BORN COLLIDES


class ExperienceSource:
    def __init__(self, envs, agent):
        self.envs, self.agent = envs, agent

    def play(self, steps):
        states = [env.reset() for env in self.envs]
        totals, finished = [0.0] * len(self.envs), []
        for _ in range(steps):
            actions = self.agent(states)
            for i, (env, action) in enumerate(zip(self.envs, actions)):
                states[i], reward, done, _ = env.step(int(action))
                totals[i] += reward
                if done:
                    finished.append(totals[i])
                    states[i], totals[i] = env.reset(), 0.0
        return finished


def main():
    torch.manual_seed(28)
    net = Net(4, 32, 2)
    agent = DQNAgent(net, EpsilonGreedyActionSelector(0.1, np.random.default_rng(28)))  # BORN
    source = ExperienceSource([CartPoleLike(seed) for seed in range(4)], agent)
    rewards = source.play(200)
    print("episodes", len(rewards), "mean reward", round(float(np.mean(rewards)), 1))


if __name__ == "__main__":
    main()
