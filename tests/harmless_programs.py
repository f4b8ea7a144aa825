"""Programs that must end bit for bit the same with a trace and without, each in a few lines."""

from __future__ import annotations

import copy
import io
import threading
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
import torch.nn.utils.prune
from harmless import mlp
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint


def train(model, loss_of, steps=3, make=torch.optim.AdamW):
    optimizer = make(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [p.grad for p in model.parameters()], model.state_dict(), optimizer.state_dict()


def mlp_with_dropout_and_adamw():
    model = nn.Sequential(mlp(), nn.Dropout(0.3), nn.LayerNorm(8))
    return train(model, lambda m: F.mse_loss(m(torch.randn(4, 8)), torch.randn(4, 8)))


def every_optimizer():
    found = []
    for name in ("SGD", "Adam", "Adagrad", "RMSprop", "NAdam", "Adafactor", "Muon"):
        if not hasattr(torch.optim, name):  # an older torch
            continue
        make = getattr(torch.optim, name)
        model = nn.Linear(8, 8, bias=name != "Muon")
        found.append(train(model, lambda m: m(torch.randn(4, 8)).square().mean(), 2, make))
    for extra in ({"foreach": True}, {"fused": True}):
        found.append(
            train(
                nn.Linear(8, 8),
                lambda m: m(torch.randn(4, 8)).square().mean(),
                2,
                lambda p, lr: torch.optim.AdamW(p, lr=lr, **extra),
            )
        )
    return found


def swapped_tensors():
    """Conversion swaps the weights of wrapper subclasses; torch refuses that for tensors with weak references."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = mlp()
        first = model(torch.randn(2, 8)).sum().item()
        model.double().load_state_dict({name: t + 1 for name, t in model.state_dict().items()})
        losses = train(model, lambda m: m(torch.randn(4, 8, dtype=torch.float64)).square().mean(), 2)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    wrapped = nn.Linear(2, 2, bias=False)
    wrapped.weight = nn.Parameter(TwoTensor(torch.ones(2, 2), torch.ones(2, 2)))
    wrapped.to(torch.float64)
    x, y, held = torch.ones(2), torch.zeros(3), torch.ones(1)
    torch.utils.swap_tensors(x, y)
    reference = weakref.ref(held)
    with pytest.raises(RuntimeError, match="weakref associated") as refused:
        torch.utils.swap_tensors(held, x)
    return first, losses, wrapped.weight.a, wrapped.weight.dtype, x, y, str(refused.value), reference() is held


def lbfgs_with_a_closure():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(4, 8)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        return loss

    return [optimizer.step(closure).detach() for _ in range(2)], model.state_dict()


def steps_of_autocast():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    x, y = torch.rand(2, 3, 8, 8), torch.tensor([1, 2])

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def conv_net_under_autocast():
    step = steps_of_autocast()
    for _ in range(3):
        step()
    cells = dict(zip(step.__code__.co_freevars, (c.cell_contents for c in step.__closure__)))
    return cells["model"].state_dict(), [p.grad for p in cells["model"].parameters()], cells["scaler"].state_dict()


def float16_model():
    model = mlp().half()
    return train(model, lambda m: m(torch.randn(4, 8).half()).float().square().mean(), make=torch.optim.SGD)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = mlp()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return x + self.drop(self.inner(x))


def checkpointed(**options):
    blocks = nn.ModuleList(Block() for _ in range(3))

    def loss_of(model):
        x = torch.randn(4, 8, requires_grad=True)
        for block in model:
            x = checkpoint(block, x, **options)
        return x.square().mean()

    return train(blocks, loss_of)


def checkpoint_reentrant():
    return checkpointed(use_reentrant=True)


def checkpoint_non_reentrant():
    return checkpointed(use_reentrant=False)


def checkpoint_without_early_stop():
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        return checkpointed(use_reentrant=False)


def checkpoint_without_random_state():
    return checkpointed(use_reentrant=False, preserve_rng_state=False)


def checkpoint_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        return checkpointed(use_reentrant=False), checkpointed(use_reentrant=True)


def multihead_attention():
    model = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)

    def loss_of(m):
        x = torch.randn(2, 5, 8)
        y, weights = m(x, x, x, need_weights=True)
        return (y.sum() + weights.square().sum()) + m(
            x, x, x, need_weights=False, key_padding_mask=torch.zeros(2, 5).bool()
        )[0].mean()

    return train(model, loss_of)


def transformer_encoder():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False)
    return train(model, lambda m: m(torch.randn(2, 5, 8)).square().mean())


def transformer_decoder():
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2)
    return train(model, lambda m: m(torch.randn(2, 5, 8), torch.randn(2, 3, 8)).square().mean())


def scaled_dot_product_attention():
    q = torch.randn(2, 2, 5, 8, requires_grad=True)
    y = F.scaled_dot_product_attention(q, q * 2, q + 1, dropout_p=0.2) + F.scaled_dot_product_attention(
        q, q, q, is_causal=True
    )
    y.sum().backward()
    return y, q.grad


def lstm_and_gru():
    lstm, gru, cell = nn.LSTM(4, 8, 2, dropout=0.2, bidirectional=True), nn.GRU(16, 8), nn.LSTMCell(8, 8)

    def loss_of(m):
        y, (h, c) = m[0](torch.randn(5, 2, 4))
        y, _ = m[1](y)
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 4), torch.tensor([5, 3]))
        return y.sum() + h.sum() * c.sum() + m[0](packed)[0].data.mean() + m[2](y[0])[0].sum()

    return train(nn.ModuleList([lstm, gru, cell]), loss_of)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x**3 * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 * ctx.factor, None


def custom_function():
    return train(mlp(), lambda m: Cube.apply(m(torch.randn(4, 8)), 2.0).mean())


def double_backward_and_hooks():
    model, seen = mlp(), []
    x = torch.randn(4, 8, requires_grad=True)
    model[0].register_full_backward_hook(lambda m, i, o: seen.append(o[0].clone()))
    model[2].weight.register_hook(lambda g: g * 2)
    model[2].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    y = model(x).square().sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    g.square().sum().backward()
    return seen, x.grad, [p.grad for p in model.parameters()], torch.autograd.functional.jacobian(model[0], x)


def saved_tensor_hooks_and_anomaly():
    model = mlp()
    with (
        torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t),
        torch.autograd.detect_anomaly(check_nan=False),
    ):
        model(torch.randn(4, 8)).sum().backward()
    return [p.grad for p in model.parameters()]


def moving_average():
    model = nn.Sequential(mlp(), nn.BatchNorm1d(8))
    average = copy.deepcopy(model)
    averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    found = train(model, lambda m: m(torch.randn(4, 8)).square().mean())
    with torch.no_grad():
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p, 0.1)
    averaged.update_parameters(model)
    return found, average.state_dict(), averaged.state_dict()


def saved_bytes():
    model = nn.Sequential(mlp(), nn.BatchNorm1d(8))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}, file
    )
    file.seek(0)
    loaded = torch.load(file)
    other = nn.Sequential(mlp(), nn.BatchNorm1d(8)).half()
    other.load_state_dict(loaded["model"])
    third = nn.Sequential(mlp(), nn.BatchNorm1d(8))
    third.load_state_dict(loaded["model"], assign=True)
    return file.getvalue(), other.state_dict(), third(torch.ones(4, 8)), sorted(vars(next(third.parameters())))


def functional_transforms():
    from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap

    model = mlp()
    parameters = dict(model.named_parameters())
    x = torch.randn(4, 8)

    def loss(parameters, x):
        return functional_call(model, parameters, (x,)).square().sum()

    return (
        functional_call(model, {k: p.detach() * 2 for k, p in parameters.items()}, (x,)),
        vmap(grad(loss), in_dims=(None, 0))(parameters, x),
        vmap(model)(x),
        vmap(lambda x: F.dropout(x, 0.5), randomness="different")(x),
        jacrev(lambda x: loss(parameters, x))(x),
        jacfwd(lambda x: loss(parameters, x))(x[:1]),
        jvp(model, (x,), (torch.ones_like(x),)),
        vjp(model, x)[0],
    )


def forward_mode():
    import torch.autograd.forward_ad as fwAD

    model, x = mlp(), torch.randn(4, 8)
    with fwAD.dual_level():
        return tuple(fwAD.unpack_dual(model(fwAD.make_dual(x, torch.ones_like(x)))))


def inference_mode():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(256, 4)).eval()
    with torch.inference_mode():
        y = model(torch.randn(2, 3, 8, 8))
        z = F.scaled_dot_product_attention(y[None], y[None], y[None])
    assert y.is_inference() and z.is_inference()
    return y, z


def in_place_and_views():
    x = torch.randn(6, 4, requires_grad=True)
    y = x * 2
    y[1:3].add_(1).mul_(3)
    y.view(-1)[::2].clamp_(min=0)
    buffer = torch.zeros(6, 4, dtype=torch.float16)
    buffer[...] = y.detach()
    buffer.index_put_((torch.tensor([0, 0]),), torch.ones(2, 4).half(), accumulate=True)
    y.sum().backward()
    return y, x.grad, buffer, y._version, buffer._version


def random_numbers():
    generator = torch.Generator().manual_seed(7)
    return (
        torch.randn(3), torch.rand(3, generator=generator), torch.randperm(9), torch.bernoulli(torch.full((5,), 0.5)),
        torch.multinomial(torch.ones(5), 3), torch.empty(4).uniform_(), torch.distributions.Gamma(2.0, 3.0).sample((3,)),
        nn.init.trunc_normal_(torch.empty(4)), torch.nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)).weight, generator.get_state(),
    )  # fmt: skip


def data_loader():
    data = torch.utils.data.TensorDataset(torch.arange(12.0).view(6, 2), torch.arange(6))
    return list(torch.utils.data.DataLoader(data, 4, shuffle=True))


def with_a_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        model = mlp()
        y = model(torch.randn(4, 8))
        y.sum().backward()
        return y, [p.grad for p in model.parameters()]
    finally:
        torch.set_default_dtype(torch.float32)


def dtypes_changed_under_way():
    model = mlp()
    model.half().float().to(torch.bfloat16)
    model[0].weight.data = model[0].weight.data.float()
    model[0].bias.data = model[0].bias.data.float()
    y = model[0](torch.randn(4, 8)).bfloat16()
    y.sum().backward()
    model.requires_grad_(False)
    return (
        y,
        model.state_dict(),
        [p.grad for p in model.parameters()],
        [id(p) == id(q) for p, q in zip(model.parameters(), model.parameters())],
    )


def sparse_nested_and_quantized():
    sparse = torch.eye(4).to_sparse().requires_grad_()
    y = torch.sparse.mm(sparse, torch.randn(4, 4))
    y.sum().backward()
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    embedding = nn.Embedding(8, 4, sparse=True)
    embedding(torch.tensor([1, 1, 3])).sum().backward()
    quantized = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)
    return (
        y,
        sparse.grad.to_dense(),
        (nested * 2).values(),
        embedding.weight.grad.to_dense(),
        quantized.int_repr(),
        quantized.dequantize(),
    )


def parametrized_and_pruned():
    norms = nn.utils.parametrizations
    model = nn.Sequential(
        norms.weight_norm(nn.Linear(8, 8)), norms.spectral_norm(nn.Linear(8, 8)), nn.utils.weight_norm(nn.Linear(8, 8))
    )
    torch.nn.utils.prune.l1_unstructured(model[0], "bias", 0.3)
    return train(model, lambda m: m(torch.randn(4, 8)).square().mean())


def lazy_modules():
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(5))
    y = model(torch.randn(2, 3, 8, 8))
    return train(model, lambda m: m(torch.randn(2, 3, 8, 8)).mean()), y


def scripted():
    @torch.jit.script
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.relu() * 2

    return f(torch.randn(4)), torch.jit.trace(mlp(), torch.randn(4, 8))(torch.ones(4, 8))


def meta_and_fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.device("meta"):
        model = mlp()
    shape = model(torch.empty(4, 8, device="meta")).shape
    with FakeTensorMode() as fake:
        inside = mlp()
        y = inside(torch.randn(4, 8))
        y.sum().backward()
        real = fake.from_tensor(torch.ones(2, 2))
        reported = (type(y).__name__, y.shape, y.dtype, type(real @ real).__name__, inside[0].weight.grad.shape)
    return shape, reported, model.to_empty(device="cpu")[0].weight.shape


def functional_tensors():
    """Torch's own mode works for these, as it does for fake tensors: the class by itself refuses every call."""
    from torch._subclasses.functional_tensor import dispatch_functionalize

    kinds = []

    def work(x):
        y = torch.clone(x).mul_(2) @ x.half().float()
        kinds.append(type(y).__name__)
        return y

    return dispatch_functionalize(work)(torch.ones(2, 2)), kinds


class Logged(torch.Tensor):
    """A subclass that wraps another tensor and keeps a log of the operators that reach it."""

    log: list = []

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.log.append(str(func))
        args, kwargs = tree_map(lambda t: t.inner if isinstance(t, cls) else t, (args, kwargs or {}))
        return tree_map(lambda t: cls(t) if isinstance(t, torch.Tensor) else t, func(*args, **kwargs))


class Named(torch.Tensor):
    """A subclass that keeps a log of the functions that it is passed to."""

    log: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Handed(Named):
    """The same, but its results are plain tensors: a backward pass meets the class only in what was saved."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        made = super().__torch_function__(func, types, args, kwargs)
        return made.as_subclass(torch.Tensor) if isinstance(made, torch.Tensor) else made


def subclasses():
    Logged.log.clear()
    Named.log.clear()
    weight = Logged(torch.randn(8, 8)).requires_grad_()
    y = F.linear(torch.randn(4, 8), weight).relu()
    y.sum().backward()
    named = torch.randn(4, 8).as_subclass(Named)
    z = mlp()(named) + named.half().float()
    z.sum().backward()
    named.to(named.dtype).data = torch.randn(2)
    leaf = torch.ones(4, requires_grad=True)
    (leaf * torch.randn(4).as_subclass(Handed)).sum().backward()
    torch.autograd.grad((leaf.as_subclass(Named) * 2).sum(), leaf)
    z.grad_fn, leaf.grad, named.grad
    return y.inner, weight.grad.inner, Logged.log[:], type(z).__name__, z.as_subclass(torch.Tensor), Named.log[:]


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def work():
    model = mlp()
    x = torch.randn(4, 8, dtype=torch.float16)
    y = model(x.to(model[0].weight.dtype))
    y[0] = 1
    checkpoint(model, y, use_reentrant=False).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return y, model.state_dict(), x.type_as(y), [p.grad for p in model.parameters()]


def modes_of_the_programs_own():
    with Functions() as functions:
        first = work()
    with Operators() as operators:
        second = work()
    with torch.device("meta"):
        device = torch.ones(2).device
    return first, functions.seen, second, operators.seen, str(device), torch.ones(2).device


def higher_order_operators():
    from torch.nn.attention.flex_attention import flex_attention

    x = torch.randn(4, requires_grad=True)
    y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    y.sum().backward()
    q = torch.randn(1, 2, 16, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        z = flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + (i - j))
    return y, x.grad, z


def threads():
    found = {}

    def worker(name):
        model = nn.Linear(4, 4)
        with torch.no_grad():
            model.weight.fill_(name)
            model.bias.zero_()
        y = model(torch.ones(2, 4))
        y.sum().backward()
        found[name] = (y, model.weight.grad, torch.is_grad_enabled())

    workers = [threading.Thread(target=worker, args=(n,)) for n in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return [found[n] for n in range(3)]


def data_parallel_on_the_cpu():
    return nn.DataParallel(mlp())(torch.randn(4, 8))


def generators():
    def rows(mode):
        with mode:
            for i in range(3):
                yield torch.randn(2) * i

    kept = rows(torch.no_grad())
    first = next(kept)
    dropped = rows(Functions())
    second = next(dropped)
    del dropped
    third = next(kept)
    kept.close()
    return first, second, third, torch.is_grad_enabled(), torch._C._len_torch_function_stack() - watched_by()


def watched_by() -> int:
    """How many function modes dtypetrace has on."""
    return sum(type(m).__module__.startswith("dtypetrace") for m in torch.overrides._get_current_function_mode_stack())


def numbers_and_text():
    x = torch.tensor([1.5, 2.0])
    text = str(x), repr(x.half()), f"{x[0]:.3f}"
    return (
        text,
        x.tolist(),
        float(x[0]),
        int(x[1]),
        bool(x[0] > 1),
        list(x),
        hash(x) == id(x),
        x.numpy().tobytes(),
        len(x),
    )


PROGRAMS = [
    mlp_with_dropout_and_adamw, swapped_tensors, every_optimizer, lbfgs_with_a_closure, conv_net_under_autocast, float16_model,
    checkpoint_reentrant, checkpoint_non_reentrant, checkpoint_without_early_stop, checkpoint_without_random_state, checkpoint_under_autocast,
    multihead_attention, transformer_encoder, transformer_decoder, scaled_dot_product_attention, lstm_and_gru,
    custom_function, double_backward_and_hooks, saved_tensor_hooks_and_anomaly, moving_average, saved_bytes,
    functional_transforms, forward_mode, inference_mode, in_place_and_views, random_numbers, data_loader,
    with_a_default_dtype, dtypes_changed_under_way, sparse_nested_and_quantized, parametrized_and_pruned, lazy_modules, scripted,
    meta_and_fake, functional_tensors, subclasses, modes_of_the_programs_own, higher_order_operators, threads, data_parallel_on_the_cpu, generators, numbers_and_text,
]  # fmt: skip
