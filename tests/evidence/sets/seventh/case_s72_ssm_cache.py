"""
title: Token-by-token decoding of a state-space model keeps its recurrent state in bfloat16
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/vllm-project/vllm/issues/13466
measured: output after 3000 tokens = 0.5000, prefill gives 0.9971
widened: output after 3000 tokens = 0.9971, prefill gives 0.9971

Expectation, written first.  The slow channels decay by 0.998 per token.  The
step is computed in float32 but the state lives in a bfloat16 cache: an
increment smaller than half a step of the stored state is lost, so the state
climbs to one half and stays, although the recurrence converges to one.  The
prefill (a scan in float32) and the decoding disagree.  BORN is the allocation
of the cache; float32 there mends it.
"""
import torch
from torch import nn

torch.manual_seed(0)


class SlowSSM(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.full((channels,), 1.0)), requires_grad=False)
        self.dt = 0.002
        self.out = nn.Parameter(torch.ones(channels) / channels, requires_grad=False)

    @property
    def decay(self):
        return torch.exp(-torch.exp(self.A_log.float()) * self.dt)

    def prefill(self, x):
        h, ys = torch.zeros_like(x[0], dtype=torch.float32), []
        for token in x:
            h = self.decay * h + (1 - self.decay) * token
            ys.append(h @ self.out)
        return torch.stack(ys)

    def step(self, token, cache):
        state = self.decay * cache.state.float() + (1 - self.decay) * token.float()
        cache.state.copy_(state)
        return cache.state.float() @ self.out


class InferenceCache:
    def __init__(self, channels):
        self.state = torch.zeros(channels, dtype=torch.bfloat16)  # BORN


@torch.no_grad()
def main(tokens=3000):
    model = SlowSSM()
    x = 1.0 + 0.1 * torch.randn(tokens, 16)
    reference = model.prefill(x)
    cache = InferenceCache(16)
    decoded = torch.stack([model.step(token, cache) for token in x])
    print(f"output after {tokens} tokens = {decoded[-1].item():.4f}, prefill gives {reference[-1].item():.4f}")


if __name__ == "__main__":
    main()
