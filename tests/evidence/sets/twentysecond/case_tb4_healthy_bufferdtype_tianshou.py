"""
title: a replay buffer keeps observations in the dtype they come in, uint8 pixels included
expect: clean
thread: https://github.com/thu-ml/tianshou/pull/64
measured: transitions 300 equal to the added ones 128 of 128 | motion min -0.93 max 0.93 sum 0.00 target mean 0.953
suspect: line 52 - innocent: the pixels are whole numbers from 0 to 255, uint8 holds them exactly

Expectation, written first: the buffer allocates each key with the dtype of the first value it sees: uint8 for frames,
float32 for rewards, bool for done and int64 for actions. The frames are cast to float before differences or scaling.
Nothing wraps and nothing is rounded; the sampled transitions equal those that were added.
"""
import torch


class Batch(dict):
    __getattr__ = dict.__getitem__


class ReplayBuffer:
    def __init__(self, size):
        self.maxsize = size
        self.storage = {}
        self.index, self.length = 0, 0

    def _allocate(self, key, value):
        return torch.zeros((self.maxsize, *value.shape), dtype=value.dtype)

    def add(self, **transition):
        for key, value in transition.items():
            value = torch.as_tensor(value)
            if key not in self.storage:
                self.storage[key] = self._allocate(key, value)
            self.storage[key][self.index] = value
        self.index = (self.index + 1) % self.maxsize
        self.length = min(self.length + 1, self.maxsize)

    def sample(self, n, gen):
        rows = torch.randint(0, self.length, (n,), generator=gen)
        return Batch({k: v[rows] for k, v in self.storage.items()}), rows


class PongLikeEnv:
    def __init__(self, seed=0, side=16):
        self.gen = torch.Generator().manual_seed(seed)
        self.side, self.t = side, 0

    def observe(self):
        ball = self.t * 3 % (self.side * self.side)
        frame = torch.full((self.side * self.side,), 17)
        frame[ball] = 255
        frame[(ball + 40) % frame.numel()] = 128
        return frame.reshape(self.side, self.side).to(torch.uint8)

    def step(self, action):
        self.t += 1
        reward = 0.1 * action - 0.05 + 0.01 * torch.randn((), generator=self.gen)
        return self.observe(), reward, self.t % 50 == 0


def motion(batch):
    return (batch.obs_next.float() - batch.obs.float()) / 255.0


def discounted(batch, gamma=0.99):
    return batch.rew + gamma * (~batch.done).float()


def main():
    env, buffer = PongLikeEnv(), ReplayBuffer(400)
    gen = torch.Generator().manual_seed(1)
    obs, kept = env.observe(), []
    for _ in range(300):
        action = int(torch.randint(0, 2, (), generator=gen))
        obs_next, reward, done = env.step(action)
        buffer.add(obs=obs, act=action, rew=reward, done=done, obs_next=obs_next)
        kept.append((obs, float(reward)))
        obs = obs_next
    batch, rows = buffer.sample(128, gen)
    same = sum(torch.equal(batch.obs[i], kept[r][0]) and float(batch.rew[i]) == kept[r][1] for i, r in enumerate(rows.tolist()))
    move = motion(batch)
    print(f"transitions {buffer.length} equal to the added ones {same} of {len(rows)}")
    print(f"motion min {move.min():.2f} max {move.max():.2f} sum {move.sum().abs():.2f} target mean {discounted(batch).mean():.3f}")


if __name__ == "__main__":
    main()
