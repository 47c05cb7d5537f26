"""A picture per query: what a change costs by the memory that a view may use, for each approach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.keep.approaches import EVERYTHING, HEADRACE, REBATCH, RECURSIVE, RECYCLER
from headrace.bench.measuring.plotting import BLACK, BLUE, GREEN, ORANGE, RED, legend, save, ticks
from headrace.explain import svg
from headrace.explain.svg import EDGE, FAINT, MARGIN

Row = Mapping[str, Any]

_TOTAL, _HEIGHT, _TOP, _LEFT = 640, 240, 80, 64
_WIDTH = _TOTAL - _LEFT - 2 * MARGIN
_SAID = "CPU of a change of 0.5% of all tables, by the state that is kept meanwhile"
_COLOURS = {HEADRACE: BLACK, RECYCLER: RED, REBATCH: ORANGE, EVERYTHING: BLUE, RECURSIVE: GREEN}


def save_plots(folder: Path, results: Sequence[Row]) -> list[Path]:
    """Write one picture for each query that was run under several budgets; return their files."""
    rows = [row for row in results if row["scenario"] == "budgets"]
    queries = dict.fromkeys(row["case"] for row in rows)
    return save(folder, {f"keep-{one}": plot(one, [row for row in rows if row["case"] == one]) for one in queries})


def plot(query: str, rows: Sequence[Row]) -> str:
    """The picture of one query."""
    head = [(f"{query}: memory or time", 16), (_SAID, 12)]
    return svg.document(_TOTAL, _TOP + _HEIGHT + 72, head, list(_drawn(rows)))


def _drawn(rows: Sequence[Row]) -> Iterator[str]:
    times = ticks(0.0, max(1e3 * row["cpu_seconds"] for row in rows))
    sizes = ticks(0.0, max(row["state_mb"] for row in rows))
    left, bottom = MARGIN + _LEFT, _TOP + _HEIGHT
    for value in times:
        y = bottom - _HEIGHT * value / times[-1]
        yield f'<path d="M{left} {y:.1f} h{_WIDTH}" stroke="{EDGE}" stroke-width="{0.3 if value else 1}"/>'
        yield svg.text(MARGIN, y + 4, f"{value:g} ms", 12, FAINT)
    for value in sizes:
        x = left + _WIDTH * value / sizes[-1]
        yield f'<path d="M{x:.1f} {bottom} v5" stroke="{EDGE}"/>'
        yield svg.text(x, bottom + 20, f"{value:g} MB", 12, FAINT, middle=True)
    for name, colour in reversed(_COLOURS.items()):
        # An approach never gets worse by memory that it leaves unused, so its points stand at what it keeps.
        own = sorted((row["state_mb"], 1e3 * row["cpu_seconds"]) for row in rows if row["system"] == name)
        points = [(left + _WIDTH * mb / sizes[-1], bottom - _HEIGHT * ms / times[-1]) for mb, ms in own]
        if len(points) > 1:
            path = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            yield f'<path class="{name}" d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        for x, y in points:
            yield f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    used = {name: colour for name, colour in _COLOURS.items() if any(row["system"] == name for row in rows)}
    yield from legend(used, bottom + 50)
