"""`headrace read`: the answer of one view, as of the last step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.open_engine import looked, view_of
from headrace.cli.screen import SHOWN_ROWS, Json, first_rows, guarded, out, print_json, rows_table


@guarded
def read(
    location: Annotated[Path, typer.Argument(help="Folder of the state, as given to `headrace run --location`.")],
    view: Annotated[str, typer.Argument(help="Name of the view.")],
    limit: Annotated[int, typer.Option(help="How many rows to print.", min=0)] = SHOWN_ROWS,
    as_json: Json = False,
) -> None:
    """Print the rows of a view as of the last step."""
    rows = looked(location, lambda engine: view_of(engine, location, view).to_arrow())
    if as_json:
        print_json({"rows": rows.num_rows, "first": first_rows(rows, limit)})
    else:
        out().print(rows_table(rows, view, limit))
