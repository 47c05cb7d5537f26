"""A driver that replays a file of updates and is going to be killed; it uses the JVM of the test that started it."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import headrace as hr
from headrace.datasets import TPCH_SCHEMAS
from headrace.sources import UpdateFile

VIEWS = {
    "flags": "SELECT l_returnflag, COUNT(*) AS n, SUM(l_quantity) AS quantity FROM lineitem GROUP BY l_returnflag",
    "days": "SELECT o_orderdate, COUNT(*) AS n, SUM(l_extendedprice) AS price "
    "FROM orders JOIN lineitem ON o_orderkey = l_orderkey GROUP BY o_orderdate",
}


def open_engine(spark, location: Path) -> hr.Engine:
    engine = hr.Engine(spark, location, buckets=2, executor="inline")
    for name, spec in TPCH_SCHEMAS.items():
        engine.table(name, spec.schema, key=spec.key, references=dict(spec.references), expected_rows=1_000)
    for name, sql in VIEWS.items():
        engine.view(name, sql)
    return engine


def main() -> None:
    location, file, batch = sys.argv[1:]
    engine = open_engine(SparkSession.builder.getOrCreate(), Path(location))
    for step in UpdateFile(file, batch=int(batch)).replay(engine, name="updates"):
        print(step.number, flush=True)


if __name__ == "__main__":
    main()
