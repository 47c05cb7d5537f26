"""Small DataFrames come to the driver: a step takes milliseconds there, and as a Spark job tenths of a second.

Spark estimates how many bytes a DataFrame has before it runs. If they are few, all rows are collected, as Arrow. If
Spark cannot tell, as for most streams, up to a limit of rows is collected from each partition: when no partition
reaches the limit these are all rows, otherwise they are thrown away and the DataFrame stays in Spark.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.relation.change import ChangeBatch
from headrace.relation.columns import whole
from headrace.relation.schema import DIFF, Column
from headrace.runtime.program import arrow_schema

_ROW_BYTES = 32  # of an average row by Spark's estimate, which counts compressed files as they are
_UNKNOWN = 1 << 60  # Spark multiplies its default for what it does not know, so any estimate above this is a guess
_PARTITION = "__partition"


def collected(columns: list[Column], rows: pa.Table) -> ChangeBatch:
    """Rows that Spark sent as Arrow, as changes with the types of some columns."""
    schema = arrow_schema(columns)
    table = rows.select(schema.names).cast(schema).combine_chunks()
    diff = whole(rows.column(DIFF)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return ChangeBatch(table, np.ascontiguousarray(diff))


def few_rows(frame: DataFrame, most: int, cores: int) -> pa.Table | None:
    """All rows of a DataFrame if there are few; None if there are, or may be, many more than `most`.

    A DataFrame of unknown size is expected to have about as many partitions as there are cores.
    """
    estimate = estimated_bytes(frame)
    if estimate <= most * _ROW_BYTES:
        return frame.toArrow()
    if estimate < _UNKNOWN:
        return None
    return _first_of_each_partition(frame, max(1, most // cores))


def estimated_bytes(frame: DataFrame) -> int:
    """Spark's estimate of a DataFrame's size, from files and local rows; far too large if it cannot tell."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def _first_of_each_partition(frame: DataFrame, limit: int) -> pa.Table | None:
    numbered = frame.select("*", F.spark_partition_id().alias(_PARTITION)).limit(limit + 1)
    # A limit is one per partition, and then an exchange to cut their sum, which would put all rows into one task.
    plan = numbered._jdf.queryExecution().analyzed().child()
    session = numbered._jdf.sparkSession()
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    cut = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan), frame.sparkSession)
    try:
        rows = cut.toArrow()
    except (PySparkException, Py4JError) as error:
        if "spark.driver.maxResultSize" in str(error):  # many partitions: the driver does not want them all
            return None
        raise
    partitions = whole(rows.column(_PARTITION)).to_numpy(zero_copy_only=False)
    if len(partitions) > limit and np.bincount(partitions).max() > limit:
        return None
    return rows.drop_columns([_PARTITION])
