"""
title: a long spiking simulation falls silent because its float32 clock no longer advances by one time step
expect: silent:lost-update|precision-loss
thread: https://github.com/genn-team/genn/pull/356
measured: mean firing rate 2.5 Hz
widened: mean firing rate 32.6 Hz ; innocent: mean firing rate 2.5 Hz
suspect: 40 margin (weights are stored in fp16, three digits are plenty for a synaptic strength)

Expectation, written first: the model clock is a float32 scalar in milliseconds that grows by dt = 0.1; from about 2e6 ms on the addition
is rounded away, the clock stands still and every neuron that has just fired stays refractory for ever, so the rate collapses. The fp16
weights are off by a thousandth and leave the rate alone.
"""
import torch


class NeuronGroup:
    def __init__(self, n, tau_m=20.0, v_rest=-65.0, v_thresh=-50.0, tau_refrac=2.0):
        self.n, self.tau_m = n, tau_m
        self.v_rest, self.v_thresh, self.tau_refrac = v_rest, v_thresh, tau_refrac
        self.v = torch.full((n,), v_rest)
        self.spike_time = None

    def initialise(self, t):
        self.spike_time = torch.full((self.n,), -1e4, dtype=t.dtype) + t

    def update(self, t, dt, i_in):
        active = (t - self.spike_time) > self.tau_refrac
        dv = (self.v_rest - self.v + i_in) * (dt / self.tau_m)
        self.v = torch.where(active, self.v + dv, torch.full_like(self.v, self.v_rest))
        spikes = self.v > self.v_thresh
        self.spike_time = torch.where(spikes, t.expand(self.n), self.spike_time)
        self.v = torch.where(spikes, torch.full_like(self.v, self.v_rest), self.v)
        return spikes


class GeNNModel:
    def __init__(self, group, g, dt=0.1, time_precision=torch.float32):
        self.group = group
        self.dt = dt
        self.g = g.to(torch.float16)
        self.t = torch.zeros((), dtype=time_precision)  # BORN
        self.last = torch.zeros(group.n, dtype=torch.bool)

    def load_checkpoint(self, t_ms):
        self.t.fill_(t_ms)
        self.group.initialise(self.t)

    def step_time(self, drive):
        i_syn = self.g.float() @ self.last.float()
        self.last = self.group.update(self.t, self.dt, drive + i_syn)
        self.t = self.t + self.dt  # BORN
        return self.last


def simulate(model, duration_ms, drive):
    steps = int(duration_ms / model.dt)
    total = 0
    for _ in range(steps):
        total += int(model.step_time(drive).sum())
    return total / model.group.n / (duration_ms * 1e-3)


def main():
    torch.manual_seed(0)
    n = 64
    group = NeuronGroup(n)
    weights = 0.5 * torch.rand(n, n) / n
    model = GeNNModel(group, weights, dt=0.1, time_precision=torch.float32)  # BORN
    model.load_checkpoint(2_260_350.0)
    drive = 18.0 + 4.0 * torch.rand(n)
    rate = simulate(model, duration_ms=400.0, drive=drive)
    print(f"mean firing rate {rate:.1f} Hz")


if __name__ == "__main__":
    main()
