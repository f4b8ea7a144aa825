"""
title: an actor-critic stores its picture observations as uint8 in the rollout
expect: clean
thread: https://github.com/younggyoseo/pytorch-acer/issues/1
measured: reward per step at the end 0.243

Expectation, written first: the pictures are bytes when they come from the environment, the store is exact, and every
use first makes floats of them; differences between frames are taken in float. Returns and policy are those of a float
store.
"""
import torch
from torch import nn


class BlockWorld:
    """a bright block on an 8 by 8 picture; stepping towards the bright edge is rewarded"""

    def __init__(self, count, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.count = count
        self.place = torch.randint(0, 8, (count,), generator=self.gen)

    def picture(self):
        out = torch.randint(0, 40, (self.count, 8, 8), generator=self.gen)
        out[torch.arange(self.count), :, self.place] = 230
        return out.to(torch.uint8)

    def step(self, action):
        self.place = (self.place + 2 * action - 1).clamp(0, 7)
        reward = (self.place == 7).float()
        done = reward.bool()
        fresh = torch.randint(0, 7, (self.count,), generator=self.gen)
        self.place = torch.where(done, fresh, self.place)
        return self.picture(), reward, done


class Rollout:
    def __init__(self, steps, count, dtype=torch.uint8):
        self.obs = torch.zeros(steps + 1, count, 8, 8, dtype=dtype)
        self.reward = torch.zeros(steps, count)
        self.done = torch.zeros(steps, count, dtype=torch.uint8)
        self.action = torch.zeros(steps, count, dtype=torch.int8)

    def returns(self, last, gamma=0.9):
        out, value = torch.zeros_like(self.reward), last
        for t in reversed(range(len(out))):
            value = self.reward[t] + gamma * value * (1 - self.done[t].float())
            out[t] = value
        return out


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, obs):
        x = obs.float() / 255
        h = self.body(x - x.mean((-1, -2), keepdim=True))
        return self.policy(h), self.value(h).squeeze(-1)


def main():
    torch.manual_seed(0)
    world, net = BlockWorld(16, seed=1), ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    obs, late = world.picture(), 0.0
    for update in range(60):
        store = Rollout(10, 16)
        store.obs[0] = obs
        for t in range(10):
            with torch.no_grad():
                logits, _ = net(store.obs[t])
            action = torch.multinomial(logits.softmax(-1), 1, generator=world.gen).squeeze(-1)
            obs, store.reward[t], store.done[t] = world.step(action)
            store.obs[t + 1], store.action[t] = obs, action
        with torch.no_grad():
            wanted = store.returns(net(store.obs[-1])[1]).flatten()
        logits, value = net(store.obs[:-1].flatten(0, 1))
        gain = (wanted - value).detach()
        chosen = logits.log_softmax(-1).gather(-1, store.action.flatten().long()[:, None]).squeeze(-1)
        optimizer.zero_grad()
        (-(chosen * gain).mean() + 0.5 * (wanted - value).square().mean()).backward()
        optimizer.step()
        late += store.reward.mean().item() / 20 * (update >= 40)
    print(f"reward per step at the end {late:.3f}")


main()
