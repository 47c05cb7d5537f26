"""Replacing the rows of an arrangement by those of a DataFrame, in tasks: no row comes to the driver.

Spark numbers the rows, exchanges them by bucket, and sorts them within each task by bucket and number. A task replaces
one bucket after the other and has one of them in memory. What it returns are references to the files that it wrote
under names no other attempt can have, so the files of an attempt that lost are orphans.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.operators.kernel import ViewChange
from headrace.relation.schema import BUCKET
from headrace.runtime.program import BucketResult
from headrace.runtime.replacing import NUMBER, Replacing
from headrace.runtime.spark import RESULT, Batches, attempted, combine, one_result


def replace_rows(replacing: Replacing, rows: DataFrame, tasks: int) -> BucketResult:
    """Replace the rows of all buckets by those of a DataFrame, in its order."""
    numbered = _numbered(replacing, rows)
    # Every bucket gets a row without a number, because one that gets no other row may have to be emptied.
    others = [F.lit(None).cast(field.dataType).alias(field.name) for field in numbered.schema if field.name != BUCKET]
    told = rows.sparkSession.range(0, replacing.buckets, 1, 1).select(*others, F.col("id").cast("int").alias(BUCKET))
    exchanged = numbered.unionByName(told).repartitionById(max(1, min(tasks, replacing.buckets)), F.col(BUCKET))
    work = exchanged.sortWithinPartitions(BUCKET, NUMBER).mapInArrow(lambda given: _task(replacing, given), RESULT)
    result = BucketResult(summaries={replacing.view: ViewChange()})
    result.add(combine([row[0] for row in work.collect()]))
    return result


def _numbered(replacing: Replacing, rows: DataFrame) -> DataFrame:
    """The rows with the names of stored columns, their numbers, which grow in the order of the rows, and buckets."""
    names = [column.name for column in replacing.columns]
    # Rows that are equal to the bit, and more (-0.0 and 0.0, or all NaN), have the same hash.
    bucket = F.pmod(F.xxhash64(*names), F.lit(replacing.buckets)).cast("int")
    return rows.toDF(*names).select(*names, F.monotonically_increasing_id().alias(NUMBER), bucket.alias(BUCKET))


def _task(replacing: Replacing, partition: Batches) -> Batches:
    def work() -> BucketResult:
        result = BucketResult()
        with replacing.writer() as writer:
            for bucket, rows in _by_bucket(partition):
                result.add(replacing.one_bucket(bucket, rows, writer))
        return result

    return one_result(attempted(work))


def _by_bucket(partition: Batches) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket, from batches in the order of buckets; rows without a number only name a bucket."""
    for bucket, pieces in groupby(_pieces(partition), key=itemgetter(0)):
        rows = pa.Table.from_batches([piece for _, piece in pieces])
        yield bucket, rows.filter(rows.column(NUMBER).is_valid())


def _pieces(partition: Batches) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in partition:
        codes = batch.column(batch.schema.get_field_index(BUCKET)).to_numpy()
        edges = np.flatnonzero(np.diff(codes, prepend=-1, append=-1)).tolist()
        yield from ((int(codes[start]), batch.slice(start, stop - start)) for start, stop in pairwise(edges))
