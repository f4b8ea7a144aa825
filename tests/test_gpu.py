"""What only another device than the CPU shows: the engine's own threads, autocast's lists, copies, synchronisation, memory.

Skipped where there is no CUDA device; ``python -m pytest -m gpu`` runs just these. ``test_standin.py`` runs them on a stand-in
made of the CPU, except those that only CUDA can answer; docs/accelerators.md says which claim was tested where.
"""

from __future__ import annotations

import inspect
import os
import re
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dtypetrace

DEVICE = os.environ.get("DTYPETRACE_TEST_DEVICE", "cuda")
MODULE = getattr(torch, DEVICE, None)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(MODULE is None or not MODULE.is_available(), reason=f"needs a {DEVICE} device"),
]
only_cuda = pytest.mark.skipif(DEVICE != "cuda", reason="only CUDA can answer this")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_backward_on_the_engines_threads_is_attributed_to_the_forward():
    net = Net().to(DEVICE)
    with dtypetrace.trace(net) as t:
        net(torch.randn(4, 64, device=DEVICE)).sum().backward()
    assert not t._watch.recorder.broken
    forward = {(op.module, op.place) for op in t.recording.ops if op.phase == "forward" and op.module}
    backward = [
        op for op in t.recording.ops if op.phase == "backward" and op.aten.startswith(("mm", "threshold_backward"))
    ]
    assert {op.module for op in backward} >= {"net.first", "net.second"}
    assert {(op.module, op.place) for op in backward} <= forward


def half(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.half)


def linear_without_bias():
    layer = nn.Linear(8, 8, bias=False).to(DEVICE).half()
    x = torch.randn(2, 8, device=DEVICE)
    layer(x)


def convolution():
    layer = nn.Conv2d(3, 4, 3).to(DEVICE).half()
    x = torch.randn(1, 3, 8, 8, device=DEVICE)
    layer(x)


def attention():
    q = half(1, 2, 8, 16)
    k = torch.randn(1, 2, 8, 16, device=DEVICE)
    F.scaled_dot_product_attention(q, k, q)


def int32_labels():
    labels = torch.zeros(4, dtype=torch.int32, device=DEVICE)
    F.nll_loss(torch.randn(4, 3, device=DEVICE).log_softmax(-1), labels)


def scaler_with_bfloat16_gradients():
    layer = nn.Linear(4, 1).to(DEVICE).bfloat16()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(DEVICE)
    scaler.scale(layer(torch.ones(2, 4, device=DEVICE, dtype=torch.bfloat16)).sum()).backward()
    scaler.unscale_(optimizer)


@pytest.mark.parametrize(
    ("program", "code", "wrong", "born"),
    [
        (linear_without_bias, "DT101", "float32", "x = "),
        (convolution, "DT102", "float32", "x = "),
        (attention, "DT103", "float32", "k = "),
        (int32_labels, "DT108", "int32", "labels = "),
        pytest.param(scaler_with_bfloat16_gradients, "DT116", "bfloat16", "layer = ", marks=only_cuda, id="scaler"),
    ],
)
def test_its_own_texts_are_diagnosed(program, code, wrong, born):
    with pytest.raises(RuntimeError), dtypetrace.trace() as t:
        program()
    (finding,) = t.findings
    lines, first = inspect.getsourcelines(program)
    line = first + next(n for n, text in enumerate(lines) if text.strip().startswith(born))
    assert (finding.code, finding.culprit.dtype, finding.culprit.origin.line) == (code, wrong, line)


def test_its_autocast_lists_widen_what_the_cpu_leaves_alone():
    x = torch.randn(4, 16, device=DEVICE)
    layer = nn.Linear(16, 16).to(DEVICE)
    with dtypetrace.trace() as t, torch.autocast(DEVICE, dtype=torch.float16):
        narrow = layer(x)
        wide = narrow.softmax(-1)
        assert (narrow.dtype, wide.dtype) == (torch.float16, torch.float32)
        assert [c.origin.kind for c in (*t.why(narrow).chains, *t.why(wide).chains)] == ["autocast", "autocast"]
    assert t.findings == ()


def step(net, optimizer, x):
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def never_waits(run: Callable[[], None], unless: bool = False) -> None:
    """Runs something that must not make the program wait for the device."""
    if DEVICE != "cuda":
        before = MODULE.waits()
        run()
        assert unless or MODULE.waits() == before
        return
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("default" if unless else "error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def trainer() -> Callable[[], None]:
    net = Net().to(DEVICE).half()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = half(4, 64)
    step(net, optimizer, x)
    return lambda: step(net, optimizer, x)


def test_no_synchronisation_is_added():
    train = trainer()
    never_waits(train)

    def watched() -> None:
        with dtypetrace.trace(precision="off"):
            train()

    never_waits(watched)


def test_values_are_measured_without_waiting_until_the_trace_ends():
    train, trace = trainer(), dtypetrace.trace(precision="values")
    with trace:
        never_waits(train)
    assert trace.recording.values and not trace._watch.recorder.broken


def test_copies_between_devices_keep_the_birth():
    with dtypetrace.trace() as t:
        here = torch.ones(4, 4).double()  # born
        there = here.to(DEVICE)
        back = there.cpu()
        assert [c.origin.line for x in (here, there, back) for c in t.why(x).chains] == [line_of("# born")] * 3
        moved = there.to(DEVICE, torch.half)  # narrowed
        assert [c.origin.line for c in t.why(moved.cpu()).chains] == [line_of("# narrowed")]
    assert t.findings == ()


def line_of(mark: str) -> int:
    lines = inspect.getsource(inspect.getmodule(line_of)).split("\n")
    return next(number for number, text in enumerate(lines, 1) if text.endswith(mark))


class RaisesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, error):
        ctx.error = error
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise ctx.error


def test_an_exception_of_the_engines_thread_leaves_as_it_was_raised():
    error = ValueError("stop")
    with pytest.raises(ValueError) as caught, dtypetrace.trace() as t:
        RaisesInBackward.apply(torch.ones(2, device=DEVICE, requires_grad=True), error).sum().backward()
    assert caught.value is error and not t._watch.recorder.broken


def refused_in_backward():
    x = torch.ones(2, 2, device=DEVICE, requires_grad=True)
    y = Mixed.apply(x)
    y.sum().backward()


class Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        wrong = torch.ones(2, 2, device=DEVICE, dtype=torch.half)
        return gradient @ wrong


def test_a_refusal_on_the_engines_thread_is_reported_and_healed():
    with pytest.raises(RuntimeError), dtypetrace.trace() as t:
        refused_in_backward()
    (finding,) = t.findings
    assert (finding.phase, finding.site.function) == ("backward", "Mixed.backward")
    assert {o.dtype for o in finding.operands} == {"float32", "float16"}
    with dtypetrace.trace(autofix=True) as healed:
        refused_in_backward()
    assert healed.fixes and not healed._watch.recorder.broken


def trained(**options) -> list[torch.Tensor]:
    torch.manual_seed(0)
    net = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, **options)
    for _ in range(3):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = net(torch.ones(4, 64, device=DEVICE)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [loss.detach().cpu(), *(p.detach().cpu() for p in net.parameters())]


def test_a_hook_on_the_engines_thread_that_changes_a_gradients_dtype_is_named():
    net, x = Net().to(DEVICE, torch.bfloat16), half(4, 64).bfloat16()
    mean, labels = torch.zeros(8, 64, device=DEVICE), torch.zeros(4, dtype=torch.long, device=DEVICE)
    net.second.weight.register_hook(lambda grad: grad - mean)
    here = inspect.currentframe().f_lineno
    with dtypetrace.trace() as t, pytest.raises(RuntimeError, match="changed the type of value"):
        F.cross_entropy(net(x).float(), labels).backward()
    (found,) = t.findings
    assert (found.code, found.culprit.origin.line) == ("DT114", here - 1), str(found)
    assert here + 2 in [
        frame.line for frame in found.culprit.origin.place.stack
    ]  # the call of backward, below the hook


@pytest.mark.parametrize("option", ["plain", "numerics", "autofix", "reference"])
@pytest.mark.parametrize("settings", [{"foreach": False}, {"foreach": True}], ids=["one by one", "foreach"])
def test_training_gives_the_same_numbers(option, settings):
    expected = trained(**settings)
    with dtypetrace.trace(**{option: True} if option != "plain" else {}) as t:
        found = trained(**settings)
    assert not t._watch.recorder.broken, t.recording.not_seen
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert {op.device for op in t.recording.ops if op.phase == "backward" and op.device} == {f"{DEVICE}:0"}
    assert t.findings == () or {f.severity for f in t.findings} == {"note"}


def peak(run) -> int:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


@only_cuda
def test_device_memory_at_its_peak_and_time_of_a_half_unet_step(capsys):
    """An SD1.5-size UNet in float16, one forward and backward; the time ratio is printed, the memory ratio has a bar."""
    diffusers = pytest.importorskip("diffusers")
    unet = diffusers.UNet2DConditionModel(
        sample_size=64, cross_attention_dim=768, attention_head_dim=8, block_out_channels=(320, 640, 1280, 1280)
    )
    unet = unet.to(DEVICE, torch.half)
    inputs = half(1, 4, 64, 64), torch.tensor([10], device=DEVICE), half(1, 77, 768)

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

    model = network().to(DEVICE)
    numbers = torch.cuda.get_rng_state() if DEVICE == "cuda" else torch.get_rng_state()
    settings = dict(make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=fused), steps=12)
    result = dtypetrace.retrain_lora(model, loss_of, **settings)
    assert {v.before.verdict for v in result.adapters} == {before}
    assert result.confirmed, result.why
    assert torch.equal(numbers, torch.cuda.get_rng_state() if DEVICE == "cuda" else torch.get_rng_state())
    assert model[0].lora_up.weight.dtype is torch.float16 and not model[0].lora_up.weight.any()


def losses(
    steps: int, at: Callable[[int], float] = lambda step: 1.0, trace=None
) -> tuple[list[torch.Tensor], list[int]]:
    """What a training's steps give, and the steps that began while a trace slept; ``at``: the inputs' size in a step."""
    torch.manual_seed(0)
    net = Net().to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    found, slept = [], []
    for number in range(1, steps + 1):
        slept += [number] * (trace is not None and not trace.is_attached)
        loss = net(torch.full((4, 64), at(number), device=DEVICE)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    return [loss.cpu() for loss in found], slept


def test_a_trace_that_sleeps_changes_no_number():
    with dtypetrace.trace(every="new") as t:
        watched, slept = losses(60, trace=t)
    assert len(slept) > 30 and not t._watch.recorder.broken
    assert all(map(torch.equal, watched, losses(60)[0]))


def test_a_step_asleep_does_not_wait():
    train, slept = trainer(), 0
    with dtypetrace.trace(every="new") as t:
        for _ in range(30):
            slept += not t.is_attached
            never_waits(train, unless=t.is_attached)
    assert slept > 10


@only_cuda
@pytest.mark.parametrize("precision", ["values", "reference"])
@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"])
def test_fused_attention_is_compared_with_what_it_should_compute(backend, precision):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(0)
    layer = nn.Linear(64, 64, bias=False).to(DEVICE).bfloat16()
    x = torch.randn(2, 4, 32, 64, device=DEVICE, dtype=torch.bfloat16)
    with dtypetrace.trace(precision=precision) as t, sdpa_kernel(getattr(SDPBackend, backend)):
        for _ in range(2):
            q = layer(x)
            layer(F.scaled_dot_product_attention(q, q, x)).float().square().mean().backward()
    assert [f for f in t.findings if f.severity != "note"] == []
    assert not [text for text in t.recording.not_seen if "attention" in text], t.recording.not_seen


@only_cuda
@pytest.mark.parametrize("size", [1e4, float("inf")])
def test_gradients_that_leave_their_range_wake_it_within_ten_steps(size):
    """One step in five is looked at, and what its sum was is read when the next one is, so that nothing waits for it."""
    with dtypetrace.trace(every="new") as t:
        losses(60, at=lambda step: size if step >= 40 else 1.0, trace=t)
    woke = re.search(r"(\d+)[-\d]* \((a gradient that [^)]*)\)", t.recording.meta["watched"])
    assert woke and 41 <= int(woke[1]) <= 51, t.recording.meta["watched"]


@only_cuda
def test_a_captured_graph_replays_as_without_a_trace():
    def replayed(*watch) -> torch.Tensor:
        torch.manual_seed(0)
        net, x = Net().to(DEVICE).half(), half(4, 64)
        side = torch.cuda.Stream()
        with ExitStack() as stack:
            for w in watch:
                stack.enter_context(w)
            with torch.cuda.stream(side), torch.no_grad():
                net(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side), torch.no_grad():
                y = net(x)
            for number in range(3):
                x.fill_(number)
                graph.replay()
        x.fill_(7.0)
        graph.replay()
        torch.cuda.synchronize()
        return y.clone()

    t = dtypetrace.trace(precision="values")
    assert torch.equal(replayed(t), replayed())
    assert not t._watch.recorder.broken, t.recording.not_seen


@only_cuda
def test_several_streams_compute_as_without_a_trace():
    def computed() -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = Net().to(DEVICE)
        streams, results = [torch.cuda.Stream() for _ in range(3)], []
        for number in range(12):
            stream = streams[number % 3]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x = torch.full((256, 64), float(number), device=DEVICE)
                results.append(net(x).half().square().sum(0))
        torch.cuda.synchronize()
        return results

    expected = computed()
    with dtypetrace.trace(precision="values") as t:
        found = computed()
    assert all(map(torch.equal, expected, found)) and not t._watch.recorder.broken


@only_cuda
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_training_computes_and_compiles_as_without_a_trace(mode):
    from compiled_programs import compiled

    def program():
        net = Net().to(DEVICE)
        optimizer, run, found = torch.optim.AdamW(net.parameters(), lr=0.01), torch.compile(net, mode=mode), []
        for _ in range(4):
            with torch.autocast(DEVICE, torch.bfloat16):
                loss = run(torch.ones(4, 64, device=DEVICE)).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.detach().cpu())
        return found, [p.detach().cpu() for p in net.parameters()]

    compiled(program)
    alone, t = compiled(program), dtypetrace.trace(precision="values")
    assert compiled(program, t) == alone
    assert not t._watch.recorder.broken, t.recording.not_seen
