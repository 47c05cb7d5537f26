"""The tables of the TPC-H benchmark, loaded once, and the steps that change them, the same for every query."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.bench.measuring.copied_location import engine_on_copy
from headrace.bench.measuring.peak_memory import release_memory
from headrace.bench.tpch.spark_peer import SparkPeer, write_parquet
from headrace.datasets.batches import DIFF
from headrace.datasets.refresh import refresh_steps, rows_after
from headrace.datasets.tpch import TPCH_SCHEMAS, tpch_tables
from headrace.engine.engine import Engine
from headrace.engine.opening import AUTO

Tell = Callable[[str], None]
Changes = dict[str, pa.Table]

_LOAD = 1_000_000  # rows per step


@dataclass(frozen=True)
class Data:
    """TPC-H at a scale: a location with its tables, the steps to take, and Spark over the rows before and after."""

    spark: SparkSession
    location: Path
    executor: str
    steps: Sequence[Changes]
    before: SparkPeer
    after: SparkPeer
    rows: int  # of all tables, after the load
    rows_after: int  # and after the last step
    load_seconds: float
    state_bytes: int

    @property
    def rows_a_step(self) -> int:
        """The number of rows that a step changes, in both tables together."""
        return round(sum(table.num_rows for step in self.steps for table in step.values()) / len(self.steps))

    def opened(self, sharing: str = AUTO) -> AbstractContextManager[Engine]:
        """Open an engine with the loaded tables and no views, on a copy that is removed when it is closed."""
        return engine_on_copy(self.spark, self.location, executor=self.executor, sharing=sharing)


def load_data(
    spark: SparkSession, folder: Path, scale: float, steps: int, share: float, executor: str, tell: Tell
) -> Data:
    """Make TPC-H and the steps, write what Spark reads, and load the tables."""
    tell(f"making TPC-H at scale {scale:g}")
    tables = tpch_tables(scale)
    changes = list(refresh_steps(tables, steps, share=share, tables_changed="facts"))
    tell("writing Parquet files for Spark")
    files = spark.sparkContext.defaultParallelism
    before = {name: write_parquet(folder / "before" / name, table, files) for name, table in tables.items()}
    rows = _count(tables)
    changed = rows_after({name: tables[name] for name in _changed(changes)}, [_net(changes)])
    rows_left = _count(tables | changed)
    after = before | {name: write_parquet(folder / "after" / name, table, files) for name, table in changed.items()}
    del changed  # the two largest tables are not held twice while they are loaded
    seconds, size = _load(spark, folder / "tables", tables, executor, tell)
    del tables
    release_memory()
    return Data(
        spark,
        folder / "tables",
        executor,
        changes,
        SparkPeer(spark, before),
        SparkPeer(spark, after),
        rows,
        rows_left,
        seconds,
        size,
    )


def _load(
    spark: SparkSession, location: Path, tables: dict[str, pa.Table], executor: str, tell: Tell
) -> tuple[float, int]:
    """Load all tables; return the seconds, and the bytes of their state."""
    seconds, size, done = 0.0, 0, 0
    with Engine(spark, location, executor=executor) as engine:
        for name, spec in TPCH_SCHEMAS.items():
            engine.table(name, spec.ddl, key=spec.key, references=dict(spec.references))
        for name, rows in tables.items():
            for start in range(0, rows.num_rows, _LOAD):
                piece = rows.slice(start, _LOAD)
                began = time.perf_counter()
                size = engine.apply({name: piece}).state_bytes
                seconds += time.perf_counter() - began
                done += piece.num_rows
            tell(f"loaded {name}: {done:,} of {_count(tables):,} rows")
    return seconds, size


def _changed(steps: Sequence[Changes]) -> list[str]:
    return [name for name in TPCH_SCHEMAS if any(name in changes for changes in steps)]


def _net(steps: Sequence[Changes]) -> Changes:
    """Add steps up to one; a row that came and left again is not in it."""
    net = {}
    for name in _changed(steps):
        changes = pa.concat_tables([step[name] for step in steps if name in step])
        columns = [column for column in changes.column_names if column != DIFF]
        summed = changes.group_by(columns).aggregate([(DIFF, "sum")])
        summed = summed.rename_columns([*columns, DIFF])
        net[name] = summed.filter(pa.compute.not_equal(summed[DIFF], 0)).cast(changes.schema)
    return net


def _count(tables: dict[str, pa.Table]) -> int:
    return sum(table.num_rows for table in tables.values())
