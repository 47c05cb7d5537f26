"""A picture of a soak: each measure over the time of the run, its second half with the line that is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.measuring.plotting import BLACK, BLUE, ORANGE, RED, legend, save, ticks
from headrace.bench.soak.flatness import Measure, slope
from headrace.explain import svg
from headrace.explain.svg import EDGE, FAINT, INK, MARGIN

_WIDTH, _HEIGHT, _TOP, _LEFT, _GAP, _ACROSS = 330, 110, 108, 62, 58, 2
_JUDGED, _KILLED, _STOPPED = "the line through the second half", "killed", "stopped"


def save_plot(folder: Path, result: Mapping[str, Any], measures: Sequence[Measure]) -> list[Path]:
    """Write the picture; return its file."""
    return save(folder, {"soak": plot(result, measures)})


def plot(result: Mapping[str, Any], measures: Sequence[Measure]) -> str:
    """The picture, with a panel per measure."""
    turns = sum(result["turns"].values())
    said = f"{result['steps']:,} steps, {result['answers']:,} answers compared with Spark's, as many rows at any time"
    head = [(f"{result['minutes']:,.0f} minutes of random changes: {turns:,} turns", 16), (said, 12)]
    drawn = [measure for measure in measures if sum(measure.name in sample for sample in result["samples"]) > 1]
    parts: list[str] = []
    for number, measure in enumerate(drawn):
        x = MARGIN + _LEFT + (number % _ACROSS) * (_WIDTH + _LEFT + 20)
        y = _TOP + (number // _ACROSS) * (_HEIGHT + _GAP)
        parts += _panel(result, measure, x, y)
    bottom = _TOP + -(-len(drawn) // _ACROSS) * (_HEIGHT + _GAP)
    parts += legend({"samples": BLUE, _JUDGED: BLACK, _KILLED: RED, _STOPPED: ORANGE}, bottom)
    return svg.document(2 * MARGIN + _ACROSS * (_WIDTH + _LEFT + 20), bottom + 24, head, parts)


def _panel(result: Mapping[str, Any], measure: Measure, x: float, y: float) -> Iterator[str]:
    samples = [sample for sample in result["samples"] if measure.name in sample]
    until = max(result["minutes"], samples[-1]["minute"])
    values = ticks(0.0, max(max(sample[measure.name] for sample in samples), 1e-9))

    def at(minute: float, value: float) -> str:
        return f"{x + _WIDTH * minute / until:.1f} {y + _HEIGHT * (1 - value / values[-1]):.1f}"

    yield svg.text(x - _LEFT + 8, y - 12, f"{measure.name}: {measure.about}", 11, INK)
    for value in values[:: 1 if len(values) < 4 else 2]:
        yield f'<path d="M{at(0, value)} h{_WIDTH}" stroke="{EDGE}" stroke-width="{0.3 if value else 1}"/>'
        yield svg.text(
            x - _LEFT + 8, y + _HEIGHT * (1 - value / values[-1]) + 4, f"{value:,g} {measure.unit}", 10, FAINT
        )
    for restart in result["restarts"]:
        colour = RED if restart["how"] == "killed" else ORANGE
        yield f'<path d="M{at(restart["minute"], 0)} v-{_HEIGHT}" stroke="{colour}" stroke-width="0.8"/>'
    points = " L".join(at(sample["minute"], sample[measure.name]) for sample in samples)
    yield f'<path class="samples" d="M{points}" fill="none" stroke="{BLUE}" stroke-width="1.2"/>'
    later = [(s["minute"], s[measure.name]) for s in samples if s["minute"] > result["judged_from_minute"]]
    if len(later) > 1:
        times, found = [time for time, _ in later], sorted(value for _, value in later)
        rise, middle, median = slope(*zip(*later, strict=True)), (times[0] + times[-1]) / 2, found[len(found) // 2]
        ends = [at(time, max(0.0, median + rise * (time - middle))) for time in (times[0], times[-1])]
        yield f'<path class="judged" d="M{ends[0]} L{ends[1]}" stroke="{BLACK}" stroke-width="1.6"/>'
    yield svg.text(x + _WIDTH, y + _HEIGHT + 16, f"{until:,.0f} min", 10, FAINT, middle=True)
