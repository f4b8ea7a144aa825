"""What the ledger reads of torch's compiler, which documents none of it: the one file with its private names.

Nothing here is imported before the program compiles something. Each function takes torch's objects and returns plain
data; ``missing`` says what a version of torch lacks.
"""

from __future__ import annotations

import copy
import operator
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from ..calls import dtype_name
from ..marks import Ref

COMPILER = getattr(torch, "_TorchCompileInductorWrapper", None)
"""What ``torch.compile`` calls for a captured graph, by default."""
OTHER_COMPILER = getattr(torch, "_TorchCompileWrapper", None)
"""What it calls for another backend."""
_PARTS = (
    ("torch._inductor.graph", "GraphLowering.codegen"),
    ("torch._inductor.codegen.common", "CSEProxy.load"),
    ("torch._inductor.compile_fx", "_recursive_joint_graph_passes"),
    ("torch._inductor.compile_fx", "compile_fx"),
    ("torch._inductor.scheduler", "SchedulerNode"),
    ("torch._inductor.virtualized", "V"),
)
"""Where the parts are that all of this needs."""


def missing() -> str:
    """The first part that this torch lacks, empty for none. Imports the compiler."""
    if COMPILER is None:
        return "torch._TorchCompileInductorWrapper"
    for home, name in _PARTS:
        found: Any = import_module(home)
        for step in name.split("."):
            found = getattr(found, step, None)
        if found is None:
            return f"{home}.{name}"
    return ""


def part(home: str, name: str = "") -> Any:
    """A module of the compiler's, or something in it. It must have been imported."""
    found = sys.modules[f"torch._inductor.{home}"]
    return getattr(found, name) if name else found


# ---------------------------------------------------------------- graphs


def name_of(target: Any) -> str:
    """How the ledger writes what a node calls: ``aten.mul.Tensor``, ``getitem``, ``linear``."""
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", None) or type(target).__name__


def dtype_of(value: Any) -> str:
    """The dtype of a node's first tensor, empty where it has none."""
    if isinstance(value, torch.Tensor):
        return dtype_name(value.dtype)
    if isinstance(value, (tuple, list)):
        return next(filter(None, map(dtype_of, value)), "")
    return ""


@dataclass(frozen=True, slots=True)
class Called:
    """A node of a captured or compiled graph, as plain data."""

    name: str
    op: str
    dtype: str
    inputs: tuple[str, ...]
    form: tuple[str, tuple[str, ...]]
    """Its other arguments as text, and the nodes among all of them in order."""
    stack: tuple[tuple[str, int, str], ...]
    """File, line and function of the frames that called it, innermost first."""
    module: str
    seq: int
    steps: tuple[str, ...]
    """The nodes of the captured graph that it comes from, nearest last."""
    barrier: bool
    """Whether ``emulate_precision_casts`` rounds what it reads and returns."""
    scalars: tuple[float, ...]
    nbytes: int
    several: bool = False
    """Whether it has several results."""


def called(node: Any) -> Called:
    """One node of a graph. ``meta`` has ``val`` in compiled graphs, ``example_value`` in captured ones."""
    op, args, kwargs = _own(node)
    order: list[str] = []

    def take(argument: Any) -> str:
        order.append(argument.name)
        return "%"

    text = str(torch.fx.map_arg((args, kwargs), take))
    meta = node.meta
    value = meta["val"] if "val" in meta else meta.get("example_value")
    modules = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    return Called(
        node.name,
        op,
        "" if _takes_lists(node) else dtype_of(value),
        tuple(dict.fromkeys(order)),
        (text, tuple(order)),
        _frames(meta.get("stack_trace") or ""),
        next((path for path, _ in reversed(modules.values())), ""),
        meta.get("seq_nr", -1),
        tuple(_sources(meta.get("from_node") or ())),
        bool(meta.get("low_precision_pointwise_barrier")),
        tuple(float(a) for a in args if type(a) in (int, float)),
        _nbytes(value),
        isinstance(value, (tuple, list)),
    )


def _takes_lists(node: Any) -> bool:
    """Whether a node of a compiled graph is an operator over lists (``aten._foreach_add.List``)."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._opname.startswith("_foreach_")


def _element(node: Any) -> Any:
    """The operator over lists of which a node takes one result; None for other nodes."""
    made = node.args[0] if node.target is operator.getitem else None
    return made if isinstance(made, torch.fx.Node) and _takes_lists(made) else None


def _own(node: Any) -> tuple[str, Any, Any]:
    """What a node calls, and with what. An operator over lists stands for one call with each of their elements: where
    its result is taken. Itself it takes nothing."""
    if _takes_lists(node):
        return name_of(node.target), (), {}
    if (made := _element(node)) is not None:
        each = lambda given: given[node.args[1]] if isinstance(given, (tuple, list)) else given
        name = name_of(made.target).replace("_foreach_", "", 1)
        return name, tuple(map(each, made.args)), {k: each(v) for k, v in made.kwargs.items()}
    op = "input" if node.op == "placeholder" else "constant" if node.op == "get_attr" else name_of(node.target)
    return op, node.args, node.kwargs


def _nbytes(value: Any) -> int:
    """Bytes of a node's first tensor, 0 where its size is not fixed."""
    first = value[0] if isinstance(value, (tuple, list)) and value else value
    size = first.numel() if isinstance(first, torch.Tensor) else 0
    return size * first.dtype.itemsize if type(size) is int and size else 0


_FRAME = re.compile(r'^ *File "(.*)", line (\d+), in (.*)$', re.MULTILINE)


@lru_cache(maxsize=4096)
def _frames(text: str) -> tuple[tuple[str, int, str], ...]:
    return tuple((file, int(line), function) for file, line, function in reversed(_FRAME.findall(text)))


def _sources(from_node: Sequence[Any]) -> Iterator[str]:
    for source in from_node:
        yield from _sources(source.from_node)
        yield source.name


def calls(graph: Any) -> list[Called]:
    """The nodes of a graph in order, but for its output."""
    return [called(n) for n in graph.nodes if n.op != "output"]


_ENDS = {"Saved": "saved", "Input": "written", "Plain": "returned", "Grad": "returned", "Intermediate": "returned"}
"""What the first word of an output's descriptor means."""


def ends(graph: Any) -> dict[str, set[str]]:
    """What becomes of the nodes that a graph returns, or writes into its inputs."""
    output = next(iter(reversed(graph.nodes)))
    results = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    descriptors = output.meta.get("desc") or [None] * len(results)
    found: dict[str, set[str]] = {}
    for node, descriptor in zip(results, descriptors):
        if isinstance(node, torch.fx.Node):
            word = re.match("[A-Z][a-z]*", type(descriptor).__name__)
            found.setdefault(node.name, set()).add(_ENDS.get(word[0] if word else "", "returned"))
    for node in graph.nodes:
        if copied_to(node) is not None:
            found.setdefault(node.args[1].name, set()).add("written")
    return found


# ---------------------------------------------------------------- graphs that are run a second time


@dataclass(frozen=True)
class Repeated:
    """A compiled graph, to be run node by node."""

    nodes: list[Any]
    constants: Mapping[str, Any]
    results: list[Any]
    """The nodes that it returns, in order; None for what is no node."""


def repeated(lowering: Any) -> Repeated:
    """The graph of a GraphLowering, as the compiler left it."""
    nodes = list(copy.deepcopy(lowering.module.graph).nodes)
    output = nodes[-1].args[0]
    results = [n if isinstance(n, torch.fx.Node) else None for n in output]
    return Repeated(
        nodes, {n.target: look_up_in(lowering.module, n.target) for n in nodes if n.op == "get_attr"}, results
    )


def copied_to(node: Any) -> str | None:
    """The name of the input into which a node copies, None where it does not."""
    if node.target is not torch.ops.aten.copy_.default or node.args[0].op != "placeholder":
        return None
    name: str = node.args[0].name
    return name


# ---------------------------------------------------------------- custom operators


_TORCHS = frozenset({"aten", "prims", "prim", "inductor", "quantized", "profiler", "rngprims", "debugprims"})


class RealCall:
    """Stands for an operator's own function until it has run once with numbers, and notes the dtypes that it gave.

    Torch takes an operator's hash from that function.
    """

    given: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    """Of each result."""

    def __init__(self, op: Any) -> None:
        self.op, self.original = op, op._op
        op._op = self

    def __hash__(self) -> int:
        return hash(self.original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.original(*args, **kwargs)
        if type(made) is torch.Tensor or isinstance(made, (tuple, list)) and made and type(made[0]) is torch.Tensor:
            self.given = tuple(d for a in (*args, *kwargs.values()) if (d := dtype_of(a)))
            self.made = tuple(map(dtype_of, made if isinstance(made, (tuple, list)) else (made,)))
            self.remove()
        return made

    def remove(self) -> None:
        if self.op._op is self:
            self.op._op = self.original


def custom_operators(graph: Any) -> set[Any]:
    """The operators that a captured graph calls and that are not torch's own."""
    targets = (n.target for n in graph.nodes if n.op == "call_function")
    return {t for t in targets if isinstance(t, torch._ops.OpOverload) and t.namespace not in _TORCHS}


# ---------------------------------------------------------------- kernels


@dataclass(frozen=True, slots=True)
class Buffer:
    """What one loop, or one call of a library's kernel, writes."""

    names: tuple[str, ...]
    node: str
    """The node whose numbers it holds; empty for a part of one, and for a write into a tensor of the program."""
    nodes: frozenset[str]
    """The nodes that it was made from."""
    reads: tuple[tuple[str, bool], ...] = ()
    """Buffers, and whether their numbers are taken before they are written."""
    rounds: bool = False
    """Whether its loop has casts that do round."""
    removed: bool = False
    """Whether it stays inside its kernel."""
    loop: bool = True
    """Whether it is a loop that the compiler wrote."""
    dtype: str = ""


Taken = Mapping[str, Mapping[str, bool]]
"""By loop and buffer: whether the loop takes the buffer's numbers before they are written."""


class Reads(threading.local):
    """What the loops read for which this thread writes the code; None while it writes none."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, bool]] | None = None


reads = Reads()


def watched_load(original: Callable[..., Any]) -> Callable[..., Any]:
    """Notes what a loop takes from where, as its code is written: ``CSEProxy.load``."""

    def load(self: Any, name: str, index: Any) -> Any:
        if reads.of is not None and self.kernel.current_node is not None:
            seen = reads.of.setdefault(self.kernel.current_node.get_name(), {})
            seen[name] = seen.get(name, False) or name in self.kernel.cse.store_cache
        return original(self, name, index)

    return load


def buffers(lowering: Any, taken: Taken) -> list[Buffer]:
    """What the kernels of a graph write. ``lowering``: its GraphLowering, once its code is written."""
    found = []
    for kernel in lowering.scheduler.nodes:
        for part in _parts(kernel):
            written = part.node
            names = tuple(o.get_name() for o in part.get_outputs())
            if written is None or not names:
                continue
            origin = written.get_origin_node()
            body = getattr(part, "_body", None)
            found.append(
                Buffer(
                    names,
                    origin.name if origin is not None else "",
                    frozenset(_made_from(origin, written.get_origins())),
                    tuple(_reads(part, taken)),
                    body is not None and _rounds(body),
                    all(n in lowering.removed_buffers for n in names),
                    body is not None,
                    _dtype(written),
                )
            )
    return found


def _made_from(node: Any, origins: Any) -> Iterator[str]:
    """The nodes that a buffer was made from; of operators over lists the elements that lead to it."""
    yield from (n.name for n in origins)
    waiting = [node] if node is not None else [n for n in origins if not _takes_lists(n)]
    seen: set[Any] = set()
    while waiting and any(map(_takes_lists, origins)):
        node = waiting.pop()
        made = _element(node)
        if node not in seen and (made or node) in origins:
            seen.add(node)
            yield node.name
            torch.fx.map_arg(_own(node)[1:], waiting.append)


def _dtype(written: Any) -> str:
    try:
        return dtype_name(written.get_dtype())
    except Exception:  # some of torch's classes have no dtype, and say so in different ways
        return ""


def _reads(loop: Any, taken: Taken) -> Iterator[tuple[str, bool]]:
    """The buffers that a loop depends on, and whether it takes them before they are written. C++ kernels rename those
    that stay inside them."""
    seen = taken.get(loop.get_name(), {})
    needed = {dependency.name for dependency in loop.read_writes.reads}
    renamed = any(early for name, early in seen.items() if name not in needed)
    yield from ((name, seen.get(name, renamed)) for name in sorted(needed))


def _parts(kernel: Any) -> Iterator[Any]:
    inner = getattr(kernel, "snodes", None) or ()
    if hasattr(kernel, "get_outer_nodes"):
        inner = kernel.get_outer_nodes()
    if not inner:
        yield kernel
    for part in inner:
        yield from _parts(part)


def _rounds(body: Any) -> bool:
    """Whether a loop has a cast to 16 bits that is more than a note for the store: one that asks for no compute
    type."""
    for block in (body.root_block, *body.subblocks.values()):
        for node in block.graph.nodes:
            if node.target == "to_dtype" and node.kwargs.get("use_compute_types", True) is False:
                return True
            if node.target == "to_dtype" and len(node.args) > 4 and node.args[4] is False:
                return True
    return False


# ---------------------------------------------------------------- captured graphs, once more


def autocasts() -> bool:
    """Whether autocast is on for the graph that is captured now."""
    return any(map(torch.is_autocast_enabled, ("cpu", "cuda", "xpu", "mps")))


def given(module: Any) -> dict[str, Ref]:
    """The program's tensors that come into a captured graph, by the names of their nodes."""
    found = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            value = getattr(node.meta.get("grapharg"), "example", None)
        else:
            value = look_up_in(module, node.target) if node.op == "get_attr" else None
        if isinstance(value, torch.Tensor):
            found[node.name] = Ref(value)
    return found


def copied(graph: Any) -> Any:
    """A copy of a captured graph, with where Dynamo found its inputs; the compiler changes the graph itself."""
    made = copy.deepcopy(graph)
    for old, new in zip(graph.nodes, made.nodes):
        if "_dynamo_source" in vars(old):
            new._dynamo_source = old._dynamo_source
    return made


def look_up_in(module: Any, name: str) -> Any:
    """What a graph's module has under a dotted name."""
    for step in name.split("."):
        module = getattr(module, step)
    return module


def text_of(compiled: Any) -> str:
    """A compiled graph as torch prints it, without its comments, which name the program's files, and the empty lines
    before them."""
    text = getattr(compiled, "inductor_post_grad_graph_str", "") or ""
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


@contextmanager
def once_more(model: Any, graph: Any) -> Iterator[tuple[Any, list[Any]]]:
    """A captured graph as a module of its own, and the fake tensors and numbers that it is given. graph: a copy from
    before the compiler changed ``model``. What is done with them adds no guards to the program's code."""
    module = torch.fx.GraphModule(model, graph)
    vars(module).update({n: vars(model)[n] for n in ("meta", "_param_name_to_source") if n in vars(model)})
    inputs = [n.meta.get("example_value") for n in graph.nodes if n.op == "placeholder"]
    modes = (getattr(i, "fake_mode", None) for i in inputs if isinstance(i, torch.Tensor))
    shapes = next((m.shape_env for m in modes if m is not None and m.shape_env is not None), None)
    with ExitStack() as stack:
        if shapes is not None:
            stack.enter_context(shapes.suppress_guards())
        stack.enter_context(sys.modules["torch._guards"].tracing(None))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        yield module, inputs


def compile_again(compile: Callable[[], Any]) -> None:
    """Lets the compiler work on a captured graph again, up to the code of its kernels: no kernel is compiled, nothing
    is read from or written to torch's caches, nothing runs."""
    lowering = part("graph", "GraphLowering")
    original = vars(lowering)["compile_to_module"]
    functions = import_module("torch._functorch.config")
    counters = sys.modules["torch._dynamo.utils"].counters
    before = copy.deepcopy(counters)

    def compile_to_module(self: Any) -> Any:
        self.codegen()
        return SimpleNamespace(call=None, runner=None)

    lowering.compile_to_module = compile_to_module
    settings = {"enable_autograd_cache": False, "force_non_lazy_backward_lowering": True}
    try:
        with (
            part("config").patch(fx_graph_cache=False, fx_graph_remote_cache=False),
            functions.patch({k: v for k, v in settings.items() if hasattr(functions, k)}),
        ):
            compile()
    finally:
        lowering.compile_to_module = original
        counters.clear()
        counters.update(before)
