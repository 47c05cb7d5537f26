"""`headrace run`: keep the views of a pipeline file up to date with its sources, until Ctrl-C.

The file holds the definitions, the location holds the state. Starting again with the same file continues after the last
committed step; a definition that has changed in between is refused.
"""

from __future__ import annotations

import signal
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.open_engine import opened
from headrace.cli.screen import Json, count, err, first_rows, grid, guarded, out, print_json, rows_table, working
from headrace.errors import StepFailedError

if TYPE_CHECKING:
    from rich.console import Group

    from headrace import Engine

POLL_SECONDS = 0.5


class BadRows(StrEnum):
    """The values of `on_bad_rows`."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


@guarded
def run(
    pipeline: Annotated[Path, typer.Argument(help="SQL file of CREATE TABLE and CREATE MATERIALIZED VIEW statements.")],
    location: Annotated[
        Path | None, typer.Option(help="Folder of the state.", show_default="PIPELINE.state, beside the file")
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Take in what the sources have now, print the views, and end.")
    ] = False,
    on_bad_rows: Annotated[
        BadRows,
        typer.Option(help="Rows that break a rule of their table: end the run, or set them aside."),
    ] = BadRows.FAIL,
    as_json: Json = False,
) -> None:
    """Keep the views of a pipeline file up to date, until Ctrl-C."""
    from headrace.sql.pipeline import read_pipeline

    statements = read_pipeline(pipeline)
    folder = location or pipeline.with_name(f"{pipeline.stem}.state")
    with opened(folder, on_bad_rows=on_bad_rows.value) as engine:
        from headrace.cli.build import build

        with working("Creating tables and views"):
            build(engine, statements, pipeline)
        if available_now:
            with working("Processing what is available"):
                engine.process_available()
            _print_views(engine, as_json)
        else:
            _keep(engine, as_json)


def _print_views(engine: Engine, as_json: bool) -> None:
    views = {name: view.to_arrow() for name, view in engine.views.items()}
    if as_json:
        shown = {name: {"rows": rows.num_rows, "first": first_rows(rows)} for name, rows in views.items()}
        print_json({"step": engine.status()["step"], "views": shown})
        return
    for name, rows in views.items():
        out().print(rows_table(rows, name))


def _keep(engine: Engine, as_json: bool) -> None:
    # A service manager ends a process with SIGTERM; that deserves the same clean end as Ctrl-C.
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    engine.start()
    try:
        if as_json or not err().is_terminal:
            _write_lines(engine, as_json)
        else:
            _show_live(engine)
        # Nobody stopped it, so a source has failed or ended; stopping raises what went wrong.
        engine.stop()
        raise StepFailedError(
            "All sources of the pipeline have stopped.", way_out="Run it again: it goes on after the last step."
        )
    except KeyboardInterrupt:
        with working("Stopping"):
            engine.stop()
        err().print(f"Stopped after step {engine.status()['step']}.")
    finally:
        signal.signal(signal.SIGTERM, previous)


def _write_lines(engine: Engine, as_json: bool) -> None:
    """Print one line per change of the status: JSON objects on stdout, or text on stderr."""
    seen = None
    while engine.spark.streams.active:
        if engine.step != seen:
            found = engine.status()
            seen = found["step"]
            if as_json:
                print_json(found, indent=None)
            else:
                views = ", ".join(f"{view['name']} {count(view['rows'])} rows" for view in found["views"])
                err().print(f"step {seen}: {views}", markup=False, soft_wrap=True)
        time.sleep(POLL_SECONDS)


def _show_live(engine: Engine) -> None:
    from rich.live import Live

    first = found = engine.status()
    started = time.monotonic()
    with Live(console=err(), refresh_per_second=4, transient=True) as live:
        while engine.spark.streams.active:
            if engine.step != found["step"]:  # a status reads all views, so it is made only after a new step
                found = engine.status()
            live.update(_display(found, first, time.monotonic() - started))
            time.sleep(POLL_SECONDS)


def _display(found: dict[str, Any], first: dict[str, Any], seconds: float) -> Group:
    from rich.console import Group
    from rich.text import Text

    steps = found["step"] - first["step"]
    size = f"{found['state_bytes'] / 1e6:,.1f} MB"
    head = f"step {found['step']}  ({steps} in {seconds:,.0f} s)   state {size}   Ctrl-C ends"
    if last := found.get("last_step"):
        head += f"\n{last['text']}"
    tables = grid("table", ">rows", ">since start")
    before = {table["name"]: table["rows"] for table in first["tables"]}
    for table in found["tables"]:
        tables.add_row(table["name"], f"{table['rows']:,}", f"{table['rows'] - before.get(table['name'], 0):+,}")
    views = grid("view", ">rows")
    for view in found["views"]:
        views.add_row(view["name"], count(view["rows"]))
    return Group(Text(head), tables, views)
