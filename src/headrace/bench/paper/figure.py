"""What a figure of the paper is: what was measured there, what is run of it here, and how both are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.bench.paper.chart import Panel

SILVER = "Intel Xeon Silver 4214 at 2.2 GHz, 188 GB, one thread, generated C++"
AZURE = "Intel Xeon E5-2620 v3 at 2.4 GHz, 32 GB, one thread, generated C++ (conference paper)"

Row = dict[str, Any]
Result = Mapping[str, Any]
"""What the `run` of a benchmark returns."""


@dataclass(frozen=True)
class Sizes:
    """How large the runs are.

    Parameters
    ----------
    scale : a factor of the usual sizes of data.
    batch : rows per batch, where the figure does not vary them; None for the usual.
    time_limit : seconds per approach; None for the usual.
    arguments : what all benchmarks get besides, such as a folder for their state.
    """

    scale: float = 1.0
    batch: int | None = None
    time_limit: float | None = None
    arguments: tuple[str, ...] = ()

    def number(self, usual: float) -> str:
        """A size that need not be a whole number, such as the scale of a data set."""
        return f"{usual * self.scale:g}"

    def count(self, usual: int, least: int = 1) -> str:
        """A size that is a whole number, such as the edges of a graph."""
        return str(max(least, round(usual * self.scale)))

    def rows(self, usual: int) -> str:
        """The rows of a batch."""
        return str(usual if self.batch is None else self.batch)

    def seconds(self, usual: float) -> str:
        """The time of an approach."""
        return f"{usual if self.time_limit is None else self.time_limit:g}"


@dataclass(frozen=True)
class Piece:
    """One run of a benchmark. Equal pieces of several figures are run once.

    Parameters
    ----------
    name : what its results are called in the figure.
    bench : a name of `BENCHMARKS`.
    arguments : the arguments of its `run`.
    """

    name: str
    bench: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One number that the paper reports, or a claim such as "more than 1", beside the one measured here.

    Parameters
    ----------
    here : None where it was not measured, because of a time limit or the options of a run.
    note : what has to be known to compare the two.
    """

    what: str
    paper: float | str
    here: float | None
    note: str = ""


@dataclass(frozen=True)
class Shown:
    """What is made of the results of a figure's pieces."""

    panels: Sequence[Panel] = ()
    comparisons: Sequence[Comparison] = ()


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    Parameters
    ----------
    measured : what the paper measured.
    machine : on which machine.
    differs : what is smaller or other here.
    pieces : what is run.
    shown : the panels and comparisons, from the result of each piece by its name. Pieces that failed are missing.
    columns : panels beside one another.
    """

    number: int
    title: str
    measured: str
    machine: str
    differs: str
    pieces: Callable[[Sizes], list[Piece]]
    shown: Callable[[Mapping[str, Result]], Shown]
    columns: int = 3


@dataclass
class Outcome:
    """A figure that was run."""

    figure: Figure
    pieces: list[Piece]
    shown: Shown
    errors: dict[str, str] = field(default_factory=dict)  # by piece
    failure: str = ""  # why what was measured could not be shown


def row_of(result: Result | None, case: str) -> Row | None:
    """The row of a case, if it was run and has a throughput."""
    if result is None:
        return None
    return next((row for row in result["results"] if row["case"] == case), None)


def quotient(above: Row | None, below: Row | None, key: str = "rows_per_s") -> float | None:
    """The ratio of one measurement of two rows, where both have it."""
    if above is None or below is None or not above.get(key) or not below.get(key):
        return None
    return float(above[key]) / float(below[key])
