"""Gradients, optimizers and the loss scaler. See `refusing` for what a program is."""

from __future__ import annotations

from functools import partial

import numpy as np
import refusing
import torch
from refusing import Program, check, every
from torch import nn
from torch.utils.checkpoint import checkpoint

f8, f16, bf16, f32, f64, i64 = (
    torch.float8_e4m3fn,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int64,
)

PROGRAMS: list[Program] = []
refuses = partial(refusing.refuses, PROGRAMS)


# ---------------------------------------------------------------- gradients


@refuses("grad.assign", "DT114 grad: value float16 3x4")
def grad_assign():
    layer = nn.Linear(4, 3)
    received = torch.ones(3, 4, dtype=f16)  # BORN
    layer.weight.grad = received  # COLLIDES


@refuses("grad.hook_type", "DT114 backward: compress() float16 ()", phase="backward")
def tensor_hook():
    model = nn.Linear(4, 3)
    hidden = model(torch.randn(2, 4))

    def compress(gradient):
        return gradient.half()  # BORN

    hidden.register_hook(compress)
    hidden.sum().backward()  # COLLIDES


@refuses("grad.hook_type", "DT114 backward: hook() float16 ()", phase="backward")
def module_hook():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))

    def compress(module, grad_input, grad_output):
        return tuple(g.half() for g in grad_input)  # BORN

    model[1].register_full_backward_hook(compress)
    model(torch.randn(2, 4)).sum().backward()  # COLLIDES


@refuses("grad.implicit_complex", "DT114 backward: tensors[0] complex64 ()", phase="backward")
def complex_loss():
    weight = nn.Parameter(torch.ones(4))
    spectrum = torch.fft.fft(weight * torch.randn(4))  # BORN
    loss = spectrum.sum()
    loss.backward()  # COLLIDES


@refuses("mm.m1_m2", "DT101 matmul: self float32 2x3", phase="backward")
def function_backward():
    class Project(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(w)
            return (x @ w).float()

        @staticmethod
        def backward(ctx, g):
            (w,) = ctx.saved_tensors
            scale = torch.ones(2, 3)  # BORN
            return (g.to(w.dtype) * scale) @ w.t(), None  # COLLIDES

    w = nn.Parameter(torch.randn(4, 3, dtype=bf16))
    x = torch.randn(2, 4, dtype=bf16, requires_grad=True)
    Project.apply(x, w).sum().backward()


@refuses("grad.ckpt_metadata", "DT114 backward: recomputed_x float64 2x4", phase="backward")
def checkpoint_metadata():
    class Block(nn.Module):
        table = torch.ones(4)

        def forward(self, x):
            return torch.sin(x * self.table)

    block, x = Block(), torch.randn(2, 4, requires_grad=True)
    out = checkpoint(block, x, use_reentrant=False)
    block.table = torch.from_numpy(np.ones(4))  # BORN
    out.sum().backward()  # COLLIDES


# ---------------------------------------------------------------- optimizers, the loss scaler


@refuses("opt.unscale_fp16", "DT116 unscale_: weight float16 1x4", phase="optimizer")
def unscale():
    model = nn.Linear(4, 1)
    model.half()  # BORN
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.randn(2, 4).half()).sum()).backward()
    scaler.unscale_(optimizer)  # COLLIDES
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def cast_under_an_optimizer(kind, **options):
    """A step in float32, then the weights become half while the optimizer's state stays as it was."""
    model = nn.Linear(4, 1)
    optimizer = kind(model.parameters(), 0.1, **options)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


@refuses("prom.lerp", "DT115 lerp_: weight.grad float16 1x4", phase="optimizer")
def adamw():
    model, optimizer = cast_under_an_optimizer(torch.optim.AdamW)
    model.half()  # BORN
    model(torch.randn(2, 4).half()).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("prom.lerp", "DT115 _foreach_lerp_: weight.grad float16 1x4", phase="optimizer")
def adamw_foreach():
    model, optimizer = cast_under_an_optimizer(torch.optim.AdamW, foreach=True)
    model.half()  # BORN
    model(torch.randn(2, 4).half()).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("scalar.expected_found", "DT115 _fused_adamw_: weight float16 1x4", phase="optimizer")
def adamw_fused():
    model, optimizer = cast_under_an_optimizer(torch.optim.AdamW, fused=True)
    model.half()  # BORN
    model(torch.randn(2, 4).half()).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("prom.lerp", "DT115 lerp_: exp_avg|of|weight float16 1x4", phase="optimizer")
def adamw_swapped():
    model, optimizer = cast_under_an_optimizer(torch.optim.AdamW)
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].half()  # BORN
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("scalar.expected_found", "DT115 _fused_sgd_: weight bfloat16 1x4", phase="optimizer")
def sgd_fused():
    model, optimizer = cast_under_an_optimizer(torch.optim.SGD, momentum=0.9, fused=True)
    model.to(bf16)  # BORN
    model(torch.randn(2, 4).to(bf16)).sum().backward()
    optimizer.step()  # COLLIDES


@refuses("opt.fused_supported", "DT115 step: p complex64 4", phase="optimizer")
def fused_complex():
    filter = nn.Parameter(torch.ones(4, dtype=torch.complex64))  # BORN
    optimizer = torch.optim.AdamW([filter], fused=True)
    filter.abs().sum().backward()
    optimizer.step()  # COLLIDES


@refuses("mm.dot", "DT115 dot: tensor float16 5", phase="optimizer")
def lbfgs():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters())
    data = torch.randn(2, 4)

    def closure():
        optimizer.zero_grad()
        loss = model(data.to(model.weight.dtype)).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    model.half()  # BORN
    optimizer.step(closure)  # COLLIDES


@refuses("opt.same_index", "DT115 update_parameters: weight float16 4x4")
def average_foreach():
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = nn.Linear(4, 4)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    average.update_parameters(model)
    model.half()  # BORN
    average.update_parameters(model)  # COLLIDES


@refuses("impl.linalg_float", "DT109 _foreach_norm: input[0] int64 3")
def total_norm():
    layer = nn.Linear(4, 3)
    counts = torch.tensor([1, 2, 3])  # BORN
    nn.utils.get_total_norm([layer.weight, counts])  # COLLIDES


@every(PROGRAMS)
def test_names_the_line(program):
    check(program)
