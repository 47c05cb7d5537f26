"""`headrace demo`: shows in a minute what Headrace does, and proves that the answers are right.

A table of a million sales changes twenty times while four views follow. Then Spark alone recomputes the views from
scratch: they must be equal, row by row, and the two costs are printed side by side.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.open_engine import opened
from headrace.cli.screen import Json, err, first_rows, grid, guarded, out, print_json, rows_table, titled, working
from headrace.errors import HeadraceError, StorageError

if TYPE_CHECKING:
    from rich.console import Group

    from headrace import Engine
    from headrace.cli.sales import Sales

CHANGES = 2_000
SHOWN_STEPS = 8
SHOWN_ROWS = 5


@guarded
def demo(
    location: Annotated[
        Path | None, typer.Option(help="Empty folder for the state; kept afterwards.", show_default="a temporary one")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the table at the start.")] = 1_000_000,
    steps: Annotated[int, typer.Option(min=1, help=f"Steps of {CHANGES:,} changes each.")] = 20,
    as_json: Json = False,
) -> None:
    """Keep four views of a changing table fresh, check them against Spark, and compare the costs."""
    with _folder(location) as state, opened(state) as engine:
        from headrace.cli.sales import KEY, SCHEMA, VIEWS, Sales

        with working(f"Making {rows:,} sales"):
            sales = Sales(rows)
            first = sales.current()
        engine.table("sales", SCHEMA, key=KEY)
        for name, sql in VIEWS.items():
            engine.view(name, sql)
        with working(f"Loading {rows:,} rows into {len(VIEWS)} views"):
            loaded = engine.apply({"sales": first})
        taken = _change(engine, sales, steps)
        with (
            working("Recomputing all views with Spark alone"),
            tempfile.TemporaryDirectory(prefix="headrace-demo-") as scratch,
        ):
            outcome = _judge(engine, sales, taken, Path(scratch))
        if as_json:
            print_json(_as_json(engine, rows, loaded.seconds, taken, outcome))
        else:
            for name, view in engine.views.items():
                out().print(rows_table(view.to_arrow(), name, SHOWN_ROWS))
            _conclude(len(sales), loaded.seconds, taken, outcome)
    wrong = {name: where for name, where in outcome.differences.items() if where is not None}
    if wrong and not as_json:
        listed = "\n".join(f"  {name}: {where}" for name, where in wrong.items())
        raise HeadraceError(
            f"These views differ from a full recomputation:\n{listed}",
            way_out="This is a bug of Headrace; please report it.",
        )
    if wrong:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Taken:
    """One step of the demo: its number of changes, its seconds, and where it ran."""

    number: int
    changed: int
    seconds: float
    ran: str


@dataclass(frozen=True)
class Outcome:
    """What the referee found: a difference (or None) per view, and the seconds of recomputing all views once."""

    differences: dict[str, str | None]
    recompute_seconds: float

    @property
    def equal(self) -> bool:
        """Whether every view is right."""
        return not any(self.differences.values())


@contextmanager
def _folder(location: Path | None) -> Iterator[Path]:
    if location is None:
        temporary = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
        try:
            yield temporary / "state"
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return
    if location.exists() and (not location.is_dir() or any(location.iterdir())):
        raise StorageError(f"{location} is not an empty folder.", way_out="Give a new folder, or leave --location out.")
    yield location


def _change(engine: Engine, sales: Sales, steps: int) -> list[Taken]:
    """Apply the steps one by one, with a display that follows them."""
    from rich.live import Live

    taken: list[Taken] = []
    live = err().is_terminal
    with Live(console=err(), auto_refresh=False) if live else _line(steps) as display:
        for _ in range(steps):
            changes = sales.step(CHANGES)
            start = time.perf_counter()
            step = engine.apply({"sales": changes})
            # Wall-clock time around the call, not the engine's own measurement.
            taken.append(Taken(step.number, changes.num_rows, time.perf_counter() - start, step.ran))
            if display is not None:
                display.update(_steps_table(taken, steps), refresh=True)
    if not live:
        err().print(_steps_table(taken, steps))
    return taken


@contextmanager
def _line(steps: int) -> Iterator[None]:
    with working(f"Applying {steps} steps of {CHANGES:,} changes"):
        yield


def _steps_table(taken: list[Taken], steps: int) -> Group:
    table = grid(">step", ">rows changed", ">seconds", "ran in")
    for step in taken[-SHOWN_STEPS:]:
        place = {"driver": "the driver", "job": "a Spark job"}.get(step.ran, step.ran)
        table.add_row(str(step.number), f"{step.changed:,}", f"{step.seconds:.3f}", place)
    return titled(f"{len(taken)} of {steps} steps", table)


def _judge(engine: Engine, sales: Sales, taken: list[Taken], scratch: Path) -> Outcome:
    from headrace.cli.recompute import Referee, difference
    from headrace.cli.sales import VIEWS

    referee = Referee(engine.spark, "sales", sales.current(), scratch)
    differences = {name: difference(engine.views[name].to_arrow(), referee.answer(sql)) for name, sql in VIEWS.items()}
    # The answers above have warmed Spark up, so the rounds that are timed now show it at its best.
    return Outcome(differences, referee.seconds(VIEWS))


def _conclude(rows: int, load_seconds: float, taken: list[Taken], outcome: Outcome) -> None:
    if outcome.equal:
        out().print(f"all {len(outcome.differences)} views equal a full recomputation", style="green")
    kept = sum(step.seconds for step in taken)
    recomputed = outcome.recompute_seconds * len(taken)
    once = outcome.recompute_seconds
    out().print(
        f"{len(taken)} steps took {kept:.2f} s ({kept / len(taken):.3f} s each), after {load_seconds:.1f} s to load.\n"
        f"Recomputing after each step would take about {recomputed:.2f} s: {recomputed / kept:.1f} times as long.\n"
        f"Measured: Spark recomputes all views over the final {rows:,} rows, in a Parquet file, in {once:.3f} s\n"
        f"(warm, best of three); that times {len(taken)} steps. Writing the file after each step is not counted.",
        soft_wrap=True,
    )


def _as_json(engine: Engine, rows: int, load_seconds: float, taken: list[Taken], outcome: Outcome) -> dict[str, Any]:
    kept = sum(step.seconds for step in taken)
    views = {}
    for name, view in engine.views.items():
        answer = view.to_arrow()
        views[name] = {
            "rows": answer.num_rows,
            "first": first_rows(answer, SHOWN_ROWS),
            "difference": outcome.differences[name],
        }
    return {
        "rows": rows,
        "load_seconds": load_seconds,
        "steps": [vars(step) for step in taken],
        "views": views,
        "equal": outcome.equal,
        "incremental_seconds": kept,
        "recompute_seconds_once": outcome.recompute_seconds,
        "recompute_seconds_estimated": outcome.recompute_seconds * len(taken),
        "times_cheaper": outcome.recompute_seconds * len(taken) / kept,
    }
