"""
title: every tensor of a checkpoint is cast to bfloat16 to save space, the state of the random generator too
expect: collision
fix_at: 46

After https://github.com/vllm-project/speculators/pull/1026 and https://github.com/huggingface/transformers/pull/11582.
Right: only floating point tensors are cast.
"""
import io

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map

torch.manual_seed(114)


class Store:
    """Checkpoints in memory, as small as they can be."""

    def __init__(self, dtype=torch.bfloat16):
        self.dtype, self.slots = dtype, {}

    def compact(self, value):
        return value.to(self.dtype) if isinstance(value, torch.Tensor) else value  # BORN

    def write(self, name, state):
        blob = io.BytesIO()
        torch.save(tree_map(self.compact, state), blob)
        self.slots[name] = blob.getvalue()

    def read(self, name):
        return torch.load(io.BytesIO(self.slots[name]))


class Run:
    def __init__(self, store):
        self.store = store
        self.model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.step = 0

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
                "rng": torch.get_rng_state()}

    def resume(self, name):
        state = self.store.read(name)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        torch.set_rng_state(state["rng"])  # COLLIDES

    def train(self, steps, every=4):
        for _ in range(steps):
            x = torch.randn(16, 10)
            loss = F.cross_entropy(self.model(x), (x[:, 0] > 0).long())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            if self.step % every == 0:
                self.store.write("last", self.state())
        return loss.item()


store = Store()
print("before", round(Run(store).train(8), 4))
second = Run(store)
second.resume("last")
print("resumed at", second.step, round(second.train(4), 4))
