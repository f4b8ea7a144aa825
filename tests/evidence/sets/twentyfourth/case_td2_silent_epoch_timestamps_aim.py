"""
title: all tracked points of a run land on the same timestamp
expect: silent:precision-loss|downcast
thread: https://github.com/aimhubio/aim/pull/1494
measured: distinct times 2 of 120, 0.93 steps/s, best step 119
widened: distinct times 120 of 120, 1.33 steps/s, best step 119; innocent: distinct times 2 of 120, 0.93 steps/s, best step 119
suspect: 31 exact (losses are multiples of 1/128 below 2)

Expectation, written first: epoch seconds near 1.65e9 are put into a float32 tensor, whose spacing there is 128
seconds; the differences between the steps are zero or 128. Remedy: float64 for the timestamps. The metric values in
half are exact.
"""
import torch


class SequenceStorage:
    def __init__(self, name):
        self.name = name
        self.steps = []
        self.values = []
        self.timestamps = []

    def append(self, step, value, timestamp):
        self.steps.append(step)
        self.values.append(value)
        self.timestamps.append(timestamp)

    def to_sparse(self):
        return (
            torch.tensor(self.steps, dtype=torch.int64),
            torch.tensor(self.values, dtype=torch.float16),
            torch.tensor(self.timestamps, dtype=torch.float32),  # BORN
        )


class Run:
    def __init__(self, clock):
        self.clock = clock
        self.sequences = {}

    def track(self, value, name, step):
        sequence = self.sequences.setdefault(name, SequenceStorage(name))
        sequence.append(step, value, self.clock())

    def metric(self, name):
        steps, values, epochs = self.sequences[name].to_sparse()
        return {"steps": steps, "values": values, "epochs": epochs}


class FakeClock:
    def __init__(self, start, tick):
        self.now = start
        self.tick = tick

    def __call__(self):
        self.now += self.tick
        return self.now


def align_x_axis_by_time(metric):
    relative = metric["epochs"] - metric["epochs"][0]
    return relative.tolist()


def throughput(metric):
    elapsed = (metric["epochs"][-1] - metric["epochs"][0]).item()
    steps = (metric["steps"][-1] - metric["steps"][0]).item()
    return steps / elapsed if elapsed else float("inf")


def main():
    run = Run(FakeClock(start=1646899201.25, tick=0.75))
    for step in range(120):
        loss = 2.0 - round(128 * (step / 119)) / 128
        run.track(loss, name="loss", step=step)
    metric = run.metric("loss")
    axis = align_x_axis_by_time(metric)
    best = int(metric["values"].argmin())
    print(f"distinct times {len(set(axis))} of {len(axis)}, {throughput(metric):.2f} steps/s, best step {best}")


main()
