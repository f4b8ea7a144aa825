"""
title: frames are kept as uint8 in the memory and divided by 255 after sampling
expect: clean
thread: https://github.com/tensorforce/tensorforce/issues/389
measured: mean frame 152.50 brightest 255 / loss first ten 0.4103 last ten 0.0656
suspect: 34 exact (frames are integers from 0 to 255)

Expectation, written first: the emulator gives integers 0 to 255, the memory stores these as uint8 and the division happens
in float32 on the sampled batch. The maximum of two frames cannot leave the range. Nothing is lost or wraps.
"""
import torch
from torch import nn


class Emulator:
    def __init__(self, seed, size=12):
        self.generator = torch.Generator().manual_seed(seed)
        self.size = size

    def frame(self):
        screen = torch.randint(0, 200, (self.size, self.size), generator=self.generator)
        row = int(torch.randint(0, self.size, (1,), generator=self.generator))
        screen[row] = 255
        return screen

    def step(self, action):
        flicker = torch.maximum(self.frame(), self.frame())
        reward = float(flicker[:, action].float().mean() > 140)
        return flicker, reward, False


class Replay:
    def __init__(self, capacity, shape, batch_size):
        self.states = torch.zeros(capacity, *shape, dtype=torch.uint8)
        self.actions = torch.zeros(capacity, dtype=torch.int64)
        self.rewards = torch.zeros(capacity)
        self.batch_size, self.capacity, self.size = batch_size, capacity, 0
        self.generator = torch.Generator().manual_seed(389)

    def observe(self, state, action, reward):
        i = self.size % self.capacity
        self.states[i] = state
        self.actions[i], self.rewards[i] = action, reward
        self.size += 1

    def sample(self):
        limit = min(self.size, self.capacity) - 1
        idx = torch.randint(0, limit, (self.batch_size,), generator=self.generator)
        return self.states[idx], self.actions[idx], self.rewards[idx], self.states[idx + 1]


class Divide(nn.Module):
    """The preprocessing step, applied to the sampled batch."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x.float() / self.scale


class QModel(nn.Module):
    def __init__(self, size, actions):
        super().__init__()
        self.net = nn.Sequential(Divide(255.0), nn.Flatten(), nn.Linear(size * size, 32), nn.ReLU(), nn.Linear(32, actions))

    def forward(self, states):
        return self.net(states)


def update(model, batch, lr=0.05, discount=0.5):
    states, actions, rewards, next_states = batch
    q = model(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        target = rewards + discount * model(next_states).amax(dim=1)
    loss = nn.functional.smooth_l1_loss(q, target)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for p, g in zip(model.parameters(), grads):
            p -= lr * g
    return loss.item()


def main():
    torch.manual_seed(0)
    env, memory = Emulator(7), Replay(400, (12, 12), 32)
    for t in range(400):
        state, reward, _ = env.step(t % 4)
        memory.observe(state, t % 4, reward)
    model = QModel(12, 4)
    losses = [update(model, memory.sample()) for _ in range(60)]
    print(f"mean frame {memory.states.float().mean():.2f} brightest {memory.states.max().item():.0f}")
    print(f"loss first ten {sum(losses[:10]) / 10:.4f} last ten {sum(losses[-10:]) / 10:.4f}")


if __name__ == "__main__":
    main()
