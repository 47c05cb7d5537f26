"""The data of the benchmark: tables of which a part comes at once, and the rest in changes.

TPC-H with changes in all tables but region and nation, as the CrocodileDB thesis has them, and a chain of small
tables in place of the data set of the join order benchmark, which is not to be had here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.bench.measuring.copied_location import engine_on_copy
from headrace.bench.tpch.data import Changes, Tell
from headrace.bench.tpch.spark_peer import SparkPeer, difference, write_parquet
from headrace.datasets.batches import DIFF
from headrace.datasets.tpch import TPCH_SCHEMAS, tpch_tables
from headrace.engine.engine import Engine

COMPLETE = ("region", "nation")  # tables that never change
CHANGING = ("supplier", "customer", "part", "partsupp", "orders", "lineitem")
_WAYS = 8
_LOAD = 1_000_000


@dataclass(frozen=True)
class Tables:
    """Tables by name, with how an engine registers each of them."""

    rows: Mapping[str, pa.Table]
    options: Mapping[str, dict[str, Any]]  # schema, key and references
    changing: Sequence[str]

    def split(self, shares: Sequence[float], seed: int = 1) -> tuple[dict[str, pa.Table], list[Changes]]:
        """The rows that are there at first, and changes with these shares of each table that changes.

        Which rows come late is a matter of chance, as it is for each row by itself.
        """
        rng = np.random.default_rng(seed)
        first, changes = dict(self.rows), [Changes() for _ in shares]
        for name in self.changing:
            order = rng.permutation(self.rows[name].num_rows)
            end = len(order)
            for change, share in zip(changes, shares, strict=True):
                start = max(0, end - max(1, round(share * len(order))))
                change[name] = self.rows[name].take(np.sort(order[start:end]))
                end = start
            first[name] = self.rows[name].take(np.sort(order[:end]))
        return first, changes


def tpch(scale: float) -> Tables:
    """TPC-H at a scale factor."""
    options = {
        name: {"schema": spec.ddl, "key": spec.key, "references": dict(spec.references)}
        for name, spec in TPCH_SCHEMAS.items()
    }
    return Tables(tpch_tables(scale), options, CHANGING)


def chain(rows: int, seed: int = 7) -> Tables:
    """A chain of tables: each row refers to one of the next table, which has half as many."""
    rng = np.random.default_rng(seed)
    tables, options = {}, {}
    for number in range(_WAYS):
        count, below = max(16, rows >> number), max(16, rows >> (number + 1))
        tables[f"t{number}"] = pa.table(
            {
                "id": np.arange(count),
                "next": rng.integers(0, below, count),
                "v": rng.integers(0, 100, count),
            }
        )
        options[f"t{number}"] = {"schema": "id BIGINT NOT NULL, next BIGINT NOT NULL, v BIGINT NOT NULL", "key": "id"}
    return Tables(tables, options, tuple(tables))


def chain_query() -> str:
    """The join of the whole chain."""
    joins = " ".join(f"JOIN t{n} ON t{n - 1}.next = t{n}.id" for n in range(1, _WAYS))
    return f"SELECT t{_WAYS - 1}.v AS v, COUNT(*) AS n, SUM(t0.v) AS total FROM t0 {joins} GROUP BY t{_WAYS - 1}.v"


@dataclass(frozen=True)
class Loaded:
    """A location with the first rows of some tables, of which engines get copies by links."""

    spark: SparkSession
    location: Path

    @classmethod
    def of(cls, spark: SparkSession, folder: Path, tables: Tables, first: Mapping[str, pa.Table], tell: Tell) -> Loaded:
        """Load the first rows of all tables."""
        folder.mkdir(parents=True, exist_ok=True)
        with Engine(spark, folder / "tables", calibrate=False) as engine:
            for name, rows in first.items():
                engine.table(name, **tables.options[name])
                for start in range(0, rows.num_rows, _LOAD):
                    engine.apply({name: rows.slice(start, _LOAD)})
                tell(f"loaded {rows.num_rows:,} rows of {name}")
            engine.compact()
        return cls(spark, folder / "tables")

    def opened(self) -> AbstractContextManager[Engine]:
        """Open an engine with the first rows and no views, on a copy that is removed when it is closed."""
        return engine_on_copy(self.spark, self.location, sharing="off", calibrate=False)


def after(first: Mapping[str, pa.Table], changes: Sequence[Changes]) -> dict[str, pa.Table]:
    """The rows of all tables after some changes, added up by Arrow."""
    out = dict(first)
    for name, there in first.items():
        came = [change[name] for change in changes if name in change]
        if not any(DIFF in rows.column_names for rows in came):
            out[name] = pa.concat_tables([there, *(rows.cast(there.schema) for rows in came)])
            continue
        counted = _with_diff(there)
        more = [_with_diff(rows).select(counted.column_names).cast(counted.schema) for rows in came]
        summed = pa.concat_tables([counted, *more]).group_by(there.column_names).aggregate([(DIFF, "sum")])
        out[name] = summed.filter(pa.compute.greater(summed[f"{DIFF}_sum"], 0)).select(there.column_names)
    return out


def _with_diff(rows: pa.Table) -> pa.Table:
    if DIFF in rows.column_names:
        return rows
    return rows.append_column(DIFF, pa.array(np.ones(rows.num_rows, np.int64)))


@dataclass
class Truth:
    """The right answers over some rows: those of Spark, which runs each query once."""

    peer: SparkPeer
    _known: dict[str, pa.Table] = field(default_factory=dict)

    @classmethod
    def of(cls, spark: SparkSession, folder: Path, tables: Tables, rows: Mapping[str, pa.Table]) -> Truth:
        """Write rows to a folder for Spark."""
        files = spark.sparkContext.defaultParallelism
        folders = {name: write_parquet(folder / name, table, files) for name, table in rows.items()}
        return cls(SparkPeer(spark, folders, {name: tables.options[name]["schema"] for name in rows}))

    def wrong(self, sql: str, answer: pa.Table) -> str | None:
        """How an answer differs from the right one; None if it does not."""
        if sql not in self._known:
            self._known[sql] = self.peer.unlimited(sql)
        return difference(sql, answer, self._known[sql])
