"""
title: the counters of a training state are saved as int32 tensors and come back as Python numbers
expect: clean
thread: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/3312
measured: rate 0.561420 (unbroken 0.561420), tokens 226492416000, skipped 282624, equal True

Expectation, written first: the run is short, its counts stay below a hundred million, and the totals are made of
Python integers after the load; nothing wraps and the decay is that of an unbroken run.
"""
import io
import math
from dataclasses import asdict, dataclass

import torch


@dataclass
class TrainState:
    step: int = 0
    consumed_samples: int = 0
    skipped_samples: int = 0
    floating_ops: float = 0.0

    def state_dict(self):
        out = {k: torch.tensor(v, dtype=torch.int32) for k, v in asdict(self).items() if k != "floating_ops"}
        out["floating_ops"] = torch.tensor(self.floating_ops, dtype=torch.float64)
        return out

    def load_state_dict(self, state):
        for key, value in state.items():
            setattr(self, key, value.item())


class Cosine:
    def __init__(self, total):
        self.total = total

    def __call__(self, samples):
        return 0.5 * (1 + math.cos(math.pi * min(samples / self.total, 1.0)))


class Job:
    def __init__(self, batch=3072, tokens=8192, total=60_000_000):
        self.state, self.rate = TrainState(), Cosine(total)
        self.batch, self.tokens = batch, tokens

    def advance(self, steps, skip_every=97):
        for _ in range(steps):
            self.state.step += 1
            self.state.consumed_samples += self.batch
            if self.state.step % skip_every == 0:
                self.state.skipped_samples += self.batch
            self.state.floating_ops += 6.0 * 1e9 * self.batch * self.tokens
        return self.rate(self.state.consumed_samples)


def restart(job):
    stream = io.BytesIO()
    torch.save(job.state.state_dict(), stream)
    stream.seek(0)
    fresh = Job(job.batch, job.tokens, job.rate.total)
    fresh.state.load_state_dict(torch.load(stream))
    return fresh


def main():
    whole, broken = Job(), Job()
    last = whole.advance(9000)
    for _ in range(3):
        broken = restart(broken)
        got = broken.advance(3000)
    tokens = broken.state.consumed_samples * broken.tokens
    print(f"rate {got:.6f} (unbroken {last:.6f}), tokens {tokens}, skipped {broken.state.skipped_samples}, equal {broken.state == whole.state}")


main()
