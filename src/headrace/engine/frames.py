"""State as Spark DataFrames: one task a bucket reads the runs of that bucket and yields Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.operators.aggregate import empty_total, read, read_pieces
from headrace.operators.layout import ViewLayout
from headrace.plan.view import Shape
from headrace.relation.arrangement import alive, scan
from headrace.relation.layout import TableLayout
from headrace.relation.runfile import StoredRun
from headrace.relation.schema import DIFF, Column, ddl
from headrace.relation.table import COUNT
from headrace.relation.types import SqlType
from headrace.runtime.log import Arrangements, BucketState
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import arrow_schema, table_arrangement, view_arrangement

_BATCH_ROWS = 1 << 17
_SOME = {
    "string": "''",
    "boolean": "false",
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), "'1970-01-01'"),
}


def table_bucket(root: str, layout: TableLayout, state: Arrangements, bucket: int) -> pa.Table:
    """Read one bucket of a table: its rows with their multiplicities."""
    own = state.get(table_arrangement(layout.schema.name), {}).get(bucket, BucketState())
    run = scan(COUNT, OPEN.of(root, own))
    schema = arrow_schema(layout.schema.change_columns)
    if run is None:
        return schema.empty_table()
    run = run.take(np.flatnonzero(alive(run.payload)))
    columns = layout.rows(run)
    return pa.table([*columns.values(), pa.array(run.payload[0])], schema=schema)


def view_bucket(root: str, layout: ViewLayout, name: str, state: Arrangements, bucket: int) -> pa.Table:
    """Read one bucket of a view as k0.., a0..; the total of a view without GROUP BY is never missing."""
    groups = read(layout, _parts(root, layout, name, state, bucket))
    if layout.plan.shape is Shape.TOTAL and groups.num_rows == 0 and bucket == total_bucket(state, name):
        groups = empty_total(layout)
    return repeated(layout, groups)


def view_pieces(
    root: str, layout: ViewLayout, name: str, state: Arrangements, buckets: int, rows: int
) -> Iterator[pa.Table]:
    """Read a view as k0.., a0.., bucket after bucket, about so many groups at a time."""
    if layout.plan.shape is Shape.TOTAL:  # one row, which may not be stored
        yield from (view_bucket(root, layout, name, state, bucket) for bucket in range(buckets))
        return
    for bucket in range(buckets):
        for groups in read_pieces(layout, _parts(root, layout, name, state, bucket), rows):
            yield repeated(layout, groups)


def _parts(root: str, layout: ViewLayout, name: str, state: Arrangements, bucket: int) -> dict[str, list[StoredRun]]:
    return {
        part: OPEN.of(root, state.get(view_arrangement(name, part), {}).get(bucket, BucketState()))
        for part in layout.arrangements
    }


def total_bucket(state: Arrangements, name: str) -> int:
    """The one bucket that a view without GROUP BY lives in (any, while it is empty)."""
    used = [bucket for bucket, own in state.get(view_arrangement(name, "groups"), {}).items() if own.runs]
    return used[0] if used else 0


def repeated(layout: ViewLayout, groups: pa.Table) -> pa.Table:
    """Give every row of a bag as often as it occurs; drop the helper column."""
    if layout.plan.shape is Shape.ROWS:
        counts = groups.column("__rows").to_numpy()
        if (counts != 1).any():
            groups = groups.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    return groups.select(slot_names(layout)) if slot_names(layout) else groups.select(["__rows"])


def slot_names(layout: ViewLayout) -> list[str]:
    """The columns k0.. and a0.. of a view's groups."""
    keys = [f"k{i}" for i in range(len(layout.plan.keys))]
    return keys + [f"a{i}" for i in range(len(layout.plan.aggregates))]


def slot_columns(layout: ViewLayout) -> list[Column]:
    """The columns k0.. and a0.. with their types."""
    types = [key.type for key in layout.plan.keys] + [aggregate.type for aggregate in layout.plan.aggregates]
    if not types:
        return [Column("__rows", SqlType("bigint"))]
    return [Column(name, kind) for name, kind in zip(slot_names(layout), types, strict=True)]


def table_frame(spark: SparkSession, root: str, layout: TableLayout, state: Arrangements, buckets: int) -> DataFrame:
    """A table's rows with `__diff` as a DataFrame, one partition a bucket."""
    own = {name: value for name, value in state.items() if name == table_arrangement(layout.schema.name)}
    return _frame(spark, layout.schema.change_columns, buckets, lambda bucket: table_bucket(root, layout, own, bucket))


def rows_frame(
    spark: SparkSession,
    root: str,
    layout: TableLayout,
    state: Arrangements,
    buckets: int,
    columns: Collection[str],
) -> DataFrame:
    """A table's rows, each as often as it occurs, for a query that depends on some of its columns only.

    The other columns are there too, with any value that they may have: the answer is the same, and reading is cheaper.
    """
    own = {name: value for name, value in state.items() if name == table_arrangement(layout.schema.name)}
    read = [column for column in layout.schema.columns if column.name in columns] or [layout.schema.columns[0]]
    names = [column.name for column in read]

    def rows(bucket: int) -> pa.Table:
        table = table_bucket(root, layout, own, bucket)
        counts = table.column(DIFF).to_numpy()
        table = table.select(names)
        return table.take(pa.array(np.repeat(np.arange(len(counts)), counts))) if (counts != 1).any() else table

    frame = _frame(spark, read, buckets, rows)
    if len(read) == len(layout.schema.columns):
        return frame
    return frame.selectExpr(*(_any_value(column, column in read) for column in layout.schema.columns))


def _any_value(column: Column, read: bool) -> str:
    if read:
        return f"`{column.name}`"
    text = "NULL" if column.nullable else _SOME.get(column.type.kind, "0")
    return f"CAST({text} AS {column.type}) AS `{column.name}`"


def answer_frame(spark: SparkSession, columns: Sequence[Column], read_all: Callable[[], pa.Table]) -> DataFrame:
    """An answer that is kept as one run, as a DataFrame of one partition, in its order."""
    return _frame(spark, columns, 1, lambda _: read_all())


def view_frame(
    spark: SparkSession, root: str, layout: ViewLayout, name: str, state: Arrangements, buckets: int
) -> DataFrame:
    """A view's groups (k0.., a0..) as a DataFrame, one partition a bucket."""
    names = {view_arrangement(name, part) for part in layout.arrangements}
    own = {key: value for key, value in state.items() if key in names}
    return _frame(spark, slot_columns(layout), buckets, lambda bucket: view_bucket(root, layout, name, own, bucket))


def _frame(
    spark: SparkSession, columns: Sequence[Column], buckets: int, read_one: Callable[[int], pa.Table]
) -> DataFrame:
    def run(partition: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in partition:
            for bucket in batch.column(0).to_pylist():
                yield from _for_spark(read_one(bucket)).to_batches(max_chunksize=_BATCH_ROWS)

    return spark.range(0, buckets, 1, buckets).mapInArrow(run, ddl(columns))


def _for_spark(table: pa.Table) -> pa.Table:
    # Spark reads 32-bit string offsets by default.
    fields = [pa.field(f.name, pa.string()) if pa.types.is_large_string(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))
