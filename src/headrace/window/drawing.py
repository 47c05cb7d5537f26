"""Answers of a window join as a drawing: estimates, intervals, what had arrived, and what was true in the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.explain import svg
from headrace.explain.svg import EDGE, FAINT, HEAD, INK, MARGIN

_WIDTH, _HEIGHT = 860.0, 300.0  # of where the lines are
_LEFT, _BELOW = 74.0, 40.0  # for the numbers of the axes
_BAND, _ESTIMATE, _OBSERVED, _FINAL = "#cfe3f6", "#2f74b5", "#b9770e", "#1b2733"
_GRID = "#e3e9ee"
_TICKS = 5
_ENTRIES = (("estimate", _ESTIMATE), ("interval", _BAND), ("had arrived", _OBSERVED), ("came to", _FINAL))


@dataclass(frozen=True)
class _Scale:
    """Where windows and values are."""

    first: float
    last: float
    low: float
    high: float

    def x(self, at: float) -> float:
        return MARGIN + _LEFT + _WIDTH * (at - self.first) / max(1e-12, self.last - self.first)

    def y(self, value: float) -> float:
        return HEAD + _HEIGHT * (1 - (value - self.low) / max(1e-12, self.high - self.low))


def to_svg(title: str, answers: pa.Table, finals: pa.Table, *, since: int = 0) -> str:
    """Draw answers, told at their moments, beside those of the same windows when they were complete.

    Parameters
    ----------
    answers, finals : rows of window joins with revisions "estimate" and "final".
    since : how many windows to leave out at the beginning, when nothing is known yet.
    """
    rows = [row for row in answers.to_pylist() if row["value"] is not None][since:]
    complete = {row["window_start"]: row["value"] for row in finals.to_pylist()}
    first = rows[0]["window_start"] if rows else None
    at = [(row["window_start"] - first).total_seconds() for row in rows]
    true = [
        (x, complete[row["window_start"]]) for x, row in zip(at, rows, strict=True) if row["window_start"] in complete
    ]
    held = sum(
        row["low"] <= complete[row["window_start"]] <= row["high"] for row in rows if row["window_start"] in complete
    )
    head = [(title, 15), (_said(len(rows), len(true), held), 12)]
    scale = _scale(at, rows, [value for _, value in true])
    points = {
        name: [(x, row[name]) for x, row in zip(at, rows, strict=True)] for name in ("value", "low", "high", "observed")
    }
    parts = [*_axes(scale)]
    if rows:
        band = points["low"] + points["high"][::-1]
        parts.append(f'<path class="interval" d="{_way(scale, band)}Z" fill="{_BAND}"/>')
        parts.append(_line(scale, points["observed"], _OBSERVED, "observed", dashes="4 3"))
        parts.append(_line(scale, points["value"], _ESTIMATE, "estimate"))
        parts += [
            f'<circle class="final" cx="{scale.x(x):.1f}" cy="{scale.y(v):.1f}" r="2.2" fill="{_FINAL}"/>'
            for x, v in true
        ]
    bottom = HEAD + _HEIGHT + _BELOW
    parts += list(_legend(bottom + 14))
    return svg.document(_LEFT + _WIDTH + 2 * MARGIN, bottom + 40, head, parts)


def _said(rows: int, complete: int, held: int) -> str:
    if not complete:
        return f"{rows:,} windows, none of them complete"
    return f"{rows:,} windows; of {complete:,} that are complete, {held / complete:.0%} were within their intervals"


def _scale(at: Sequence[float], rows: Sequence[dict[str, float]], true: Sequence[float]) -> _Scale:
    values = [row["value"] for row in rows] + [row["observed"] for row in rows] + list(true)
    if not values:
        return _Scale(0, 1, 0, 1)
    # Bounds may be far out while little is known: they are drawn as far as the picture goes.
    low, high = min(0.0, *values), max(values)
    reach = sorted(row["high"] for row in rows)[int(0.95 * (len(rows) - 1))]
    high = min(max(high, reach), 2 * high - low) if high > low else low + 1
    return _Scale(at[0], at[-1] if at[-1] > at[0] else at[0] + 1, low, high * 1.05)


def _axes(scale: _Scale) -> Iterator[str]:
    left, right, bottom = scale.x(scale.first), scale.x(scale.last), scale.y(scale.low)
    for value in _ticks(scale.low, scale.high):
        y = scale.y(value)
        yield f'<path d="M{left:.1f} {y:.1f}H{right:.1f}" stroke="{_GRID}"/>'
        label = f"{value:,.6g}"
        yield svg.text(left - 8 - len(label) * svg.CHAR, y + 4, label, 12, FAINT)
    for moment in _ticks(scale.first, scale.last):
        label = f"{moment:,.4g} s"
        yield svg.text(scale.x(moment) - len(label) * svg.CHAR / 2, bottom + 20, label, 12, FAINT)
    yield f'<path d="M{left:.1f} {bottom:.1f}H{right:.1f}" stroke="{EDGE}"/>'


def _ticks(low: float, high: float) -> list[float]:
    """A few round numbers between two."""
    step = (high - low) / _TICKS
    size = 10 ** math.floor(math.log10(step)) if step > 0 else 1.0
    step = next(size * nice for nice in (1, 2, 5, 10) if size * nice >= step)
    start = math.ceil(low / step)
    return [i * step for i in range(start, math.floor(high / step + 1e-9) + 1)]


def _way(scale: _Scale, points: Sequence[tuple[float, float]]) -> str:
    inside = [(scale.x(x), min(max(scale.y(y), HEAD), HEAD + _HEIGHT)) for x, y in points]
    return "".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(inside))


def _line(scale: _Scale, points: Sequence[tuple[float, float]], colour: str, kind: str, dashes: str = "") -> str:
    extra = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path class="{kind}" d="{_way(scale, points)}" fill="none" stroke="{colour}" stroke-width="1.6"{extra}/>'


def _legend(y: float) -> Iterator[str]:
    x = MARGIN + _LEFT
    for label, colour in _ENTRIES:
        yield f'<rect class="key" x="{x:.1f}" y="{y - 10:.1f}" width="18" height="12" rx="3" fill="{colour}"/>'
        yield svg.text(x + 26, y, label, 12, INK)
        x += 50 + len(label) * svg.CHAR
