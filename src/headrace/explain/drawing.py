"""The drawing of a plan: its graph as boxes and arrows in layers, as an SVG that stands alone.

What is linked to what, where rows have to move and what is kept is seen at a glance in a picture and hardly in a list.
Kinds of nodes and edges have their looks here, so that the drawings of all strategies are read in the same way.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.explain import svg
from headrace.explain.graph import Edge, Graph, Node
from headrace.explain.layers import Place, arrange, straighten
from headrace.explain.svg import CHAR, EDGE, FAINT, FOOT, HEAD, INK, KEPT, LINE, MARGIN, PAD, PAPER, REPLICATED

_GAP_X, _GAP_Y = 22, 16
_BAND = svg.Look("#eef3f7", "#d5dee6")
_TITLES = 74  # of the names of bands, left of everything
_WIDE = 1_040  # of the boxes of one layer; more of them stand in several rows
_LINES = 4  # that a line of a node may take in its box
_LABEL, _HEADLINE = 24, 100  # characters beside an arrow, and above the drawing
_PORT = 26  # between arrows that reach the same box
_POINT = 7  # of an arrow
_BAR = 7
_DENSE = 3  # edges per node; where there are more, arrows take the straight way, behind the boxes

_ROWS, _GREY = svg.Look("#f4f5f6", "#7b8a99"), "#7b8a99"


@dataclass(frozen=True)
class _Kind:
    """How nodes of a kind look: what the legend says, the box, and how many characters a line has."""

    label: str
    look: svg.Look
    round_by: float = 6
    characters: int = 38


_NODES = {
    "operator": _Kind("operator", KEPT),
    "view": _Kind("view", KEPT),
    "shared": _Kind("shared subplan", REPLICATED),
    "elsewhere": _Kind("by a shared subplan", svg.Look(PAPER, KEPT.stroke, "5 4")),
    "kept": _Kind("kept", KEPT),
    "replicated": _Kind("in every bucket", REPLICATED),
    "not kept": _Kind("not kept", svg.Look(PAPER, _GREY, "5 4")),
    "table": _Kind("table", _ROWS, 0, 24),
    "static": _Kind("never changes", svg.Look("#f4f5f6", _GREY, "4 3"), 0, 24),
}
_COLOURS = {
    "joined": EDGE,
    "stays": EDGE,
    "exchanged": KEPT.stroke,
    "everywhere": REPLICATED.stroke,
}
_EDGES = {
    "stays": "stays in its bucket",
    "exchanged": "exchanged",
    "everywhere": "to every bucket",
}


@dataclass
class _Box:
    """A node with its lines of text, and where it stands."""

    node: Node
    lines: tuple[tuple[str, str], ...]  # with their colours
    place: Place
    y: float = 0

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 2 * PAD - 4 + (0 if self.node.share is None else _BAR + 6)


@dataclass
class _Arrow:
    """An edge with its label, and the places it passes from its reader down: the first is its label's."""

    edge: Edge
    lines: tuple[str, ...]
    places: list[Place]

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 4 if self.lines else 0


def to_svg(graph: Graph, head: Sequence[str]) -> str:
    """Draw a graph, each node above all that flows into it, with lines of text above it."""
    rows = _rows(graph)
    boxes = {node.name: _box(node, 2 * rows[node.name]) for node in graph.nodes}
    dense = len(graph.edges) > _DENSE * len(graph.nodes) and not any(edge.lines for edge in graph.edges)
    arrows = [_arrow(edge, boxes, dense) for edge in graph.edges]
    _arrange(boxes, arrows)
    headline = [(svg.cut(line, _HEADLINE), 12 if i else 15) for i, line in enumerate(head)]
    keys, left = _legend(graph), _TITLES if graph.bands else 0
    places = [*(box.place for box in boxes.values()), *(place for arrow in arrows for place in arrow.places)]
    drawn = max(place.x + place.width / 2 for place in places)
    right = PAD if graph.bands else 0
    inner = max(left + drawn + right, svg.legend_width(keys), svg.head_width(headline))
    for place in places:  # in the middle, where the title or the legend is wider
        place.x += MARGIN + left + (inner - right - left - drawn) / 2
    layers = _layers(boxes, arrows)
    for box in boxes.values():
        box.y = layers[box.place.layer][0]
    parts = list(_bands(graph, rows, layers, inner))
    parts += [line for arrow in arrows for line in _drawn_arrow(arrow, arrows, boxes, layers, 0.6 if dense else 1)]
    parts += [line for box in boxes.values() for line in _drawn_box(box)]
    height = layers[-1][1] + FOOT
    parts += svg.legend(keys, height - 26)
    return svg.document(inner + 2 * MARGIN, height, headline, parts)


# -- what there is to draw --------------------------------------------------------------------------------------------


def _rows(graph: Graph) -> dict[str, int]:
    """In which row each node stands: a layer that is too wide takes several."""
    found: dict[str, int] = {}
    top = 0
    for layer in sorted({node.layer for node in graph.nodes}):
        nodes = [node for node in graph.nodes if node.layer == layer]
        count = 1 + int(sum(_box(node, 0).place.width + 2 * _GAP_X for node in nodes) // _WIDE)
        found.update({node.name: top + i % count for i, node in enumerate(nodes)})
        top += min(count, len(nodes))
    return found


def _box(node: Node, layer: int) -> _Box:
    kind = _NODES[node.kind]
    lines = [(line, INK) for text in node.lines for line in _folded(text, kind.characters)]
    lines += [(line, FAINT) for text in node.notes for line in _folded(text, kind.characters)]
    width = max(svg.length(line) for line, _ in lines) * CHAR + 2 * PAD
    return _Box(node, tuple(lines), Place(layer, width))


def _folded(text: str, longest: int) -> list[str]:
    """A text as a few lines; what does not fit into them is cut."""
    return textwrap.wrap(
        " ".join(text.split()), longest, max_lines=_LINES, placeholder=" ...", break_on_hyphens=False
    ) or [""]


def _arrow(edge: Edge, boxes: Mapping[str, _Box], dense: bool) -> _Arrow:
    shown = tuple(svg.cut(line, _LABEL) for line in edge.lines)
    if dense:
        return _Arrow(edge, shown, [])
    first, last = boxes[edge.upper].place.layer + 1, boxes[edge.lower].place.layer
    width = max((svg.length(line) * CHAR + PAD for line in shown), default=2)
    # An arrow that passes layers has a place in each, so that no box stands in its way.
    places = [Place(first, width), *(Place(layer, 2, weight=4) for layer in range(first + 1, last))]
    return _Arrow(edge, shown, places)


def _legend(graph: Graph) -> list[svg.Key]:
    """Only what is there is explained."""
    nodes, edges = {node.kind for node in graph.nodes}, {edge.kind for edge in graph.edges}
    keys = [svg.Key(kind.label, kind.look) for name, kind in _NODES.items() if name in nodes]
    looks = ((label, svg.Look(_COLOURS[name], _COLOURS[name])) for name, label in _EDGES.items() if name in edges)
    return [*keys, *(svg.Key(label, look) for label, look in looks)]


# -- where it stands --------------------------------------------------------------------------------------------------


def _arrange(boxes: Mapping[str, _Box], arrows: Sequence[_Arrow]) -> None:
    places = {f"box {name}": box.place for name, box in boxes.items()}
    links: list[tuple[str, str]] = []
    for i, arrow in enumerate(arrows):
        names = [f"arrow {i} {at}" for at in range(len(arrow.places))]
        places.update(zip(names, arrow.places, strict=True))
        links += pairwise([f"box {arrow.edge.upper}", *names, f"box {arrow.edge.lower}"])
    arrange(places, links, _GAP_X)
    straighten(list(places.values()), [arrow.places[1:] for arrow in arrows], _GAP_X / 2)


def _layers(boxes: Mapping[str, _Box], arrows: Sequence[_Arrow]) -> list[tuple[float, float]]:
    """Where every layer begins and ends: boxes in the even ones, labels of arrows in the others."""
    found, y = [], float(MARGIN + HEAD)
    for layer in range(1 + max(box.place.layer for box in boxes.values())):
        heights = [box.height for box in boxes.values() if box.place.layer == layer]
        heights += [arrow.height for arrow in arrows if arrow.places and arrow.places[0].layer == layer]
        height = max(heights, default=0)
        found.append((y, y + height))
        y += height + _GAP_Y
    return found


def _bands(graph: Graph, rows: Mapping[str, int], layers: Sequence[tuple[float, float]], inner: float) -> Iterator[str]:
    for band in graph.bands:
        within = [rows[node.name] for node in graph.nodes if band.first <= node.layer <= band.last]
        top, bottom = layers[2 * min(within)][0] - _GAP_Y / 2, layers[2 * max(within)][1] + _GAP_Y / 2
        yield f'<g class="band" data-name={svg.attribute(band.title)}>'
        yield svg.rect(_BAND, MARGIN, top, inner, bottom - top, 8, "band")
        yield svg.text(MARGIN + PAD, top + 20, band.title, 12, FAINT, bold=True)
        yield "</g>"


# -- the drawing itself -----------------------------------------------------------------------------------------------


def _drawn_arrow(
    arrow: _Arrow,
    arrows: Sequence[_Arrow],
    boxes: Mapping[str, _Box],
    layers: Sequence[tuple[float, float]],
    opacity: float,
) -> Iterator[str]:
    edge, colour = arrow.edge, _COLOURS[arrow.edge.kind]
    upper, lower = boxes[edge.upper], boxes[edge.lower]
    reaching = [
        (boxes[a.edge.lower].place if not a.places else a.places[0], a) for a in arrows if a.edge.upper == edge.upper
    ]
    leaving = [
        (boxes[a.edge.upper].place if not a.places else a.places[-1], a) for a in arrows if a.edge.lower == edge.lower
    ]
    end, bottom = _port(upper, arrow, reaching), upper.y + upper.height
    # What is lower than its layer's highest box goes straight down to where the layer ends.
    x, y = end, layers[upper.place.layer][1] + _POINT
    way = f"M{x:.1f} {bottom + _POINT:.1f} V{y:.1f}"
    for place in arrow.places:
        top, low = layers[place.layer]
        way += f"{svg.curve(x, y, place.x, top)} V{low:.1f}"
        x, y = place.x, low
    way += svg.curve(x, y, _port(lower, arrow, leaving), lower.y)
    thick = 1.3 if colour == EDGE else 2
    yield f'<g class="edge" data-name={svg.attribute(f"{edge.lower} -> {edge.upper}")} opacity="{opacity:g}">'
    yield f"<title>{svg.escaped(edge.about or f'{edge.lower} to {edge.upper}')}</title>"
    yield f'<path class="way" d="{way}" fill="none" stroke="{colour}" stroke-width="{thick:g}"/>'
    yield (
        f'<path class="head" d="M{end:.1f} {bottom:.1f} l{-_POINT / 2:g} {_POINT} h{_POINT} z" '
        f'fill="{colour}" stroke="{colour}"/>'
    )
    if arrow.lines:
        yield from _drawn_label(arrow, layers[arrow.places[0].layer][0], colour)
    yield "</g>"


def _port(box: _Box, arrow: _Arrow, beside: Sequence[tuple[Place, _Arrow]]) -> float:
    """The x at which an arrow leaves or reaches a box: beside the others, in the order in which these come."""
    order = [other for _, other in sorted(beside, key=lambda pair: pair[0].x)]
    apart = min(_PORT, (box.place.width - 2 * PAD) / len(order))
    return box.place.x + apart * (order.index(arrow) - (len(order) - 1) / 2)


def _drawn_label(arrow: _Arrow, top: float, colour: str) -> Iterator[str]:
    place = arrow.places[0]
    yield svg.rect(svg.Look(PAPER, colour), place.x - place.width / 2, top, place.width, arrow.height, 3, "label")
    for i, line in enumerate(arrow.lines):
        yield svg.text(place.x, top + 14 + i * LINE, line, 12, FAINT if i else INK, middle=True)


def _drawn_box(box: _Box) -> Iterator[str]:
    node, width, kind = box.node, box.place.width, _NODES[box.node.kind]
    left = box.place.x - width / 2
    yield f'<g class="node" data-name={svg.attribute(node.name)} data-kind={svg.attribute(node.kind)}>'
    yield f"<title>{svg.escaped(node.about or node.name)}</title>"
    yield svg.rect(kind.look, left, box.y, width, box.height, kind.round_by)
    for i, (line, colour) in enumerate(box.lines):
        yield svg.text(box.place.x, box.y + PAD + 8 + i * LINE, line, 12, colour, bold=not i, middle=True)
    if node.share is not None:
        inner, y = width - 2 * PAD, box.y + box.height - PAD - _BAR + 2
        yield svg.rect(svg.Look(PAPER, kind.look.stroke), left + PAD, y, inner, _BAR, 2, "bar")
        if node.share:
            filled = svg.Look(kind.look.stroke, kind.look.stroke)
            yield svg.rect(filled, left + PAD, y, inner * node.share, _BAR, 2, "filled")
    yield "</g>"
