"""Compiled programs that must compute and compile the same with a trace and without, each in a few lines."""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from harmless import outcome
from torch import nn
from torch.utils.checkpoint import checkpoint

INDUCTOR, AOT, EAGER = "inductor", "aot_eager", "eager"


class Counts:
    """A backend that runs the graph as it is, and counts graphs and runs."""

    def __init__(self):
        self.graphs = self.runs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1

        def run(*args):
            self.runs += 1
            return graph(*args)

        return run


def trained(model, forward, steps=3, make=torch.optim.AdamW, width=8):
    """Losses, weights, gradients and the optimizer's state after some steps."""
    optimizer = make(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = forward(torch.randn(4, width)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [p.grad for p in model.parameters()], model.state_dict(), optimizer.state_dict()


class Block(nn.Module):
    """Not a module of torch's own, whose frames torch.compile passes over."""

    def __init__(self, width=8):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 16), nn.Linear(16, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Breaks(Block):
    """Its graph breaks twice."""

    def forward(self, x):
        y = self.norm(x)
        torch._dynamo.graph_break()
        if y.sum().item() > 1e9:
            y = y * 2
        return x + self.down(F.gelu(self.up(y)))


def training(backend=INDUCTOR):
    model = Block()
    return trained(model, torch.compile(model, backend=backend))


def autocast_outside(backend=INDUCTOR):
    model = Block()
    compiled = torch.compile(model, backend=backend)

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return compiled(x)

    return trained(model, forward)


def autocast_inside(backend=INDUCTOR):
    model = Block()

    @torch.compile(backend=backend)
    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    return trained(model, forward)


def graph_breaks(backend=INDUCTOR):
    model = Breaks()
    return trained(model, torch.compile(model, backend=backend))


def dynamic_shapes(backend=INDUCTOR):
    model = Block()
    compiled = torch.compile(model, backend=backend, dynamic=True)
    found = [compiled(torch.randn(n, 8)) for n in (3, 5, 9)]
    automatic = torch.compile(lambda x: (x * 2).relu().sum(), backend=backend)
    return found, [automatic(torch.randn(n, 8)) for n in (3, 5, 9)]


def checkpoint_outside(backend=INDUCTOR):
    model = Block()
    compiled = torch.compile(model, backend=backend)
    return trained(model, lambda x: checkpoint(compiled, x.requires_grad_(), use_reentrant=False))


def checkpoint_inside(backend=INDUCTOR):
    model = Block()
    return trained(model, torch.compile(lambda x: checkpoint(model, x, use_reentrant=False), backend=backend))


def reduce_overhead(backend=INDUCTOR):
    model = Block()
    return trained(model, torch.compile(model, mode="reduce-overhead"))


def compiled_optimizer(backend=INDUCTOR):
    model = Block()

    def make(parameters, lr):
        optimizer = torch.optim.AdamW(parameters, lr=lr, foreach=True)
        optimizer.step = torch.compile(optimizer.step, backend=backend)
        return optimizer

    return trained(model, model, make=make)


def compiled_step_function(backend=INDUCTOR):
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step = torch.compile(lambda: optimizer.step(), backend=backend)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        step()
    return model.state_dict(), optimizer.state_dict()


def whole_train_step(backend=INDUCTOR):
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @torch.compile(backend=backend)
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [step(torch.randn(4, 8)) for _ in range(3)], model.state_dict()


def full_graph(backend=INDUCTOR):
    model = Block()
    return trained(model, torch.compile(model, backend=backend, fullgraph=True))


def flexible_attention(backend=INDUCTOR):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(b, h, q, k):
        return q >= k

    q, k, v = (torch.randn(1, 2, 128, 16) for _ in range(3))
    mask = create_block_mask(causal, None, None, 128, 128, device="cpu")
    plain = flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j))
    return plain, torch.compile(flex_attention, backend=backend)(q, k, v, block_mask=mask)


def compiled_loss(backend=INDUCTOR):
    model = Block()
    loss = torch.compile(lambda y, t: F.cross_entropy(y.float(), t) + y.square().mean(), backend=backend)
    return trained(model, lambda x: loss(model(x), torch.arange(4)))


def compiled_in_place(backend=INDUCTOR):
    model = Block()
    model.compile(backend=backend)
    return trained(model, model)


def parts_of_a_model(backend=INDUCTOR):
    model = nn.Sequential(Block(), Block(), nn.Linear(8, 8))
    model[0].compile(backend=backend)
    model[1] = torch.compile(model[1], backend=backend)
    return trained(model, model)


def hooks_on_a_compiled_module(backend=INDUCTOR):
    model, seen = Block(), []
    model.up.register_forward_hook(lambda m, args, out: out * 0.5)
    model.register_forward_pre_hook(lambda m, args: seen.append(args[0].dtype))
    compiled = torch.compile(model, backend=backend)
    compiled.register_forward_hook(lambda m, args, out: out + 1)
    compiled.register_full_backward_hook(lambda m, grads, outs: (grads[0],) if grads[0] is not None else None)
    return trained(model, compiled), seen


def global_hooks_of_the_program(backend=INDUCTOR):
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return training(backend), seen
    finally:
        handle.remove()


def custom_backend(backend=None):
    counts = Counts()
    model = Breaks()
    return trained(model, torch.compile(model, backend=counts)), counts.graphs, counts.runs


def in_a_backward_hook(backend=INDUCTOR):
    scaled = torch.compile(lambda g: (g * 2).tanh(), backend=backend)
    x = torch.randn(4, 8, requires_grad=True)
    model = Block()
    y = model(x)
    y.register_hook(scaled)
    y.sum().backward()
    return x.grad, [p.grad for p in model.parameters()]


def compiled_autograd(backend=INDUCTOR):
    model = Block()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
        return trained(model, model)


def compiled_autograd_by_setting(backend=INDUCTOR):
    model = Block()
    with torch._dynamo.config.patch(compiled_autograd=True):

        @torch.compile(backend=backend)
        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        return [step(torch.randn(4, 8)) for _ in range(2)], [p.grad for p in model.parameters()]


def left_alone_inside(backend=INDUCTOR):
    """A function that Dynamo leaves alone, called in a compiled one."""

    @torch.compiler.disable
    def outside(x):
        return F.linear(x, torch.eye(8)) + 1

    model = Block()
    return trained(model, torch.compile(lambda x: model(outside(model(x))), backend=backend))


def nested(backend=INDUCTOR):
    inner = torch.compile(lambda x: x.sin() * 2, backend=backend)

    def outer(x):
        torch._dynamo.graph_break()
        return inner(x) + inner(x.cos())

    return torch.compile(outer, backend=backend)(torch.randn(4)), inner(torch.randn(4))


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x


def custom_function(backend=INDUCTOR):
    model = Block()
    inside = torch.compile(lambda x: Squared.apply(model(x)), backend=backend)
    return trained(model, lambda x: Squared.apply(inside(x)))


def dropout_and_batch_norm(backend=INDUCTOR):
    model = nn.Sequential(Block(), nn.BatchNorm1d(8), nn.Dropout(0.3))
    return trained(model, torch.compile(lambda x: model(x), backend=backend))


def conditional(backend=INDUCTOR):
    def choose(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    x = torch.randn(4)
    return choose(x), torch.compile(choose, backend=backend)(x), torch.compile(choose, backend=backend)(-x)


def transforms(backend=INDUCTOR):
    model = Block()

    def loss(x):
        return model(x).square().sum()

    per_sample = torch.compile(torch.func.vmap(torch.func.grad(loss)), backend=backend)
    return per_sample(torch.randn(4, 8)), per_sample(torch.randn(4, 8))


def inference(backend=INDUCTOR):
    model = Block().bfloat16().eval()
    compiled = torch.compile(model, backend=backend)
    x = torch.randn(4, 8).bfloat16()
    with torch.no_grad():
        first = compiled(x)
    with torch.inference_mode():
        return first, compiled(x), compiled(x)


def recompiles(backend=INDUCTOR):
    """More dtypes than Dynamo compiles a function for: the rest runs eagerly."""
    f = torch.compile(lambda x, k: (x * k).sum(), backend=backend)
    with torch._dynamo.config.patch(recompile_limit=2):
        return [f(torch.ones(4, dtype=d), 2) for d in (torch.float32, torch.float64, torch.bfloat16, torch.float16)]


def stances(backend=INDUCTOR):
    f = torch.compile(lambda x: x.sin() + 1, backend=backend)
    found = [f(torch.ones(3))]
    for stance in ("force_eager", "eager_on_recompile", "default"):
        with torch.compiler.set_stance(stance):
            found.append(f(torch.ones(3, dtype=torch.float64)))
    return found


def refused_and_handled(backend=INDUCTOR):
    """A mix that Dynamo refuses as it compiles; the program takes another way."""
    linear = nn.Linear(4, 4)
    f = torch.compile(lambda x: linear(x), backend=backend)
    words = []
    for x in (torch.ones(2, 4, dtype=torch.float16), torch.ones(2, 4)):
        try:
            words.append(f(x))
        except Exception as error:
            words.append((type(error).__name__, str(error)))
    return words


def warnings_inside(backend=INDUCTOR):
    def f(x):
        warnings.warn("from inside", UserWarning, stacklevel=1)
        return x * 2

    return torch.compile(f, backend=backend)(torch.ones(3))


def modules_and_parameters_made_inside(backend=INDUCTOR):
    def f(x):
        scale = nn.Parameter(torch.full((8,), 2.0))
        return x * scale + nn.Linear(8, 8).weight.sum() * 0

    with contextlib.suppress(torch._dynamo.exc.Unsupported):
        return torch.compile(f, backend=backend)(torch.ones(8))


def in_another_thread(backend=INDUCTOR):
    model = Block()
    compiled = torch.compile(model, backend=backend)
    found = []
    for _ in range(2):
        worker = threading.Thread(target=lambda: found.append(compiled(torch.ones(4, 8)).sum()))
        worker.start()
        worker.join()
    return found, compiled(torch.ones(4, 8))


def saved_tensors_hooks(backend=INDUCTOR):
    model = Block()
    compiled = torch.compile(model, backend=backend)

    def forward(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            return compiled(x)

    return trained(model, forward)


def hooks_of_saved_tensors_in_autocast(backend=INDUCTOR):
    """What eager would do with a graph of mixed dtypes is found out while the program's hooks are on."""
    model, counted = Block(), [0]
    compiled = torch.compile(model, backend=backend)

    def pack(t):
        counted[0] += 1
        return t

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            outside = checkpoint(compiled, x.requires_grad_(), use_reentrant=False)
            with torch.autograd.graph.save_on_cpu():
                return compiled(outside)

    return trained(model, forward), counted


def function_modes_of_the_program(backend=INDUCTOR):
    """A mode of the program's own is traced through, as without us."""

    class Doubles(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            return out * 2 if func is torch.sin else out

    f = torch.compile(lambda x: torch.sin(x) + 1, backend=backend)
    x = torch.ones(3)
    with Doubles():
        inside = f(x), f(x)
    with torch.device("cpu"):
        return inside, f(x), f(x)


def exported(backend=None):
    model = Block()
    program = torch.export.export(model, (torch.randn(4, 8),))
    return program.module()(torch.ones(4, 8)), [str(n.target) for n in program.graph.nodes]


def accepted_mixes(backend=INDUCTOR):
    """What inductor computes and eager refuses."""
    half, x = torch.float16, torch.randn(4, 8)
    score, place = torch.rand(4, 1, dtype=half), torch.tensor([1, 0])
    calls = {
        "layer_norm": lambda: F.layer_norm(x, (8,), torch.ones(8, dtype=half)),
        "index_put_": lambda: x.clone().index_put_((place,), torch.ones(2, 8, dtype=half)),
        "index_copy_": lambda: x.clone().index_copy_(0, place, torch.ones(2, 8, dtype=half)),
        "binary_cross_entropy": lambda: F.binary_cross_entropy(score, torch.rand(4, 1)),
        "grid_sample": lambda: F.grid_sample(
            torch.ones(1, 1, 4, 4, dtype=half), torch.zeros(1, 2, 2, 2), align_corners=False
        ),
        "ldexp": lambda: torch.ldexp(x.half(), x),
    }
    found = {}
    for name, call in calls.items():
        try:
            found[name] = torch.compile(call, backend=backend)()
        except Exception as error:
            found[name] = type(error).__name__
    return found


def fused_attention(backend=INDUCTOR):
    """In evaluation, modules of torch's own take a path of one call, where no function mode is on."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    compiled, x = torch.compile(model, backend=backend), torch.randn(2, 4, 8)
    with torch.no_grad():
        return compiled(x), model(x), compiled(x)


def adapters(backend=INDUCTOR):
    import peft

    model = peft.get_peft_model(
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).bfloat16(),
        peft.LoraConfig(r=2, target_modules=["0", "2"]),
    )
    compiled = torch.compile(model, backend=backend)
    return trained(model, lambda x: compiled(x.bfloat16()))


def unet(backend=INDUCTOR):
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    model = UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 8), norm_num_groups=2,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )  # fmt: skip
    compiled = torch.compile(model, backend=backend)
    losses = []
    for step in range(2):
        model.zero_grad()
        loss = compiled(torch.randn(1, 1, 8, 8), torch.tensor(step)).sample.square().mean()
        loss.backward()
        losses.append(loss.detach())
    return losses, [p.grad for p in model.parameters()]


def llama(backend=INDUCTOR):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
    )
    compiled = torch.compile(model, backend=backend)
    ids = torch.randint(0, 32, (2, 8))
    losses = []
    for _ in range(2):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = compiled(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(loss.detach())
    return losses, [p.grad for p in model.parameters()]


PROGRAMS: tuple[Callable, ...] = (
    training,
    autocast_outside,
    autocast_inside,
    graph_breaks,
    dynamic_shapes,
    checkpoint_outside,
    checkpoint_inside,
    reduce_overhead,
    compiled_optimizer,
    compiled_step_function,
    whole_train_step,
    full_graph,
    flexible_attention,
    compiled_loss,
    compiled_in_place,
    parts_of_a_model,
    hooks_on_a_compiled_module,
    global_hooks_of_the_program,
    custom_backend,
    in_a_backward_hook,
    compiled_autograd,
    compiled_autograd_by_setting,
    left_alone_inside,
    nested,
    custom_function,
    dropout_and_batch_norm,
    conditional,
    transforms,
    inference,
    recompiles,
    stances,
    refused_and_handled,
    warnings_inside,
    modules_and_parameters_made_inside,
    in_another_thread,
    saved_tensors_hooks,
    hooks_of_saved_tensors_in_autocast,
    function_modes_of_the_program,
    exported,
    accepted_mixes,
    fused_attention,
    adapters,
    unet,
    llama,
)


def compiled(program, *watch):
    """All that a program gives, and all that torch counts as it compiles: frames, graphs, breaks, recompilations, caches."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    result = outcome(program, *watch)
    counted = {
        kind: {re.sub(r" at 0x\w+", "", str(what)): number for what, number in counts.items()}
        for kind, counts in torch._dynamo.utils.counters.items()
        if counts
    }
    torch._dynamo.reset()
    return result, counted
