"""Spark as the recompute peer: the same moments over the Parquet files of all batches so far.

Nothing of Headrace's state is read, and Spark's adaptive execution is on: this is how one would recompute with Spark
alone. There are two ways: a SQL query with one sum per product, and the join's rows multiplied by NumPy in Python
workers, which is what one writes when that query is too slow. Wide joins can take hours either way, so both are
cancelled at a time limit, and what is reported then is a lower bound.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from headrace.bench.covariance.batch_files import Batches
from headrace.datasets import Dataset
from headrace.learn.moments import Moments
from headrace.rings.covariance import pack, width

T = TypeVar("T")
Numbers = NDArray[np.float64]

_GRACE = 60.0  # seconds that cancelled tasks have to notice it


@dataclass(frozen=True)
class Recomputation:
    """The time and the answer of a query; without moments it was cancelled, and would have taken longer."""

    seconds: float
    moments: Moments | None


Query = Callable[[SparkSession], Numbers]
"""From a session that has the tables to the count, the sums and the products of the features."""


def by_sql(statement: str) -> Query:
    """Return a query by SQL, whose answer is one row."""

    def run(session: SparkSession) -> Numbers:
        # Hundreds of sums make one generated method that is too long for the JVM to compile, and Spark's operators
        # without it are two to three times faster.
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        row = session.sql(statement).collect()[0]
        return np.array([0.0 if value is None else value for value in row], np.float64)

    return run


def by_numpy(data: Dataset) -> Query:
    """Return a query in which Spark joins, and NumPy multiplies the joined rows in Python workers."""

    def run(session: SparkSession) -> Numbers:
        doubles = [f"CAST({name} AS DOUBLE) AS {name}" for name in data.features]
        parts = session.sql(data.join).selectExpr(*doubles).mapInArrow(_summed, "moments ARRAY<DOUBLE>").collect()
        return np.sum([part[0] for part in parts] or np.zeros((1, width(len(data.features)))), axis=0)

    return run


def _summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    total: Numbers | None = None
    for batch in batches:
        rows = np.stack([column.to_numpy() for column in batch.columns])
        part = pack(rows.shape[1], rows.sum(axis=1), rows @ rows.T)
        total = part if total is None else total + part
    if total is not None:
        yield pa.RecordBatch.from_arrays([pa.array([total.tolist()])], ["moments"])


def recompute(
    spark: SparkSession, data: Dataset, query: Query, batches: Batches, count: int, folder: Path, limit: float
) -> Recomputation:
    """Recompute the moments of a data set after `count` batches, twice; return the faster run."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "true")
    for table in data.tables:
        paths = batches.paths(table.name, count)
        if paths and batches.deletes:
            paths = [batches.write_rows(folder, table.name, count)]
        rows = session.read.schema(table.ddl).parquet(*paths) if paths else session.createDataFrame([], table.ddl)
        rows.createOrReplaceTempView(table.name)
    best, left = Recomputation(limit, None), limit
    for _ in range(2):
        start = time.perf_counter()
        numbers = within(session, left, lambda: query(session))
        seconds = time.perf_counter() - start
        if numbers is None:
            break
        left -= seconds
        if best.moments is None or seconds < best.seconds:
            best = Recomputation(seconds, Moments.of_row(data.features, numbers))
        if left <= 0:
            break
    return best


def within(spark: SparkSession, seconds: float, work: Callable[[], T]) -> T | None:
    """Run Spark jobs and return their answer; cancel them when the time is over, and return None."""
    group = f"headrace-bench-{uuid.uuid4().hex}"
    answers: list[T] = []
    errors: list[Exception] = []

    def body() -> None:
        spark.sparkContext.setJobGroup(group, "recomputation", interruptOnCancel=True)
        try:
            answers.append(work())
        except Exception as error:
            errors.append(error)

    thread = InheritableThread(target=body, daemon=True)
    thread.start()
    thread.join(seconds)
    late = thread.is_alive()
    patience = time.perf_counter() + _GRACE
    # Again and again, because a query that is still being planned has no job yet.
    while thread.is_alive() and time.perf_counter() < patience:
        spark.sparkContext.cancelJobGroup(group)
        thread.join(0.5)
    if late:
        return None
    if errors:
        raise errors[0]
    return answers[0]
