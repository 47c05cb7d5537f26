"""The map side of filling a new view: the stored rows of its tables, read where the work is done.

State is files that every task can map, so no row has to be brought to a task, let alone through the JVM. A task reads
the columns that the view's expressions need from its buckets, a piece at a time, and hands on changes of the view per
bucket, like any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.relation.change import ChangeBatch
from headrace.relation.reading import read_rows
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import Program, TableTask, table_arrangement
from headrace.runtime.tasks import Mapped, map_rows

PIECE_ROWS = 1 << 19  # enough rows for kernels to run at full speed, and few enough to keep temporary arrays small
Columns = Mapping[str, tuple[str, ...]]


def columns_read(program: Program) -> Columns:
    """Return, per table, the columns that the map sides of its views read."""
    out = {}
    for task in program.tables:
        read = {name for view in task.views for e in view.side.expressions for name in e.columns}
        out[task.name] = tuple(name for name in task.layout.schema.names if name in read)
    return out


def all_columns(program: Program) -> Columns:
    """Return, per table, all of its columns."""
    return {task.name: tuple(task.layout.schema.names) for task in program.tables}


def narrowed(task: TableTask, names: Iterable[str]) -> TableTask:
    """Return the task over rows that have only some of the table's columns."""
    schema = task.layout.schema
    columns = tuple(column for column in schema.columns if column.name in names)
    return replace(task, layout=replace(task.layout, schema=replace(schema, columns=columns)))


def map_stored(program: Program, task: TableTask, names: tuple[str, ...], buckets: Iterable[int]) -> Iterator[Mapped]:
    """Turn a table's stored rows in some buckets into pieces per bucket."""
    narrow = narrowed(task, names)
    for batch in _together(stored_rows(program, task, names, buckets, PIECE_ROWS)):
        yield map_rows(program, narrow, batch.rows, batch.diff)


def stored_rows(
    program: Program, task: TableTask, names: tuple[str, ...], buckets: Iterable[int], most: int
) -> Iterator[ChangeBatch]:
    """Read columns of a table's stored rows in some buckets, at most `most` entries at a time."""
    for bucket in buckets:
        states = program.states(table_arrangement(task.name))
        yield from read_rows(task.layout, OPEN.of(program.root, states, bucket), names, most)


def _together(batches: Iterable[ChangeBatch]) -> Iterator[ChangeBatch]:
    """Concatenate small batches: the cost and the messages of a batch hardly depend on its size."""
    waiting: list[ChangeBatch] = []
    for batch in batches:
        if waiting and sum(map(len, waiting)) + len(batch) > PIECE_ROWS:
            yield _joined(waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[ChangeBatch]) -> ChangeBatch:
    if len(batches) == 1:
        return batches[0]
    return ChangeBatch(pa.concat_tables([b.rows for b in batches]), np.concatenate([b.diff for b in batches]))
