"""Twelve queries share the log: however many views read a table, its changes are taken in and stored once."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession
from tests.tpch.queries import Query
from tests.tpch.recording import register

import headrace as hr
from headrace.datasets import TPCH_SCHEMAS, refresh_steps, tpch_tables
from headrace.runtime.program import table_arrangement
from headrace.runtime.record import BucketState

STRATEGY = "operators"
TWELVE = [Query(f"q{number}") for number in (1, 2, 3, 4, 5, 9, 13, 15, 16, 18, 21, 22)]  # among them, all tables


def test_twelve_queries_share_the_log(spark: SparkSession, tmp_path: Path) -> None:
    tables = tpch_tables(0.01)
    steps = [tables, *refresh_steps(tables, 5, share=0.005, seed=2)]
    with hr.Engine(spark, tmp_path / "none", buckets=3) as engine:
        register(engine)
    # A copy, so that both have the hash seed that a location is made with, and so the same rows in each bucket.
    shutil.copytree(tmp_path / "none", tmp_path / "twelve")
    with hr.Engine(spark, tmp_path / "none") as none, hr.Engine(spark, tmp_path / "twelve") as twelve:
        for query in TWELVE:
            twelve.view(query.name, query.sql, strategy=STRATEGY)
        for number, changes in enumerate(steps):
            given = {name: rows.num_rows for name, rows in changes.items()}
            assert none.apply(changes).rows == given, f"step {number}"
            assert twelve.apply(changes).rows == given, f"step {number}"
            for engine in (none, twelve):
                engine.compact()  # merges run beside steps, and may be done in one engine and owed in the other
            assert stored(twelve) == stored(none), f"step {number}"
        assert [view.name for view in twelve.views.values() if view.rows] == [query.name for query in TWELVE]
    assert {name for query in TWELVE for name in query.tables} == set(TPCH_SCHEMAS)


def stored(engine: hr.Engine) -> dict[str, dict[int, list[tuple[int, int]]]]:
    """The rows and bytes of every run of every table, by bucket."""
    arrangements = engine._store.snapshot.arrangements
    assert {name for name in arrangements if name.startswith("table/")} == set(map(table_arrangement, TPCH_SCHEMAS))
    return {
        name: {bucket: sizes(state) for bucket, state in arrangements[table_arrangement(name)].items()}
        for name in TPCH_SCHEMAS
    }


def sizes(state: BucketState) -> list[tuple[int, int]]:
    return [(run.rows, run.bytes) for run in state.runs]
