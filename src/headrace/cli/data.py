"""`headrace data`: write a data set of the papers to Parquet files, whole or as a stream of change batches.

Pipelines, other engines and people can then read the very rows that Headrace's benchmarks use. The batches of a table
lie in a folder of its own with a `__diff` column, which is what `headrace run` reads with the option changes 'true'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import updates
from headrace.cli.screen import Json, err, grid, guarded, out, print_json, telling
from headrace.errors import HeadraceError, StorageError

if TYPE_CHECKING:
    from pyarrow import Table

    from headrace.datasets import Dataset

Tell = Callable[[str], None]
TOLD_ROWS = 1_000_000
UPDATES = "updates"
PANEL = "Options of `headrace data updates`"


@guarded
def data(
    name: Annotated[
        str | None, typer.Argument(help="Name of the data set, or `updates`; leave it out to list them.")
    ] = None,
    scale: Annotated[float, typer.Option(help="How much data; what 1 means depends on the data set.")] = 1.0,
    directory: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the files, new or empty; for `updates` a new file.", metavar="PATH"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")] = 0,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Write change batches of so many rows, of all tables together.")
    ] = None,
    deletes: Annotated[
        float | None, typer.Option(help="Fraction of each batch that deletes earlier rows, below 1; needs --batch.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what an earlier run wrote there.")] = False,
    window: Annotated[
        int | None,
        typer.Option(min=1, help="How many lineitems stay; without it nothing is deleted.", rich_help_panel=PANEL),
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Delete everything at the end.", rich_help_panel=PANEL)
    ] = False,
    late: Annotated[
        bool, typer.Option("--late", help="Orders come after their lineitems.", rich_help_panel=PANEL)
    ] = False,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Hold rows back at random, by --seed.", rich_help_panel=PANEL)
    ] = False,
    as_json: Json = False,
) -> None:
    """Generate a data set of the papers as Parquet files: one per table, or numbered change batches.

    `headrace data updates` writes TPC-H as one file of updates in text form instead.
    """
    if name is None:
        _list(as_json)
        return
    if directory is None:
        raise HeadraceError("There is nothing to write to.", way_out=f"Give it: headrace data {name} --out {name}")
    if name == UPDATES:
        if batch is not None or deletes is not None:
            raise HeadraceError("A file of updates has no batches.", way_out="Give --window to have rows deleted.")
        wanted = updates.Wanted(scale, window, late, seed if shuffle else None, drain, directory)
        updates.write(wanted, force=force, as_json=as_json)
        return
    if window is not None or drain or late or shuffle:
        raise HeadraceError(
            "--window, --drain, --late and --shuffle are for a file of updates.",
            way_out="Write one with: headrace data updates --out updates.txt",
        )
    if deletes is not None and batch is None:
        raise HeadraceError("Only change batches can delete rows.", way_out="Give --batch too, or leave --deletes out.")
    from headrace.datasets import dataset, stream

    found = dataset(name)
    _check_free(directory, force)
    with telling(f"Generating {name} at scale {scale:g}") as tell:
        tables = found.generate(scale, seed)
        # This call refuses wrong arguments, so it comes before old files are deleted.
        batches = None if batch is None else stream(tables, batch, deletes or 0.0, seed)
        try:
            _prepare(directory, found)
            if batches is None:
                written = _write_tables(tables, directory, tell)
            else:
                written = _write_batches(batches, found, directory, tell)
        except OSError as error:
            raise StorageError(
                f"{directory} cannot be written: {error}",
                way_out="Check the folder's permissions and the free space, then run again with --force.",
            ) from error
    if as_json:
        arguments = {"scale": scale, "seed": seed, "batch": batch, "deletes": deletes or 0.0, "out": str(directory)}
        print_json({"dataset": name, **arguments, **_as_json(found, written)})
    else:
        _show(found, written, directory, streamed=batch is not None)


@dataclass
class Written:
    """The files of one table, counted."""

    rows: int = 0
    bytes: int = 0
    files: int = 0

    def add(self, table: Table, path: Path) -> None:
        """Write one more file, and count it."""
        import pyarrow.parquet as pq

        pq.write_table(table, path)
        self.rows += table.num_rows
        self.bytes += path.stat().st_size
        self.files += 1


def _list(as_json: bool) -> None:
    from headrace.datasets import DATASETS

    if as_json:
        print_json({name: found.about for name, found in DATASETS.items()} | {UPDATES: updates.ABOUT})
        return
    table = grid("data set", "what it is")
    for name, found in DATASETS.items():
        table.add_row(name, found.about)
    table.add_row(UPDATES, updates.ABOUT)
    out().print(table)
    err().print("Write one with `headrace data NAME --out DIR`.", markup=False)


def _check_free(directory: Path, force: bool) -> None:
    if directory.exists() and not directory.is_dir():
        raise StorageError(f"{directory} is not a folder.", way_out="Give the name of a new or empty folder.")
    if not force and directory.is_dir() and any(directory.iterdir()):
        raise StorageError(f"{directory} is not empty.", way_out="Give a new folder, or --force to replace its files.")


def _prepare(directory: Path, found: Dataset) -> None:
    """Make the folder, and delete the files of an earlier run, whose batches would mix with the new ones."""
    directory.mkdir(parents=True, exist_ok=True)
    for table in found.tables:
        # Only files with names of ours are deleted; the folder may hold other things.
        (directory / f"{table.name}.parquet").unlink(missing_ok=True)
        folder = directory / table.name
        for old in folder.glob("batch-*.parquet"):
            old.unlink()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _write_tables(tables: dict[str, Table], directory: Path, tell: Tell) -> dict[str, Written]:
    written = {name: Written() for name in tables}
    for name, table in tables.items():
        tell(f"writing {name}")
        written[name].add(table, directory / f"{name}.parquet")
    return written


def _write_batches(
    batches: Iterator[dict[str, Table]], found: Dataset, directory: Path, tell: Tell
) -> dict[str, Written]:
    written = {table.name: Written() for table in found.tables}
    for name in written:
        # A table that no batch changes has an empty folder, so that a pipeline over all tables still starts.
        (directory / name).mkdir(exist_ok=True)
    rows, told = 0, 0
    for number, changes in enumerate(batches, start=1):
        for name, table in changes.items():
            written[name].add(table, directory / name / f"batch-{number:05d}.parquet")
            rows += table.num_rows
        if rows - told >= TOLD_ROWS:
            told = rows
            tell(f"batch {number:,}, {rows:,} changes")
    return written


def _as_json(found: Dataset, written: dict[str, Written]) -> dict[str, Any]:
    tables = {
        table.name: {**vars(written[table.name]), "ddl": table.ddl, "key": list(table.key)} for table in found.tables
    }
    return {
        "tables": tables,
        "rows": sum(one.rows for one in written.values()),
        "bytes": sum(one.bytes for one in written.values()),
    }


def _show(found: Dataset, written: dict[str, Written], directory: Path, *, streamed: bool) -> None:
    from rich.text import Text

    table = grid("table", ">changes" if streamed else ">rows", ">files", ">MB")
    everything = Written(
        rows=sum(one.rows for one in written.values()),
        bytes=sum(one.bytes for one in written.values()),
        files=sum(one.files for one in written.values()),
    )
    for name, one in [*written.items(), ("all", everything)]:
        table.add_row(name, f"{one.rows:,}", f"{one.files:,}", f"{one.bytes / 1e6:,.1f}")
    out().print(Text(f"{found.name} in {directory}"), soft_wrap=True)
    out().print(table)
