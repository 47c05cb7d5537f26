"""State as Spark DataFrames: one task per bucket reads the runs of that bucket and yields Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.operators.aggregate import empty_total, read, read_pieces
from headrace.operators.closed import read_closed
from headrace.operators.delivery import one_bucket
from headrace.operators.layout import ViewLayout
from headrace.plan.view import Shape
from headrace.relation.change import ChangeBatch
from headrace.relation.columns import BATCH_ROWS, for_spark
from headrace.relation.layout import TableLayout
from headrace.relation.reading import read_rows
from headrace.relation.runset import AnyRun
from headrace.relation.schema import DIFF, STEP, Column, ddl
from headrace.relation.types import SqlType
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import arrow_schema, final_arrangement, table_arrangement, view_arrangement
from headrace.runtime.record import Arrangements, BucketState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SMALL_BUCKET = 1 << 12  # entries of a bucket that cost less to read than it costs to begin with a bucket
_SOME = {
    "string": "''",
    "boolean": "false",
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), "'1970-01-01'"),
}


def table_pieces(
    root: str, layout: TableLayout, state: Arrangements, bucket: int, names: Collection[str]
) -> Iterator[pa.Table]:
    """Read columns of one bucket of a table with their multiplicities, some rows at a time, as views into its files."""
    states = state.get(table_arrangement(layout.schema.name), {})
    return (batch.to_arrow() for batch in read_rows(layout, OPEN.of(root, states, bucket), names, BATCH_ROWS))


def table_bucket(
    root: str, layout: TableLayout, state: Arrangements, bucket: int, names: Collection[str] | None = None
) -> pa.Table:
    """Read one bucket of a table as a copy: its rows with their multiplicities; all columns unless `names` is given."""
    columns = _changed(layout, layout.schema.names if names is None else names)
    return _copied(columns, table_pieces(root, layout, state, bucket, [column.name for column in columns]))


def _copied(columns: Sequence[Column], pieces: Iterable[pa.Table]) -> pa.Table:
    # With an empty table in front there is always something to combine, and combining is copying.
    return pa.concat_tables([arrow_schema(columns).empty_table(), *pieces]).combine_chunks()


def some_rows(root: str, layout: TableLayout, state: Arrangements) -> ChangeBatch:
    """Read some rows of a table, if it has any."""
    for bucket in state.get(table_arrangement(layout.schema.name), {}):
        for piece in table_pieces(root, layout, state, bucket, layout.schema.names):
            return ChangeBatch.from_arrow(piece)
    return ChangeBatch.from_arrow(arrow_schema(layout.schema.change_columns).empty_table())


def _changed(layout: TableLayout, names: Collection[str]) -> list[Column]:
    """Some columns of a table, and the multiplicity."""
    return [column for column in layout.schema.change_columns if column.name in names or column.name == DIFF]


def view_bucket(root: str, layout: ViewLayout, name: str, state: Arrangements, bucket: int, buckets: int) -> pa.Table:
    """Read one bucket of a view as k0.., a0..; the total of a view without GROUP BY is never missing."""
    groups = read(layout, _parts(root, layout, name, state, bucket))
    if final_arrangement(name) in state:
        closed = (piece.select(groups.column_names) for piece in closed_pieces(root, layout, name, state, bucket))
        groups = pa.concat_tables([groups, *closed])
    if layout.plan.shape is Shape.TOTAL and groups.num_rows == 0 and bucket == one_bucket(buckets):
        groups = empty_total(layout)
    return repeated(layout, groups)


def view_rows(root: str, layout: ViewLayout, name: str, state: Arrangements, buckets: int) -> pa.Table:
    """Read a view as k0.., a0..: bucket after bucket, or at once if the buckets are small: each has its price."""
    own = {part: state.get(view_arrangement(name, part), {}) for part in layout.arrangements}
    if buckets > 1 and final_arrangement(name) not in state and are_small(own.values(), buckets):
        groups = read(layout, {part: OPEN.everything(root, states) for part, states in own.items()})
        is_missing = layout.plan.shape is Shape.TOTAL and groups.num_rows == 0
        return repeated(layout, empty_total(layout) if is_missing else groups)
    return pa.concat_tables([view_bucket(root, layout, name, state, bucket, buckets) for bucket in range(buckets)])


def table_rows(root: str, layout: TableLayout, state: Arrangements, buckets: int) -> pa.Table:
    """Read a table with multiplicities: bucket after bucket, or at once if the buckets are small."""
    states = state.get(table_arrangement(layout.schema.name), {})
    if buckets > 1 and are_small([states], buckets):
        read_at_once = read_rows(layout, OPEN.everything(root, states), layout.schema.names, BATCH_ROWS)
        return _copied(layout.schema.change_columns, (batch.to_arrow() for batch in read_at_once))
    return pa.concat_tables([table_bucket(root, layout, state, bucket) for bucket in range(buckets)])


def are_small(arrangements: Iterable[Mapping[int, BucketState]], buckets: int) -> bool:
    """Whether the buckets of some arrangements are so small that reading all at once costs less."""
    entries = sum(run.rows for states in arrangements for state in states.values() for run in state.runs)
    return entries < _SMALL_BUCKET * buckets


def view_pieces(
    root: str, layout: ViewLayout, name: str, state: Arrangements, buckets: int, rows: int
) -> Iterator[pa.Table]:
    """Read a view as k0.., a0.., bucket after bucket, about `rows` groups at a time."""
    if layout.plan.shape is Shape.TOTAL:  # one row, which may not be stored
        yield from (view_bucket(root, layout, name, state, bucket, buckets) for bucket in range(buckets))
        return
    for bucket in range(buckets):
        for groups in read_pieces(layout, _parts(root, layout, name, state, bucket), rows):
            yield repeated(layout, groups)
        for groups in closed_pieces(root, layout, name, state, bucket, rows):
            yield repeated(layout, groups)


def closed_pieces(
    root: str,
    layout: ViewLayout,
    name: str,
    state: Arrangements,
    bucket: int,
    rows: int = BATCH_ROWS,
    since: int = 0,
) -> Iterator[pa.Table]:
    """Read the groups of one bucket of a view that steps after `since` closed, each with its closing step."""
    return read_closed(layout, OPEN.of(root, state.get(final_arrangement(name), {}), bucket), rows, since)


def closed_bucket(
    root: str, layout: ViewLayout, name: str, state: Arrangements, bucket: int, since: int = 0
) -> pa.Table:
    """Read all that `closed_pieces` gives as one table, with the columns of `closed_columns`."""
    wanted = arrow_schema(closed_columns(layout))
    closed = closed_pieces(root, layout, name, state, bucket, since=since)
    return pa.concat_tables([wanted.empty_table(), *(piece.select(wanted.names) for piece in closed)])


def closed_columns(layout: ViewLayout) -> list[Column]:
    """The columns of final groups: those of any group, and the step that closed it."""
    return [*slot_columns(layout), Column(STEP, SqlType("bigint"))]


def closed_frame(
    spark: SparkSession, root: str, layout: ViewLayout, name: str, state: Arrangements, buckets: int, since: int
) -> DataFrame:
    """The final groups of a view as a DataFrame, one partition per bucket."""
    own = {key: value for key, value in state.items() if key == final_arrangement(name)}
    columns = closed_columns(layout)
    return bucket_frame(spark, columns, buckets, lambda bucket: [closed_bucket(root, layout, name, own, bucket, since)])


def _parts(root: str, layout: ViewLayout, name: str, state: Arrangements, bucket: int) -> dict[str, list[AnyRun]]:
    return {part: OPEN.of(root, state.get(view_arrangement(name, part), {}), bucket) for part in layout.arrangements}


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


def table_frame(
    spark: SparkSession, root: str, layout: TableLayout, state: Arrangements, buckets: int, names: Collection[str]
) -> DataFrame:
    """Columns of a table's rows, with `__diff`, as a DataFrame with one partition per bucket."""
    own = {name: value for name, value in state.items() if name == table_arrangement(layout.schema.name)}
    columns = _changed(layout, names)
    return bucket_frame(spark, columns, buckets, lambda bucket: table_pieces(root, layout, own, bucket, names))


def rows_frame(
    spark: SparkSession,
    root: str,
    layout: TableLayout,
    state: Arrangements,
    buckets: int,
    columns: Collection[str],
) -> DataFrame:
    """A table's rows, each as often as it occurs, for a query that depends on some of its columns only.

    The other columns are present with arbitrary values of their types: the answer is the same, and reading is cheaper.
    """
    own = {name: value for name, value in state.items() if name == table_arrangement(layout.schema.name)}
    read = [column for column in layout.schema.columns if column.name in columns] or [layout.schema.columns[0]]
    names = [column.name for column in read]

    def rows(bucket: int) -> Iterator[pa.Table]:
        for table in table_pieces(root, layout, own, bucket, names):
            counts = table.column(DIFF).to_numpy()
            table = table.select(names)
            yield table.take(pa.array(np.repeat(np.arange(len(counts)), counts))) if (counts != 1).any() else table

    frame = bucket_frame(spark, read, buckets, rows)
    if len(read) == len(layout.schema.columns):
        return frame
    return frame.selectExpr(*(_any_value(column, column in read) for column in layout.schema.columns))


def _any_value(column: Column, read: bool) -> str:
    if read:
        return f"`{column.name}`"
    text = "NULL" if column.nullable else _SOME.get(column.type.kind, "0")
    return f"CAST({text} AS {column.type}) AS `{column.name}`"


def answer_frame(spark: SparkSession, columns: Sequence[Column], read_all: Callable[[], pa.Table]) -> DataFrame:
    """An answer that one task can read, as a DataFrame of one partition, in the order of the answer."""
    return bucket_frame(spark, columns, 1, lambda _: [read_all()])


def view_frame(
    spark: SparkSession, root: str, layout: ViewLayout, name: str, state: Arrangements, buckets: int
) -> DataFrame:
    """A view's groups (k0.., a0..) as a DataFrame, one partition per bucket."""
    names = {*(view_arrangement(name, part) for part in layout.arrangements), final_arrangement(name)}
    own = {key: value for key, value in state.items() if key in names}
    columns = slot_columns(layout)
    return bucket_frame(spark, columns, buckets, lambda bucket: [view_bucket(root, layout, name, own, bucket, buckets)])


def bucket_frame(
    spark: SparkSession, columns: Sequence[Column], buckets: int, read_one: Callable[[int], Iterable[pa.Table]]
) -> DataFrame:
    """What is stored by bucket, as a DataFrame with one partition per bucket."""

    def run(partition: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in partition:
            for bucket in batch.column(0).to_pylist():
                for table in read_one(bucket):
                    yield from for_spark(table)

    return spark.range(0, buckets, 1, buckets).mapInArrow(run, ddl(columns))
