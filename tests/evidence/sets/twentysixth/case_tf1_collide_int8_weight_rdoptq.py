"""
title: The quantised weight is written back as int8 into the parameter's data
expect: collision
thread: https://github.com/Eric-qi/RDO-PTQ/issues/2
fix_at: (none beside the marked)

Expectation, written first: The weight quantiser returns the integer codes as int8 and the layer assigns them to
weight.data; a parameter that requires gradients accepts floating point data only and torch raises. The simulated quantisation
of the method needs the dequantised float weight.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class UniformAffineQuantizer(nn.Module):
    def __init__(self, n_bits=8, channel_wise=True):
        super().__init__()
        self.n_levels = 2 ** (n_bits - 1)
        self.channel_wise = channel_wise
        self.delta = None

    def init_scale(self, x):
        dims = tuple(range(1, x.dim())) if self.channel_wise else tuple(range(x.dim()))
        return x.abs().amax(dim=dims, keepdim=True).clamp_min(1e-8) / (self.n_levels - 1)

    def forward(self, x):
        if self.delta is None:
            self.delta = self.init_scale(x)
        x_int = torch.round(x / self.delta)
        x_quant = torch.clamp(x_int, -self.n_levels, self.n_levels - 1).to(torch.int8)  # BORN
        return x_quant  # BORN


class QuantModule(nn.Module):
    def __init__(self, org_module, weight_quant_params):
        super().__init__()
        self.fwd_kwargs = dict(stride=org_module.stride, padding=org_module.padding)
        self.weight = org_module.weight
        self.bias = org_module.bias
        self.org_weight = org_module.weight.data.clone()
        self.weight_quantizer = UniformAffineQuantizer(**weight_quant_params)
        self.use_weight_quant = False

    def set_quant_state(self, weight_quant):
        self.use_weight_quant = weight_quant
        if weight_quant:
            quantised = self.weight_quantizer(self.org_weight)  # BORN
            self.weight.data = quantised  # BORN COLLIDES
        else:
            self.weight.data = self.org_weight

    def forward(self, x):
        return F.conv2d(x, self.weight, self.bias, **self.fwd_kwargs)


class AnalysisSynthesis(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.g_a = nn.Sequential(nn.Conv2d(3, n, 5, stride=2, padding=2), nn.LeakyReLU(), nn.Conv2d(n, n, 3, padding=1))
        self.g_s = nn.Sequential(nn.Conv2d(n, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        y = self.g_a(x)
        y_hat = y + torch.empty_like(y).uniform_(-0.5, 0.5) if self.training else torch.round(y)
        return {"x_hat": self.g_s(y_hat), "y": y}


def quantise_modules(model, params):
    for name, child in model.named_children():
        if isinstance(child, nn.Conv2d):
            setattr(model, name, QuantModule(child, params))
        else:
            quantise_modules(child, params)


def rate_distortion(model, images, lmbda=0.013):
    out = model(images)
    rate = torch.log2(1 + out["y"].abs()).mean()
    return rate + lmbda * 255 ** 2 * F.mse_loss(out["x_hat"], images), out


def main():
    torch.manual_seed(2)
    model = AnalysisSynthesis().eval()
    calib = torch.rand(2, 3, 16, 16)
    full, _ = rate_distortion(model, calib)
    print("full precision rd", round(full.item(), 2))
    quantise_modules(model, dict(n_bits=8, channel_wise=True))
    for module in model.modules():
        if isinstance(module, QuantModule):
            module.set_quant_state(True)
    loss, _ = rate_distortion(model, calib)
    loss.backward()
    print("quantised rd", round(loss.item(), 2))


if __name__ == "__main__":
    main()
