"""
title: DQN with uint8 frames, int32 actions and bool done flags in the replay buffer
expect: clean
thread: https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On-Second-Edition/issues/45
measured: mean reward of the first 50 games -0.48, of the last 50 games 0.72 (the same with float32 frames and int64 actions)

Expectation, written first: the frames are stored as uint8 and converted to float32 before the division by 256, the actions are stored as int32
and made int64 for the gather, the done flags are bool and only mask. Every integer keeps its value. Harmless.
"""
import collections

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Experience = collections.namedtuple("Experience", ["state", "action", "reward", "done", "new_state"])


class CatchEnv:
    n_actions, size = 3, 5

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def frame(self):
        frame = np.zeros((1, self.size, self.size), dtype=np.uint8)
        frame[0, self.row, self.col], frame[0, -1, self.paddle] = 255, 128
        return frame

    def reset(self):
        self.row, self.col, self.paddle = 0, int(self.rng.integers(self.size)), int(self.rng.integers(self.size))
        return self.frame()

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + action - 1, 0, self.size - 1))
        self.row += 1
        done = self.row == self.size - 1
        return self.frame(), float(done) * (1.0 if self.paddle == self.col else -1.0), done


class ExperienceBuffer(collections.deque):
    def sample(self, batch_size, rng):
        indices = rng.choice(len(self), batch_size, replace=False)
        states, actions, rewards, dones, next_states = map(np.array, zip(*[self[i] for i in indices]))
        return states, actions.astype(np.int32), rewards.astype(np.float32), dones.astype(np.bool_), next_states


class DQN(nn.Module):
    def __init__(self, size, n_actions, hidden=64):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(size * size, hidden), nn.ReLU(), nn.Linear(hidden, n_actions))

    def forward(self, x):
        return self.fc(x.float().flatten(1) / 256)


def calc_loss(batch, net, tgt_net, gamma=0.95):
    states, actions, rewards, dones, next_states = batch
    actions_v = torch.from_numpy(actions).to(torch.int64)
    state_action_values = net(torch.from_numpy(states)).gather(1, actions_v.unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        next_state_values = tgt_net(torch.from_numpy(next_states)).max(1)[0]
        next_state_values[torch.from_numpy(dones)] = 0.0
    return F.mse_loss(state_action_values, next_state_values * gamma + torch.from_numpy(rewards))


def main():
    torch.manual_seed(0), torch.set_num_threads(1)
    env, rng, buffer = CatchEnv(0), np.random.default_rng(0), ExperienceBuffer(maxlen=2000)
    net, tgt_net = DQN(env.size, env.n_actions), DQN(env.size, env.n_actions)
    optimizer, results, state = torch.optim.Adam(net.parameters(), lr=4e-3), [], env.reset()
    for frame_idx in range(2000):
        greedy = rng.random() > max(0.05, 1.0 - frame_idx / 1000)
        action = int(net(torch.from_numpy(state[None])).argmax()) if greedy else int(rng.integers(env.n_actions))
        new_state, reward, done = env.step(action)
        buffer.append(Experience(state, action, reward, done, new_state))
        state = env.reset() if done else new_state
        results += [reward] if done else []
        if frame_idx % 200 == 0:
            tgt_net.load_state_dict(net.state_dict())
        if frame_idx >= 200 and frame_idx % 4 == 0:
            optimizer.zero_grad()
            calc_loss(buffer.sample(32, rng), net, tgt_net).backward()
            optimizer.step()
    print(f"mean reward first 50 games {np.mean(results[:50]):.2f} last 50 games {np.mean(results[-50:]):.2f}")


if __name__ == "__main__":
    main()
