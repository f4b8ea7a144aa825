"""
title: the replay buffer stores observations as uint8
expect: clean
thread: https://github.com/google/dopamine/pull/16
measured: first loss 0.251 last loss 0.003 frame mean 127.2
suspect: 17 exact (frames are whole numbers 0..255 and are widened before any arithmetic)

Expectation, written first: frames are bytes already, the buffer keeps them as uint8 and the network divides the float
copy by 255; rewards are float32. The sampled batches are the frames that went in.
"""
import torch
from torch import nn
import torch.nn.functional as F


class CircularReplayBuffer:
    def __init__(self, shape, stack_size, capacity, observation_dtype=torch.uint8):
        self.stack_size = stack_size
        self.capacity = capacity
        self.observation = torch.zeros(capacity, *shape, dtype=observation_dtype)
        self.action = torch.zeros(capacity, dtype=torch.int32)
        self.reward = torch.zeros(capacity, dtype=torch.float32)
        self.terminal = torch.zeros(capacity, dtype=torch.uint8)
        self.add_count = 0

    def add(self, observation, action, reward, terminal):
        cursor = self.add_count % self.capacity
        self.observation[cursor] = observation
        self.action[cursor] = action
        self.reward[cursor] = reward
        self.terminal[cursor] = terminal
        self.add_count += 1

    def sample(self, batch_size, generator):
        low, high = self.stack_size - 1, min(self.add_count, self.capacity) - 1
        index = torch.randint(low, high, (batch_size,), generator=generator)
        offsets = torch.arange(-self.stack_size + 1, 1)
        state = self.observation[index[:, None] + offsets]
        next_state = self.observation[index[:, None] + offsets + 1]
        return state, self.action[index], self.reward[index], next_state, self.terminal[index]


class NatureDQN(nn.Module):
    def __init__(self, num_actions=3, stack_size=4):
        super().__init__()
        self.conv = nn.Conv2d(stack_size, 8, 4, stride=2)
        self.head = nn.Linear(8 * 5 * 5, num_actions)

    def forward(self, state):
        x = state.float() / 255.0
        return self.head(F.relu(self.conv(x)).flatten(1))


def train_step(online, target, optimizer, batch, gamma=0.9):
    state, action, reward, next_state, terminal = batch
    with torch.no_grad():
        bootstrap = target(next_state).amax(1) * (1.0 - terminal.float())
    q = online(state).gather(1, action.long()[:, None]).squeeze(1)
    loss = F.smooth_l1_loss(q, reward + gamma * bootstrap)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(16)
    generator = torch.Generator().manual_seed(16)
    memory = CircularReplayBuffer((12, 12), stack_size=4, capacity=128)
    for step in range(160):
        frame = torch.randint(0, 256, (12, 12), generator=generator)
        memory.add(frame, step % 3, float(step % 3 == 1), step % 20 == 19)
    online, target = NatureDQN(), NatureDQN()
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    losses = [train_step(online, target, optimizer, memory.sample(32, generator)) for _ in range(40)]
    print(f"first loss {losses[0]:.3f} last loss {losses[-1]:.3f} frame mean {memory.observation.float().mean():.1f}")


main()
