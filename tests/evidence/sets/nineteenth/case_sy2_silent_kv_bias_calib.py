"""
title: A running mean of the KV bias kept in bf16 shrinks with every further calibration prompt
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/NVIDIA/Model-Optimizer/pull/738
measured: calibrated bias off by 8.98 | key error rms 0.516
widened: calibrated bias off by 0.14 | key error rms 0.043
innocent: calibrated bias off by 8.98 | key error rms 0.515
suspect: 47 one-rounding

Expectation, written first, its mechanism put right after the first run: The affine KV calibrator keeps its running mean in the dtype of the activations, bf16, where the sum of n old means swallows
the new one once n is some hundreds while the division by n+1 goes on; the bias shrinks and the
quantized keys are off. Subtracting and adding the bias in bf16 at run time is one rounding and costs almost nothing.
"""
import torch


def compute_bias(x):
    return x.mean(dim=(0, 1), keepdim=True)


class BiasCalibrator:
    def __init__(self):
        self._calib_bias = None
        self._cnt = 0

    def collect(self, x):
        bias = compute_bias(x)  # BORN
        if self._calib_bias is None:
            self._calib_bias = bias
        else:
            self._calib_bias = (self._calib_bias * self._cnt + bias) / (self._cnt + 1)  # BORN
        self._cnt += 1


class AffineKVQuantizer(BiasCalibrator):
    def __init__(self, num_bits=4):
        super().__init__()
        self.max_bound = 2 ** (num_bits - 1) - 1
        self.amax = None

    def calibrate_amax(self, keys):
        shifted = (keys.float() - self._calib_bias.float()).abs()
        amax = shifted.amax(dim=(0, 1), keepdim=True)
        self.amax = amax if self.amax is None else torch.maximum(self.amax, amax)

    def __call__(self, keys):
        shifted = keys - self._calib_bias.to(keys.dtype)
        scale = self.amax / self.max_bound
        codes = (shifted.float() / scale).round().clamp(-self.max_bound, self.max_bound)
        return codes * scale + self._calib_bias.float()


class KeyProjection:
    def __init__(self, heads_dim=32):
        g = torch.Generator().manual_seed(11)
        self.offset = 6.0 + 10.0 * torch.rand(heads_dim, generator=g)
        self.generator = g

    def __call__(self, index, seq=24):
        warm = 0.7 if index < 60 else 1.0
        noise = 0.25 * torch.randn(1, seq, 32, generator=self.generator)
        return (self.offset * warm + noise).to(torch.bfloat16)


def main():
    layer = KeyProjection()
    quantizer = AffineKVQuantizer()
    for index in range(1500):
        quantizer.collect(layer(index))
    evaluation = [layer(2000 + i) for i in range(20)]
    for keys in evaluation:
        quantizer.calibrate_amax(keys)
    error = sum((quantizer(k) - k.float()).pow(2).mean().item() for k in evaluation) / 20
    gap = (quantizer._calib_bias.float().flatten() - layer.offset).abs().mean().item()
    print(f"calibrated bias off by {gap:.2f}")
    print(f"key error rms {error ** 0.5:.3f}")


if __name__ == "__main__":
    main()
