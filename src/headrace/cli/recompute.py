"""The demo's referee: Spark alone, over the demo's own copy of the rows.

It answers the same SQL from scratch, without any code of Headrace, in a Spark session of its own (so no name of the
engine is in scope). Its answers decide whether the views are right, and its time is compared with that of the steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

ROW_GROUPS = 8


class Referee:
    """Runs queries over one table, given as Arrow and kept as a Parquet file."""

    def __init__(self, spark: SparkSession, name: str, rows: pa.Table, folder: Path) -> None:
        file = folder / f"{name}.parquet"
        # Several row groups, so that Spark can read the file with all cores.
        pq.write_table(rows, file, row_group_size=max(1, -(-rows.num_rows // ROW_GROUPS)))
        self._session = spark.newSession()
        self._session.read.parquet(str(file)).createOrReplaceTempView(name)

    def answer(self, sql: str) -> pa.Table:
        """Compute a query in full."""
        return self._session.sql(sql).toArrow()

    def seconds(self, queries: Mapping[str, str], times: int = 3) -> float:
        """Return the shortest time of computing all the queries, over some rounds."""
        rounds = []
        for _ in range(times):
            start = time.perf_counter()
            for sql in queries.values():
                self.answer(sql)
            rounds.append(time.perf_counter() - start)
        return min(rounds)


def difference(kept: pa.Table, recomputed: pa.Table) -> str | None:
    """Say where two results differ as bags of rows, or None when they are equal."""
    if kept.schema.names != recomputed.schema.names:
        return f"columns {kept.schema.names} against {recomputed.schema.names}"
    ours, theirs = _sorted_rows(kept), _sorted_rows(recomputed)
    if len(ours) != len(theirs):
        return f"{len(ours)} rows against {len(theirs)}"
    return next((f"row {our} against {their}" for our, their in zip(ours, theirs, strict=True) if our != their), None)


def _sorted_rows(table: pa.Table) -> list[tuple[object, ...]]:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])
