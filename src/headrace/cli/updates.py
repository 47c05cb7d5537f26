"""`headrace data updates`: TPC-H as a file of single updates, under a window that slides over its lineitems.

The command belongs to `headrace data`, but its output is no data set: the order of the updates matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.screen import grid, out, print_json, telling
from headrace.errors import StorageError

if TYPE_CHECKING:
    from pyarrow import Table

    from headrace.datasets import Updates

ABOUT = "TPC-H as a file of updates in text form, with a window that slides over the lineitems"
BATCH = 100_000
TOLD_UPDATES = 1_000_000


@dataclass(frozen=True)
class Wanted:
    """The arguments of the command."""

    scale: float
    window: int | None
    late: bool
    shuffle: int | None
    drain: bool
    out: Path


@dataclass
class Count:
    """Updates of one table."""

    inserts: int = 0
    deletes: int = 0


@dataclass
class Written:
    """The updates in the file, counted."""

    bytes: int = 0
    tables: dict[str, Count] = field(default_factory=dict)

    @property
    def all(self) -> Count:
        """The updates of all tables."""
        counts = self.tables.values()
        return Count(sum(one.inserts for one in counts), sum(one.deletes for one in counts))


def write(wanted: Wanted, *, force: bool, as_json: bool) -> None:
    """Make the updates, write them, and say what was written."""
    file = wanted.out
    if file.is_dir():
        raise StorageError(f"{file} is a folder.", way_out="Give the name of a file: --out updates.txt")
    if file.exists() and not force:
        raise StorageError(f"{file} exists.", way_out="Give another name, or --force to replace it.")
    from headrace.datasets import fifo_updates, tpch_tables
    from headrace.sources import write_updates

    written = Written()
    with telling(f"Generating TPC-H at scale {wanted.scale:g}") as tell:
        tables = tpch_tables(wanted.scale)
        updates = fifo_updates(tables, wanted.window, late=wanted.late, shuffle=wanted.shuffle, drain=wanted.drain)
        tell(f"writing {updates.total:,} updates")
        written.bytes = write_updates(file, _counted(updates, written, tell))
    if as_json:
        print_json(
            {"dataset": "updates", **vars(wanted), "updates": updates.total}
            | vars(written.all)
            | {"bytes": written.bytes, "tables": {name: vars(count) for name, count in written.tables.items()}}
        )
    else:
        _show(wanted, written)


def _counted(updates: Updates, written: Written, tell: Callable[[str], None]) -> Iterator[dict[str, Table]]:
    done, told = 0, 0
    # With positions the lines stand in the order of the sequence, whatever the size of these batches.
    for batch in updates.batches(BATCH, positions=True):
        for name, changes in batch.items():
            count = written.tables.setdefault(name, Count())
            inserts = int((changes["__diff"].to_numpy() > 0).sum())
            count.inserts += inserts
            count.deletes += changes.num_rows - inserts
            done += changes.num_rows
        if done - told >= TOLD_UPDATES:
            told = done
            tell(f"{done:,} of {updates.total:,} updates")
        yield batch


def _show(wanted: Wanted, written: Written) -> None:
    from rich.text import Text

    table = grid("table", ">inserts", ">deletes")
    for name, count in [*written.tables.items(), ("all", written.all)]:
        table.add_row(name, f"{count.inserts:,}", f"{count.deletes:,}")
    out().print(Text(f"{wanted.out}: {written.bytes / 1e6:,.1f} MB"), soft_wrap=True)
    out().print(table)
