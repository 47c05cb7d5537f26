"""The output of every command: results on stdout, progress on stderr, errors as one message and a way out.

With `--json` stdout holds JSON and nothing else, whatever happens. Progress moves on a terminal and is one plain
line per event elsewhere, so that logs stay readable.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable
    from rich.console import Console, Group
    from rich.table import Table

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]

SHOWN_ROWS = 20


@functools.cache
def out() -> Console:
    """Return the console of results."""
    from rich.console import Console

    return Console(highlight=False)


@functools.cache
def err() -> Console:
    """Return the console of progress and errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def guarded(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make a command print Headrace's errors as messages, with exit code 1, instead of tracebacks."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except HeadraceError as error:
            if os.environ.get("HEADRACE_DEBUG") == "1":
                raise
            if kwargs.get("as_json"):
                print_json({"error": error.what, "way_out": error.way_out})
            else:
                from rich.text import Text

                err().print(Text(error.what, style="red"), soft_wrap=True)
                err().print(Text(f"-> {error.way_out}"), soft_wrap=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    return run


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that something slow is going on: a spinner on a terminal, a line elsewhere."""
    if err().is_terminal:
        with err().status(what):
            yield
    else:
        err().print(f"{what} ...", markup=False)
        yield


@contextmanager
def telling(what: str) -> Iterator[Callable[[str], None]]:
    """Show that something slow is going on, and how far it is; yields a function to call with each new stage."""
    if err().is_terminal:
        with err().status(what) as status:
            yield lambda stage: status.update(f"{what}: {stage}")
    else:
        err().print(f"{what} ...", markup=False)
        yield lambda stage: err().print(f"  {stage}", markup=False)


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Print a value as JSON on stdout; dates and decimals become strings."""
    print(json.dumps(value, indent=indent, default=str), flush=True)


def titled(title: str, table: Table) -> Group:
    """Put a title above a table; Rich's own titles are broken at the width of the table."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(title, style="bold"), table)


def grid(*headers: str) -> Table:
    """Return an empty table with these column headers; a header that starts with > is for numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(header.lstrip(">"), justify="right" if header.startswith(">") else "left")
    return table


def rows_table(rows: ArrowTable, title: str, limit: int = SHOWN_ROWS) -> Group:
    """Return the first rows of an Arrow table, and how many there are."""
    from pyarrow import types
    from rich.text import Text

    numeric = [
        types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) for kind in rows.schema.types
    ]
    heads = [(">" if number else "") + name for name, number in zip(rows.schema.names, numeric, strict=True)]
    shown = "" if rows.num_rows <= limit else f", the first {limit}"
    table = grid(*heads)
    for row in zip(*(column.to_pylist() for column in rows.slice(0, limit).columns), strict=True):
        table.add_row(*(Text(_cell(value)) for value in row))
    return titled(f"{title}  ({rows.num_rows:,} {'row' if rows.num_rows == 1 else 'rows'}{shown})", table)


def count(number: int | None) -> str:
    """Show a number of rows; a view that cannot be read has none."""
    return "?" if number is None else f"{number:,}"


def first_rows(rows: ArrowTable, limit: int = SHOWN_ROWS) -> list[dict[str, Any]]:
    """Return the first rows of an Arrow table as objects."""
    found: list[dict[str, Any]] = rows.slice(0, limit).to_pylist()
    return found


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
