"""The event that decided a dtype, for every kind in which a tensor is born or changed, and the marks that carry it."""

from __future__ import annotations

import copy
import gc

import programs
import pytest
import torch

from dtypetrace.capture.marks import Origins, RawEvent
from dtypetrace.records import Place

# Each program makes an x of two rows of four; x then meets another dtype. What decides x's dtype is the line with `#!`.
# (kind, op, name), the program
BIRTHS = {
    # ---- factories
    "ones": ("factory ones", "x = torch.ones(2, 4)  #!"),
    "a factory with a dtype": ("factory zeros", "x = torch.zeros(2, 4, dtype=torch.float64)  #!"),
    "full": ("factory full", "x = torch.full((2, 4), 1.0)  #!"),
    "linspace": ("factory linspace", "x = torch.linspace(0, 1, 8).view(2, 4)  #!"),
    "empty, filled later": ("factory empty", "x = torch.empty(2, 4)  #!\nx.normal_()"),
    "through views and indices": (
        "factory linspace",
        "table = torch.linspace(0, 1, 8)  #!\nx = table[torch.arange(8)].reshape(2, 4).contiguous().clone().detach()",
    ),
    "through arithmetic": ("factory rand", "y = torch.rand(2, 4)  #!\nx = (y * 2 + 1).relu().softmax(-1)"),
    "through lists": ("factory ones", "y = torch.ones(2, 4)  #!\nx = torch.stack(list(y.unbind(0)))"),
    "through a loop": ("factory ones", "x = torch.ones(2, 4)  #!\nfor i in range(50):\n    x = x + i"),
    "written in place": (
        "factory ones",
        "x = torch.ones(2, 4, dtype=torch.float64)  #!\nx.add_(torch.ones(2, 4, dtype=torch.float16))",
    ),
    "set by item": ("factory zeros", "x = torch.zeros(2, 4)  #!\nx[0] = torch.ones(4, dtype=torch.float64)"),
    "a complex number's part": ("factory ones", "x = torch.fft.rfft(torch.ones(2, 6)).real  #!"),
    "new_zeros": ("factory ones", "y = torch.ones(1, dtype=torch.float64)  #!\nx = y.new_zeros(2, 4)"),
    # ---- conversions
    "from_numpy": ("conversion from_numpy", "import numpy as np\nx = torch.from_numpy(np.ones((2, 4)))  #!"),
    "tensor of floats": ("conversion tensor", "x = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])  #!"),
    "tensor of an array": ("conversion tensor", "import numpy as np\nx = torch.tensor(np.ones((2, 4)))  #!"),
    "as_tensor": ("conversion as_tensor", "import numpy as np\nx = torch.as_tensor(np.ones((2, 4)))  #!"),
    "asarray": ("conversion asarray", "import numpy as np\nx = torch.asarray(np.ones((2, 4)))  #!"),
    "Tensor of a list": ("factory Tensor", "x = torch.Tensor([[1.0, 2, 3, 4]])  #!"),
    "FloatTensor of a list": ("factory FloatTensor", "x = torch.FloatTensor([[1.0, 2, 3, 4]])  #!"),
    # ---- views that no mode sees made
    "another class over the same numbers": (
        "factory ones",
        "class Named(torch.Tensor):\n    pass\nx = torch.ones(2, 4).as_subclass(Named)  #!",
    ),
    "a class that looks at every call": (
        "factory ones",
        "class Named(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
        "        return super().__torch_function__(func, types, args, kwargs or {})\n"
        "y = torch.ones(2, 4)  #!\nx = y.as_subclass(Named)",
    ),
    # ---- casts
    "float": ("cast float", "x = torch.ones(2, 4, dtype=torch.float16).float()  #!"),
    "to": ("cast to", "x = torch.ones(2, 4, dtype=torch.float16).to(torch.float64)  #!"),
    "to with a device": ("cast to", "x = torch.ones(2, 4, dtype=torch.float16).to('cpu', torch.float64)  #!"),
    "type": ("cast type", "x = torch.ones(2, 4, dtype=torch.float16).type(torch.float64)  #!"),
    "of integers": ("cast float", "x = torch.arange(8).view(2, 4).float()  #!"),
    "a reduction's dtype": (
        "cast cumsum",
        "x = torch.ones(2, 4, dtype=torch.float16).cumsum(0, dtype=torch.float64)  #!",
    ),
    "softmax's dtype": (
        "cast softmax",
        "x = F.softmax(torch.ones(2, 4, dtype=torch.float16), -1, dtype=torch.float32)  #!",
    ),
    "the last of several casts": (
        "cast float",
        "x = torch.ones(2, 4, dtype=torch.float64).half()\nx = x.bfloat16()\nx = x.float()  #!",
    ),
    # ---- promotions: a step of the flow, and an origin only where nothing floated
    "int / int": ("promotion div", "x = torch.arange(8).view(2, 4) / 2  #!"),
    "int times a float": ("promotion mul", "x = torch.arange(8).view(2, 4) * 0.5  #!"),
    "a root of integers": ("promotion sqrt", "x = torch.arange(8).view(2, 4).sqrt()  #!"),
    "added to half": ("factory ones", "y = torch.ones(2, 4)  #!\nx = y + torch.ones(2, 4, dtype=torch.bfloat16)"),
    "half added to it": ("factory ones", "y = torch.ones(2, 4)  #!\nx = torch.ones(2, 4, dtype=torch.bfloat16) + y"),
    "joined with half": (
        "factory ones",
        "y = torch.ones(2, 2)  #!\nx = torch.cat([torch.ones(2, 2, dtype=torch.bfloat16), y], 1)",
    ),
    "where": (
        "factory zeros",
        "y = torch.zeros(2, 4)  #!\nx = torch.where(y > 0, torch.ones(2, 4, dtype=torch.bfloat16), y)",
    ),
    "widened twice": (
        "factory ones",
        "y = torch.ones(2, 4)  #!\nh = torch.ones(2, 4, dtype=torch.bfloat16)\nz = h + y\nx = h * z",
    ),
    # ---- a tensor without dimensions decides nothing that it cannot widen
    "after a number of a table": (
        "factory ones",
        "table = torch.linspace(0, 1, 9)\ny = torch.ones(2, 4)  #!\nx = table[3] * y",
    ),
    "after a number of a table, in a loop": (
        "factory ones",
        "table = torch.linspace(0, 1, 9)\nx = torch.ones(2, 4)  #!\nfor i in range(4):\n    x = table[i] + x",
    ),
    "where a number stands first": (
        "factory ones",
        "y = torch.ones(2, 4)  #!\nx = torch.where(torch.arange(4) > 1, torch.tensor(0.0), y)",
    ),
    "the larger of a number and numbers": (
        "factory ones",
        "low = torch.tensor(0.0)\ny = torch.ones(2, 4)  #!\nx = torch.maximum(low, y)",
    ),
    "two halves beside a float32 number": (
        "factory ones",
        "one = torch.tensor(1.0)\na, b = torch.ones(2, 4, dtype=torch.float16), torch.ones(2, 4, dtype=torch.bfloat16)  #!\n"
        "x = torch.addcmul(a, b, one)",
    ),
    "of numbers alone, the first": (
        "conversion tensor",
        "y = torch.tensor(2.0)  #!\nx = (y * torch.tensor(1.0)).expand(2, 4)",
    ),
    "integers times a number of no dimensions": (
        "conversion tensor",
        "scale = torch.tensor(2.0)  #!\nx = torch.arange(8).view(2, 4) * scale",
    ),
    # ---- weights that take no other dtype decide
    "a layer's result": ("parameter weight", "net = nn.Linear(4, 4, bias=False)  #!\nx = net(torch.ones(2, 4))"),
    "a layer's result, in a loop": (
        "parameter weight",
        "net = nn.Linear(4, 4, bias=False)  #!\nfor i in range(4):\n    x = net(torch.ones(2, 4))",
    ),
    "a convolution's result": (
        "parameter weight",
        "net = nn.Conv1d(1, 1, 1)  #!\nx = net(torch.ones(2, 1, 4)).squeeze(1)",
    ),
    "a norm's result is its input's": ("factory ones", "y = torch.ones(2, 4)  #!\nx = nn.LayerNorm(4)(y)"),
    # ---- the rest
    "reinterpreted": ("reinterpret view", "x = torch.ones(2, 4, dtype=torch.int32).view(torch.float32)  #!"),
    "default dtype": ("factory set_default_dtype", "torch.set_default_dtype(torch.float64)  #!\nx = torch.ones(2, 4)"),
    "default dtype of a tensor": (
        "conversion set_default_dtype",
        "torch.set_default_dtype(torch.float64)  #!\nx = torch.tensor([[1.0, 2, 3, 4]])",
    ),
    "default dtype of a division": (
        "promotion set_default_dtype",
        "torch.set_default_dtype(torch.float64)  #!\nx = torch.arange(8).view(2, 4) / 2",
    ),
    "default dtype, named all the same": (
        "factory ones",
        "torch.set_default_dtype(torch.float64)\nx = torch.ones(2, 4, dtype=torch.float32)  #!",
    ),
    "default dtype, put back": (
        "factory ones",
        "torch.set_default_dtype(torch.float64)\ntorch.set_default_dtype(torch.float32)\nx = torch.ones(2, 4)  #!",
    ),
    "torch.load": (
        "load -",
        "import io\nfile = io.BytesIO()\ntorch.save({'x': torch.ones(2, 4)}, file)\nfile.seek(0)\nx = torch.load(file)['x']  #!",
    ),
    "safetensors": (
        "load -",
        "from safetensors.torch import load_file, save_file\nsave_file({'x': torch.ones(2, 4)}, FILE)\nx = load_file(FILE)['x']  #!",
    ),
    "an autocast op": (
        "autocast matmul",
        "w = torch.ones(4, 4)\nwith torch.autocast('cpu', torch.bfloat16):\n    x = torch.ones(2, 4) @ w  #!",
    ),
    "from before the block": ("input -", "F.linear(OLD, torch.ones(4, 4, dtype=torch.float64))  #!\nx = OLD"),
    # ---- parameters and buffers
    "a module's parameter": ("parameter weight", "x = nn.Linear(4, 2).weight  #!"),
    "in a module's own constructor": (
        "parameter weight",
        "net = nn.Sequential(nn.Linear(4, 2))  #!\nx = net[0].weight",
    ),
    "half, by swapping the tensors": (
        "cast half",
        "torch.__future__.set_swap_module_params_on_conversion(True)\nnet = nn.Linear(4, 2)\ntry:\n    net.half()  #!\n"
        "finally:\n    torch.__future__.set_swap_module_params_on_conversion(False)\nx = net.weight",
    ),
    "swapped with another": (
        "factory zeros",
        "x, y = torch.ones(2, 4), torch.zeros(2, 4, dtype=torch.float16)  #!\ntorch.utils.swap_tensors(x, y)",
    ),
    "of a library's half": ("cast half", "net = nn.Linear(4, 2)\nnet.half()  #!\nx = net.weight"),
    "cast with its module": (
        "cast to",
        "net = nn.Sequential(nn.Linear(4, 2))\nnet.to(torch.float64)  #!\nx = net[0].weight",
    ),
    "cast through .data": ("cast double", "x = nn.Parameter(torch.zeros(2, 4))\nx.data = x.data.double()  #!"),
    "a parameter of one's own": ("factory zeros", "x = nn.Parameter(torch.zeros(2, 4))  #!"),
    "a buffer": ("parameter running_mean", "x = nn.BatchNorm1d(4).running_mean[None]  #!"),
    "a copy of a module": (
        "cast double",
        "import copy\nnet = nn.Linear(4, 2).double()  #!\nx = copy.deepcopy(net).weight",
    ),
    "assigned from a state dict": (
        "factory zeros",
        "net = nn.Linear(4, 2)\nstate = {'weight': torch.zeros(2, 4, dtype=torch.float64), 'bias': torch.zeros(2)}  #!\n"
        "net.load_state_dict(state, assign=True)\nx = net.weight",
    ),
    "copied from a state dict": (
        "parameter weight",
        "net = nn.Linear(4, 2)  #!\nnet.load_state_dict({'weight': torch.zeros(2, 4, dtype=torch.float64), 'bias': torch.zeros(2)})\nx = net.weight",
    ),
}
MEETS = "\nF.linear(x, torch.ones(4, 4).to(torch.float8_e5m2))\n"  # a dtype that nothing above has


@pytest.fixture(autouse=True)
def default_dtype():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", BIRTHS)
def test_the_event_that_decided(name, tmp_path):
    expected, text = BIRTHS[name]
    if "safetensors" in text:
        pytest.importorskip("safetensors")
    before = f"OLD = torch.ones(2, 4)\nFILE = {str(tmp_path / 'x.safetensors')!r}"
    program = programs.run(tmp_path, text + MEETS, before=before)
    assert program.findings, program.error
    origin = next(
        o for o in program.findings[0].operands if o.name in ("input", "weight") and o.dtype != "float8_e5m2"
    ).origin
    kind, _, word = expected.partition(" ")
    assert origin.kind == kind
    if word != "-":
        assert word in (origin.op, origin.name)
    at = program.at(Place((origin.place.user_frame,)))
    assert at.endswith("#!"), at


@pytest.mark.slow
def test_a_batch_from_a_worker(tmp_path):
    program = programs.run(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        model = nn.Linear(4, 4).half()
        for batch in DataLoader(torch.ones(2, 4), batch_size=2, num_workers=1):
            model(batch)
        """,
    )
    origin = program.only.culprit.origin
    assert origin.kind == "worker"
    assert origin.place.user_frame.line == program.line("DataLoader(torch")


def test_autocast_s_origin_is_the_op_and_the_region_is_a_step(tmp_path):
    program = programs.run(
        tmp_path,
        """
        w = torch.ones(4, 4)
        net = nn.Linear(4, 4)
        with torch.autocast("cpu", torch.bfloat16):
            x = net(torch.ones(2, 4))
        torch.mm(x, w)
        """,
    )
    f = program.only
    assert f.culprit.name == "input" and f.culprit.origin.kind == "autocast"
    assert program.at(f.culprit.origin.place) == "x = net(torch.ones(2, 4))"
    assert [(s.how, program.at(s.place)) for s in f.flow][:2] == [
        ("autocast", 'with torch.autocast("cpu", torch.bfloat16):'),
        ("autocast", "x = net(torch.ones(2, 4))"),
    ]


def test_a_tensor_that_backward_gives_back_keeps_its_origin(tmp_path):
    """A tensor that autograd saved comes back as another object; its story is found through the node."""
    program = programs.run(
        tmp_path,
        """
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x * 1)
                return x * 2
            @staticmethod
            def backward(ctx, g):
                saved, = ctx.saved_tensors
                return torch.mm(saved, torch.ones(2, 2, dtype=torch.float16))
        x = torch.ones(2, 2, requires_grad=True)
        Twice.apply(x).sum().backward()
        """,
    )
    f = program.only
    assert f.phase == "backward"
    assert program.at(f.operands[0].origin.place) == "x = torch.ones(2, 2, requires_grad=True)"


def test_a_gradient_s_dtype_is_its_parameter_s(tmp_path):
    program = programs.run(
        tmp_path,
        """
        p = nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))
        (p * 2).sum().backward()
        torch.mm(p.grad, torch.ones(2, 2))
        """,
    )
    gradient = program.only.operands[0]
    assert program.at(gradient.origin.place).startswith("p = nn.Parameter")


# ---------------------------------------------------------------- marks and steps


def test_watching_leaves_nothing_on_a_tensor(tmp_path):
    program = programs.run(tmp_path, "x = torch.ones(2)\ny = nn.Linear(2, 2)\nz = y(x)")
    x = program.names["x"]
    assert not vars(x)
    assert not vars(copy.deepcopy(x))
    assert not [k for k in vars(program.names["y"].weight) if "dtypetrace" in k]


def step(origins: Origins, op: str, parents=(), how="factory") -> int:
    return origins.event(RawEvent(how, op, 0, -1, (), torch.float32, tuple(parents)))


def test_a_mark_dies_with_its_tensor():
    origins = Origins()
    tensor = torch.ones(2)
    origins.mark(tensor, 3, 5)
    assert (origins.of(tensor).event, origins.of(tensor).op) == (3, 5)
    del tensor
    gc.collect()
    origins.sweep()
    assert not origins.marks


def test_an_id_that_is_used_again_is_another_tensor():
    origins = Origins()
    tensor, other = torch.ones(2), torch.ones(2)
    mark = origins.mark(tensor, 3, 5)
    origins.marks[id(other)] = mark  # as if the first had been freed without notice and the second had its id
    assert origins.of(other) is None


def test_equal_steps_are_one():
    origins = Origins()
    assert step(origins, "ones") == step(origins, "ones")
    assert step(origins, "ones") != step(origins, "zeros")
    assert len(origins.events) == 2


def test_a_stream_that_is_widened_in_a_loop_grows_no_chain(tmp_path):
    def steps(times: int) -> int:
        text = f"half = torch.ones(2, dtype=torch.float16)\nx = torch.ones(2)\nfor i in range({times}):\n    x = x + half\n    x = half * x"
        return len(programs.run(tmp_path, text).recording.events)

    assert steps(5) == steps(200)


def test_a_long_chain_ends():
    origins = Origins()
    number = step(origins, "ones")
    for i in range(200):
        number = step(origins, f"op{i}", [number], "promotion")
    assert len(origins.events) < 60
    assert origins.root(number) == 0


def test_a_steady_loop_adds_no_record(tmp_path):
    """However many steps are watched, the recording holds each distinct event once."""

    def sizes(times: int) -> tuple[int, ...]:
        program = programs.run(
            tmp_path,
            f"""
            net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1)).bfloat16()
            optimizer = torch.optim.AdamW(net.parameters())
            for i in range({times}):
                loss = net(torch.ones(2, 4, dtype=torch.bfloat16)).float().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            """,
        )
        r = program.recording
        assert not program.error and not r.not_seen
        return len(r.ops), len(r.events), len(r.places), len(r.modules)

    sizes(1)  # what torch imports for its first optimizer step runs operators of its own
    assert sizes(3) == sizes(12)


def test_a_cast_in_a_hook_on_saved_tensors_is_its_own(tmp_path):
    """C++ calls the hook inside the op that saves; the backward op still gets that op as its forward op."""
    text = """
    def pack(t):
        return t.to(torch.bfloat16)  #!
    net = nn.Linear(4, 2)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = (torch.ones(3, 4, requires_grad=True) @ net.weight.t()).sum()
    loss.backward()
    """
    program = programs.run(tmp_path, text)
    f = program.only
    assert f.culprit.origin.kind == "cast" and program.at(f.culprit.origin.place).endswith("#!")
    assert program.at(f.site).startswith("loss = ")


def test_a_dtype_that_torch_s_own_code_read_is_the_tensor_s(tmp_path):
    """Cayley's map makes an identity of its matrix's dtype; one that the program makes itself is the program's."""
    text = """
    from torch.nn.utils.parametrizations import orthogonal
    net = orthogonal(nn.Linear(4, 4), orthogonal_map="cayley").to(torch.bfloat16)  #!
    net.weight
    """
    program = programs.run(tmp_path, text)
    assert program.at(program.only.culprit.origin.place).endswith("#!")
    text = "eye = torch.eye(2, dtype=torch.bfloat16)  #!\ntorch.linalg.inv(eye)"
    program = programs.run(tmp_path, "torch.linalg.vector_norm(torch.ones(2).bfloat16())\n" + text)
    assert program.at(program.only.culprit.origin.place).endswith("#!")
