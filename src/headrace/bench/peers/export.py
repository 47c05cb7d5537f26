"""Update streams of TPC-H as files that a peer can read, with insertions and deletions in their order.

Each peer gets what it reads fastest: Flink SQL lines of text, Pathway columns of Arrow. Both get one stream, not tables
to be read each at its own speed: if orders ran ahead of lineitem by more than a window, they would be deleted before
their lineitems come, and most of the work of a query with them. All of it is written before the clock starts.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
from numpy.typing import NDArray

from headrace.bench.foreign.queries import QUERIES
from headrace.datasets.batches import DIFF
from headrace.datasets.tpch import TPCH_SCHEMAS
from headrace.datasets.windows import POSITION
from headrace.errors import SchemaError

Changes = Iterable[Mapping[str, pa.Table]]

COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {name: query.columns for name, query in QUERIES.items()}
"""What a peer must be handed for a query, by table: the columns that it reads, and the keys of the rows."""

MANIFEST = "stream.json"
"""The file beside the data that says what is in it; a stream without it was not written to its end."""

FLINK_WARM_ROWS = 500_000  # some seconds' work, in which the Java virtual machine compiles what it runs
PATHWAY_PIECE = 10_000  # changes of all tables that its readers take before they wait for one another

_TABLE = "__table"
_NOT_FOR_FLINK = ("l_linenumber",)  # it tells equal rows apart for those who must; SQL's bags need not


def export_flink(query: str, changes: Changes, folder: Path) -> int:
    """Write the stream as a text file, and return how many changes it has.

    A line has the number of a table, `__diff`, and the columns of all tables, empty where they are another table's.
    The start of the stream is also written to a file of its own, for a run before the one that is timed.
    """
    tables = {
        name: [column for column in columns if column not in _NOT_FOR_FLINK] for name, columns in COLUMNS[query].items()
    }
    fields = [TPCH_SCHEMAS[name].schema.field(column) for name, columns in tables.items() for column in columns]
    numbers = [pa.field(_TABLE, pa.int32()), pa.field(DIFF, pa.int64())]
    schema = pa.schema([*numbers, *(field.with_nullable(True) for field in fields)])
    options = csv.WriteOptions(include_header=False)
    folder.mkdir(parents=True, exist_ok=True)
    rows = 0
    with (
        csv.CSVWriter(str(folder / "warm.csv"), schema, write_options=options) as warm,
        csv.CSVWriter(str(folder / "changes.csv"), schema, write_options=options) as timed,
    ):
        for batch in _checked(query, changes):
            present = [(number, batch[name]) for number, name in enumerate(tables) if name in batch]
            if not present:
                continue
            lines = pa.concat_tables(_widened(number, table, schema) for number, table in present)
            lines = lines.take(pa.array(_order([table for _, table in present])))
            timed.write_table(lines)
            if rows < FLINK_WARM_ROWS:
                warm.write_table(lines)
            rows += lines.num_rows
    _finish(folder, {"query": query, "rows": rows, "tables": tables})
    return rows


def export_pathway(query: str, changes: Changes, folder: Path) -> int:
    """Write the stream as Arrow files, one per table, and return how many changes it has.

    Pathway has no dates without a time and no exact decimals, so dates are days and amounts are cents. The manifest
    says in which piece of the stream each record batch belongs, so that the readers of the tables can keep in step.
    """
    columns = {name: list(names) for name, names in COLUMNS[query].items()}
    pieces: dict[str, list[int]] = {name: [] for name in columns}
    folder.mkdir(parents=True, exist_ok=True)
    rows = first = 0
    with contextlib.ExitStack() as opened:
        writers = {}
        for name, names in columns.items():
            schema = pa.schema([_counted(TPCH_SCHEMAS[name].schema.field(column)) for column in names])
            path = str(folder / f"{name}.arrow")
            writers[name] = opened.enter_context(pa.ipc.new_file(path, schema.append(pa.field(DIFF, pa.int64()))))
        for batch in _checked(query, changes):
            # The place of a row in the batch, counted over all tables, says to which piece it belongs.
            present = {name: batch[name] for name in columns if name in batch}
            piece = np.argsort(_order(list(present.values()))) // PATHWAY_PIECE
            at = 0
            for name, table in present.items():
                mine = piece[at : at + table.num_rows]
                at += table.num_rows
                for number in np.unique(mine):
                    part = table.filter(pa.array(mine == number)).combine_chunks()
                    counted = [_count(part.column(column)) for column in [*columns[name], DIFF]]
                    writers[name].write_batch(pa.record_batch(counted, names=[*columns[name], DIFF]))
                    pieces[name].append(first + int(number))
            rows += at
            first += int(piece.max(initial=-1)) + 1
    _finish(folder, {"query": query, "rows": rows, "tables": columns, "pieces": pieces})
    return rows


def _checked(query: str, changes: Changes) -> Iterator[dict[str, pa.Table]]:
    """Yield the batches with the columns of the query only, in the types of TPC-H."""
    for batch in changes:
        checked = {}
        for name, columns in COLUMNS[query].items():
            if name not in batch:
                continue
            table = batch[name]
            missing = [column for column in (*columns, DIFF) if column not in table.column_names]
            if missing:
                raise SchemaError(
                    f"the changes of {name!r} have no column {missing[0]!r}, which {query} needs",
                    way_out=f"hand over the columns {', '.join((*columns, DIFF))}",
                )
            if not (np.abs(table.column(DIFF).to_numpy()) == 1).all():
                raise SchemaError(
                    f"the changes of {name!r} have a {DIFF} other than 1 and -1",
                    way_out="write a change of several equal rows as several changes",
                )
            types = [TPCH_SCHEMAS[name].schema.field(column) for column in columns]
            places = [POSITION] if POSITION in table.column_names else []
            wanted = pa.schema([*types, pa.field(DIFF, pa.int64()), *(pa.field(place, pa.int64()) for place in places)])
            checked[name] = table.select([*columns, DIFF, *places]).cast(wanted)
        yield checked


def _order(tables: Sequence[pa.Table]) -> NDArray[np.int64]:
    """Return the order of the rows of a batch, numbered through table by table.

    Where the updates have a position, it decides. Otherwise tables are interleaved in proportion to their sizes.
    """
    placed = all(POSITION in table.column_names for table in tables)
    places = [
        table.column(POSITION).to_numpy() if placed else (np.arange(table.num_rows) + 0.5) / table.num_rows
        for table in tables
    ]
    return np.argsort(np.concatenate([np.empty(0), *places]), kind="stable")


def _widened(number: int, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows of one table in the columns of all."""
    rows = table.num_rows
    columns = [
        table.column(field.name) if field.name in table.column_names else pa.nulls(rows, field.type)
        for field in schema
        if field.name != _TABLE
    ]
    return pa.table([pa.array(np.full(rows, number, np.int32)), *columns], schema=schema)


def _counted(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string() if pa.types.is_string(field.type) else pa.int64())


def _count(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as whole numbers: dates as days since 1970, amounts as cents; text stays text."""
    values = column.combine_chunks()
    if pa.types.is_date(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_decimal(values.type):
        return pa.array(np.round(values.cast(pa.float64()).to_numpy() * 100).astype(np.int64))
    return values if pa.types.is_string(values.type) else values.cast(pa.int64())


def _finish(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / MANIFEST).write_text(json.dumps(manifest))
