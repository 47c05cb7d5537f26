"""A driver that is going to be killed: opens a location, carries on from its last step, and never stops by itself.

It runs in a process of its own, a fork on the JVM of the test that started it (`tests.forks`). The
steps are a function of the seed and the step number, so the test can replay any prefix of them.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType
from headrace.testing.changes import TableModel

SCHEMA = TableSchema.of(
    "t",
    [
        Column("id", SqlType("bigint")),
        Column("shop", SqlType("string")),
        Column("price", SqlType("decimal", 10, 2)),
        Column("x", SqlType("double")),
    ],
    key="id",
)
VIEWS = {
    "by_shop": "SELECT shop, COUNT(*) AS n, SUM(price) AS price, SUM(x) AS x, MIN(price) AS low, MAX(x) AS high "
    "FROM t GROUP BY shop",
    "total": "SELECT COUNT(*) AS n, AVG(price) AS price FROM t WHERE x > 0",
    "pairs": "SELECT a.shop, COUNT(*) AS n, SUM(a.price) AS price FROM t a JOIN t b ON a.shop = b.shop GROUP BY a.shop",
    "totals": "SELECT n, COUNT(*) AS shops, SUM(price) AS price FROM by_shop GROUP BY n",  # over another view
    # A row refers to the one before it: live tuples.
    "before": "SELECT a.id, b.shop AS shop, a.price + b.price AS price FROM t a JOIN t b ON a.id - 1 = b.id",
}


def nested(sql: str) -> str:
    """A query over tables alone: the view that it may read stands there with its query."""
    return sql.replace("FROM by_shop", f"FROM ({VIEWS['by_shop']})")


# The changes of these wait for a trigger, and are flushed in between: their answers are those of the step `as_of`.
WAITING = ("by_shop", "pairs")
PACE, TRIGGER = 3, hr.EveryRows(100)
DRIVER_ROWS = 45  # larger steps than this one go to Spark, so that both paths are killed


class Replay:
    """The model of the table after any number of steps, and the change of the next."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = 0
        self.model = TableModel(SCHEMA, random.Random(0))

    def next(self) -> pa.Table:
        self.step += 1
        self.model.rng = random.Random(self.seed * 100_003 + self.step)
        return self.model.change(60 if self.step % 7 == 0 else 20)

    def to(self, step: int) -> pa.Table:
        while self.step < step:
            self.next()
        return self.model.to_arrow()


def open_engine(spark: SparkSession, location: Path) -> hr.Engine:
    engine = hr.Engine(spark, location, buckets=3, driver_rows=DRIVER_ROWS)
    engine.table("t", pa.schema([pa.field(c.name, c.type.arrow, c.nullable) for c in SCHEMA.columns]), key="id")
    for name, sql in VIEWS.items():
        engine.view(name, sql)
    for name in WAITING:
        late = engine.view(f"late_{name}", VIEWS[name], strategy="operators", goal=hr.FinalWork(0.5), trigger=TRIGGER)
        if not late.progress.paces:
            engine._maintenance.goals.set_paces(late.name, dict.fromkeys(late.planned.kernel.holds, PACE), TRIGGER.rows)
    return engine


def main() -> None:
    location, seed = Path(sys.argv[1]), int(sys.argv[2])
    engine = open_engine(SparkSession.builder.getOrCreate(), location)
    replay = Replay(seed)
    replay.to(engine.step)
    print("ready", flush=True)
    while True:
        engine.apply({"t": replay.next()})


if __name__ == "__main__":
    main()
