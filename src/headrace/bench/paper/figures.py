"""The figures of Section 9 of the F-IVM paper: what is measured here, beside what the paper reports.

Each figure is a run of one benchmark of the package or of several, with sizes that take a few minutes on two cores;
what is smaller than in the paper, or other, is printed with it. A picture has its lines, ours beside the paper's where
its text gives numbers, and a table has every ratio of the paper's text and tables beside the same ratio here. Machines,
languages and durability differ, so compare ratios and the shapes of lines, not throughputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Group

from headrace.bench import BENCHMARKS
from headrace.bench.measuring.plotting import save
from headrace.bench.paper.drawing import drawn
from headrace.bench.paper.figure import Figure, Outcome, Piece, Result, Row, Shown, Sizes
from headrace.bench.paper.options import figures, parser
from headrace.bench.paper.registry import FIGURES
from headrace.bench.paper.screen import shown
from headrace.errors import HeadraceError
from headrace.runtime.session import usable_cores

Tell = Callable[[str], None]
_Key = tuple[str, tuple[str, ...]]


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run figures; see `--help` for the options."""
    made = parser(__doc__ or "")
    options = made.parse_args(argv)
    try:
        numbers = figures(options.figure)
    except ValueError as error:
        made.error(f"--figure: {error}")
    place = () if options.location is None else ("--location", str(options.location))
    sizes = Sizes(options.scale, options.batch, options.time_limit, place)
    runs = _Runs(tell)
    outcomes = [runs.outcome(FIGURES[number], sizes) for number in numbers]
    files = {outcome.figure.number: _drawn(outcome, options.plots) for outcome in outcomes}
    said = [(outcome.figure.number, comparison) for outcome in outcomes for comparison in outcome.shown.comparisons]
    return {
        "bench": "paper",
        "config": {
            "figures": numbers,
            "scale": options.scale,
            "batch": options.batch,
            "time_limit": options.time_limit,
            "cores": usable_cores(),
        },
        "results": [*runs.rows(), *(_failure(outcome) for outcome in outcomes if outcome.failure)],
        "ratios": {f"figure {n}, {one.what}": one.here for n, one in said if one.here is not None},
        "paper": {f"figure {n}, {one.what}": one.paper for n, one in said},
        "figures": [_to_json(outcome, files[outcome.figure.number]) for outcome in outcomes],
    }


def _drawn(outcome: Outcome, folder: Path) -> str:
    """Draw the picture of a figure and return its file; empty, with a failure of the figure, if that cannot be done."""
    figure = outcome.figure
    try:
        picture = drawn(f"Figure {figure.number}: {figure.title}", outcome.shown.panels, figure.columns)
        return str(save(folder, {f"paper-figure-{figure.number}": picture})[0])
    except Exception as error:
        outcome.failure = outcome.failure or _said(error)
        return ""


def _failure(outcome: Outcome) -> Row:
    """A row that is wrong: what was measured could not be made into lines and ratios, or into a picture."""
    row: Row = {"figures": [outcome.figure.number], "piece": "", "bench": "paper", "system": "headrace"}
    return row | {"case": "figure", "wrong": outcome.failure}


def _said(error: BaseException) -> str:
    """What the report says of an error; it is raised if HEADRACE_DEBUG is 1."""
    if os.environ.get("HEADRACE_DEBUG") == "1":
        raise error
    return str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"


class _Runs:
    """The benchmarks that were run, each once, though several figures may show it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._done: dict[_Key, Result | str] = {}  # the text of an error, where there is no result
        self._of: dict[_Key, list[tuple[int, str]]] = {}  # figures, and what each calls it

    def outcome(self, figure: Figure, sizes: Sizes) -> Outcome:
        """Run what a figure needs and has not been run yet."""
        pieces = figure.pieces(sizes)
        results: dict[str, Result] = {}
        errors: dict[str, str] = {}
        for piece in pieces:
            key = (piece.bench, piece.arguments)
            if key not in self._done:
                self._done[key] = self._run(figure, piece)
            self._of.setdefault(key, []).append((figure.number, piece.name))
            done = self._done[key]
            if isinstance(done, str):
                errors[piece.name] = done
            else:
                results[piece.name] = done
        try:
            return Outcome(figure, pieces, figure.shown(results), errors)
        except Exception as error:  # results that lack something, such as those of a run that a time limit ended early
            return Outcome(figure, pieces, Shown(), errors, _said(error))

    def _run(self, figure: Figure, piece: Piece) -> Result | str:
        about = f"figure {figure.number}, {piece.name}"
        self._tell(about)
        try:
            found = BENCHMARKS[piece.bench]
            module = import_module(f"headrace.bench.{found.module}")
            result: Result = module.run(
                [*found.arguments, *piece.arguments], lambda stage: self._tell(f"{about}: {stage}")
            )
        except (Exception, SystemExit) as error:  # hours of other figures should not be lost by one
            return _said(error)
        return result

    def rows(self) -> list[Row]:
        """The rows of all benchmarks, each with the figures that show it; an error is a row that is wrong."""
        made: list[Row] = []
        for key, done in self._done.items():
            of = {"figures": [number for number, _ in self._of[key]], "piece": self._of[key][0][1], "bench": key[0]}
            if isinstance(done, str):
                made.append(of | {"system": "headrace", "case": "error", "wrong": done})
            else:
                made += [of | row for row in done["results"]]
        return made


def _to_json(outcome: Outcome, file: str) -> dict[str, Any]:
    figure = outcome.figure
    return {
        "figure": figure.number,
        "title": figure.title,
        "measured": figure.measured,
        "machine": figure.machine,
        "differs": figure.differs,
        "commands": {
            piece.name: f"headrace bench {piece.bench} {' '.join(piece.arguments)}" for piece in outcome.pieces
        },
        "panels": [panel.to_json() for panel in outcome.shown.panels],
        "comparisons": [vars(comparison) for comparison in outcome.shown.comparisons],
        "errors": outcome.errors,
        "failure": outcome.failure,
        "picture": file,
    }


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    return shown(result)
