"""The drawing of an explanation: its views as boxes, as an SVG that stands alone.

How many views a strategy keeps, and how much is in each, is seen at once in a picture and hardly in a list. It is
written by hand, with widths from the lengths of texts, so that it needs no library and no browser to be made.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from headrace.factorized.explain import JoinExplanation, ViewExplained

_CHAR = 7.4  # of the widest usual monospace font at 12 pixels, and a little more
_LINE = 17
_PAD = 11
_GAP_X, _GAP_Y = 22, 46
_PILL, _DROP = 24, 16  # height of a relation, and its distance from the view above it
_MARGIN = 24
_HEAD = 62
_WIDEST = 40  # characters of a line; what is longer is cut, and whole in the tooltip
_KEYS = 30  # characters of a view's keys, unless the first alone has more
_ROW = 1500  # a layer wider than this is broken into rows
_BOX = 4 * _LINE + 2 * _PAD - 4
_FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_INK, _FAINT, _PAPER, _EDGE = "#1b2733", "#5b6b7b", "#fbfcfd", "#9aa9b8"
_STYLES = {  # fill, stroke, dashes
    "kept": ("#d9ebfb", "#2f74b5", ""),
    "replicated": ("#fdeccb", "#b9770e", ""),
    "not kept": (_PAPER, "#7b8a99", "5 4"),
    "relation": ("#e4e9ee", "#7b8a99", ""),
}
_LEGEND = {
    "kept": "kept",
    "replicated": "kept once, read by every bucket",
    "not kept": "not kept",
    "relation": "relation",
}
# What XML cannot hold, even escaped.
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
        return max(map(_length, self.lines)) * _CHAR + 2 * _PAD

    @property
    def pill(self) -> float:
        """The width of the relation below."""
        return _length(self.relation) * _CHAR + 2 * _PAD if self.relation else 0

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
    legend = [style for style in _LEGEND if style in {*(box.style for box in boxes.values()), "relation"}]
    drawn = max(box.x + box.space / 2 for box in boxes.values()) - _MARGIN
    inner = max(drawn, _legend_width(legend), *(_length(line) * _CHAR * size / 12 for line, size in head))
    for box in boxes.values():  # in the middle, where the title or the legend is wider
        box.x += (inner - drawn) / 2
    bottom = max(box.y + _BOX + (_DROP + _PILL if box.relation else 0) for box in boxes.values())
    width, height = inner + 2 * _MARGIN, bottom + 66
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="{_FONT}" font-size="12">',
        f"<title>{_escaped(head[0][0])}</title>",
        # A background of its own makes it readable on a dark page too.
        f'<rect class="background" width="100%" height="100%" fill="{_PAPER}"/>',
    ]
    for i, (line, size) in enumerate(head):
        parts.append(_text(_MARGIN, 34 + 21 * i, line, size, _FAINT if i else _INK, bold=not i))
    parts += [_edge(box, boxes[child], 1 if is_tree else 0.6) for box in boxes.values() for child in box.view.children]
    for box in boxes.values():
        parts += _drawn(box)
    parts += _drawn_legend(legend, height - 26)
    return "\n".join([*parts, "</svg>", ""])


def _headline(e: JoinExplanation) -> list[tuple[str, int]]:
    by = f"partitioned by {e.partition}" if e.partition is not None else "not partitioned"
    kept = sum(view.kept for view in e.views)
    state = f"{kept} of {len(e.views)} views kept, {e.state_bytes:,} bytes in {e.buckets} buckets"
    return [(_cut(f"{e.kind} {e.view}: {e.strategy}, {by}", 2 * _WIDEST), 15), (state, 12)]


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
        relation = f"{_cut(relation, _WIDEST - 9)} (static)"
    return _Box(view, tuple(_cut(line, _WIDEST) for line in lines), _cut(relation, _WIDEST))


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
    start = {root: float(_MARGIN)}
    boxes[root].y = _MARGIN + _HEAD
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
    y = float(_MARGIN + _HEAD)
    for row in rows:
        x = _MARGIN + (widest - _row_width(boxes, row)) / 2
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
        f'{bottom - half:.1f} {below.x:.1f} {bottom:.1f}" fill="none" stroke="{_EDGE}" stroke-width="1.3" '
        f'stroke-opacity="{opacity:g}"/>'
    )


def _drawn(box: _Box) -> Iterator[str]:
    view = box.view
    yield f'<g class="view" data-view={_attribute(view.name)}>'
    kept = "kept" if view.kept else "not kept"
    yield f"<title>{_escaped(f'{view.name}: {view.payload}; {kept}: {view.why}; {view.where}')}</title>"
    yield _rect(box.style, box.x - box.width / 2, box.y, box.width, _BOX, 6)
    for i, line in enumerate(box.lines):
        y = box.y + _PAD + 10 + i * _LINE
        yield _text(box.x, y, line, 12, _INK if i < 2 else _FAINT, bold=not i, middle=True)
    yield "</g>"
    if box.relation:
        top = box.y + _BOX + _DROP
        yield f'<path class="edge" d="M{box.x:.1f} {box.y + _BOX:.1f} V{top:.1f}" stroke="{_EDGE}" stroke-width="1.3"/>'
        yield _rect("relation", box.x - box.pill / 2, top, box.pill, _PILL, _PILL / 2)
        yield _text(box.x, top + 16, box.relation, 12, _INK, middle=True)


def _legend_width(legend: Sequence[str]) -> float:
    return sum(_legend_item(style) for style in legend)


def _legend_item(style: str) -> float:
    return 26 + _length(_LEGEND[style]) * _CHAR + 20


def _drawn_legend(legend: Sequence[str], y: float) -> Iterator[str]:
    x = float(_MARGIN)
    for style in legend:
        yield _rect(style, x, y - 11, 18, 14, 7 if style == "relation" else 3, "key")
        yield _text(x + 26, y, _LEGEND[style], 12, _FAINT)
        x += _legend_item(style)


def _rect(style: str, x: float, y: float, width: float, height: float, round_by: float, kind: str = "box") -> str:
    fill, stroke, dashes = _STYLES[style]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_by:g}" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="1.4"{dashed}/>'
    )


def _text(x: float, y: float, text: str, size: int, colour: str, *, bold: bool = False, middle: bool = False) -> str:
    more = (' font-weight="600"' if bold else "") + (' text-anchor="middle"' if middle else "")
    sized = "" if size == 12 else f' font-size="{size}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{sized}{more}>{_escaped(text)}</text>'


def _length(text: str) -> int:
    """How many columns of a monospace font a text takes: two for each wide character."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _cut(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 3] + "..."


def _escaped(text: str) -> str:
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))
