"""Changes that name rows by their keys, resolved against a table's state: in this process, or by tasks.

Either way each part of the state is read by one thread or one task, which gets the rows whose keys lie there. Tasks
write the plain changes that come out to files of the step: the step reads them as often as it needs to, and what a task
finds stays the same however often Spark runs it. The driver hears of bad rows, as it does of those of a step.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.errors import HeadraceError
from headrace.relation.by_key import Resolved, Wanted, resolve
from headrace.relation.change import ChangeBatch
from headrace.relation.columns import for_spark, take_rows
from headrace.relation.layout import TableLayout
from headrace.relation.residence import Residence, first_word
from headrace.relation.runset import AnyRun
from headrace.relation.schema import ddl
from headrace.runtime.inline import WORTH_THREADS
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import BucketResult, Program, TableTask, arrow_schema, table_arrangement
from headrace.runtime.spark import RESULT, Batches, one_result, pack_table, part_of, unpack_table, write_table
from headrace.runtime.stages import each
from headrace.runtime.tasks import rows_by_bucket, tell

_PACKED = "part int, bucket int, body binary"
_PACKED_ARROW = pa.schema({"part": pa.int32(), "bucket": pa.int32(), "body": pa.binary()})


@dataclass
class Found:
    """Plain changes in files of a step, and the bad rows, as a result tells of them."""

    told: BucketResult = field(default_factory=BucketResult)
    files: list[str] = field(default_factory=list)
    rows: int = 0

    def add(self, other: Found) -> None:
        """Take over what another task found."""
        self.told.add(other.told)
        self.files += other.files
        self.rows += other.rows


def resolve_here(program: Program, wanted: Wanted, given: pa.Table, threads: int) -> tuple[ChangeBatch, BucketResult]:
    """Resolve the rows of the one table of a program; what is bad among them is told by a result."""
    (task,) = program.tables
    states = program.states(table_arrangement(task.name))
    threads = 1 if given.num_rows < WORTH_THREADS else threads

    def in_bucket(bucket: int, rows: pa.Table) -> Resolved:
        return resolve(task.layout, OPEN.of(program.root, states, bucket), wanted, rows)

    def anywhere(_: int, rows: pa.Table) -> Resolved:
        return resolve(task.layout, _all_runs(program, task.layout), wanted, rows)

    work = in_bucket if wanted.is_whole else anywhere
    parts = program.buckets if wanted.is_whole else threads
    shares = _shares(program, task, given, parts, every=wanted.is_whole)
    found = list(each(lambda share: work(*share), shares, threads))
    told = tell(program, BucketResult(bad=[one.bad for one in found if one.bad is not None]))
    return _together([one.batch for one in found]), told


def _all_runs(program: Program, layout: TableLayout) -> Sequence[AnyRun]:
    """The runs of all buckets, with the way to tell the bucket of a key."""
    name = table_arrangement(layout.schema.name)
    router = Residence(program.buckets, first_word).router
    return OPEN.of_step(program.root, name, program.states(name), program.buckets, router)


def _shares(
    program: Program, task: TableTask, rows: pa.Table, parts: int, *, every: bool
) -> list[tuple[int, pa.Table]]:
    """The rows in parts, so that all with one key are in one; if there are as many as buckets, they are the buckets."""
    if parts == 1:
        return [(0, rows)]
    shares: dict[int, list[NDArray[np.int64]]] = defaultdict(list)
    for bucket, at in rows_by_bucket(program, task.layout.lead, rows):
        shares[bucket % parts].append(np.arange(rows.num_rows) if at is None else at)
    numbers = range(parts) if every else sorted(shares)
    nothing = [np.zeros(0, np.int64)]
    return [(part, take_rows(rows, np.concatenate(shares.get(part, nothing)))) for part in numbers]


def _together(batches: list[ChangeBatch]) -> ChangeBatch:
    if len(batches) == 1:
        return batches[0]
    rows = pa.concat_tables([batch.rows for batch in batches]).combine_chunks()
    return ChangeBatch(rows, np.concatenate([batch.diff for batch in batches]))


# -- by tasks ---------------------------------------------------------------------------------------------------------


def resolve_by_tasks(program: Program, wanted: Wanted, frame: DataFrame, schema: pa.Schema, tasks: int) -> Found:
    """Resolve the rows of a DataFrame for the one table of a program, which have the columns of an Arrow schema."""
    tasks = max(1, min(tasks, program.buckets))
    packed = frame.select(*[F.col(f"`{name}`") for name in schema.names])
    packed = packed.mapInArrow(_packing(program, schema, tasks), _PACKED)
    if wanted.is_whole:  # a bucket that gets no row is to be emptied
        every = frame.sparkSession.range(0, 1, 1, 1)
        packed = packed.union(every.mapInArrow(_every_bucket(program, schema, tasks), _PACKED))
    exchanged = packed.repartitionById(tasks, F.col("part")).mapInArrow(_resolving(program, wanted, schema), RESULT)
    found = Found()
    for row in exchanged.collect():
        # Written by this function's own tasks in this job; never read from a file or from a user.
        one: Found = pickle.loads(bytes(row[0]))
        found.add(one)
    if found.told.failure is not None:
        raise found.told.failure
    return found


def frame_of_rows(spark: SparkSession, program: Program, rows: pa.Table, path: Path) -> DataFrame:
    """Rows that the driver has as a DataFrame: tasks read parts of a new file."""
    write_table(path, rows)
    name, parts = path.name, spark.sparkContext.defaultParallelism

    def reading(partition: Batches) -> Batches:
        for number in [number for given in partition for number in given.column(0).to_pylist()]:
            yield from for_spark(part_of(program.location.batches / name, number, parts))

    return spark.range(0, parts, 1, parts).mapInArrow(reading, from_arrow_schema(rows.schema))


def frame_of_files(spark: SparkSession, program: Program, files: Sequence[str]) -> DataFrame:
    """The plain changes in files of a step, a task each."""
    (task,) = program.tables
    count = len(files)

    def reading(partition: Batches) -> Batches:
        for number in [number for given in partition for number in given.column(0).to_pylist()]:
            yield from for_spark(part_of(program.location.batches / files[number], 0, 1))

    return spark.range(0, count, 1, count).mapInArrow(reading, ddl(task.layout.schema.change_columns))


def batch_of_files(program: Program, files: Sequence[str]) -> ChangeBatch:
    """The plain changes in files of a step, in the driver."""
    (task,) = program.tables
    empty = arrow_schema(task.layout.schema.change_columns).empty_table()
    parts = [part_of(program.location.batches / name, 0, 1) for name in files]
    return ChangeBatch.from_arrow(pa.concat_tables([empty, *parts]).combine_chunks())


def _message(part: int, bucket: int, rows: pa.Table) -> pa.RecordBatch:
    values = (part, bucket, pack_table(rows))
    columns = [pa.array([value], kind) for value, kind in zip(values, _PACKED_ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=_PACKED_ARROW)


def _packing(program: Program, schema: pa.Schema, tasks: int) -> Callable[[Batches], Batches]:
    (task,) = program.tables

    def run(partition: Batches) -> Batches:
        collected = [batch for batch in partition if batch.num_rows]
        if collected:
            rows = pa.Table.from_batches(collected).select(schema.names).cast(schema).combine_chunks()
            for bucket, at in rows_by_bucket(program, task.layout.lead, rows):
                yield _message(bucket % tasks, bucket, rows if at is None else take_rows(rows, at))

    return run


def _every_bucket(program: Program, schema: pa.Schema, tasks: int) -> Callable[[Batches], Batches]:
    def run(partition: Batches) -> Batches:
        for _ in partition:
            for bucket in range(program.buckets):
                yield _message(bucket % tasks, bucket, schema.empty_table())

    return run


def _resolving(program: Program, wanted: Wanted, schema: pa.Schema) -> Callable[[Batches], Batches]:
    (task,) = program.tables
    states = program.states(table_arrangement(task.name))

    def work(partition: Batches) -> Found:
        pieces: dict[int, list[pa.Table]] = defaultdict(list)
        for message in _messages(partition):
            pieces[message["bucket"]].append(unpack_table(message["body"]))
        bad, batches = [], []
        for bucket in sorted(pieces):
            rows = pa.concat_tables([schema.empty_table(), *pieces.pop(bucket)]).combine_chunks()
            found = resolve(task.layout, OPEN.of(program.root, states, bucket), wanted, rows)
            bad += [] if found.bad is None else [found.bad]
            batches += [found.batch] if len(found.batch) else []
        told = tell(program, BucketResult(bad=bad))
        if not batches:
            return Found(told)
        changes = _together(batches)
        name = program.location.new_name(program.version, ".arrow")
        write_table(program.location.batches / name, changes.to_arrow())
        return Found(told, [name], len(changes))

    def attempted(partition: Batches) -> Found:
        try:
            return work(partition)
        except HeadraceError as error:  # a result too: trying again would not help
            return Found(BucketResult(failure=error))

    return lambda partition: one_result(pickle.dumps(attempted(partition)))


def _messages(partition: Batches) -> Iterator[dict[str, Any]]:
    for batch in partition:
        yield from batch.to_pylist()
