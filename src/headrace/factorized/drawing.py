"""The drawing of an explanation: its views as boxes, as an SVG that stands alone.

How many views a strategy keeps, and how much is in each, is seen at once in a picture and hardly in a list. It is
written by hand, with widths from the lengths of texts, so that it needs no library and no browser to be made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from headrace.plan import svg
from headrace.plan.svg import (
    CHAR,
    EDGE,
    FAINT,
    FOOT,
    HEAD,
    INK,
    KEPT,
    LINE,
    MARGIN,
    PAD,
    PAPER,
    REPLICATED,
    WIDEST,
    Key,
    Look,
    cut,
    length,
)

if TYPE_CHECKING:
    from headrace.factorized.explain import JoinExplanation, ViewExplained

_GAP_X, _GAP_Y = 22, 46
_PILL, _DROP = 24, 16  # height of a relation, and its distance from the view above it
_KEYS = 30  # characters of a view's keys, unless the first alone has more
_ROW = 1500  # a layer wider than this is broken into rows
_BOX = 4 * LINE + 2 * PAD - 4
_RELATION = Look("#e4e9ee", "#7b8a99")
_LEGEND = {
    "kept": Key("kept", KEPT),
    "replicated": Key("kept once, read by every bucket", REPLICATED),
    "not kept": Key("not kept", Look(PAPER, "#7b8a99", "5 4")),
    "relation": Key("relation", _RELATION, 7),
}


@dataclass
class _Box:
    """A view with its lines of text, and where it stands."""

    view: ViewExplained
    lines: tuple[str, ...]
    relation: str  # the text of the relation below a leaf
    x: float = 0  # the middle
    y: float = 0

    @property
    def width(self) -> float:
        return max(map(length, self.lines)) * CHAR + 2 * PAD

    @property
    def pill(self) -> float:
        """The width of the relation below."""
        return length(self.relation) * CHAR + 2 * PAD if self.relation else 0

    @property
    def space(self) -> float:
        """The width that it takes, with the relation below."""
        return max(self.width, self.pill)

    @property
    def style(self) -> str:
        return "not kept" if not self.view.kept else "replicated" if self.view.replicated else "kept"


def to_svg(e: JoinExplanation) -> str:
    """Draw the views of an explanation: a tree from the answer down, or layers where views are shared.

    Kept views are filled, those that are stored once for all buckets in a tint of their own, and those that are not
    kept have a dashed outline. The full names and reasons are the boxes' tooltips.
    """
    boxes = {view.name: _box(e, view) for view in e.views}
    parents = [child for view in e.views for child in view.children]
    is_tree = len(parents) == len(set(parents)) == len(boxes) - 1
    if is_tree:
        _place_tree(boxes, e.views[0].name)
    else:
        _place_layers(boxes)
    head = _headline(e)
    # Only what is there is explained.
    styles = {*(box.style for box in boxes.values()), "relation"}
    legend = [key for style, key in _LEGEND.items() if style in styles]
    drawn = max(box.x + box.space / 2 for box in boxes.values()) - MARGIN
    inner = max(drawn, svg.legend_width(legend), svg.head_width(head))
    for box in boxes.values():  # in the middle, where the title or the legend is wider
        box.x += (inner - drawn) / 2
    bottom = max(box.y + _BOX + (_DROP + _PILL if box.relation else 0) for box in boxes.values())
    width, height = inner + 2 * MARGIN, bottom + FOOT
    parts = [_edge(box, boxes[child], 1 if is_tree else 0.6) for box in boxes.values() for child in box.view.children]
    for box in boxes.values():
        parts += _drawn(box)
    parts += svg.legend(legend, height - 26)
    return svg.document(width, height, head, parts)


def _headline(e: JoinExplanation) -> list[tuple[str, int]]:
    by = f"partitioned by {e.partition}" if e.partition is not None else "not partitioned"
    kept = sum(view.kept for view in e.views)
    state = f"{kept} of {len(e.views)} views kept, {e.state_bytes:,} bytes in {e.buckets} buckets"
    return [(cut(f"{e.kind} {e.view}: {e.strategy}, {by}", 2 * WIDEST), 15), (state, 12)]


def _box(e: JoinExplanation, view: ViewExplained) -> _Box:
    answer = "answer, " if view is e.views[0] else ""
    unit = "sum" if e.kind == "view" else "feature"
    lines = (
        view.name.removesuffix(f"[{', '.join(view.keys)}]") or view.name,
        _keys(view.keys),
        f"{view.degree:,} {unit}{'' if view.degree == 1 else 's'}",
        f"{answer}{view.entries:,} {'entry' if view.entries == 1 else 'entries'}" if view.kept else "not kept",
    )
    relation = view.relation or ""
    if relation in e.static:
        relation = f"{cut(relation, WIDEST - 9)} (static)"
    return _Box(view, tuple(cut(line, WIDEST) for line in lines), cut(relation, WIDEST))


def _keys(keys: Sequence[str]) -> str:
    """The keys that fit, and how many more there are."""
    fit = next((n for n in range(len(keys), 1, -1) if len(", ".join(keys[:n])) <= _KEYS), min(1, len(keys)))
    more = [f"+{len(keys) - fit}"] if fit < len(keys) else []
    return f"[{', '.join([*keys[:fit], *more])}]"


def _place_tree(boxes: dict[str, _Box], root: str) -> None:
    """Each subtree gets a strip of its own, so boxes of different subtrees cannot meet; a parent is in the middle."""
    downwards = [root]
    for name in downwards:  # grows while it is walked
        downwards += boxes[name].view.children
    strip: dict[str, float] = {}
    for name in reversed(downwards):
        children = boxes[name].view.children
        below = sum(strip[child] for child in children) + _GAP_X * max(0, len(children) - 1)
        strip[name] = max(boxes[name].space, below)
    start = {root: float(MARGIN)}
    boxes[root].y = MARGIN + HEAD
    for name in downwards:
        box = boxes[name]
        box.x = start[name] + strip[name] / 2
        children = box.view.children
        below = sum(strip[child] for child in children) + _GAP_X * max(0, len(children) - 1)
        at = start[name] + (strip[name] - below) / 2
        for child in children:
            start[child] = at
            boxes[child].y = box.y + _BOX + _GAP_Y
            at += strip[child] + _GAP_X


def _place_layers(boxes: dict[str, _Box]) -> None:
    """Views that only relations are below at the bottom, each other one above all that it is a join of."""
    level: dict[str, int] = {}
    waiting = list(boxes)
    while waiting:
        ready = [name for name in waiting if all(child in level for child in boxes[name].view.children)]
        for name in ready:
            level[name] = 1 + max((level[child] for child in boxes[name].view.children), default=-1)
        waiting = [name for name in waiting if name not in level]
    layers: list[list[str]] = []
    place: dict[str, float] = {}
    for at in range(max(level.values()) + 1):
        layer = [name for name in boxes if level[name] == at]
        if at:  # a view above the middle of what it joins, so that fewer edges cross
            layer.sort(key=lambda name: fmean(place[child] for child in boxes[name].view.children))
        place.update({name: (i + 0.5) / len(layer) for i, name in enumerate(layer)})
        layers.append(layer)
    rows = [row for layer in reversed(layers) for row in _rows(boxes, layer)]
    widest = max(_row_width(boxes, row) for row in rows)
    y = float(MARGIN + HEAD)
    for row in rows:
        x = MARGIN + (widest - _row_width(boxes, row)) / 2
        for name in row:
            box = boxes[name]
            box.x, box.y = x + box.space / 2, y
            x += box.space + _GAP_X
        y += _BOX + _GAP_Y + (_DROP + _PILL if any(boxes[name].relation for name in row) else 0)


def _rows(boxes: dict[str, _Box], layer: Sequence[str]) -> Iterator[list[str]]:
    row: list[str] = []
    for name in layer:
        if row and _row_width(boxes, [*row, name]) > _ROW:
            yield row
            row = []
        row.append(name)
    yield row


def _row_width(boxes: dict[str, _Box], row: Sequence[str]) -> float:
    return sum(boxes[name].space for name in row) + _GAP_X * (len(row) - 1)


def _edge(above: _Box, below: _Box, opacity: float) -> str:
    top, bottom = above.y + _BOX, below.y
    half = (bottom - top) / 2
    return (
        f'<path class="edge" d="M{above.x:.1f} {top:.1f} C{above.x:.1f} {top + half:.1f} {below.x:.1f} '
        f'{bottom - half:.1f} {below.x:.1f} {bottom:.1f}" fill="none" stroke="{EDGE}" stroke-width="1.3" '
        f'stroke-opacity="{opacity:g}"/>'
    )


def _drawn(box: _Box) -> Iterator[str]:
    view = box.view
    yield f'<g class="view" data-view={svg.attribute(view.name)}>'
    kept = "kept" if view.kept else "not kept"
    yield f"<title>{svg.escaped(f'{view.name}: {view.payload}; {kept}: {view.why}; {view.where}')}</title>"
    yield svg.rect(_LEGEND[box.style].look, box.x - box.width / 2, box.y, box.width, _BOX, 6)
    for i, line in enumerate(box.lines):
        y = box.y + PAD + 10 + i * LINE
        yield svg.text(box.x, y, line, 12, INK if i < 2 else FAINT, bold=not i, middle=True)
    yield "</g>"
    if box.relation:
        top = box.y + _BOX + _DROP
        yield f'<path class="edge" d="M{box.x:.1f} {box.y + _BOX:.1f} V{top:.1f}" stroke="{EDGE}" stroke-width="1.3"/>'
        yield svg.rect(_RELATION, box.x - box.pill / 2, top, box.pill, _PILL, _PILL / 2)
        yield svg.text(box.x, top + 16, box.relation, 12, INK, middle=True)
