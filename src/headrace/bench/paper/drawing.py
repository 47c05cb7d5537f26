"""The picture of a figure: its panels in rows, ours solid and filled, the paper's dashed and hollow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from headrace.bench.measuring.plotting import ticks
from headrace.bench.paper.chart import Line, Mark, Panel, colours
from headrace.explain import svg
from headrace.explain.svg import CHAR, EDGE, FAINT, INK, MARGIN, PAPER

_TOP, _HEAD, _FOOT, _GAP = 84, 26, 46, 30  # above all panels; of each, above and below its axes; between two
_LEFT = 62  # of the labels of an axis
_WIDTH, _HEIGHT = 290, 190  # of the axes of lines
_ROW, _NAMES, _SAID = 19, 210, 130  # of marks: a row, the names before them, the numbers behind them
_LEGEND = "solid and filled: measured here; dashed and hollow: in the paper"


def drawn(title: str, panels: Sequence[Panel], columns: int) -> str:
    """The picture of a figure."""
    shown = [panel for panel in panels if panel.names]
    colour = colours(shown)
    parts: list[str] = []
    y, right = float(_TOP), 0.0
    for start in range(0, len(shown), columns):
        x, lowest = float(MARGIN), 0.0
        for panel in shown[start : start + columns]:
            width, height = _size(panel)
            parts.extend(_panel(panel, x, y, colour))
            x, lowest = x + width + _GAP, max(lowest, height)
        y, right = y + lowest + 14, max(right, x - _GAP)
    head = [(title, 16), (_LEGEND, 12)]
    width = max(right + MARGIN, svg.head_width(head) + 2 * MARGIN)
    for line, entries in enumerate(_wrapped(list(colour), width - 2 * MARGIN)):
        parts.extend(_legend(entries, colour, y + 8 + 20 * line))
        bottom = y + 8 + 20 * line
    return svg.document(width, (bottom if colour else y) + 22, head, parts)


def _size(panel: Panel) -> tuple[float, float]:
    if panel.marks:
        return _NAMES + _WIDTH + _SAID, _HEAD + _ROW * len(_rows(panel.marks)) + _FOOT
    return _LEFT + _WIDTH, _HEAD + _HEIGHT + _FOOT


def _panel(panel: Panel, x: float, y: float, colour: Mapping[str, str]) -> Iterator[str]:
    yield svg.text(x, y + 14, panel.title, 13, INK, bold=True)
    if panel.lines:
        yield svg.text(x + (svg.length(panel.title) + 2) * CHAR * 13 / 12, y + 14, panel.y, 11, FAINT)
    yield from (_marks if panel.marks else _lines)(panel, x, y + _HEAD, colour)


# -- lines ------------------------------------------------------------------------------------------------------------


def _lines(panel: Panel, x: float, y: float, colour: Mapping[str, str]) -> Iterator[str]:
    points = [point for line in panel.lines for point in line.points if panel.log_y is False or point[1] > 0]
    across = _Axis.over([px for px, _ in points], x + _LEFT, x + _LEFT + _WIDTH, log=panel.log_x)
    up = _Axis.over([py for _, py in points], y + _HEIGHT, y, log=panel.log_y)
    left, bottom = x + _LEFT, y + _HEIGHT
    for value in up.ticks:
        at = up.at(value)
        yield f'<path d="M{left:.1f} {at:.1f} h{_WIDTH}" stroke="{EDGE}" stroke-width="0.3"/>'
        yield _right(left - 6, at + 4, _short(value))
    for value in across.ticks:
        yield f'<path d="M{across.at(value):.1f} {bottom:.1f} v4" stroke="{EDGE}"/>'
        yield svg.text(across.at(value), bottom + 17, _short(value), 11, FAINT, middle=True)
    yield f'<path d="M{left:.1f} {y:.1f} V{bottom:.1f} h{_WIDTH}" fill="none" stroke="{EDGE}"/>'
    yield svg.text(left + _WIDTH / 2, bottom + 34, panel.x, 11, FAINT, middle=True)
    for line in sorted(panel.lines, key=lambda line: not line.paper):  # ours above the paper's
        yield from _line(line, across, up, colour[line.name])


def _line(line: Line, across: _Axis, up: _Axis, colour: str) -> Iterator[str]:
    at = [(across.at(px), up.at(py)) for px, py in line.points if up.has(py)]
    dashes = ' stroke-dasharray="6 4"' if line.paper else ""
    kind = "paper" if line.paper else "here"
    if len(at) > 1:
        path = " L".join(f"{px:.1f} {py:.1f}" for px, py in at)
        yield f'<path class="{kind}" d="M{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}/>'
    flat = line.paper and len({py for _, py in line.points}) == 1 and len(at) > 1  # an average has no points
    for px, py in () if flat else at:
        yield _dot(px, py, 3.0 if len(at) <= 8 else 1.8, colour, kind, f"{line.name}")


# -- marks ------------------------------------------------------------------------------------------------------------


def _rows(marks: Sequence[Mark]) -> list[tuple[str, str]]:
    """Group and name of each row; the name is empty in the row of a group's title."""
    rows: dict[tuple[str, str], None] = {}
    for group in dict.fromkeys(mark.group for mark in marks):
        rows[group, ""] = None
        rows |= dict.fromkeys((mark.group, mark.name) for mark in marks if mark.group == group)
    return list(rows)


def _marks(panel: Panel, x: float, y: float, colour: Mapping[str, str]) -> Iterator[str]:
    rows = _rows(panel.marks)
    axis = _Axis.over([mark.value for mark in panel.marks], x + _NAMES, x + _NAMES + _WIDTH, log=True)
    bottom = y + _ROW * len(rows)
    for value in axis.ticks:
        yield f'<path d="M{axis.at(value):.1f} {y:.1f} V{bottom + 4:.1f}" stroke="{EDGE}" stroke-width="0.3"/>'
        yield svg.text(axis.at(value), bottom + 18, _short(value), 11, FAINT, middle=True)
    yield svg.text(x + _NAMES + _WIDTH / 2, bottom + 34, panel.y, 11, FAINT, middle=True)
    for number, (group, name) in enumerate(rows):
        middle = y + _ROW * (number + 0.5)
        if not name:
            yield svg.text(x, middle + 4, group, 12, INK, bold=True)
            continue
        own = [mark for mark in panel.marks if (mark.group, mark.name) == (group, name)]
        at = [axis.at(mark.value) for mark in own if axis.has(mark.value)]
        yield svg.text(x + 10, middle + 4, name, 12, FAINT)
        if at:
            yield (
                f'<path d="M{min(at):.1f} {middle:.1f} H{max(at):.1f}" stroke="{colour[name]}" stroke-width="1" '
                'stroke-opacity="0.4"/>'
            )
        for mark in sorted(own, key=lambda mark: not mark.paper):
            if axis.has(mark.value):
                kind, note = ("paper" if mark.paper else "here"), f" ({mark.note})" if mark.note else ""
                said = f"{name}, {kind}: {mark.value:,.4g}{note}"
                yield _dot(axis.at(mark.value), middle, 5.0, colour[name], kind, said)
        said = ", paper ".join(_short(mark.value) for mark in sorted(own, key=lambda mark: mark.paper))
        if own and all(mark.paper for mark in own):
            said = f"paper {said}"
        yield svg.text(x + _NAMES + _WIDTH + 12, middle + 4, said, 11, FAINT)


def _dot(x: float, y: float, size: float, colour: str, kind: str, said: str) -> str:
    fill = PAPER if kind == "paper" else colour
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{fill}" stroke="{colour}" '
        f'stroke-width="1.5"><title>{svg.escaped(said)}</title></circle>'
    )


# -- axes -------------------------------------------------------------------------------------------------------------


class _Axis:
    """Places of values between two ends, and the values that are marked."""

    def __init__(self, marked: Sequence[float], start: float, end: float, *, log: bool) -> None:
        self.ticks, self._start, self._end, self._log = list(marked), start, end, log

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, *, log: bool) -> _Axis:
        """An axis that has all of the values."""
        inside = [value for value in values if value > 0] if log else list(values)
        least, most = min(inside, default=1.0), max(inside, default=10.0)
        if log:
            return cls(powers(least, most), start, end, log=True)
        return cls(ticks(least, most if most > least else least + 1), start, end, log=False)

    def has(self, value: float) -> bool:
        """Whether the value has a place: a logarithm has none for 0."""
        return value > 0 or not self._log

    def at(self, value: float) -> float:
        """The place of a value."""
        low, high, here = self.ticks[0], self.ticks[-1], value
        if self._log:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return self._start + (self._end - self._start) * (here - low) / (high - low)


def powers(least: float, most: float) -> list[float]:
    """Round numbers that are marked on an axis by powers of ten, the first at most `least`, the last at least `most`.

    >>> powers(30, 4000)
    [10.0, 100.0, 1000.0, 10000.0]
    >>> powers(3, 8)
    [2.0, 5.0, 10.0]
    """
    low, high = math.floor(math.log10(least) + 1e-9), math.ceil(math.log10(most) - 1e-9)
    if high - low > 2:
        step = -(-(high - low) // 7)  # seven labels are as many as there is room for
        return [10.0**power for power in range(low, high + step, step)]
    marked = [digit * 10.0**power for power in range(low, high + 1) for digit in (1, 2, 5)]
    first = max((value for value in marked if value <= least * (1 + 1e-9)), default=marked[0])
    last = min((value for value in marked if value >= most * (1 - 1e-9) and value > first), default=marked[-1] * 2)
    return [value for value in marked if first <= value <= last] or [first, last]


def _short(value: float) -> str:
    """A number in few characters, as 1.2k and 3M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


# -- legend -----------------------------------------------------------------------------------------------------------


def _wrapped(names: Sequence[str], width: float) -> list[list[str]]:
    lines: list[list[str]] = []
    used = width
    for name in names:
        wide = 33 + CHAR * svg.length(name)
        if used + wide > width:
            lines.append([])
            used = 0.0
        lines[-1].append(name)
        used += wide
    return lines


def _legend(names: Sequence[str], colour: Mapping[str, str], y: float) -> Iterator[str]:
    x = float(MARGIN)
    for name in names:
        yield f'<circle cx="{x + 5:.1f}" cy="{y - 4:.1f}" r="4" fill="{colour[name]}"/>'
        yield svg.text(x + 15, y, name, 12, FAINT)
        x += 33 + CHAR * svg.length(name)


def _right(x: float, y: float, said: str) -> str:
    """A line of text that ends at x."""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{FAINT}" font-size="11" text-anchor="end">{svg.escaped(said)}</text>'
