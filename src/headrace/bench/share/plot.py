"""The picture of the benchmark: the CPU seconds of each approach, one group of bars per set of views and goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.measuring.plotting import BLACK, GREEN, ORANGE, RED, SKY, legend, save
from headrace.explain import svg
from headrace.explain.svg import EDGE, FAINT, INK, MARGIN

Row = Mapping[str, Any]
_Group = tuple[str, str]

_BAR, _GAP, _LEFT, _WIDTH, _TOP = 15, 14, 190, 400, 86
_SAID = "CPU seconds until all triggers have fired; beside them, mean missed latency"
_COLOURS = (ORANGE, SKY, RED, GREEN, BLACK)


def save_plot(folder: Path, results: Sequence[Row], title: str) -> Path:
    """Write the picture; returns its file."""
    return save(folder, {"share-goals": plot(results, title)})[0]


def plot(results: Sequence[Row], title: str) -> str:
    """Draw the results; those for several draws of random goals are one bar, with their mean."""
    approaches = list(dict.fromkeys(row["approach"] for row in results))
    groups: dict[_Group, dict[str, list[Row]]] = {}
    for row in results:
        goals = "random goals" if row["goals"].startswith("random") else f"goals {row['goals']}"
        groups.setdefault((row["views"], goals), {}).setdefault(row["approach"], []).append(row)
    means = {
        group: {name: statistics.mean(row["cpu_seconds"] for row in rows) for name, rows in own.items()}
        for group, own in groups.items()
    }
    missed = {
        group: {name: statistics.mean(row["missed_mean"] for row in rows) for name, rows in own.items()}
        for group, own in groups.items()
    }
    height = _TOP + len(groups) * (_BAR * len(approaches) + _GAP)
    parts = [*_bars(approaches, means, missed), *legend(dict(zip(approaches, _COLOURS, strict=False)), height + 14)]
    return svg.document(2 * MARGIN + _LEFT + _WIDTH + 110, height + 40, [(title, 16), (_SAID, 12)], parts)


def _bars(
    approaches: Sequence[str], means: Mapping[_Group, Mapping[str, float]], missed: Mapping[_Group, Mapping[str, float]]
) -> Iterator[str]:
    y, x = float(_TOP), MARGIN + _LEFT
    for group, own in means.items():
        most = max(own.values())  # each group has a scale of its own: approaches are compared, and not sets of views
        middle = y + _BAR * len(own) / 2
        yield svg.text(MARGIN, middle - 4, group[0], 12, INK)
        yield svg.text(MARGIN, middle + 11, group[1], 12, FAINT)
        for name, seconds in own.items():
            width = _WIDTH * seconds / most if most else 0.0
            colour = _COLOURS[approaches.index(name) % len(_COLOURS)]
            yield f'<rect x="{x}" y="{y:.1f}" width="{width:.1f}" height="{_BAR - 3}" fill="{colour}"/>'
            said = f"{seconds:.2f} s, {missed[group][name]:.0%}"
            yield svg.text(x + width + 6, y + _BAR - 5, said, 12, FAINT)
            y += _BAR
        y += _GAP
    yield f'<path d="M{x} {_TOP - 4} V{y - _GAP + 2:.1f}" stroke="{EDGE}"/>'
