"""The drawing of a foreign-key graph: its sources as boxes with their share of live rows, as an SVG that stands alone.

One sees at a glance where rows die: a bar that is hardly filled, and the number of rows that wait beside the arrow
they wait at. Arrows go from who refers to who is referred to, and wear the key; what must agree besides is marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.plan import svg
from headrace.plan.layers import Place, arrange, longest_paths
from headrace.plan.svg import CHAR, EDGE, FAINT, FOOT, HEAD, INK, KEPT, LINE, MARGIN, PAD, PAPER, REPLICATED, WIDEST

if TYPE_CHECKING:
    from headrace.foreign.explain import ForeignExplanation, ReferenceExplained, SourceExplained

_GAP_X, _GAP_Y = 26, 22
_BAR = 7
_BOX = 4 * LINE + 2 * PAD + _BAR + 4
_PORT = 22  # between arrows that leave or reach the same box
_HEAD = 7  # of an arrow
_LABEL = 30  # characters of a key beside an arrow
_ASSERTED = svg.Look("#fbdfe1", "#b3404a")
_LEGEND = {
    "kept": svg.Key("in the bucket of a key", KEPT),
    "replicated": svg.Key("in every bucket", REPLICATED),
    "live": svg.Key("live rows", svg.Look(KEPT.stroke, KEPT.stroke)),
    "asserted": svg.Key("must agree (assertion key)", _ASSERTED),
}


@dataclass
class _Box:
    """A source with its lines of text, and where it stands."""

    source: SourceExplained
    lines: tuple[str, ...]
    share: float  # of the bar that is filled
    place: Place
    y: float = 0

    @property
    def look(self) -> svg.Look:
        return REPLICATED if self.source.replicated else KEPT


@dataclass
class _Arrow:
    """A reference: the places it passes, the first of which is its label's."""

    reference: ReferenceExplained
    key: str
    asserted: str
    waiting: str
    places: list[Place]

    @property
    def lines(self) -> list[str]:
        return [line for line in (self.key, self.asserted, self.waiting) if line]


def to_svg(e: ForeignExplanation) -> str:
    """Draw the graph from the root down, each source below all that refer to it.

    Boxes are filled by where a source lies, and bars by how many of its rows are alive. Full names, conditions and
    reasons are the tooltips of boxes and arrows.
    """
    depth = longest_paths(e.root, [(reference.parent, reference.child) for reference in e.references])
    boxes = {source.name: _box(e, source, 2 * depth[source.name]) for source in _downwards(e)}
    arrows = [_arrow(reference, depth) for source in boxes for reference in e.children(source)]
    _arrange(boxes, arrows)
    head, legend = _headline(e), _legend(e)
    places = [*(box.place for box in boxes.values()), *(place for arrow in arrows for place in arrow.places)]
    drawn = max(place.x + place.width / 2 for place in places)
    inner = max(drawn, svg.legend_width(legend), svg.head_width(head))
    for place in places:  # in the middle, where the title or the legend is wider
        place.x += MARGIN + (inner - drawn) / 2
    tops, bottom = _tops(boxes, arrows)
    for box in boxes.values():
        box.y = tops[box.place.layer]
    parts = [line for arrow in arrows for line in _drawn_arrow(arrow, arrows, boxes, tops)]
    for box in boxes.values():
        parts += _drawn_box(box)
    height = bottom + FOOT
    parts += svg.legend(legend, height - 26)
    return svg.document(inner + 2 * MARGIN, height, head, parts)


def _downwards(e: ForeignExplanation) -> list[SourceExplained]:
    """Sources as they are met on the way down, children in the order in which rows wait for them."""
    names = [e.root]
    for name in names:  # grows while it is walked
        names += [child.child for child in e.children(name) if child.child not in names]
    return [e.source(name) for name in names]


def _headline(e: ForeignExplanation) -> list[tuple[str, int]]:
    every = sum(source.rows for source in e.sources)
    least = "at least " if e.source(e.root).live is None else ""
    state = f"{least}{e.live_rows:,} of {every:,} rows live, {e.state_bytes:,} bytes in {e.buckets} buckets"
    return [(svg.cut(f"view {e.view}: {e.strategy}, root {e.root}", 2 * WIDEST), 15), (state, 12)]


def _legend(e: ForeignExplanation) -> list[svg.Key]:
    there = {"live", *("replicated" if source.replicated else "kept" for source in e.sources)}
    if any(reference.asserted for reference in e.references):
        there.add("asserted")
    return [key for name, key in _LEGEND.items() if name in there]  # only what is there is explained


def _box(e: ForeignExplanation, source: SourceExplained, layer: int) -> _Box:
    name = source.name if source.name == source.table else f"{source.name} ({source.table})"
    live = e.answer_rows if source.live is None else source.live
    if source.live is None:
        counts = f"{live:,} in the answer, {source.rows:,} rows"
    else:
        counts = f"{live:,} live, {source.dead:,} dead"
    lines = (
        name,
        f"[{', '.join(source.key)}]" if source.key else "no key",
        "all rows" if source.condition is None else source.condition,
        counts,
    )
    cut = tuple(svg.cut(line, WIDEST) for line in lines)
    width = max(map(svg.length, cut)) * CHAR + 2 * PAD
    return _Box(source, cut, live / source.rows if source.rows else 0, Place(layer, width))


def _arrow(reference: ReferenceExplained, depth: dict[str, int]) -> _Arrow:
    arrow = _Arrow(
        reference,
        svg.cut(", ".join(reference.key), _LABEL),
        svg.cut(f"= {', '.join(reference.asserted)}", _LABEL) if reference.asserted else "",
        f"{reference.waiting:,} wait" if reference.waiting else "",
        [],
    )
    first, last = 2 * depth[reference.parent] + 1, 2 * depth[reference.child]
    width = max(map(svg.length, arrow.lines)) * CHAR + PAD
    # An arrow that passes layers has a place in each, so that no box stands in its way.
    arrow.places = [Place(first, width), *(Place(layer, 2, weight=4) for layer in range(first + 1, last))]
    return arrow


def _arrange(boxes: dict[str, _Box], arrows: list[_Arrow]) -> None:
    places = {f"source {name}": box.place for name, box in boxes.items()}
    links: list[tuple[str, str]] = []
    for i, arrow in enumerate(arrows):
        names = [f"arrow {i} {at}" for at in range(len(arrow.places))]
        places.update(zip(names, arrow.places, strict=True))
        way = [f"source {arrow.reference.parent}", *names, f"source {arrow.reference.child}"]
        links += pairwise(way)
    arrange(places, links, _GAP_X)


def _tops(boxes: dict[str, _Box], arrows: list[_Arrow]) -> tuple[list[float], float]:
    """The y of every layer, and where the last one ends."""
    last = max(box.place.layer for box in boxes.values())
    tops, y = [], float(MARGIN + HEAD)
    for layer in range(last + 1):
        tops.append(y)
        labels = [len(arrow.lines) for arrow in arrows if arrow.places[0].layer == layer]
        y += (_BOX if layer % 2 == 0 else max(labels) * LINE + 4) + _GAP_Y
    return tops, y - _GAP_Y


def _drawn_arrow(arrow: _Arrow, arrows: list[_Arrow], boxes: dict[str, _Box], tops: list[float]) -> Iterator[str]:
    parent, child = boxes[arrow.reference.parent], boxes[arrow.reference.child]
    leaving = [a for a in arrows if a.reference.parent == parent.source.name]
    reaching = [a for a in arrows if a.reference.child == child.source.name]
    x, y = _port(parent, arrow, sorted(leaving, key=lambda a: a.places[0].x)), parent.y + _BOX
    way = f"M{x:.1f} {y:.1f}"
    for place in arrow.places:
        # It goes straight through the layer, which ends where the next one begins.
        top, bottom = tops[place.layer], tops[place.layer + 1] - _GAP_Y
        way += f"{svg.curve(x, y, place.x, top)} V{bottom:.1f}"
        x, y = place.x, bottom
    end = _port(child, arrow, sorted(reaching, key=lambda a: a.places[-1].x))
    way += f"{svg.curve(x, y, end, child.y - _HEAD)}"
    r = arrow.reference
    yield f'<g class="reference" data-reference={svg.attribute(f"{r.parent} -> {r.child}")}>'
    yield f"<title>{svg.escaped(_tooltip(arrow))}</title>"
    yield f'<path class="edge" d="{way}" fill="none" stroke="{EDGE}" stroke-width="1.3"/>'
    yield (
        f'<path class="head" d="M{end:.1f} {child.y:.1f} l{-_HEAD / 2:g} {-_HEAD} h{_HEAD} z" '
        f'fill="{EDGE}" stroke="{EDGE}"/>'
    )
    yield from _drawn_label(arrow, tops[arrow.places[0].layer])
    yield "</g>"


def _port(box: _Box, arrow: _Arrow, beside: list[_Arrow]) -> float:
    """The x at which an arrow leaves or reaches a box: beside the others, in their order."""
    apart = min(_PORT, (box.place.width - 2 * PAD) / len(beside))
    return box.place.x + apart * (beside.index(arrow) - (len(beside) - 1) / 2)


def _tooltip(arrow: _Arrow) -> str:
    r = arrow.reference
    said = f"{r.parent} refers to {r.child} by {', '.join(r.key)}; stage {r.stage}, {r.where}: {r.why}"
    if r.asserted:
        said += f"; {', '.join(r.asserted)} must agree with what other ways bring"
    return said if r.waiting is None else f"{said}; {r.waiting:,} rows wait here"


def _drawn_label(arrow: _Arrow, top: float) -> Iterator[str]:
    place = arrow.places[0]
    left, height = place.x - place.width / 2, len(arrow.lines) * LINE + 4
    yield svg.rect(svg.Look(PAPER, PAPER), left, top, place.width, height, 3, "label")
    for i, line in enumerate(arrow.lines):
        y = top + 14 + i * LINE
        if line is arrow.asserted:
            yield svg.rect(_ASSERTED, left + 1, y - 12, place.width - 2, LINE - 1, 3, "asserted")
        yield svg.text(place.x, y, line, 12, FAINT if line is arrow.waiting else INK, middle=True)


def _drawn_box(box: _Box) -> Iterator[str]:
    source, width = box.source, box.place.width
    left, inner = box.place.x - width / 2, width - 2 * PAD
    yield f'<g class="source" data-source={svg.attribute(source.name)}>'
    yield f"<title>{svg.escaped(_about(source))}</title>"
    yield svg.rect(box.look, left, box.y, width, _BOX, 6)
    for i, line in enumerate(box.lines):
        y = box.y + PAD + 10 + i * LINE
        yield svg.text(box.place.x, y, line, 12, FAINT if i == 2 else INK, bold=not i, middle=True)
    bar = box.y + _BOX - PAD - _BAR
    yield svg.rect(svg.Look(PAPER, box.look.stroke), left + PAD, bar, inner, _BAR, 2, "bar")
    if box.share:
        yield svg.rect(svg.Look(box.look.stroke, box.look.stroke), left + PAD, bar, inner * box.share, _BAR, 2, "live")
    yield "</g>"


def _about(source: SourceExplained) -> str:
    said = f"{source.name}, of table {source.table}"
    said += f"; rows that meet {source.condition}" if source.condition is not None else "; all rows"
    if source.live is not None:
        said += f"; {source.live:,} live, {source.dead:,} dead"
    return f"{said}; in every bucket: {source.why}" if source.replicated else said
