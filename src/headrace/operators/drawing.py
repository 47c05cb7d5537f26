"""The drawing of a tree of operators: boxes by stage, the answer on top and tables at the bottom, as an SVG of its own.

One sees at a glance where rows have to move: every band is a stage, within which nothing does, and what an arrow wears
says how rows get from one box to the next. What the last step brought to an operator, and had it give, is in its box.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.plan import svg
from headrace.plan.layers import Place, arrange, straighten
from headrace.plan.lines import counted
from headrace.plan.svg import CHAR, EDGE, FAINT, FOOT, HEAD, INK, KEPT, LINE, MARGIN, PAD, PAPER, REPLICATED, WIDEST

if TYPE_CHECKING:
    from headrace.operators.explained import FeedExplained, OperatorExplained, OperatorsExplanation, PortExplained

_GAP_X, _GAP_Y = 22, 16
_STAGE = 74  # of the names of stages, left of everything
_WIDE = 820  # of the tables in one row; more of them stand in several
_LINES = 4  # of a condition in a box
_OPERATOR, _TABLE, _LABEL = 38, 24, 24  # characters of a line in a box of each kind, and beside an arrow
_PORT = 26  # between arrows that reach the same box
_POINT = 7  # of an arrow

_BAND = svg.Look("#eef3f7", "#d5dee6")
_ROWS = svg.Look("#f4f5f6", "#7b8a99")
_STATIC = svg.Look("#f4f5f6", "#7b8a99", "4 3")
_WAYS = {"stays": EDGE, "exchanged": KEPT.stroke, "everywhere": REPLICATED.stroke}
_LEGEND = {
    "operator": svg.Key("operator", KEPT),
    "table": svg.Key("table", _ROWS),
    "static": svg.Key("never changes", _STATIC),
    "stays": svg.Key("stays in its bucket", svg.Look(EDGE, EDGE)),
    "exchanged": svg.Key("exchanged", svg.Look(KEPT.stroke, KEPT.stroke)),
    "everywhere": svg.Key("to every bucket", svg.Look(REPLICATED.stroke, REPLICATED.stroke)),
}


@dataclass
class _Box:
    """An operator or a table with its lines of text, and where it stands."""

    name: str
    kind: str  # operator | table
    look: svg.Look
    lines: tuple[tuple[str, str], ...]  # with their colours; the first is the title
    about: str
    place: Place
    y: float = 0

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 2 * PAD - 4


@dataclass
class _Arrow:
    """Rows on their way: from which box to which, and the places they pass, the last of which is their label's."""

    reader: str
    producer: str
    way: str
    lines: tuple[str, ...]
    about: str
    places: list[Place]


def to_svg(e: OperatorsExplanation) -> str:
    """Draw the tree, each operator above all that it reads from.

    Full conditions and reasons are the tooltips of boxes and arrows.
    """
    depth = _depths(e)
    boxes = {f"[{o.number}]": _operator_box(e, o, 2 * depth[o.number]) for o in e.operators}
    lowest = 2 * max(depth.values())
    boxes |= _table_boxes(e, lowest + 2)
    arrows = [_arrow(o, port, feed, boxes) for o in e.operators for port, feed in o.feeds]
    _arrange(boxes, arrows)
    head, legend = _headline(e), _legend(e)
    places = [*(box.place for box in boxes.values()), *(place for arrow in arrows for place in arrow.places)]
    drawn = max(place.x + place.width / 2 for place in places)
    inner = max(_STAGE + drawn + PAD, svg.legend_width(legend), svg.head_width(head))
    for place in places:  # in the middle, where the title or the legend is wider
        place.x += MARGIN + _STAGE + (inner - PAD - _STAGE - drawn) / 2
    layers = _layers(boxes, arrows)
    for box in boxes.values():
        box.y = layers[box.place.layer][0]
    parts = list(_bands(e, depth, layers, inner))
    parts += [line for arrow in arrows for line in _drawn_arrow(arrow, arrows, boxes, layers)]
    parts += [line for box in boxes.values() for line in _drawn_box(box)]
    height = layers[-1][1] + FOOT
    parts += svg.legend(legend, height - 26)
    return svg.document(inner + 2 * MARGIN, height, head, parts)


# -- what there is to draw --------------------------------------------------------------------------------------------


def _depths(e: OperatorsExplanation) -> dict[int, int]:
    """In which row each operator stands: those of a later stage above, and right below what reads them."""
    own: dict[int, int] = {operator.number: 0 for operator in e.operators}
    for operator in e.operators:  # each before those it reads from
        for _, feed in operator.feeds:
            if feed.producer is not None and e.operator(feed.producer).stage == operator.stage:
                own[feed.producer] = max(own[feed.producer], own[operator.number] + 1)
    found, top = {}, 0
    for stage in sorted({operator.stage for operator in e.operators}, reverse=True):
        members = [operator.number for operator in e.operators if operator.stage == stage]
        found.update({number: top + own[number] for number in members})
        top += 1 + max(own[number] for number in members)
    return found


def _operator_box(e: OperatorsExplanation, operator: OperatorExplained, layer: int) -> _Box:
    lines = [(f"[{operator.number}] {operator.kind}", INK)]
    lines += [(line, INK) for line in _folded(operator.said, _OPERATOR)]
    lines.append((f"{sum(a.bytes for a in e.kept_by(operator.number)):,} bytes kept", FAINT))
    if operator.taken is not None and operator.given is not None:
        rows = operator.takes == "rows"
        took = str(operator.taken) if rows else counted(operator.taken.inserted, operator.takes.removesuffix("s"))
        lines += [(f"took {took}", INK), (f"gave {operator.given}", INK)]
    kept = ", ".join(arrangement.name for arrangement in e.kept_by(operator.number))
    about = f"{operator.kind} {operator.said}; stage {operator.stage}, {operator.where}: {operator.why}; keeps {kept}"
    return _box(f"[{operator.number}]", "operator", KEPT, lines, about, layer)


def _table_boxes(e: OperatorsExplanation, layer: int) -> dict[str, _Box]:
    """The tables from left to right as the query reads them, in as many rows as they need."""
    boxes = {}
    for feed in _sources(e):
        source = e.source(feed.source)
        lines = [(svg.cut(feed.source, _TABLE), INK)]
        if feed.condition is not None:
            lines += [(line, FAINT) for line in _folded(f"where {feed.condition}", _TABLE)]
        lines.append((counted(source.rows, "row"), INK))
        about = f"{source.name}, of table {source.table}"
        about += f"; rows where {feed.condition}" if feed.condition is not None else "; all rows"
        look = _STATIC if source.static else _ROWS
        boxes[source.name] = _box(
            source.name, "table", look, lines, f"{about}; never changes" if source.static else about, layer
        )
    rows = 1 + int(sum(box.place.width + 2 * _GAP_X for box in boxes.values()) // _WIDE)
    for i, box in enumerate(boxes.values()):
        box.place.layer += 2 * (i % rows)
    return boxes


def _sources(e: OperatorsExplanation) -> Iterator[FeedExplained]:
    waiting: list[FeedExplained] = [feed for _, feed in e.operators[0].feeds]
    seen: set[int] = set()
    while waiting:
        feed = waiting.pop(0)
        if feed.producer is None:
            yield feed
        elif feed.producer not in seen:
            seen.add(feed.producer)
            waiting = [*(below for _, below in e.operator(feed.producer).feeds), *waiting]


def _box(name: str, kind: str, look: svg.Look, lines: Sequence[tuple[str, str]], about: str, layer: int) -> _Box:
    width = max(svg.length(line) for line, _ in lines) * CHAR + 2 * PAD
    return _Box(name, kind, look, tuple(lines), about, Place(layer, width))


def _folded(text: str, longest: int) -> list[str]:
    """A text as a few lines; what does not fit into them is cut."""
    return textwrap.wrap(
        " ".join(text.split()), longest, max_lines=_LINES, placeholder=" ...", break_on_hyphens=False
    ) or [""]


def _arrow(operator: OperatorExplained, port: PortExplained, feed: FeedExplained, boxes: dict[str, _Box]) -> _Arrow:
    reader, producer = boxes[f"[{operator.number}]"], boxes[feed.name]
    lines = ["stays" if feed.way == "stays" else feed.moves]
    between = feed.producer is not None
    if between and feed.condition is not None:
        lines.append(f"where {feed.condition}")
    if feed.catalyst is not None:
        lines.append("by way of Catalyst")
    shown = tuple(svg.cut(line, _LABEL) for line in lines)
    about = f"{feed.name} to [{operator.number}]{f', {port.side} side' if port.side else ''}: {feed.moves}"
    about += f"; where {feed.condition}" if feed.condition is not None else ""
    about += f"; computes {', '.join(feed.computes)}" if feed.computes else ""
    about += f"; Catalyst evaluates {feed.catalyst}" if feed.catalyst is not None else ""
    about += f"; in every bucket: {port.everywhere}" if port.everywhere is not None else ""
    first, last = reader.place.layer + 1, producer.place.layer
    width = max(map(svg.length, shown)) * CHAR + PAD
    # An arrow that passes layers has a place in each, so that no box stands in its way.
    places = [Place(first, width), *(Place(layer, 2, weight=4) for layer in range(first + 1, last))]
    return _Arrow(reader.name, producer.name, feed.way, shown, about, places)


def _headline(e: OperatorsExplanation) -> list[tuple[str, int]]:
    what = f"{counted(len(e.operators), 'operator')} in {counted(len(e.stages), 'stage')}"
    state = (
        f"{e.state_bytes:,} bytes in {counted(e.buckets, 'bucket')}, at most {counted(e.exchanges, 'exchange')} a step"
    )
    return [(svg.cut(f"view {e.view}: {what}", 2 * WIDEST), 15), (state, 12)]


def _legend(e: OperatorsExplanation) -> list[svg.Key]:
    there = {"operator", *(feed.way for operator in e.operators for _, feed in operator.feeds)}
    there |= {"static" if source.static else "table" for source in e.sources}
    return [key for name, key in _LEGEND.items() if name in there]  # only what is there is explained


# -- where it stands --------------------------------------------------------------------------------------------------


def _arrange(boxes: dict[str, _Box], arrows: list[_Arrow]) -> None:
    places = {f"box {name}": box.place for name, box in boxes.items()}
    links: list[tuple[str, str]] = []
    for i, arrow in enumerate(arrows):
        names = [f"arrow {i} {at}" for at in range(len(arrow.places))]
        places.update(zip(names, arrow.places, strict=True))
        links += pairwise([f"box {arrow.reader}", *names, f"box {arrow.producer}"])
    arrange(places, links, _GAP_X)
    straighten(list(places.values()), [arrow.places[1:] for arrow in arrows], _GAP_X / 2)


def _layers(boxes: dict[str, _Box], arrows: list[_Arrow]) -> list[tuple[float, float]]:
    """Where every layer begins and ends: boxes in the even ones, labels of arrows in the others."""
    found, y = [], float(MARGIN + HEAD)
    for layer in range(1 + max(box.place.layer for box in boxes.values())):
        heights = [box.height for box in boxes.values() if box.place.layer == layer]
        heights += [len(arrow.lines) * LINE + 4 for arrow in arrows if arrow.places[0].layer == layer]
        height = max(heights, default=0)
        found.append((y, y + height))
        y += height + _GAP_Y
    return found


def _bands(
    e: OperatorsExplanation, depth: dict[int, int], layers: list[tuple[float, float]], inner: float
) -> Iterator[str]:
    for stage in e.stages:
        rows = [depth[number] for number in stage.operators]
        if not rows:
            continue
        top, bottom = layers[2 * min(rows)][0] - _GAP_Y / 2, layers[2 * max(rows)][1] + _GAP_Y / 2
        yield f'<g class="stage" data-stage="{stage.number}">'
        yield svg.rect(_BAND, MARGIN, top, inner, bottom - top, 8, "band")
        yield svg.text(MARGIN + PAD, top + 20, f"stage {stage.number}", 12, FAINT, bold=True)
        yield "</g>"


# -- the drawing itself -----------------------------------------------------------------------------------------------


def _drawn_arrow(
    arrow: _Arrow, arrows: list[_Arrow], boxes: dict[str, _Box], layers: list[tuple[float, float]]
) -> Iterator[str]:
    reader, producer, colour = boxes[arrow.reader], boxes[arrow.producer], _WAYS[arrow.way]
    reaching = sorted((a for a in arrows if a.reader == arrow.reader), key=lambda a: a.places[0].x)
    leaving = sorted((a for a in arrows if a.producer == arrow.producer), key=lambda a: a.places[-1].x)
    end, bottom = _port(reader, arrow, reaching), reader.y + reader.height
    x, y = end, bottom + _POINT
    way = f"M{x:.1f} {y:.1f}"
    # What is lower than its layer's highest box goes straight down to where the layer ends.
    way += f" V{layers[reader.place.layer][1] + _POINT:.1f}"
    y = layers[reader.place.layer][1] + _POINT
    for place in arrow.places:
        top, low = layers[place.layer]
        way += f"{svg.curve(x, y, place.x, top)} V{low:.1f}"
        x, y = place.x, low
    start = _port(producer, arrow, leaving)
    way += svg.curve(x, y, start, producer.y)
    thick = 1.3 if arrow.way == "stays" else 2
    yield f'<g class="feed" data-feed={svg.attribute(f"{arrow.producer} -> {arrow.reader}")}>'
    yield f"<title>{svg.escaped(arrow.about)}</title>"
    yield f'<path class="edge" d="{way}" fill="none" stroke="{colour}" stroke-width="{thick:g}"/>'
    yield (
        f'<path class="head" d="M{end:.1f} {bottom:.1f} l{-_POINT / 2:g} {_POINT} h{_POINT} z" '
        f'fill="{colour}" stroke="{colour}"/>'
    )
    yield from _drawn_label(arrow, layers[arrow.places[0].layer][0])
    yield "</g>"


def _port(box: _Box, arrow: _Arrow, beside: list[_Arrow]) -> float:
    """The x at which an arrow leaves or reaches a box: beside the others, in their order."""
    apart = min(_PORT, (box.place.width - 2 * PAD) / len(beside))
    return box.place.x + apart * (beside.index(arrow) - (len(beside) - 1) / 2)


def _drawn_label(arrow: _Arrow, top: float) -> Iterator[str]:
    place = arrow.places[0]
    height = len(arrow.lines) * LINE + 4
    yield svg.rect(svg.Look(PAPER, _WAYS[arrow.way]), place.x - place.width / 2, top, place.width, height, 3, "label")
    for i, line in enumerate(arrow.lines):
        yield svg.text(place.x, top + 14 + i * LINE, line, 12, FAINT if i else INK, middle=True)


def _drawn_box(box: _Box) -> Iterator[str]:
    width = box.place.width
    yield f'<g class="{box.kind}" data-name={svg.attribute(box.name)}>'
    yield f"<title>{svg.escaped(box.about)}</title>"
    yield svg.rect(box.look, box.place.x - width / 2, box.y, width, box.height, 6 if box.kind == "operator" else 0)
    for i, (line, colour) in enumerate(box.lines):
        yield svg.text(box.place.x, box.y + PAD + 8 + i * LINE, line, 12, colour, bold=not i, middle=True)
    yield "</g>"
