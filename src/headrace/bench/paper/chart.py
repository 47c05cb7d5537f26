"""What a picture shows, as values: panels of lines, or of marks on one axis, each of them ours or the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.bench.measuring.plotting import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY

FACTORIZED = "factorized (F-IVM)"
RECURSIVE = "recursive (DBT)"
FIRST_ORDER = "first-order (1-IVM)"
STRATEGIES: Mapping[str, str] = {"factorized": FACTORIZED, "recursive": RECURSIVE, "first-order": FIRST_ORDER}
"""The strategies of Headrace, and what they are called beside the systems of the paper."""

_COLOURS = {FACTORIZED: BLACK, RECURSIVE: RED, FIRST_ORDER: BLUE}
_OTHERS = (ORANGE, GREEN, PINK, SKY)


@dataclass(frozen=True)
class Line:
    """The points of one approach, from left to right."""

    name: str
    points: tuple[tuple[float, float], ...]
    paper: bool = False


@dataclass(frozen=True)
class Mark:
    """One value of one approach; ours and the paper's of the same group and name stand in one row."""

    group: str
    name: str
    value: float
    paper: bool = False
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """One part of a figure: lines, or marks where the figure is a table.

    Parameters
    ----------
    x, y : what the axes show; marks have only y, which runs from left to right.
    log_x, log_y : axes by powers of ten; that of marks always is.
    """

    title: str
    y: str
    x: str = ""
    lines: Sequence[Line] = ()
    marks: Sequence[Mark] = ()
    log_x: bool = False
    log_y: bool = True

    @property
    def names(self) -> list[str]:
        """The approaches, in the order in which they come."""
        return list(dict.fromkeys([*(line.name for line in self.lines), *(mark.name for mark in self.marks)]))

    def to_json(self) -> dict[str, Any]:
        """The panel as JSON can hold it."""
        shown: dict[str, Any] = {"title": self.title, "x": self.x, "y": self.y}
        if self.lines:
            shown["lines"] = [
                {"name": line.name, "paper": line.paper, "points": [list(point) for point in line.points]}
                for line in self.lines
            ]
        if self.marks:
            shown["marks"] = [vars(bar) for bar in self.marks]
        return shown


def colours(panels: Sequence[Panel]) -> dict[str, str]:
    """A colour for each approach of a figure; the three strategies have the same in all figures."""
    names = dict.fromkeys(name for panel in panels for name in panel.names)
    others = [name for name in names if name not in _COLOURS]
    free = [*_OTHERS, *(colour for name, colour in _COLOURS.items() if name not in names)]
    given = {name: free[number % len(free)] for number, name in enumerate(others)}
    return {name: _COLOURS.get(name) or given[name] for name in names}
