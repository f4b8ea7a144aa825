"""What only a CUDA device shows: the engine's own threads, CUDA's texts and autocast lists, synchronisation, memory.

Skipped where there is none; ``python -m pytest -m gpu`` runs just these.
"""

from __future__ import annotations

import inspect
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dtypetrace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_backward_on_the_engines_threads_is_attributed_to_the_forward():
    net = Net().cuda()
    with dtypetrace.trace(net) as t:
        net(torch.randn(4, 64, device="cuda")).sum().backward()
    assert not t._watch.recorder.broken
    forward = {(op.module, op.place) for op in t.recording.ops if op.phase == "forward" and op.module}
    backward = [
        op for op in t.recording.ops if op.phase == "backward" and op.aten.startswith(("mm", "threshold_backward"))
    ]
    assert {op.module for op in backward} >= {"net.first", "net.second"}
    assert {(op.module, op.place) for op in backward} <= forward


def half(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.half)


def linear_without_bias():
    layer = nn.Linear(8, 8, bias=False).cuda().half()
    x = torch.randn(2, 8, device="cuda")
    layer(x)


def convolution():
    layer = nn.Conv2d(3, 4, 3).cuda().half()
    x = torch.randn(1, 3, 8, 8, device="cuda")
    layer(x)


def attention():
    q = half(1, 2, 8, 16)
    k = torch.randn(1, 2, 8, 16, device="cuda")
    F.scaled_dot_product_attention(q, k, q)


def int32_labels():
    labels = torch.zeros(4, dtype=torch.int32, device="cuda")
    F.nll_loss(torch.randn(4, 3, device="cuda").log_softmax(-1), labels)


def scaler_with_bfloat16_gradients():
    layer = nn.Linear(4, 1).cuda().bfloat16()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(layer(torch.ones(2, 4, device="cuda", dtype=torch.bfloat16)).sum()).backward()
    scaler.unscale_(optimizer)


@pytest.mark.parametrize(
    ("program", "code", "wrong", "born"),
    [
        (linear_without_bias, "DT101", "float32", "x = "),
        (convolution, "DT102", "float32", "x = "),
        (attention, "DT103", "float32", "k = "),
        (int32_labels, "DT108", "int32", "labels = "),
        (scaler_with_bfloat16_gradients, "DT116", "bfloat16", "layer = "),
    ],
)
def test_cudas_own_texts_are_diagnosed(program, code, wrong, born):
    with pytest.raises(RuntimeError), dtypetrace.trace() as t:
        program()
    (finding,) = t.findings
    lines, first = inspect.getsourcelines(program)
    line = first + next(n for n, text in enumerate(lines) if text.strip().startswith(born))
    assert (finding.code, finding.culprit.dtype, finding.culprit.origin.line) == (code, wrong, line)


def test_cudas_autocast_lists_widen_what_the_cpu_leaves_alone():
    x = torch.randn(4, 16, device="cuda")
    layer = nn.Linear(16, 16).cuda()
    with dtypetrace.trace() as t, torch.autocast("cuda", dtype=torch.float16):
        narrow = layer(x)
        wide = narrow.softmax(-1)
        assert (narrow.dtype, wide.dtype) == (torch.float16, torch.float32)
        assert [c.origin.kind for c in (*t.why(narrow).chains, *t.why(wide).chains)] == ["autocast", "autocast"]
    assert t.findings == ()


def step(net, optimizer, x):
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def test_no_synchronisation_is_added():
    net = Net().cuda().half()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = half(4, 64)
    step(net, optimizer, x)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with dtypetrace.trace(net):
            step(net, optimizer, x)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def peak(run) -> int:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def test_device_memory_at_its_peak_and_time_of_a_half_unet_step(capsys):
    """An SD1.5-size UNet in float16, one forward and backward; the time ratio is printed, the memory ratio has a bar."""
    diffusers = pytest.importorskip("diffusers")
    unet = diffusers.UNet2DConditionModel(
        sample_size=64, cross_attention_dim=768, attention_head_dim=8, block_out_channels=(320, 640, 1280, 1280)
    )
    unet = unet.to("cuda", torch.half)
    inputs = half(1, 4, 64, 64), torch.tensor([10], device="cuda"), half(1, 77, 768)

    def plain() -> None:
        unet(*inputs).sample.float().square().mean().backward()
        unet.zero_grad(set_to_none=True)

    def traced() -> None:
        with dtypetrace.trace(unet):
            plain()

    def seconds(run) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    plain()
    ratio = peak(traced) / peak(plain)
    rounds = [(seconds(plain), seconds(traced)) for _ in range(5)]
    with capsys.disabled():
        print(
            f"\nSD1.5-size float16 step: time {min(b for _, b in rounds) / min(a for a, _ in rounds):.2f}x, peak memory {ratio:.4f}x"
        )
    assert ratio <= 1.01


@pytest.mark.parametrize(("fused", "before"), [(False, "state underflow"), (True, "overshoot")])
def test_adapters_learn_in_float32(fused, before):
    from adapters import loss_of, network

    model = network().cuda()
    numbers = torch.cuda.get_rng_state()
    settings = dict(make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=fused), steps=12)
    result = dtypetrace.retrain_lora(model, loss_of, **settings)
    assert {v.before.verdict for v in result.adapters} == {before}
    assert result.confirmed, result.why
    assert torch.equal(numbers, torch.cuda.get_rng_state())
    assert model[0].lora_up.weight.dtype is torch.float16 and not model[0].lora_up.weight.any()
