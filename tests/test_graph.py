"""How dtypes flowed: lineages along the events, the links that `tensor.dtype` makes, the graph and its slices."""

from __future__ import annotations

import networkx as nx
import programs
import pytest
from recordings import RecordingBuilder

from dtypetrace import graph
from dtypetrace.records import Event, Frame, Input, Op, Place, Read, Recording


def place(line: int, file: str = "/p/train.py") -> Place:
    return Place((Frame(file, line, "main", True),))


PLACES = tuple(place(n) for n in range(1, 9))


def event(how: str, to: str, at: int = 0, parents=(), source=(), **more) -> Event:
    return Event(how, more.pop("op", how), at, "", tuple(source), to, tuple(parents), **more)


def words(flow) -> list[tuple[str, str, str]]:
    return [(s.how, s.source, s.to) for s in flow]


# ---------------------------------------------------------------- lineage, on recordings made by hand


def test_the_lineage_of_a_birth_is_the_birth_alone():
    recording = Recording(PLACES, (event("factory", "float32", 3, op="ones"),))
    assert graph.lineage(recording, 0).root.op == "ones"
    assert words(graph.flow(recording, 0)) == [("value", "float32", "float32")]
    origin = graph.origin(recording, 0, name="x")
    assert (origin.kind, origin.op, origin.name, origin.line) == ("factory", "ones", "x", 4)


def test_nothing_known_is_an_input_from_nowhere():
    assert graph.lineage(Recording(), -1) is None
    assert graph.flow(Recording(), -1) == ()
    origin = graph.origin(Recording(), -1, name="x")
    assert (origin.kind, origin.name, origin.place) == ("input", "x", Place())


def test_a_promotion_is_a_step_and_the_wide_operand_the_origin():
    events = (
        event("factory", "float32", 0, op="ones"),
        event("promotion", "float32", 1, [0], ["float16", "float32"], op="cat"),
        event("promotion", "float32", 2, [1], ["float16", "float32"], op="add"),
    )
    recording = Recording(PLACES, events)
    assert words(graph.flow(recording, 2)) == [
        ("value", "float32", "float32"),
        ("promotion", "float16 + float32", "float32"),
        ("promotion", "float16 + float32", "float32"),
    ]
    assert graph.origin(recording, 2).line == 1


def test_a_cast_cuts_the_story():
    events = (event("factory", "float64", 0), event("cast", "float32", 1, (), ["float64"], op="float", explicit=True))
    recording = Recording(PLACES, events)
    assert words(graph.flow(recording, 1)) == [("cast", "float64", "float32")]
    assert graph.origin(recording, 1).kind == "cast"


def test_of_two_that_widened_to_a_third_the_wrong_one_is_followed():
    """bfloat16 + float16 give float32. In a float16 model it is the bfloat16 one that came from elsewhere, and the other way round."""
    events = (
        event("factory", "float16", 0),
        event("autocast", "bfloat16", 1),
        event("promotion", "float32", 2, [0, 1], ["float16", "bfloat16"]),
    )
    recording = Recording(PLACES, events)
    assert graph.origin(recording, 2, expected="float16").line == 2
    assert graph.origin(recording, 2, expected="bfloat16").line == 1
    assert graph.origin(recording, 2).line == 1


def test_a_default_dtype_is_the_origin_of_what_fell_into_it():
    events = (event("factory", "float64", 4, op="ones", default=1),)
    recording = Recording(PLACES, events)
    origin = graph.origin(recording, 0)
    assert (origin.kind, origin.op, origin.line) == ("factory", "set_default_dtype", 2)
    assert [(s.op, s.place.line) for s in graph.flow(recording, 0)] == [("set_default_dtype", 2), ("ones", 5)]


def test_a_lineage_follows_the_pointers_that_the_tensor_carried():
    """In the merged graph a loop has a cycle, and a shorter path that no tensor took."""
    events = (
        event("factory", "float32", 0),
        event("promotion", "float32", 1, [0], ["float16", "float32"]),
        event("promotion", "float32", 2, [1], ["float16", "float32"]),
        event("promotion", "float32", 3, [2, 0], ["float16", "float32"]),
    )
    line = graph.lineage(Recording(PLACES, events), 3)
    assert [s.place for s in line.events] == [0, 1, 2, 3]


def read(to: str, step: int, at: int, frames_up: int = -1) -> Read:
    return Read(to, at, step, frames_up)


def test_an_attribute_is_followed_where_what_was_read_is_wrong():
    events = (
        event("factory", "float32", 0, op="ones"),  # the mask
        event("factory", "float32", 1, op="arange"),  # the table, of the same dtype by itself
        event("attribute", "float32", 2, [1], ["float32"], reads=(read("float32", 0, 2),), op="to"),
    )
    recording = Recording(PLACES, events)
    assert graph.origin(recording, 2, expected="float16").line == 1
    assert words(graph.flow(recording, 2, expected="float16")) == [
        ("value", "float32", "float32"),
        ("attribute", "float32", "float32"),
    ]


def test_an_attribute_is_passed_over_where_the_tensor_that_was_read_is_right():
    """`x.to(y.dtype)` that changed nothing, and y as it should be: x has the dtype of its birth, and y is no culprit."""
    events = (
        event("factory", "float32", 0),
        event("factory", "float32", 1),
        event("attribute", "float32", 2, [1], ["float32"], reads=(read("float32", 0, 2),)),
    )
    assert graph.origin(Recording(PLACES, events), 2, expected="float32").line == 2


def test_a_cast_to_another_tensor_s_dtype():
    events = (
        event("factory", "float32", 0),
        event("cast", "float32", 2, (), ["int64"], reads=(read("float32", 0, 2),), explicit=True, op="to"),
    )
    recording = Recording(PLACES, events)
    assert graph.origin(recording, 1, expected="float16").line == 1
    expected = graph.origin(recording, 1, expected="float32")
    assert (expected.kind, expected.line) == ("cast", 3)


def test_the_name_of_what_came_in(tmp_path):
    program = programs.run(
        tmp_path, "F.linear(OLD, torch.ones(2, 2, dtype=torch.bfloat16))", before="OLD = torch.ones(1, 2)"
    )
    assert program.findings[0].operands[0].origin.kind == "input"


# ---------------------------------------------------------------- links, as the text shows them

# The mask is float32 in a float16 model. Where the mask's dtype was handed on, the mask's line is the origin (`#!`).
MODEL = "model = nn.Linear(4, 4).half()\n"
LINKS = {
    "inside the call": "mask = torch.ones(2, 4)  #!\nx = IDS.to(mask.dtype)",
    "inside the call, by keyword": "mask = torch.ones(2, 4)  #!\nx = IDS.to(dtype=mask.dtype)",
    "inside the call, with a device": "mask = torch.ones(2, 4)  #!\nx = IDS.to(mask.device, mask.dtype)",
    "a factory": "mask = torch.ones(2, 4)  #!\nx = torch.zeros(2, 4, dtype=mask.dtype)",
    "one that changed nothing": "mask = torch.ones(2, 4)  #!\ny = torch.ones(2, 4)\nx = y.to(mask.dtype)",
    "inside an expression": "mask = torch.ones(2, 4)  #!\nx = IDS.to(mask.dtype if mask is not None else torch.float16)",
    "a name that was assigned": "mask = torch.ones(2, 4)  #!\nwanted = mask.dtype\nx = IDS.to(wanted)",
    "one of several names": "mask = torch.ones(2, 4)  #!\ndevice, wanted = mask.device, mask.dtype\nx = IDS.to(device, wanted)",
    "an attribute that was assigned": "class C: pass\nmask = torch.ones(2, 4)  #!\nC.wanted = mask.dtype\nx = IDS.to(C.wanted)",
    "passed by the caller": "mask = torch.ones(2, 4)  #!\ndef cast(x, dtype):\n    return x.to(dtype)\nx = cast(IDS, mask.dtype)",
    "passed by the caller's caller": (
        "mask = torch.ones(2, 4)  #!\ndef cast(x, dtype):\n    return x.to(dtype)\ndef twice(x, dtype):\n    return cast(x, dtype)\n"
        "x = twice(IDS, mask.dtype)"
    ),
    "a property": (
        "class Guide(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.scale = nn.Parameter(torch.ones(2, 4))  #!\n"
        "    @property\n    def dtype(self):\n        return self.scale.dtype\nguide = Guide()\nx = IDS.to(guide.dtype)"
    ),
    "a property that looks for a parameter": (
        "class Guide(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.scale = nn.Parameter(torch.ones(2, 4))  #!\n"
        "    @property\n    def dtype(self):\n        return next(self.parameters()).dtype\nguide = Guide()\nx = IDS.to(guide.dtype)"
    ),
    "the tensor itself": "mask = torch.ones(2, 4)  #!\nx = IDS.to(mask)",
    "type_as": "mask = torch.ones(2, 4)  #!\nx = IDS.type_as(mask)",
    "handed on twice": "mask = torch.ones(2, 4)  #!\ny = IDS.to(mask.dtype)\nx = torch.zeros(2, 4, dtype=y.dtype)",
    # the dtype is read, but the call says its own
    "a literal": "mask = torch.ones(2, 4)\nmask.dtype\nx = IDS.to(torch.float32)  #!",
    "a literal on the line of a read": "mask = torch.ones(2, 4)\nx, y = IDS.to(torch.float32), mask.dtype  #!",
    "a literal keyword": "mask = torch.ones(2, 4)\nmask.dtype\nx = torch.zeros(2, 4, dtype=torch.float32)  #!",
    "a cast by name": "half = torch.ones(2, 4, dtype=torch.float16)\nhalf.dtype\nx = half.float()  #!",
    "a comparison": "mask = torch.ones(2, 4)\ny = torch.ones(2, 4)  #!\nif mask.dtype == torch.float32:\n    x = y.to('cpu')",
}


@pytest.mark.parametrize("name", LINKS)
def test_a_dtype_that_was_read_from_a_tensor(name, tmp_path):
    program = programs.run(tmp_path, MODEL + "IDS = torch.arange(8).view(2, 4)\n" + LINKS[name] + "\nmodel(x)\n")
    f = program.only
    assert f.culprit.name == "input"
    assert program.at(f.culprit.origin.place).endswith("#!"), program.at(f.culprit.origin.place)
    by_itself = name.startswith(("a literal", "a cast", "a comparison"))
    assert ("attribute" in [s.how for s in f.flow]) is not by_itself


# A model in half reads its own dtype and computes in it; what it returns meets another model, in float32.
OWN_DTYPE = {
    "a property": ("next(self.parameters()).dtype", "self.feed(x.to(self.dtype))"),
    "the weight": ("None", "self.feed(x.to(self.feed.weight.dtype))"),
    "made in it": ("self.feed.weight.dtype", "self.feed(torch.ones(x.shape, dtype=self.dtype)) + 1"),
}


@pytest.mark.parametrize("name", OWN_DTYPE)
def test_a_cast_to_the_dtype_of_the_weights_that_it_then_meets_follows_them(name, tmp_path):
    own, computed = OWN_DTYPE[name]
    program = programs.run(
        tmp_path,
        f"""
        class Sampler(nn.Module):
            def __init__(self):
                super().__init__()
                self.feed = nn.Linear(4, 4)
            @property
            def dtype(self):
                return {own}
            def forward(self, x):
                return {computed}
        sampler = Sampler().half()  #!
        decoder = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        decoder(sampler(torch.ones(2, 4)))
        """,
    )
    f = program.only
    assert (f.culprit.name, f.principle) == ("input", "most parameters")
    assert program.at(f.culprit.origin.place).endswith("#!"), program.at(f.culprit.origin.place)


# Each becomes w, float32, of codes and their scale. The scale is float32 to be exact; the line that reads its dtype decided.
DEQUANTISED = {
    "float8": "scale = w.abs().max().float() / 448\ncodes = (w / scale).to(torch.float8_e4m3fn)\nw = codes.to(scale.dtype) * scale  #!",
    "int8, a scale of each row": (
        "scale = w.abs().amax(1, keepdim=True).float() / 127\ncodes = (w / scale).round().to(torch.int8)\n"
        "kind = scale.dtype\nw = codes.to(kind) * scale  #!"
    ),
    "uint16, with a zero point": (
        "low = w.min().float()\nscale = (w.max() - low).float() / 65535\ncodes = ((w - low) / scale).round().to(torch.uint16)\n"
        "w = codes.to(scale.dtype) * scale + low  #!"
    ),
}


@pytest.mark.parametrize("name", DEQUANTISED)
def test_who_turns_codes_into_numbers_decides_their_dtype(name, tmp_path):
    program = programs.run(
        tmp_path,
        "w = torch.randn(4, 4).to(torch.bfloat16)\n"
        + DEQUANTISED[name]
        + "\nF.linear(torch.ones(2, 4).to(torch.bfloat16), w)\n",
    )
    assert program.at(program.only.culprit.origin.place).endswith("#!")


def test_the_cast_is_wrong_where_the_tensor_that_was_read_is_right(tmp_path):
    """The same program, judged against a float32 model: `.half()` is wrong, and the reads of a dtype are right."""
    program = programs.run(
        tmp_path,
        """
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        mask = torch.ones(2, 4)
        x = model[0](mask).half()
        y = torch.zeros(2, 4).to(x.dtype)
        model(y)
        """,
    )
    f = program.only
    assert f.culprit.name == "input"
    assert program.at(f.culprit.origin.place) == "x = model[0](mask).half()"
    assert [s.how for s in f.flow] == ["cast", "attribute", "value"]


# `temb` is float32 already where it is cast to another tensor's dtype: what made that one float32 is the origin (`#!`).
CHANGED_NOTHING = {
    "an average with float32 weights": (
        "mix = torch.ones(2, 4)  #!\nh = model(ONES)\nstyle = (h * mix).sum(1) / mix.sum(1)\n"
        "temb = torch.arange(8).view(2, 4).float()\nx = temb.to(style.dtype)"
    ),
    "widened, then only among its own": (
        "bias = torch.zeros(4)  #!\nstyle = model(ONES) + bias\nstyle = style * torch.full((4,), 0.5)\nstyle = style + style.mean()\n"
        "temb = torch.arange(8).view(2, 4).float()\nx = temb.type_as(style)"
    ),
    "made like it": "bias = torch.zeros(4)  #!\nstyle = model(ONES) + bias\nstyle = style * torch.full((4,), 0.5)\nx = torch.ones_like(style)",
    "handed on twice": (
        "bias = torch.zeros(4)  #!\nstyle = model(ONES) * bias\nstyle = style * torch.full((4,), 0.5)\n"
        "temb = torch.arange(8).view(2, 4).float().to(style.dtype)\nx = torch.rand(2, 4).to(temb.dtype)"
    ),
    "by a library's line": "style = model(ONES).float()  #!\nstyle = style * torch.full((4,), 0.5)\nx = LIBRARY.embed(IDS.float(), style)",
    "by a library's line, from a property": (
        "style = LIBRARY.Held(torch.ones(2, 4))  #!\nstyle.of = style.of * torch.full((4,), 0.5)\nx = LIBRARY.embed(IDS.float(), style)"
    ),
}
LIBRARY = """
class Held:
    def __init__(self, of):
        self.of = of
    @property
    def dtype(self):
        return self.of.dtype
def embed(temb, style):
    return (temb * 2).to(dtype=style.dtype)
"""


@pytest.mark.parametrize("name", CHANGED_NOTHING)
def test_a_cast_that_changed_nothing_is_explained_by_the_tensor_whose_dtype_it_took(name, tmp_path, tmp_path_factory):
    library = tmp_path_factory.mktemp("library") / "embeddings.py"
    library.write_text(LIBRARY)
    before = (
        f"import importlib.util\nspec = importlib.util.spec_from_file_location('embeddings', {str(library)!r})\n"
        "LIBRARY = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(LIBRARY)\n"
    )
    text = MODEL + "ONES, IDS = torch.ones(2, 4).half(), torch.arange(8).view(2, 4)\n" + CHANGED_NOTHING[name]
    program = programs.run(tmp_path, text + "\nmodel(x)\n", before=before)
    f = next(f for f in program.findings if f.kind == "collision")
    assert program.at(f.culprit.origin.place).endswith("#!"), program.at(f.culprit.origin.place)
    assert "attribute" in [s.how for s in f.flow] or name == "made like it"


# ---------------------------------------------------------------- the graph


def op(name: str, inputs=(), outputs=("float32",), module: str = "", count: int = 1) -> Op:
    return Op(name, f"{name}.default", "forward", module, 0, tuple(inputs), tuple(outputs), count)


def chain(length: int) -> Recording:
    """ones -> op0 -> op1 -> ..., every op also fed by op0."""
    ops = [op("op0", [Input("float32", 0)])]
    ops += [op(f"op{i}", [Input("float32", 0, i - 1), Input("float32", 0, 0)]) for i in range(1, length)]
    return Recording(PLACES, (event("factory", "float32", 0, op="ones", name="x"),), tuple(ops))


def test_a_node_for_each_op_and_origin_an_edge_for_each_operand():
    built = graph.build(chain(3))
    assert isinstance(built, nx.MultiDiGraph)
    assert set(built.nodes) == {("op", 0), ("op", 1), ("op", 2), ("origin", 0)}
    assert sorted(built.edges(data="operand")) == [
        (("op", 0), ("op", 1), 0), (("op", 0), ("op", 1), 1), (("op", 0), ("op", 2), 1), (("op", 1), ("op", 2), 0), (("origin", 0), ("op", 0), 0),
    ]  # fmt: skip
    assert {d for *_, d in built.edges(data="dtype")} == {"float32"}
    assert built.nodes["op", 1]["op"] == "op1" and built.nodes["op", 1]["count"] == 1
    assert built.nodes["origin", 0]["kind"] == "factory" and built.nodes["origin", 0]["dtype"] == "float32"


def test_a_loop_is_a_cycle():
    ops = (op("add", [Input("float32", 0, 1)]), op("mul", [Input("float32", 0, 0)]))
    assert list(nx.simple_cycles(graph.build(Recording(PLACES, (event("factory", "float32"),), ops))))


def test_the_graph_of_a_real_step(tmp_path):
    program = programs.run(
        tmp_path,
        """
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).bfloat16()
        x = torch.ones(2, 4)
        net(x.bfloat16()).sum().backward()
        """,
    )
    built = program.trace.to_networkx()
    ops = {data["op"]: node for node, data in built.nodes(data=True) if node[0] == "op" and data["phase"] == "forward"}
    assert nx.has_path(built, ops["linear"], ops["sum"])
    into_linear = {d for *_, d in built.in_edges(ops["linear"], data="dtype")}
    assert into_linear == {"bfloat16"}
    assert {data["phase"] for node, data in built.nodes(data=True) if node[0] == "op"} >= {"forward", "backward"}


def made_like(dtype: str, *, cast_first: bool) -> tuple[RecordingBuilder, int]:
    """A tensor, perhaps cast to float32 where it is used, and another one that is made like it."""
    b = RecordingBuilder()
    table = b.made(dtype, explicit=True)
    if cast_first:
        b.ran("float", table, out="float32", aten="_to_copy.default")
    pad = b.made(dtype, "factory", "new_zeros", reads=(Read(dtype, 0, table.event, -1),))
    b.refused("linear", pad, b.made("float32", "parameter").as_parameter("weight"))
    return b, pad.event


@pytest.mark.parametrize(
    ("dtype", "cast_first", "op"),
    [("float64", True, "new_zeros"), ("float64", False, "ones"), ("float16", True, "ones")],
)
def test_the_culprit_of_what_was_made_like_another(dtype, cast_first, op):
    """A table that is kept wide and cast where it is used is healthy: the line that chose it is wrong. All else that is
    made like a wrong tensor follows from that."""
    b, step = made_like(dtype, cast_first=cast_first)
    assert graph.origin(b.recording, step, "float32").op == op
    assert graph.origin(b.recording, step, dtype).op == "ones", "what is right has the story of what it was made like"
