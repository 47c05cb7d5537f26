"""The drawing of the disorder benchmark: error over latency, one mark per method and omega.

Methods that answer by what has arrived lie on one another, so each has a shape of its own that leaves the others
visible. Texts stand outside of the area of the marks: omegas above it, methods to its right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.explain import svg
from headrace.explain.svg import CHAR, EDGE, FAINT, HEAD, INK, LINE, MARGIN

Row = Mapping[str, Any]

_WIDTH, _HEIGHT = 560.0, 380.0  # of where marks are
_AXIS = 64.0  # left of it, for numbers and the name of the axis
_BELOW = 56.0
_KEYS = 26.0  # right of it, before the legend
_LEAST = 1e-5  # an error of zero has no logarithm
_GRID = "#e3e9ee"


@dataclass(frozen=True)
class _Mark:
    """The shape and colour of a method; points are (x, y) pairs around the middle."""

    colour: str
    points: tuple[tuple[float, float], ...]  # of a closed line; none for a circle
    filled: bool = False
    size: float = 6.0


_SQUARE = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
_DIAMOND = ((0.0, -1.4), (1.4, 0.0), (0.0, 1.4), (-1.4, 0.0))
_UP = ((0.0, -1.2), (1.2, 1.0), (-1.2, 1.0))
_DOWN = ((0.0, 1.2), (1.2, -1.0), (-1.2, -1.0))
_MARKS = {
    "wmj": _Mark("#5b6b7b", ()),
    "ksj": _Mark("#8a5a2b", _SQUARE, size=7.5),
    "shj": _Mark("#7b8a99", _DIAMOND, size=6.5),
    "prj": _Mark("#1b2733", _UP, size=4.5),
    "aema": _Mark("#b9770e", _SQUARE, filled=True, size=4.5),
    "svi": _Mark("#3c8d5a", _DIAMOND, filled=True, size=4.5),
    "mlp": _Mark("#a2408e", _UP, filled=True, size=5.0),
    "delay": _Mark("#2f74b5", _DOWN, filled=True, size=5.0),
    "auto": _Mark("#c0392b", (), size=8.5),
}


@dataclass(frozen=True)
class _Scale:
    """From values to places: latencies from 0 on, errors by their logarithm."""

    latest: float
    low: int  # decades
    high: int

    def x(self, latency: float) -> float:
        return MARGIN + _AXIS + _WIDTH * latency / self.latest

    def y(self, error: float) -> float:
        share = (math.log10(max(error, 10.0**self.low)) - self.low) / (self.high - self.low)
        return _TOP + _HEIGHT * (1 - share)


_TOP = HEAD + 46.0  # below the omegas


def to_svg(result: Mapping[str, Any]) -> str:
    """Draw the rows of a result that have an error and a latency."""
    rows = [row for row in result["results"] if row.get("mean_error") is not None and row.get("latency_ms") is not None]
    scale = _scaled(rows)
    config = result["config"]
    head = [
        (f"{config['query']} on {config['data']}: error over latency", 16),
        (f"{config['aggregate']} in windows of {config['window_ms']:g} ms, delays to {config['latest_ms']:g} ms", 12),
    ]
    methods = [name for name in _MARKS if any(row["method"] == name for row in rows)]
    parts = [*_axes(scale), *_omegas(rows, scale)]
    for method in methods:
        parts += _method(method, sorted((r for r in rows if r["method"] == method), key=lambda r: r["omega_ms"]), scale)
    parts += _legend(methods)
    longest = max((svg.length(name) for name in methods), default=0)
    width = MARGIN + _AXIS + _WIDTH + _KEYS + 2 * 12 + longest * CHAR + MARGIN
    return svg.document(max(width, 2 * MARGIN + svg.head_width(head)), _TOP + _HEIGHT + _BELOW, head, parts)


def _scaled(rows: Sequence[Row]) -> _Scale:
    errors = [max(_LEAST, row["mean_error"]) for row in rows] or [0.1]
    low = math.floor(math.log10(min(errors)))
    high = max(low + 1, math.ceil(math.log10(max(errors))))
    step = _step(max((row["latency_ms"] for row in rows), default=1.0))
    latest = max((row["latency_ms"] for row in rows), default=1.0)
    return _Scale(step * math.ceil(1.02 * latest / step), low, high)


def _step(longest: float) -> float:
    """Return the distance of numbers on an axis: 1, 2 or 5 times a power of ten, so that there are three to eight."""
    raw = max(longest, 1e-9) / 7
    unit = 10.0 ** math.floor(math.log10(raw))
    return next(times * unit for times in (1, 2, 5, 10) if times * unit >= raw)


def _axes(scale: _Scale) -> Iterator[str]:
    left, right, bottom = scale.x(0), scale.x(scale.latest), _TOP + _HEIGHT
    for decade in range(scale.low, scale.high + 1):
        for times in (1, 2, 5) if decade < scale.high else (1,):
            error = times * 10.0**decade
            y = scale.y(error)
            yield _line(left, y, right, y, _GRID if times > 1 else EDGE)
            if times == 1 or scale.high - scale.low <= 2:
                label = f"{100 * error:g}%"
                yield svg.text(left - 8 - svg.length(label) * CHAR, y + 4, label, 12, FAINT)
    step = _step(scale.latest)
    for i in range(round(scale.latest / step) + 1):
        x = scale.x(i * step)
        yield _line(x, _TOP, x, bottom, _GRID)
        yield svg.text(x, bottom + 18, f"{i * step:g}", 12, FAINT, middle=True)
    yield svg.text((left + right) / 2, bottom + 38, "95% latency, ms", 12, INK, middle=True)
    yield svg.text(MARGIN, _TOP - 15, "mean error", 12, INK)


def _omegas(rows: Sequence[Row], scale: _Scale) -> Iterator[str]:
    """Write each omega above its marks; in a second line, or a third, where there is no room beside another."""
    ends = [scale.x(0)] * 3
    ends[0] = max(ends[0], MARGIN + svg.length("mean error") * CHAR + 12)  # where the name of the axis ends
    for omega in sorted({row["omega_ms"] for row in rows}):
        latencies = [row["latency_ms"] for row in rows if row["omega_ms"] == omega]
        middle = scale.x(sum(latencies) / len(latencies))
        label = f"omega {omega:g} ms"
        half = svg.length(label) * CHAR / 2
        line = next((i for i, end in enumerate(ends) if middle - half >= end), ends.index(min(ends)))
        middle = max(middle, ends[line] + half)
        ends[line] = middle + half + 10
        yield svg.text(middle, _TOP - 15 - 15 * line, label, 12, FAINT, middle=True)


def _method(method: str, rows: Sequence[Row], scale: _Scale) -> Iterator[str]:
    mark = _MARKS[method]
    places = [(scale.x(row["latency_ms"]), scale.y(max(_LEAST, row["mean_error"]))) for row in rows]
    if len(places) > 1:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="line" points="{points}" fill="none" stroke="{mark.colour}" stroke-opacity="0.35"/>'
    for row, (x, y) in zip(rows, places, strict=True):
        about = (
            f"{method} at omega {row['omega_ms']:g} ms: mean error {100 * row['mean_error']:.3g}%, "
            f"95% latency {row['latency_ms']:.4g} ms"
        )
        yield _drawn(mark, x, y, "mark", about)


def _legend(methods: Sequence[str]) -> Iterator[str]:
    x = MARGIN + _AXIS + _WIDTH + _KEYS
    for i, method in enumerate(methods):
        y = _TOP + 10 + i * (LINE + 5)
        yield _drawn(_MARKS[method], x, y, "key", method)
        yield svg.text(x + 18, y + 4, method, 12, INK)


def _drawn(mark: _Mark, x: float, y: float, kind: str, about: str) -> str:
    look = f'fill="{mark.colour if mark.filled else "none"}" stroke="{mark.colour}" stroke-width="1.6"'
    title = f"<title>{svg.escaped(about)}</title>"
    if not mark.points:
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{mark.size:g}" {look}>{title}</circle>'
    points = " ".join(f"{x + mark.size * dx:.1f},{y + mark.size * dy:.1f}" for dx, dy in mark.points)
    return f'<polygon class="{kind}" points="{points}" {look}>{title}</polygon>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}" stroke-width="1"/>'
