"""A small layered drawing of a flow, as SVG text: ranks by topological generations, ordered by barycentres.

Words on an edge have a place of their own in the rank below its start, so no other edge passes them: between two ranks
edges curve, inside a rank they go straight down.

The words come from ``render.pictures``, the colours from the page's style sheet. There are plain attributes as well, so
a page that drops the style still shows a drawing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import networkx as nx

from .layout import columns
from .listings import family
from .pictures import Node

_Edge = tuple[Any, Any]
"""The names of the nodes that an edge joins."""
_CHARACTER = 7.3
"""Width of a character of the monospaced 12 px font."""
_SMALL = 6.7
"""Width of a character of the 11 px font on the edges."""
_LONGEST = 46
_WIDEST_LINE = 26
"""Characters of a line in a box: two boxes beside each other fit a telephone."""
_MOST_LINES = 2
_NOTE = 18
_TITLE = 200
"""Characters that a screen reader reads for a node or for the drawing."""
_LINE = 16
_GAP_X, _GAP_Y = 22, 22
_WORDS_HEIGHT = 18
_SWEEPS = 6
"""Passes that order the ranks: drawings of 60 nodes no longer change after four."""
_PASSING_WIDTH = 14


def shortened(text: str, longest: int = _LONGEST) -> str:
    """A text of at most this many characters. Its middle is left out: the ends of paths and module names matter
    most."""
    if len(text) <= longest:
        return text
    end = longest * 2 // 3
    return text[: longest - end - 1] + "…" + text[-end:]


_PASSING = Node("pass", "", "")
"""Used instead of a node where a long edge passes a rank."""


@dataclass
class _Box:
    """A node's place in the drawing; where a long edge passes a rank, its node is ``_PASSING``."""

    node: Node
    rank: int
    lines: list[tuple[str, int]] = field(default_factory=list)
    """Each line, and which of the node's texts it belongs to."""
    width: float = 0
    height: float = 0
    x: float = 0
    y: float = 0
    band: tuple[float, float] = (0, 0)
    """Where its rank begins and ends."""

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def _box(node: Node, rank: int) -> _Box:
    texts = [t for t in (node.label, node.place, node.detail) if t]
    lines = [(line, number) for number, t in enumerate(texts) for line in _wrapped(t)]
    wide = max(columns(line) for line, _ in lines) * _CHARACTER + 34 if lines else 0
    return _Box(node, rank, lines, max(wide, 120), len(lines) * _LINE + 16)


def _wrapped(text: str) -> list[str]:
    """A text on at most two lines; what does not fit is cut from its middle."""
    text = " ".join(shortened(word, _WIDEST_LINE) for word in text.split())
    text = shortened(text, _MOST_LINES * (_WIDEST_LINE - 2))
    if columns(text) <= _WIDEST_LINE:
        return [text]
    return textwrap.wrap(text, _WIDEST_LINE)[:_MOST_LINES]


def draw(graph: nx.DiGraph, title: str, links: Mapping[tuple[str, int], str] | None = None) -> str:
    """The drawing as an ``<svg>`` element, empty for an empty graph. Edges that close a loop are left out. ``links``:
    what a node's line, as (file, line), links to."""
    if not graph:
        return ""
    graph = _without_circles(graph)
    boxes = {
        n: _box(graph.nodes[n]["node"], 2 * rank)  # the ranks between are for words
        for rank, layer in enumerate(nx.topological_generations(graph))
        for n in layer
    }
    for n in list(nx.topological_sort(graph))[::-1]:  # a source is drawn just above the node that it feeds
        below = [boxes[s].rank for s in graph.successors(n)]
        if below and not graph.in_degree(n):
            boxes[n].rank = min(below) - 2
    routes = _routes(graph, boxes)
    ranks = _ordered(boxes, routes)
    width, height = _placed(ranks)
    parts = [
        f'<svg class="flow" role="{"group" if links else "img"}" aria-label="{escape(shortened(title, _TITLE))}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" style="--w:{width:.0f}px" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" '
        'font-size="12" xmlns="http://www.w3.org/2000/svg">'
    ]
    parts += [_edge(graph.edges[e], [boxes[n] for n in route]) for e, route in routes.items()]
    parts += [_linked(b, links or {}) for b in boxes.values() if b.node.kind != _PASSING.kind]
    parts += [_edge_words(graph.edges[e], boxes[route[1]]) for e, route in routes.items() if boxes[route[1]].lines]
    return "".join(parts) + "</svg>"


def _without_circles(graph: nx.DiGraph) -> nx.DiGraph:
    graph = graph.copy()
    while not nx.is_directed_acyclic_graph(graph):
        graph.remove_edge(*nx.find_cycle(graph)[-1][:2])
    return graph


def _routes(graph: nx.DiGraph, boxes: dict[Any, _Box]) -> dict[_Edge, list[Any]]:
    """For each edge the boxes that it passes, including the placeholders on the ranks between."""
    routes: dict[_Edge, list[Any]] = {}
    for above, below in graph.edges:
        route = [above]
        for rank in range(boxes[above].rank + 1, boxes[below].rank):
            name = ("pass", above, below, rank)
            boxes[name] = _Box(_PASSING, rank, width=_PASSING_WIDTH)
            words = _edge_text(graph.edges[above, below]) if len(route) == 1 else ""
            if words:
                boxes[name].lines = [(words, 0)]
                boxes[name].width, boxes[name].height = columns(words) * _SMALL + 10, _WORDS_HEIGHT
            route.append(name)
        routes[above, below] = [*route, below]
    return routes


def _ordered(boxes: dict[Any, _Box], routes: dict[_Edge, list[Any]]) -> list[list[_Box]]:
    """The ranks, each ordered by the barycentre of its neighbours, alternating down and up."""
    names: list[list[Any]] = [[] for _ in range(max(b.rank for b in boxes.values()) + 1)]
    for name, box in boxes.items():
        names[box.rank].append(name)
    up: dict[Any, list[Any]] = {n: [] for n in boxes}
    down: dict[Any, list[Any]] = {n: [] for n in boxes}
    for route in routes.values():
        for above, below in zip(route, route[1:]):
            up[below].append(above)
            down[above].append(below)
    position = {n: i for rank in names for i, n in enumerate(rank)}
    for sweep in range(_SWEEPS):
        near, order = (up, names[1:]) if sweep % 2 == 0 else (down, names[-2::-1])
        for rank in order:
            centre = {n: sum(position[o] for o in near[n]) / len(near[n]) if near[n] else position[n] for n in rank}
            rank.sort(key=lambda n: (centre[n], position[n]))
            position.update((n, i) for i, n in enumerate(rank))
    return [[boxes[n] for n in rank] for rank in names]


def _placed(ranks: list[list[_Box]]) -> tuple[float, float]:
    """Sets every box's position, with each rank centred; returns the drawing's width and height in pixels."""
    wide = [sum(b.width for b in rank) + _GAP_X * (len(rank) - 1) for rank in ranks]
    whole, y = max(wide), 6.0
    for rank, own in zip(ranks, wide):
        x = (whole - own) / 2 + 6
        tall = max(b.height for b in rank)
        for box in rank:
            box.x, box.y, box.band = x, y + (tall - box.height) / 2, (y, y + tall)
            x += box.width + _GAP_X
        y += tall + _GAP_Y
    return whole + 12, y - _GAP_Y + 6


# ---------------------------------------------------------------- shapes


def _shape(box: _Box) -> str:
    node, x, y, w, h = box.node, box.x, box.y, box.width, box.height
    colour = family(node.dtype) or "none"
    common = 'fill="#fff" stroke="#667"'
    if node.kind == "cast":
        point = min(15.0, h / 2)
        points = " ".join(
            f"{px:.0f},{py:.0f}"
            for px, py in (
                (x, y + h / 2),
                (x + point, y),
                (x + w - point, y),
                (x + w, y + h / 2),
                (x + w - point, y + h),
                (x + point, y + h),
            )
        )
        outline = f'<polygon points="{points}" {common}/>'
    else:
        radius = h / 2 if node.kind in ("birth", "stream") else 4
        outline = f'<rect x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}" rx="{radius:.0f}" {common}/>'
        if node.kind == "collision":
            outline += (
                f'<rect x="{x + 3:.0f}" y="{y + 3:.0f}" width="{w - 6:.0f}" height="{h - 6:.0f}" rx="2" {common}/>'
            )
    words = "".join(
        f'<text x="{x + w / 2:.0f}" y="{y + 20 + _LINE * i:.0f}" text-anchor="middle" fill="#223" '
        f'class="l{min(number, 2)}">{escape(line)}</text>'
        for i, (line, number) in enumerate(box.lines)
    )
    facts = (node.kind, node.label, node.dtype, node.facts, node.place, node.detail)
    title = ", ".join(shortened(fact, _TITLE) for fact in facts if fact)
    return f'<g class="n {node.kind} {colour}"><title>{escape(title)}</title>{outline}{words}</g>'


def _linked(box: _Box, links: Mapping[tuple[str, int], str]) -> str:
    target = links.get(box.node.line)
    return f'<a href="#{escape(target)}">{_shape(box)}</a>' if target else _shape(box)


def _edge(data: dict[str, Any], route: list[_Box]) -> str:
    """Straight down inside the ranks, curved between them; interrupted by its own words."""
    path = ""
    for box, below in zip(route, route[1:]):
        (_, ends), (begins, bottom) = box.band, below.band
        start = box.y + box.height
        goal = below.y if below.lines else bottom
        if not path or box.lines:
            path += f"M{box.middle:.0f},{start:.0f}"
        path += f"L{box.middle:.0f},{ends:.0f}" if start < ends else ""
        bend = (ends + begins) / 2
        path += (
            f"C{box.middle:.0f},{bend:.0f} {below.middle:.0f},{bend:.0f} {below.middle:.0f},{begins:.0f}"
            f"L{below.middle:.0f},{goal:.0f}"
        )
    kind = " main" if data["main"] else ""
    kind += " read" if data["read"] else ""
    end, bottom = route[-1].middle, route[-1].y
    tip = f"M{end - 4:.0f},{bottom - 7:.0f}L{end:.0f},{bottom:.0f}L{end + 4:.0f},{bottom - 7:.0f}"
    return f'<path class="e {family(data["dtype"]) or "none"}{kind}" d="{path}{tip}" fill="none" stroke="#667"/>'


def _edge_text(data: dict[str, Any]) -> str:
    if data["read"]:
        return shortened(f"{data['dtype']} {data['note']}", 2 * _NOTE)
    # the end of a parameter's name matters most
    note = data["note"] if len(data["note"]) <= _NOTE else "…" + data["note"][1 - _NOTE :]
    return " · ".join(t for t in (data["dtype"], note) if t)


def _edge_words(data: dict[str, Any], box: _Box) -> str:
    return (
        f'<text class="w {family(data["dtype"]) or "none"}" x="{box.middle:.0f}" y="{box.y + 13:.0f}" '
        f'text-anchor="middle" font-size="11" fill="#223">{escape(box.lines[0][0])}</text>'
    )
