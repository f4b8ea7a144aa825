"""Drawings: what they show (`_pictures`) and how it is laid out (`_svg`)."""

from __future__ import annotations

import random
import re
import time
import xml.etree.ElementTree as xml
from itertools import combinations

import networkx as nx
import programs
import pytest
import recordings

from dtypetrace.records import Event, Input, Op, Recording
from dtypetrace.render import svg
from dtypetrace.render.pictures import Node, Pictures, text

SVG = "{http://www.w3.org/2000/svg}"
FLOW = """
model = nn.Linear(4, 4).half()
noise = torch.ones(2, 4)
more = (noise * 2).view(2, 4).relu()
x = torch.ones(2, 4).half() + more
model(x)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return programs.run(tmp_path_factory.mktemp("svg"), FLOW)


def nodes(graph: nx.DiGraph) -> dict[str, Node]:
    return {d["node"].label: d["node"] for _, d in graph.nodes(data=True)}


# ---------------------------------------------------------------- what is drawn


def test_a_finding_is_drawn_from_birth_to_collision(program):
    graph = Pictures(program.recording).finding(program.only)
    kinds = {label: node.kind for label, node in nodes(graph).items()}
    assert kinds == {
        "noise = ones()": "birth",
        "3 ops keep float32": "run",
        "add()": "promotion",
        "linear": "collision",
        "model = half()": "cast",
        "x": "stream",
    }
    main = [
        (graph.nodes[a]["node"].label, graph.nodes[b]["node"].label) for a, b, d in graph.edges(data=True) if d["main"]
    ]
    assert set(main) == {("noise = ones()", "3 ops keep float32"), ("3 ops keep float32", "add()"), ("add()", "linear")}
    assert nodes(graph)["3 ops keep float32"].detail == "mul, view, relu"
    assert {d["dtype"] for *_, d in graph.edges(data=True)} == {"float16", "float32"}


def test_without_a_recording_the_names_and_the_runs_are_missing(program):
    assert set(nodes(Pictures().finding(program.only))) == {"ones()", "add()", "linear", "half()", "the other operand"}


def test_a_dtype_that_was_read_is_drawn_as_read(tmp_path):
    found = programs.run(
        tmp_path,
        "model = nn.Linear(4, 4).half()\nwide = torch.ones(1)\nx = torch.ones(2, 4).half().to(wide.dtype)\nmodel(x)",
    ).only
    graph = Pictures().finding(found)
    assert "read as wide.dtype" in [d["note"] for *_, d in graph.edges(data=True)]


@pytest.mark.parametrize("kind", recordings.KINDS)
def test_findings_of_every_kind_have_a_picture(kind):
    graph = Pictures().finding(recordings.finding(kind))
    assert any(d["node"].kind == ("collision" if kind == "collision" else "damage") for _, d in graph.nodes(data=True))
    xml.fromstring(svg.draw(graph, "title"))
    assert not Pictures().finding(recordings.bare(kind)), "a setting is wrong: no tensor went anywhere"


def chain_of(*ops: tuple[str, str]) -> Recording:
    """A chain of ops, each with the dtype that it makes; every third also takes the very first's result."""
    made = [Op("ones", "ones.default", "forward", "", -1, (), (ops[0][1],), 1)]
    for n, (name, dtype) in enumerate(ops[1:], 1):
        inputs = [Input(ops[n - 1][1], 0, n - 1)] + ([Input(ops[0][1], 0, 0)] if n % 3 == 0 else [])
        made.append(Op(name, f"{name}.default", "forward", "", -1, tuple(inputs), (dtype,), 1))
    return Recording(events=(Event("factory", "ones", -1, "", (), ops[0][1]),), ops=tuple(made))


def test_runs_contract_and_casts_never_do():
    wide, half = "float32", "float16"
    recording = chain_of(
        ("ones", wide),
        ("mul", wide),
        ("relu", wide),
        ("_to_copy", half),
        ("gelu", half),
        ("tanh", half),
        ("_to_copy", wide),
        ("sum", wide),
    )
    graph = Pictures(recording).ops(7)
    assert nx.is_directed_acyclic_graph(graph)
    reported = [graph.nodes[n]["node"] for n in nx.topological_sort(graph)]
    assert [n.kind for n in reported if n.label == "_to_copy"] == ["cast", "cast"]
    assert [n.label for n in reported if n.kind == "run"] == ["3 ops keep float32", "2 ops keep float16"]


def test_integers_contract_too_and_become_floating_in_a_node_of_their_own():
    recording = chain_of(
        ("arange", "int64"),
        ("sub", "int64"),
        ("abs", "int64"),
        ("mul", "float32"),
        ("exp", "float32"),
        ("tanh", "float32"),
        ("add", "float32"),
    )
    reported = [
        d["node"].label for _, d in Pictures(recording).ops(6).nodes(data=True) if d["node"].kind in ("op", "run")
    ]
    assert reported == ["3 ops keep int64", "mul", "2 ops keep float32", "add"]


def test_a_picture_has_at_most_sixty_nodes():
    dtypes = ["float32", "float16"] * 200
    recording = chain_of(*[("_to_copy", d) for d in dtypes])
    assert len(Pictures(recording).ops(399)) == 60
    assert len(Pictures(recording).ops(399, limit=12)) == 12


def test_random_slices_contract_to_graphs_without_circles():
    chance = random.Random(0)
    for _ in range(60):
        ops = []
        for n in range(80):
            above = chance.sample(range(n), min(n, chance.randrange(3)))
            inputs = tuple(Input(ops[p].outputs[0], -1, p) for p in above)
            ops.append(
                Op(
                    "op",
                    "op.default",
                    "forward",
                    "",
                    -1,
                    inputs,
                    (chance.choice(("float32", "float32", "bfloat16")),),
                    1,
                )
            )
        graph = Pictures(Recording(ops=tuple(ops))).ops(79)
        assert nx.is_directed_acyclic_graph(graph) and len(text(graph).splitlines()) == len(graph)


# ---------------------------------------------------------------- how it is laid out


def layered(count: int, seed: int = 0) -> nx.DiGraph:
    chance, graph = random.Random(seed), nx.DiGraph()
    for n in range(count):
        graph.add_node(n, node=Node("op", f"op {n}", "float32", f"file.py:{n}"))
        for above in chance.sample(range(n), min(n, 1 + chance.randrange(2))):
            if n - above < 12:
                graph.add_edge(above, n, dtype="float32", main=False, note="", read=False)
    return graph


@pytest.mark.parametrize("seed", range(5))
def test_boxes_do_not_overlap_and_edges_go_down(seed):
    drawn = xml.fromstring(svg.draw(layered(40, seed), "title"))
    boxes = []
    for group in drawn.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        boxes.append([float(rect.get(k)) for k in ("x", "y", "width", "height")])
    assert len(boxes) == 40
    for (ax, ay, aw, ah), (bx, by, bw, bh) in combinations(boxes, 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay
    for path in drawn.iter(f"{SVG}path"):
        heights = [float(y) for y in re.findall(r"[\d.]+,([\d.]+)", path.get("d").rpartition("M")[0])]
        assert heights == sorted(heights) and heights[0] < heights[-1]


def points(path: str) -> list[tuple[float, float]]:
    """Points on a path of lines and curves, close to each other."""
    found, at = [], (0.0, 0.0)
    for kind, numbers in re.findall(r"([MLC])([^MLC]+)", path):
        given = [tuple(map(float, p.split(","))) for p in numbers.split()]
        if kind == "C":
            (ax, ay), (bx, by), (cx, cy) = given
            for t in (n / 40 for n in range(41)):
                u = 1 - t
                weights = u**3, 3 * u * u * t, 3 * u * t * t, t**3
                found.append(
                    (
                        sum(w * x for w, x in zip(weights, (at[0], ax, bx, cx))),
                        sum(w * y for w, y in zip(weights, (at[1], ay, by, cy))),
                    )
                )
        elif kind == "L":
            found += [
                (at[0] + (given[0][0] - at[0]) * n / 20, at[1] + (given[0][1] - at[1]) * n / 20) for n in range(21)
            ]
        at = given[-1]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_no_edge_crosses_words_or_boxes(seed):
    graph = layered(24, seed)
    for n, (_, _, data) in enumerate(graph.edges(data=True)):
        data["note"] = f"operand {n}" if n % 2 else ""
    drawn = xml.fromstring(svg.draw(graph, "title"))
    taken = [[float(g.find(f"{SVG}rect").get(k)) for k in ("x", "y", "width", "height")] for g in drawn.iter(f"{SVG}g")]
    for words in drawn.findall(f"{SVG}text"):
        wide = len(words.text) * 6.6
        taken.append([float(words.get("x")) - wide / 2, float(words.get("y")) - 10, wide, 12])
    assert len(drawn.findall(f"{SVG}text")) == graph.number_of_edges()
    for path in drawn.findall(f"{SVG}path"):
        body = path.get("d")
        for x, y in points(body[: body.rindex("M")]):
            assert not any(bx + 1 < x < bx + w - 1 and by + 1 < y < by + h - 1 for bx, by, w, h in taken), (x, y)


def test_a_node_links_to_its_line():
    graph = nx.DiGraph()
    graph.add_node(1, node=Node("cast", "x = to()", "float16", facts="[2, 3]", line=("/p/a.py", 3)))
    graph.add_node(2, node=Node("collision", "linear", "", line=("/p/a.py", 9)))
    graph.add_edge(1, 2, dtype="float16", main=True, note="", read=False)
    drawn = xml.fromstring(svg.draw(graph, "title", {("/p/a.py", 3): "DT101-1-0-3"}))
    (link,) = drawn.findall(f"{SVG}a")
    assert link.get("href") == "#DT101-1-0-3" and "[2, 3]" in link.find(f"{SVG}g/{SVG}title").text


def test_both_operands_have_their_histories(tmp_path):
    text = """
        weight = torch.ones(4, 4)
        narrow = weight.half()
        moved = narrow.relu().view(4, 4)
        x = torch.ones(2, 4)
        x @ moved
    """
    run = programs.run(tmp_path, text)
    graph = Pictures(run.recording).finding(run.only)
    labels = {d["node"].label for _, d in graph.nodes(data=True)}
    assert {"x = ones()", "narrow = half()", "2 ops keep float16"} <= labels
    ends = {graph.nodes[n]["node"].label for n in graph.predecessors("end")}
    assert len(ends) == 2 and nx.is_weakly_connected(graph)
    facts = {d["node"].label: d["node"].facts for _, d in graph.nodes(data=True)}
    assert facts["x = ones()"].startswith("[2, 4]")


def test_sixty_nodes_are_fast_and_small():
    graph = layered(60)
    started = time.perf_counter()
    drawn = svg.draw(graph, "title")
    assert time.perf_counter() - started < 0.2 and len(drawn) < 60_000


def test_the_sweeps_take_crossings_out():
    """Two chains side by side, entered crosswise."""
    graph = nx.DiGraph()
    for name in ("a1", "b1", "b2", "a2", "a3", "b3"):
        graph.add_node(name, node=Node("op", name, "float32"))
    graph.add_edges_from(
        [("a1", "a2"), ("a2", "a3"), ("b1", "b2"), ("b2", "b3")], dtype="float32", main=False, note="", read=False
    )
    drawn = xml.fromstring(svg.draw(graph, "title"))
    at = {g.find(f"{SVG}text").text: float(g.find(f"{SVG}rect").get("x")) for g in drawn.iter(f"{SVG}g")}
    assert at["a1"] < at["b1"] and at["a2"] < at["b2"] and at["a3"] < at["b3"]


def test_casts_are_diamonds_and_collisions_have_two_borders():
    graph = nx.DiGraph()
    graph.add_node(1, node=Node("cast", "to()", "float16"))
    graph.add_node(2, node=Node("collision", "linear", ""))
    graph.add_edge(1, 2, dtype="float16", main=True, note="", read=False)
    drawn = xml.fromstring(svg.draw(graph, "title"))
    cast, collision = drawn.iter(f"{SVG}g")
    assert cast.find(f"{SVG}polygon") is not None and len(collision.findall(f"{SVG}rect")) == 2
    assert [t.text for t in drawn.findall(f"{SVG}text")] == ["float16"], "the dtype's name stands beside the colour"
    assert cast.find(f"{SVG}title").text == "cast, to(), float16" and drawn.get("role") == "img"


def test_a_circle_is_drawn_without_the_edge_that_closes_it():
    graph = nx.DiGraph([(1, 2), (2, 3), (3, 1)])
    nx.set_node_attributes(graph, Node("op", "x", ""), "node")
    for edge in graph.edges:
        graph.edges[edge].update(dtype="", main=False, note="", read=False)
    assert len(list(xml.fromstring(svg.draw(graph, "t")).iter(f"{SVG}path"))) == 2


def test_nothing_to_draw_draws_nothing():
    assert svg.draw(nx.DiGraph(), "title") == ""


def test_wide_characters_take_two_columns():
    assert (svg.columns("naïve"), svg.columns("漢字"), svg.shortened("a" * 100, 20)) == (5, 4, "a" * 6 + "…" + "a" * 13)
