"""
title: a replay buffer takes the dtype of the first reward, which was the integer zero
expect: silent:integer-truncation|downcast
thread: https://github.com/thu-ml/tianshou/pull/278
measured: values of the valves 0.00, 0.00, 0.26; chosen: valve 2
widened: values of the valves 0.85, 0.55, 0.27; chosen: valve 0

Expectation, written first: the storage of the rewards is made from the first one, an int, and later fractions are cut
to zero; the agent sees no difference between the arms with fractional pay and prefers the one that pays a whole unit
now and then. The innocent suspect is the observation, stored in float16 on purpose: its few levels are exact.
"""
import torch


class ReplayBuffer:
    def __init__(self, size):
        self.size, self.length, self.index = size, 0, 0
        self.data = {}

    def _add_to_buffer(self, name, inst):
        inst = torch.as_tensor(inst)
        if name not in self.data:
            self.data[name] = torch.zeros((self.size, *inst.shape), dtype=inst.dtype)  # BORN
        self.data[name][self.index] = inst

    def add(self, obs, act, rew, done):
        self._add_to_buffer("obs", obs.to(torch.float16))
        self._add_to_buffer("act", act)
        self._add_to_buffer("rew", rew)  # BORN
        self._add_to_buffer("done", done)
        self.index = (self.index + 1) % self.size
        self.length = min(self.length + 1, self.size)

    def sample(self, n, gen):
        rows = torch.randint(0, self.length, (n,), generator=gen)
        return {k: v[rows] for k, v in self.data.items()}


class Irrigation:
    """three valves; the reward is the harvest of the day, and nothing on the first day"""

    pay = (0.85, 0.55, None)

    def __init__(self, gen):
        self.gen, self.day = gen, 0

    def observe(self):
        return torch.tensor([1.0, 0.5 * (self.day % 3)])

    def step(self, valve):
        self.day += 1
        if self.day == 1:
            return 0
        if self.pay[valve] is None:
            return 1 if torch.rand((), generator=self.gen) < 0.3 else 0
        return self.pay[valve] + 0.05 * torch.randn((), generator=self.gen).clamp(-2, 2).item()


class ValueTable:
    def __init__(self, actions, rate=0.05):
        self.q, self.rate = torch.zeros(actions), rate

    def learn(self, batch):
        error = batch["rew"].float() - self.q[batch["act"]]
        step = torch.zeros_like(self.q).index_add_(0, batch["act"], error)
        count = torch.zeros_like(self.q).index_add_(0, batch["act"], torch.ones(len(error)))
        self.q += self.rate * step / count.clamp(min=1)


def main(days=1500):
    gen = torch.Generator().manual_seed(32)
    env, buffer, table = Irrigation(gen), ReplayBuffer(2000), ValueTable(3)
    for day in range(days):
        greedy = torch.rand((), generator=gen) > 0.3
        valve = int(table.q.argmax()) if greedy else int(torch.randint(0, 3, (), generator=gen))
        observation = env.observe()
        buffer.add(observation, valve, env.step(valve), False)
        table.learn(buffer.sample(32, gen))
    values = ", ".join(f"{v:.2f}" for v in table.q.tolist())
    print(f"values of the valves {values}; chosen: valve {int(table.q.argmax())}")


main()
