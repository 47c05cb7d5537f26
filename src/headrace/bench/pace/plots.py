"""A picture per query: what each approach costs in addition, over the work that it leaves to the trigger.

Approaches that chose the same paces have the same line, so each is drawn thinner than those below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.measuring.plotting import BLACK, BLUE, GREEN, ORANGE, PINK, RED, save, ticks
from headrace.bench.pace.approaches import APPROACHES, BATCH, EAGER, HAND, LEAF, OURS, UNIFORM
from headrace.bench.pace.summary import is_goal
from headrace.explain import svg
from headrace.explain.svg import EDGE, FAINT, INK, MARGIN, PAPER

Row = Mapping[str, Any]

_TOTAL, _HEIGHT, _TOP, _LEFT = 640, 270, 80, 72
_WIDTH = _TOTAL - _LEFT - 2 * MARGIN
_LEAST = 0.02  # of final work; what is less stands at the edge
_MARKED = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_SAID = "CPU in addition to the batch's, over the share of the work that is left to the trigger"
_COLOURS = {OURS: BLACK, UNIFORM: RED, LEAF: BLUE, HAND: GREEN, EAGER: PINK, BATCH: ORANGE}


def save_plots(folder: Path, results: Sequence[Row]) -> list[Path]:
    """Write one picture for each query that has a row of a goal; return their files."""
    rows = [row for row in results if is_goal(row)]
    queries = dict.fromkeys(row["query"] for row in rows)
    return save(folder, {f"pace-{one}": plot(one, [row for row in rows if row["query"] == one]) for one in queries})


def plot(query: str, rows: Sequence[Row]) -> str:
    """The picture of one query."""
    head = [(f"{query}: fresh or cheap", 16), (_SAID, 12)]
    return svg.document(_TOTAL, _TOP + _HEIGHT + 96, head, list(_drawn(rows)))


def _drawn(rows: Sequence[Row]) -> Iterator[str]:
    costs = [1e3 * row["additional_cpu_seconds"] for row in rows]
    axis = ticks(min(0.0, *costs), max(1.0, *costs))
    lines = {
        name: [row for row in rows if row["approach"] == name]
        for name in APPROACHES
        if any(row["approach"] == name for row in rows)
    }
    yield from _axes(axis)
    for depth, name in reversed(list(enumerate(lines))):
        yield from _line(name, depth, lines[name], axis)
    yield from _legend(list(lines))


def _x(share: float) -> float:
    inside = min(1.0, max(_LEAST, share))
    return MARGIN + _LEFT + _WIDTH * math.log(inside / _LEAST) / math.log(1 / _LEAST)


def _y(milliseconds: float, axis: Sequence[float]) -> float:
    return _TOP + _HEIGHT * (axis[-1] - milliseconds) / (axis[-1] - axis[0])


def _axes(axis: Sequence[float]) -> Iterator[str]:
    left, bottom = _x(_LEAST), _TOP + _HEIGHT
    for value in axis:
        y = _y(value, axis)
        yield f'<path d="M{left} {y:.1f} H{left + _WIDTH}" stroke="{EDGE}" stroke-width="{1 if value == 0 else 0.3}"/>'
        yield svg.text(MARGIN, y + 4, f"{value:,.0f} ms", 12, FAINT)
    for share in _MARKED:
        yield f'<path d="M{_x(share):.1f} {bottom} v5" stroke="{EDGE}"/>'
        yield svg.text(_x(share), bottom + 20, f"{share:g}", 12, FAINT, middle=True)
    yield f'<path d="M{left} {_TOP} V{bottom} H{left + _WIDTH}" fill="none" stroke="{EDGE}"/>'


def _line(name: str, depth: int, rows: Sequence[Row], axis: Sequence[float]) -> Iterator[str]:
    """The line of an approach; `depth` is how many are drawn above it."""
    colour, thick, wide = _COLOURS[name], 1.5 + 1.5 * depth, 3.5 + depth
    ordered = sorted(rows, key=lambda row: -float(row["share"]))
    points: dict[tuple[float, float], list[Row]] = {}
    for row in ordered:  # goals for which the same paces were chosen are one point
        at = _x(row["latency_ratio"]), _y(1e3 * row["additional_cpu_seconds"], axis)
        points.setdefault(at, []).append(row)
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    yield f'<path class="{name}" d="M{path}" fill="none" stroke="{colour}" stroke-width="{thick}"/>'
    for (x, y), own in points.items():
        met = all(row["met"] for row in own)
        yield _mark(x, y, wide, thick, colour, "met" if met else "missed")
        if name == OURS:
            goals = [f"{row['share']:g}" for row in own]
            text = goals[0] if len(goals) == 1 else f"{goals[-1]}-{goals[0]}"
            below = y + 18 < _TOP + _HEIGHT  # where fewer lines are, as ours are to be the cheapest
            yield svg.text(x, y + 18 if below else y - 9, text, 12, INK, middle=True)


def _mark(x: float, y: float, wide: float, thick: float, colour: str, kind: str) -> str:
    fill = colour if kind == "met" else PAPER
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{wide}" fill="{fill}" '
        f'stroke="{colour}" stroke-width="{min(2.5, thick)}"/>'
    )


def _legend(names: Sequence[str]) -> Iterator[str]:
    y = _TOP + _HEIGHT + 50
    x = float(MARGIN)
    for depth, name in enumerate(names):
        colour = _COLOURS[name]
        yield f'<path d="M{x} {y - 4} h22" stroke="{colour}" stroke-width="{1.5 + 1.5 * depth}"/>'
        yield svg.text(x + 29, y, name, 12, FAINT)
        x += 29 + svg.CHAR * len(name) + 16
    yield _mark(MARGIN + 6, y + 20, 4, 1.5, INK, "met")
    yield svg.text(MARGIN + 18, y + 24, "goal met", 12, FAINT)
    yield _mark(MARGIN + 106, y + 20, 4, 1.5, INK, "missed")
    yield svg.text(MARGIN + 118, y + 24, "a goal of these paces missed; numbers: the goals of ours", 12, FAINT)
