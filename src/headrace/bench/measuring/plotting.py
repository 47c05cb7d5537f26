"""What the pictures of several benchmarks have in common: colours, numbers on axes, a legend, and files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from headrace.explain import svg
from headrace.explain.svg import CHAR, FAINT, MARGIN

# Colours that people who see few of them can tell apart (Okabe and Ito).
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)


def ticks(least: float, most: float) -> list[float]:
    """Round numbers from the least to the most value, or a little beyond.

    >>> ticks(0, 37)
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    step = 10.0 ** math.floor(math.log10((most - least) / 2))
    step *= next(times for times in (1, 2, 5, 10) if (most - least) / (times * step) <= 5)
    return [step * number for number in range(math.floor(least / step), math.ceil(most / step) + 1)]


def legend(colours: Mapping[str, str], y: float) -> Iterator[str]:
    """A dot and a name for each colour, in one line."""
    x = float(MARGIN)
    for name, colour in colours.items():
        yield f'<circle cx="{x + 5}" cy="{y - 4}" r="4" fill="{colour}"/>'
        yield svg.text(x + 15, y, name, 12, FAINT)
        x += 15 + CHAR * len(name) + 18


def save(folder: Path, pictures: Mapping[str, str]) -> list[Path]:
    """Write pictures, each under its name; returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, picture in pictures.items():
        path = folder / f"{quote(name, safe='')}.svg"
        path.write_text(picture, encoding="utf-8")
        written.append(path)
    return written
