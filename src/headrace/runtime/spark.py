"""The Spark executor: runs a step as one Spark job.

A batch that the driver has becomes a file of the step, of which every task reads its part. A Spark DataFrame stays
where it is. Either way, rows are turned into changes by bucket, packed into one buffer per (bucket, input), exchanged,
and added to state. When a new view is filled, the stored rows of its tables go the same way, and tasks read them
themselves. Spark always moves a few large binaries, never rows.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import HeadraceError
from headrace.operators.feed_rows import fed_columns, fed_rows
from headrace.plan.native import NeedsCatalyst
from headrace.plan.tree import FeedId
from headrace.relation import disk, runfile
from headrace.relation.change import BadRows, ChangeBatch
from headrace.relation.columns import for_spark, whole
from headrace.relation.run import Run
from headrace.relation.schema import DIFF, TableSchema, ddl
from headrace.runtime.aside import Aside, AsideWriter, aside_columns
from headrace.runtime.filling import Columns, map_stored
from headrace.runtime.location import writing
from headrace.runtime.program import BucketResult, Parcel, Program, arrow_schema
from headrace.runtime.stages import (
    Jobs,
    by_bucket,
    discard,
    in_memory,
    run_later_stages,
    run_stage,
    sent_parcels,
    spill,
)
from headrace.runtime.tasks import Mapped, Pieces, map_rows, reduce_bucket, tell

_SHARES_A_TASK = 2  # of the stored rows to fill a view from, so that a slow share delays fewer of them
RESULT = "result binary"
_WRITTEN = "file string, rows bigint"
_PACKED = "part int, bucket int, kind string, name string, whose string, body binary"
_PACKED_ARROW = pa.schema(
    {
        "part": pa.int32(),
        "bucket": pa.int32(),
        "kind": pa.string(),
        "name": pa.string(),
        "whose": pa.string(),
        "body": pa.binary(),
    }
)
Batches = Iterator[pa.RecordBatch]
A = TypeVar("A")


def run_from_files(
    spark: SparkSession, program: Program, batches: Mapping[str, ChangeBatch], tasks: int
) -> BucketResult:
    """Run a program over batches of the driver: each task evaluates its part of the files written for them."""
    files = {name: program.location.new_name(program.version, ".arrow") for name in batches}
    folder = program.location.batches
    try:
        for name, batch in batches.items():
            write_batch(folder / files[name], batch)
        parts, takers = max(1, tasks), max(1, min(tasks, program.buckets))
        numbers = spark.range(0, parts, 1, parts)
        return _run_packed(
            spark, program, numbers.mapInArrow(_file_task(program, files, parts, takers), _PACKED), takers
        )
    finally:
        disk.tidy([folder / name for name in files.values()])


def run_from_frames(spark: SparkSession, program: Program, frames: Mapping[str, DataFrame], tasks: int) -> BucketResult:
    """Run a program over Spark DataFrames that have the tables' columns, `__diff`, and what Catalyst evaluated."""
    tasks = max(1, min(tasks, program.buckets))
    packed: DataFrame | None = None
    for task in program.tables:
        names = [column.name for column in task.columns()] + [DIFF]
        one = frames[task.name].select(*[F.col(f"`{name}`") for name in names])
        one = one.mapInArrow(_map_task(program, task.name, tasks), _PACKED)
        packed = one if packed is None else packed.union(one)
    assert packed is not None
    return _run_packed(spark, program, packed, tasks)


def fill_from_state(spark: SparkSession, program: Program, columns: Columns, tasks: int) -> BucketResult:
    """Run a program over the stored rows of its tables: each task reads some columns of some buckets."""
    tasks = max(1, min(tasks, program.buckets))
    buckets = spark.range(0, program.buckets, 1, min(_SHARES_A_TASK * tasks, program.buckets))
    return _run_packed(spark, program, buckets.mapInArrow(_fill_task(program, columns, tasks), _PACKED), tasks)


def set_aside(frame: DataFrame, schema: TableSchema, writer: AsideWriter) -> Aside:
    """Write the rows of a DataFrame, which has `__diff` and `__reason`: each task that has rows writes a file."""
    columns = arrow_schema(aside_columns(schema))

    def write(partition: Batches) -> Batches:
        given = [batch for batch in partition if batch.num_rows]
        if given:
            rows = pa.Table.from_batches(given).cast(columns)
            yield pa.record_batch({"file": [writer.write(rows)], "rows": [rows.num_rows]})

    chosen = frame.select(*[F.col(f"`{name}`") for name in columns.names])
    written = chosen.mapInArrow(write, _WRITTEN).collect()
    return Aside(sum(row.rows for row in written), tuple(row.file for row in written))


def _run_packed(spark: SparkSession, program: Program, packed: DataFrame, tasks: int) -> BucketResult:
    """Exchange what the map side packed, add it to state, and run the later stages."""
    exchanged = packed.repartitionById(tasks, F.col("part"))
    result = combine([row[0] for row in exchanged.mapInArrow(_reduce_task(program), RESULT).collect()])
    return run_later_stages(program, result, _Jobs(spark, program, tasks), threads=os.cpu_count() or 1)


def jobs_of(spark: SparkSession, program: Program) -> Jobs:
    """Jobs for the stages of a program that has no rows of its own."""
    return _Jobs(spark, program, max(1, min(spark.sparkContext.defaultParallelism, program.buckets)))


@dataclass(frozen=True)
class _Jobs:
    """Jobs for the later stages of a step."""

    spark: SparkSession
    program: Program
    tasks: int

    def run_stage(self, stage: int, parcels: list[Parcel]) -> BucketResult:
        """Deliver parcels to their buckets and run one stage there, in tasks."""
        program = self.program
        try:
            given = self.spark.sparkContext.parallelize(self._shares(parcels), self.tasks)
            work = given.map(lambda share: _attempted(program, lambda: run_stage(program, stage, share)))
            return combine(work.collect())
        finally:
            discard(parcels)

    def evaluated(self, view: str, feed: FeedId, parcels: list[Parcel]) -> list[Parcel]:
        """Have Catalyst evaluate a feed on parcels, in tasks: each opens its parcels, and packs what is sent on."""
        program = self.program
        assert program.between is not None
        numbers = self.spark.range(0, self.tasks, 1, self.tasks)
        columns = ddl(fed_columns(program.views[view], feed))
        try:
            rows = numbers.mapInArrow(_opening_task(program, view, feed, self._shares(parcels)), columns)
            values = program.between.frame(view, feed, rows)
            found = values.mapInArrow(_sending_task(program, view, feed), RESULT).collect()
            return combine([row[0] for row in found]).parcels
        finally:
            discard(parcels)

    def _shares(self, parcels: list[Parcel]) -> list[list[Parcel]]:
        """The parcels of each task: those of one bucket stay together."""
        shares: list[list[Parcel]] = [[] for _ in range(self.tasks)]
        for parcel in parcels:
            shares[parcel.bucket % self.tasks].append(parcel)
        return shares


def _opening_task(
    program: Program, view: str, feed: FeedId, shares: list[list[Parcel]]
) -> Callable[[Batches], Batches]:
    def run(partition: Batches) -> Batches:
        for number in [number for batch in partition for number in batch.column(0).to_pylist()]:
            if runs := by_bucket(shares[number]):
                yield from for_spark(fed_rows(program.views[view], feed, runs))

    return run


def _sending_task(program: Program, view: str, feed: FeedId) -> Callable[[Batches], Batches]:
    def work(partition: Batches) -> BucketResult:
        batches = [batch for batch in partition if batch.num_rows]
        sent = sent_parcels(program, view, feed, pa.Table.from_batches(batches)) if batches else []
        return BucketResult(parcels=sent)

    return lambda partition: one_result(_attempted(program, lambda: work(partition)))


def run_each(
    spark: SparkSession, program: Program, work: Callable[[int], BucketResult], buckets: list[int], tasks: int
) -> BucketResult:
    """Run a function per bucket, in tasks."""
    given = spark.sparkContext.parallelize(buckets, max(1, min(tasks, len(buckets))))
    return combine(given.map(lambda bucket: _attempted(program, lambda: work(bucket))).collect())


def run_side_by_side(spark: SparkSession, work: Callable[[A], BucketResult], items: list[A]) -> list[BucketResult]:
    """Run a function per item, a task each; what the tasks did, in the order of the items."""
    given = spark.sparkContext.parallelize(items, max(1, len(items)))
    return [combine([one]) for one in given.map(lambda item: attempted(lambda: work(item))).collect()]


def combine(results: list[bytes]) -> BucketResult:
    """Put the results of tasks together; raises the error that one of them returned."""
    result = BucketResult()
    for one in results:
        # Written by this program's own tasks in this job; never read from a file or from a user.
        result.add(pickle.loads(bytes(one)))
    if result.failure is not None:
        raise result.failure
    return result


def _attempted(program: Program, work: Callable[[], BucketResult]) -> bytes:
    """Do a task's work and wrap its result, which tells of bad rows and does not carry them."""

    def told() -> BucketResult:
        result = tell(program, work())
        result.parcels = spill(program, result.parcels)
        return result

    return attempted(told)


def one_result(result: bytes) -> Batches:
    """What a task returns whose only result this is, under the schema RESULT."""
    yield pa.record_batch([pa.array([result], pa.binary())], ["result"])


def attempted(work: Callable[[], BucketResult]) -> bytes:
    """Do a task's work and wrap its result; an error of Headrace's own is a result too: retrying would not help."""
    try:
        result = work()
    except (HeadraceError, NeedsCatalyst) as error:
        result = BucketResult(failure=error)
    return pickle.dumps(result)


def write_batch(path: Path, batch: ChangeBatch) -> None:
    """Write a batch as a new file, of which tasks map parts."""
    write_table(path, batch.to_arrow())


def write_table(path: Path, table: pa.Table) -> None:
    """Write rows as a new file, of which tasks map parts."""
    with (
        writing(path),
        disk.DISK.create(path) as number,
        open(number, "wb", closefd=False) as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def frame_of_batch(
    spark: SparkSession, program: Program, schema: TableSchema, batch: ChangeBatch, path: Path
) -> DataFrame:
    """A batch of the driver as a DataFrame whose tasks read a new file of the step as Headrace reads its files.

    Spark itself could not read it where it has no file system for the URL of the location.
    """
    write_batch(path, batch)
    name, parts = path.name, spark.sparkContext.defaultParallelism

    def reading(partition: Batches) -> Batches:
        for number in [number for given in partition for number in given.column(0).to_pylist()]:
            yield from for_spark(part_of(program.location.batches / name, number, parts))

    return spark.range(0, parts, 1, parts).mapInArrow(reading, ddl(schema.change_columns))


def part_of(path: Path, number: int, parts: int) -> pa.Table:
    """One part of the rows in a file that `write_batch` wrote; no other part is read."""
    with disk.opened(path) as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    rows = pa.ipc.open_file(pa.py_buffer(mapped)).read_all()  # a view of the file
    start, stop = (rows.num_rows * edge // parts for edge in (number, number + 1))
    return rows.slice(start, stop - start)


def _file_task(program: Program, files: dict[str, str], parts: int, tasks: int) -> Callable[[Batches], Batches]:
    def mapping(partition: Batches) -> Iterator[Mapped]:
        for number in [number for batch in partition for number in batch.column(0).to_pylist()]:
            for task in program.tables:
                rows = part_of(program.location.batches / files[task.name], number, parts)
                if rows.num_rows:
                    batch = ChangeBatch.from_arrow(rows.combine_chunks())
                    yield map_rows(program, task, batch.rows, batch.diff)

    return lambda partition: _packed(program, mapping(partition), tasks)


def _map_task(program: Program, table: str, tasks: int) -> Callable[[Batches], Batches]:
    task = next(task for task in program.tables if task.name == table)
    schema = arrow_schema(task.columns())

    def mapping(partition: Batches) -> Iterator[Mapped]:
        collected = [batch for batch in partition if batch.num_rows]
        if collected:
            given = pa.Table.from_batches(collected)
            rows = given.select(schema.names).cast(schema).combine_chunks()
            diff = np.ascontiguousarray(whole(given.column(DIFF)).cast(pa.int64()).to_numpy(zero_copy_only=False))
            yield map_rows(program, task, rows, diff)

    return lambda partition: _packed(program, mapping(partition), tasks)


def _fill_task(program: Program, columns: Columns, tasks: int) -> Callable[[Batches], Batches]:
    def mapping(partition: Batches) -> Iterator[Mapped]:
        buckets = [bucket for batch in partition for bucket in batch.column(0).to_pylist()]
        for task in program.tables:
            yield from map_stored(program, task, columns[task.name], buckets)

    return lambda partition: _packed(program, mapping(partition), tasks)


def _packed(program: Program, mapping: Iterator[Mapped], tasks: int) -> Batches:
    """Pack the output of the map side, one message per batch: Arrow's binary columns hold at most 2 GB each."""

    def batch(*message: int | str | bytes) -> pa.RecordBatch:
        columns = [pa.array([value], kind) for value, kind in zip(message, _PACKED_ARROW.types, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=_PACKED_ARROW)

    try:
        for mapped in mapping:
            if mapped.bad or mapped.passed or mapped.newest or mapped.held:
                seen = BucketResult(bad=mapped.bad, passed=mapped.passed, newest=mapped.newest, held=mapped.held)
                yield batch(0, 0, "seen", "", "", pickle.dumps(tell(program, seen)))
            for bucket, pieces in mapped.pieces.items():
                part = bucket % tasks
                for name, batches in pieces.rows.items():
                    for rows in batches:
                        yield batch(part, bucket, "rows", name, "", pack_table(rows.to_arrow()))
                for bad in pieces.bad:
                    yield batch(part, bucket, "bad", bad.table, bad.judge, pack_table(bad.to_arrow()))
                for (name, arrangement), runs in pieces.runs.items():
                    for run in runs:
                        yield batch(part, bucket, "run", name, arrangement, bytes(runfile.encode(run)))
    except (HeadraceError, NeedsCatalyst) as error:  # a result too: trying again would not help
        yield batch(0, 0, "failure", "", "", pickle.dumps(error))


def _reduce_task(program: Program) -> Callable[[Batches], Batches]:
    def work(partition: Batches) -> BucketResult:
        result = BucketResult()
        pieces: dict[int, Pieces] = defaultdict(Pieces)
        for batch in partition:
            for message in batch.to_pylist():
                kind, name, body = message["kind"], message["name"], message["body"]
                if kind == "failure":
                    return BucketResult(failure=pickle.loads(body))
                if kind == "seen":
                    result.add(pickle.loads(body))
                    continue
                own, whose = pieces[message["bucket"]], message["whose"]
                if kind == "rows":
                    own.rows[name].append(ChangeBatch.from_arrow(unpack_table(body)))
                elif kind == "bad":
                    own.bad.append(BadRows.from_arrow(name, unpack_table(body), whose))
                else:
                    own.runs[name, whose].append(_unpack_run(body))
        for bucket in sorted(pieces):
            result.add(reduce_bucket(program, bucket, pieces[bucket]))
        return result

    return lambda partition: one_result(_attempted(program, lambda: work(partition)))


def pack_table(table: pa.Table) -> bytes:
    """Rows as bytes that Spark moves."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack_table(body: bytes) -> pa.Table:
    """Invert `pack_table`."""
    return pa.ipc.open_stream(body).read_all()


def _unpack_run(body: bytes) -> Run:
    # A copy, because kernels want aligned memory and a message may start anywhere.
    return in_memory(runfile.decode(np.frombuffer(body, np.uint8).copy(), "a message of the exchange"))
