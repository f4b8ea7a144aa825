"""A program with a fault, healed, ends with the weights and the optimizer's state of its hand-corrected twin."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from samples import one_in
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtypetrace
from dtypetrace.healing import ledger

HALF = torch.bfloat16


def train(model, loss, make=None, steps=3, micro=1):
    """Three optimizer steps; everything that they decided."""
    optimizer = make(model.parameters()) if make else torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        for _ in range(micro):
            (loss() / micro).backward()
        optimizer.step()
        optimizer.zero_grad()
    state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [*model.parameters(), *model.buffers(), *state, torch.rand(2)]


def mlp(*parts):
    return nn.Sequential(*parts).to(HALF)


# Each program takes whether it is mended by hand, at the collision: then the same kernels run.


def linear(fixed):
    model, x = mlp(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(4, 6)
    return train(model, lambda: model(x.to(HALF) if fixed else x).float().square().mean())


def linear_weight(fixed):
    model, x = mlp(nn.Linear(6, 8), nn.Tanh()), torch.randn(4, 6).to(HALF)
    head = nn.Linear(8, 3)
    model.append(nn.Linear(8, 8).to(HALF)).append(head)

    def loss():
        hidden = model[:-1](x)
        out = F.linear(hidden, head.weight.to(HALF), head.bias.to(HALF)) if fixed else head(hidden)
        return out.float().square().mean()

    return train(model, loss)


def convolution(fixed):
    model, x = mlp(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)), torch.randn(2, 3, 8, 8)
    return train(model, lambda: model(x.to(HALF) if fixed else x).float().abs().mean())


def convolution_bias(fixed):
    layer, x = nn.Conv1d(3, 4, 3).to(HALF), torch.randn(2, 3, 9).to(HALF)
    layer.bias = nn.Parameter(torch.zeros(4))
    rest = nn.Linear(7, 2).to(HALF)
    model = nn.ModuleList([layer, rest])

    def loss():
        hidden = F.conv1d(x, layer.weight, layer.bias.to(HALF)) if fixed else layer(x)
        return rest(hidden).float().square().mean()

    return train(model, loss)


def transposed_convolution(fixed):
    model, x = mlp(nn.ConvTranspose2d(3, 4, 3), nn.ReLU()), torch.randn(2, 3, 5, 5)
    return train(model, lambda: model(x.to(HALF) if fixed else x).float().square().mean())


def attention_mask(fixed):
    q, k, v = (nn.Linear(8, 8).to(HALF) for _ in range(3))
    model, x, mask = nn.ModuleList([q, k, v]), torch.randn(2, 5, 8).to(HALF), torch.zeros(5, 5, dtype=torch.float64)
    return train(
        model,
        lambda: (
            F.scaled_dot_product_attention(q(x), k(x), v(x), mask.to(HALF) if fixed else mask).float().square().mean()
        ),
    )


def attention_value(fixed):
    q, k = nn.Linear(8, 8).to(HALF), nn.Linear(8, 8).to(HALF)
    model, x, wide = nn.ModuleList([q, k]), torch.randn(2, 5, 8).to(HALF), torch.randn(2, 5, 8)
    return train(
        model,
        lambda: F.scaled_dot_product_attention(q(x), k(x), wide.to(HALF) if fixed else wide).float().square().mean(),
    )


def batched_product(fixed):
    layer, x, share = nn.Linear(6, 6).to(HALF), torch.randn(2, 4, 6).to(HALF), torch.rand(2, 1, 4)
    return train(layer, lambda: torch.bmm(share.to(HALF) if fixed else share, layer(x)).float().square().mean())


def einsum(fixed):
    layer, x, gates = nn.Linear(6, 6).to(HALF), torch.randn(2, 4, 6).to(HALF), torch.rand(2, 4)
    return train(
        layer, lambda: torch.einsum("bs,bsd->bd", gates.to(HALF) if fixed else gates, layer(x)).float().square().mean()
    )


def group_norm(fixed):
    model = nn.Sequential(nn.Conv2d(2, 4, 1), nn.GroupNorm(2, 4)).half()
    x, grain = torch.randn(2, 2, 4, 4).half(), torch.randn(2, 1, 4, 4)

    def loss():
        hidden = model[0](x) + grain
        return model[1](hidden.half() if fixed else hidden).float().square().sum()

    return train(model, loss)


def lstm_input(fixed):
    model, x = nn.LSTM(4, 6, batch_first=True), torch.randn(2, 5, 4, dtype=torch.float64)
    return train(model, lambda: model(x.float() if fixed else x)[0].square().mean())


def gru_state(fixed):
    model, x, state = nn.GRU(4, 6).double(), torch.randn(5, 2, 4, dtype=torch.float64), torch.zeros(1, 2, 6)
    return train(model, lambda: model(x, state.double() if fixed else state)[0].square().mean())


def gru_cell(fixed):
    model, x, state = nn.GRUCell(4, 6).double(), torch.randn(2, 4, dtype=torch.float64), torch.zeros(2, 6)
    return train(model, lambda: model(x, state.double() if fixed else state).square().mean())


def integer_labels(fixed):
    model, x, labels = nn.Linear(6, 3), torch.randn(4, 6), torch.tensor([0, 1, 2, 1], dtype=torch.int32)
    return train(model, lambda: F.cross_entropy(model(x), labels.long() if fixed else labels))


def float_ids(fixed):
    model, ids = nn.Embedding(7, 4), torch.tensor([1.0, 3.0, 5.0])
    return train(model, lambda: model(ids.long() if fixed else ids).square().mean())


def double_target(fixed):
    model, x, target = nn.Linear(6, 1), torch.randn(4, 6), torch.randn(4, 1, dtype=torch.float64)
    return train(model, lambda: F.huber_loss(model(x), target.float() if fixed else target))


def binary_target(fixed):
    model, x, target = nn.Linear(6, 2), torch.randn(4, 6), torch.randint(0, 2, (4, 2)).to(torch.float64)
    return train(model, lambda: F.binary_cross_entropy(model(x).sigmoid(), target.float() if fixed else target))


def indexed_write(fixed):
    layer, x = nn.Linear(6, 6).to(HALF), torch.randn(4, 6).to(HALF)
    rows, scale = torch.tensor([0, 2]), torch.rand(2, 1)

    def loss():
        out, part = torch.zeros(4, 6, dtype=HALF), layer(x[rows]) * scale
        out[rows] = part.to(HALF) if fixed else part
        return (out + layer(x)).float().square().mean()

    return train(layer, loss)


def scattered(fixed):
    layer, x, at = nn.Linear(6, 6).to(HALF), torch.randn(5, 6).to(HALF), torch.tensor([0, 1, 0, 2, 1])
    weights = torch.rand(5, 1)

    def loss():
        messages = layer(x) * weights
        return (
            torch.zeros(3, 6, dtype=HALF)
            .index_add(0, at, messages.to(HALF) if fixed else messages)
            .float()
            .square()
            .mean()
        )

    return train(layer, loss)


def without_kernel(fixed):
    layer, x = nn.Linear(6, 6).to(HALF), torch.randn(12, 6).to(HALF)

    def loss():
        matrix = layer(x).t() @ layer(x) / 12 + torch.eye(6, dtype=HALF)
        factor = torch.linalg.cholesky(matrix.float()).to(HALF) if fixed else torch.linalg.cholesky(matrix)
        return factor.float().square().mean()

    return train(layer, loss)


def gradients_in(dtype, weights, make):
    """Gradients in another dtype than the weights; rounded to the narrower first, so that the twin's are the same numbers."""

    def program(fixed):
        model, x = mlp(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(weights), torch.randn(4, 6).to(weights)
        optimizer = make(model.parameters())
        for _ in range(3):
            model(x).float().square().mean().backward()
            for p in model.parameters():
                rounded = p.grad.data.to(HALF)
                p.grad.data = rounded.to(weights if fixed else dtype)
            optimizer.step()
            optimizer.zero_grad()
        state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
        return [*model.parameters(), *state]

    return program


single_adamw = gradients_in(torch.float32, HALF, lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False))
foreach_adamw = gradients_in(torch.float32, HALF, lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True))
fused_adamw = gradients_in(torch.float32, HALF, lambda p: torch.optim.AdamW(p, lr=0.01, fused=True))
# without momentum: torch itself leaves numbers of a fused momentum uninitialised on a CPU
fused_sgd = gradients_in(torch.float32, HALF, lambda p: torch.optim.SGD(p, lr=0.01, fused=True))
foreach_nadam = gradients_in(torch.float32, HALF, lambda p: torch.optim.NAdam(p, lr=0.01, foreach=True))
foreach_adamw_narrow = gradients_in(HALF, torch.float32, lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True))
fused_adamw_narrow = gradients_in(HALF, torch.float32, lambda p: torch.optim.AdamW(p, lr=0.01, fused=True))


def assigned_gradient(fixed):
    model, x = nn.Linear(6, 3).to(HALF), torch.randn(4, 6).to(HALF)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        given = torch.autograd.grad(model(x).float().square().mean(), list(model.parameters()))
        for p, g in zip(model.parameters(), given):
            wide = g.float() * 0.5
            p.grad = wide.to(HALF) if fixed else wide
        optimizer.step()
    return list(model.parameters())


def dropout(fixed):
    model, x = mlp(nn.Dropout(0.3), nn.Linear(6, 8), nn.Dropout(0.3), nn.Linear(8, 3)), torch.randn(4, 6)

    def loss():
        dropped = model[0](x)
        return model[1:](dropped.to(HALF) if fixed else dropped).float().square().mean()

    return train(model, loss, lambda p: torch.optim.AdamW(p, lr=0.01))


def attention_dropout(fixed):
    model, x, seen = (
        nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True).to(HALF),
        torch.randn(2, 5, 8).to(HALF),
        torch.randn(2, 5, 8),
    )
    return train(model, lambda: model(x, *(2 * [seen.to(HALF) if fixed else seen]))[0].float().square().mean())


def accumulation(fixed):
    model, x = mlp(nn.Linear(6, 8), nn.Dropout(0.1), nn.Linear(8, 3)), torch.randn(4, 6)
    return train(
        model,
        lambda: model(x.to(HALF) if fixed else x).float().square().mean(),
        lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
        micro=4,
    )


def checkpointed(reentrant):
    def program(fixed):
        first, second, x = (
            nn.Linear(6, 8).to(HALF),
            nn.Linear(8, 8).to(HALF),
            torch.randn(4, 6).to(HALF).requires_grad_(),
        )
        model, table = nn.ModuleList([first, second]), torch.randn(4, 8)

        def block(hidden):
            moved = F.dropout(hidden, 0.2) + table
            return second(moved.to(HALF)) if fixed else second(moved)

        return train(model, lambda: checkpoint(block, first(x), use_reentrant=reentrant).float().square().mean())

    return program


checkpoint_reentrant, checkpoint_plain = checkpointed(True), checkpointed(False)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, fixed):
        ctx.save_for_backward(x, weight)
        ctx.fixed = fixed
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wide = grad * torch.ones(grad.shape)
        wide = wide.to(grad.dtype) if ctx.fixed else wide
        return wide @ weight.t(), x.t() @ wide, None


def own_backward(fixed):
    layer, x = nn.Linear(6, 6).to(HALF), torch.randn(4, 6).to(HALF)
    weight = nn.Parameter(torch.randn(6, 3).to(HALF))
    layer.register_parameter("extra", weight)
    return train(layer, lambda: Scaled.apply(layer(x), weight, fixed).float().square().mean())


def distributed(fixed):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        network, x = mlp(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2)), torch.randn(4, 6).to(HALF)
        model = nn.parallel.DistributedDataParallel(network)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            for last in (False, True):
                with contextlib.nullcontext() if last else model.no_sync():
                    model(x).float().square().mean().backward()
                if not last:
                    for p in model.parameters():
                        p.grad.data = p.grad.data if fixed else p.grad.data.float()
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach().clone() for p in network.parameters()]
    finally:
        model = None  # first: torch may wait for ever where the model is the last to hold the group
        torch.distributed.destroy_process_group()


PROGRAMS = [
    linear, linear_weight, convolution, convolution_bias, transposed_convolution, attention_mask, attention_value, batched_product, einsum,
    group_norm, lstm_input, gru_state, gru_cell, integer_labels, float_ids, double_target, binary_target, indexed_write, scattered,
    without_kernel, single_adamw, foreach_adamw, fused_adamw, fused_sgd, foreach_nadam, foreach_adamw_narrow, fused_adamw_narrow, assigned_gradient, dropout,
    attention_dropout, accumulation, checkpoint_reentrant, checkpoint_plain, own_backward, distributed,
]  # fmt: skip
NAMES = [name for p in PROGRAMS for name, value in globals().copy().items() if value is p]


def outcome(program, fixed):
    torch.manual_seed(0)
    return [t.detach().clone() for t in program(fixed)]


@pytest.mark.parametrize("program", one_in(2, PROGRAMS, lambda p: NAMES[PROGRAMS.index(p)]))
def test_healed_is_as_corrected_by_hand(program):
    corrected = outcome(program, True)
    with pytest.raises((RuntimeError, ValueError)):
        outcome(program, False)
    with contextlib.suppress(Exception):
        torch.distributed.destroy_process_group()
    with dtypetrace.trace(autofix=True) as t:
        healed = outcome(program, False)
    assert not t.recording.not_seen or not any("internal error" in text for text in t.recording.not_seen), (
        t.recording.not_seen
    )
    assert t.fixes and all(f.kind == "collision" for f in t.findings if f.code.startswith("DT1"))
    assert [x.dtype for x in healed] == [x.dtype for x in corrected]
    assert all(torch.equal(a, b) for a, b in zip(healed, corrected)), [
        (a - b).abs().max().item() for a, b in zip(healed, corrected)
    ]


def test_a_task_of_asyncio_is_healed_and_what_the_program_catches_is_not():
    """The event loop catches everything, to raise it again where the task is waited for."""
    import asyncio

    net = nn.Linear(4, 2).to(HALF)

    async def task():
        return net(torch.ones(1, 4))

    async def caught():
        try:
            return await task()
        except RuntimeError:
            return None

    async def main(what):
        return await asyncio.create_task(what())

    with dtypetrace.trace(autofix=True) as t:
        out = asyncio.run(main(task))
        assert asyncio.run(main(caught)) is None
    assert out.dtype is HALF and len(t.fixes) == 1


@pytest.mark.parametrize("refused", [False, True], ids=["nothing refused", "healed"])
def test_a_checkpoint_under_healing_keeps_nothing_alive(refused):
    """What a stopped recompute and a refused attempt had saved is freed: a node that saves its own result holds itself."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            y = self.inner(x) @ torch.ones(4, 4, dtype=torch.float64 if refused else None)
            return y.tanh()

    def step():
        net = Net()
        checkpoint(net, torch.ones(2, 4), use_reentrant=False).sum().backward()
        return [weakref.ref(p) for p in net.parameters()]

    with dtypetrace.trace(autofix=True) as t:
        references = step()
    gc.collect()
    assert bool(t.fixes) == refused
    assert [r() for r in references if r() is not None] == []


def test_tensors_of_a_variable_are_found_in_plain_containers_of_any_size():
    """A list may hold itself, and nested lists of numbers may be huge: only their first parts are looked at."""
    endless = [torch.ones(2), {"mean": torch.zeros(3)}]
    endless.append(endless)
    huge = [[0.0] * 10_000] * 10_000
    found = ledger.variables({"kept": endless, "huge": huge, "weight": torch.nn.Parameter(torch.ones(1))})
    assert {name.partition(" ")[0] for name in found} == {"kept"} and len(found) <= ledger.MOST_VALUES
    assert "kept 0" in found and "kept 1" in found
