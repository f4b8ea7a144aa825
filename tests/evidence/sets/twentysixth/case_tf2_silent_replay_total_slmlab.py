"""
title: after the replay memory went to float16 the reported mean reward falls with every frame
expect: silent:lost-update|precision-loss
thread: https://github.com/kengz/SLM-Lab/pull/165
measured: frame 2800 mean reward 0.73 td error 1.09 / frame 5600 mean reward 0.37 td error 1.07
widened: frame 2800 mean reward 0.75 td error 1.09 / frame 5600 mean reward 0.75 td error 1.07; innocent: frame 2800 mean reward 0.73 td error 1.09 / frame 5600 mean reward 0.37 td error 1.07
suspect: 22 exact (grey levels 0 to 255 are exact in float16)

Expectation, written first: the memory keeps a running total of its rewards in the storage dtype. In float16 the total stops
at 2048, where an addend of 1 is half a spacing, so the mean over more than 2048 frames shrinks. Remedy: float64 (or a
Python float) for the total. The frames in float16 are exact.
"""
import torch
from torch import nn

memory_dtype = torch.float16


class Replay:
    def __init__(self, max_size, state_shape, batch_size):
        self.max_size, self.batch_size = max_size, batch_size
        self.states = torch.zeros(max_size, *state_shape, dtype=memory_dtype)
        self.actions = torch.zeros(max_size, dtype=torch.int64)
        self.rewards = torch.zeros(max_size, dtype=memory_dtype)
        self.total_reward = torch.zeros((), dtype=memory_dtype)  # BORN
        self.size = 0
        self.latest_next_state = None
        self.generator = torch.Generator().manual_seed(165)

    def add_experience(self, state, action, reward, next_state):
        i = self.size % self.max_size
        self.states[i], self.actions[i], self.rewards[i] = state, action, reward
        self.total_reward += reward  # BORN
        self.latest_next_state = next_state
        self.size += 1

    def sample(self):
        idx = torch.randint(0, self.size - 1, (self.batch_size,), generator=self.generator)
        batch = {"states": self.states[idx].float() / 255, "actions": self.actions[idx]}
        batch["rewards"] = self.rewards[idx].float()
        batch["next_states"] = self.states[idx + 1].float() / 255
        return batch

    def mean_reward(self):
        return self.total_reward.item() / self.size


class GridEnv:
    """Gives 1 for three frames of four, as a stand-in for a game with dense rewards."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.t = 0

    def step(self, action):
        self.t += 1
        state = torch.randint(0, 256, (4, 4), generator=self.generator)
        return state, 0.0 if self.t % 4 == 0 else 1.0


class DQN:
    def __init__(self, n_actions, gamma=0.9):
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, n_actions))
        self.gamma = gamma

    @torch.no_grad()
    def td_error(self, batch):
        q = self.net(batch["states"]).gather(1, batch["actions"].unsqueeze(1)).squeeze(1)
        target = batch["rewards"] + self.gamma * self.net(batch["next_states"]).amax(dim=1)
        return (q - target).abs().mean().item()


def run(frames):
    torch.manual_seed(0)
    env, memory, agent = GridEnv(3), Replay(6000, (4, 4), 64), DQN(n_actions=3)
    state, _ = env.step(0)
    for frame in range(frames):
        action = frame % 3
        next_state, reward = env.step(action)
        memory.add_experience(state, action, reward, next_state)
        state = next_state
        if (frame + 1) % (frames // 2) == 0:
            print(f"frame {frame + 1} mean reward {memory.mean_reward():.2f} td error {agent.td_error(memory.sample()):.2f}")


if __name__ == "__main__":
    run(frames=5600)
