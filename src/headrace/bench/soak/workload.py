"""A shop whose tables change all the time and never grow, and views of every kind over them.

The rows of a table are made from random numbers; a change takes some rows away and puts as many in their place. What
comes and goes (guests) has a new name every time, so that whatever is kept by name shows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.engine.engine import Engine
from headrace.relation.schema import DIFF

ORDERS, CUSTOMERS, EVENTS = 4_000, 300, 1_000
EVENTS_PER_BATCH = 200
REGIONS = ["north", "east", "south", "west"]
SHOPS = 40

_JOIN = "FROM orders JOIN customers ON orders.customer = customers.customer"
_SUMS = f"SELECT region, COUNT(*) AS n, SUM(amount) AS amount, SUM(credit) AS credit {_JOIN} GROUP BY region"
TRAINING = f"SELECT rating, quantity, credit {_JOIN}"

VIEWS: dict[str, tuple[str, dict[str, Any]]] = {
    "by_shop": (
        "SELECT shop, COUNT(*) AS n, SUM(amount) AS amount, AVG(rating) AS rating, MIN(amount) AS low, "
        "MAX(rating) AS high, COUNT(DISTINCT customer) AS customers FROM orders GROUP BY shop",
        {},
    ),
    "by_operators": (_SUMS, {"strategy": "operators"}),
    "factorized": (_SUMS, {"strategy": "factorized"}),
    "recursive": (_SUMS, {"strategy": "recursive"}),
    "first_order": (_SUMS, {"strategy": "first-order"}),
    "live_rows": (
        f"SELECT orders.id, region, amount {_JOIN} WHERE quantity > 7",
        {"strategy": "foreign-key"},
    ),
    "listed": (
        "SELECT a.shop, a.id AS one, b.id AS other FROM orders a JOIN orders b ON a.shop = b.shop "
        "WHERE a.quantity = 9 AND b.quantity = 8",
        {"representation": "factorized"},
    ),
    "unserved": (
        "SELECT region, COUNT(*) AS n FROM customers LEFT ANTI JOIN orders ON orders.customer = customers.customer "
        "GROUP BY region",
        {},
    ),
    "best": ("SELECT id, shop, amount FROM orders ORDER BY amount DESC, id LIMIT 20", {}),
    "pairs": ("SELECT DISTINCT shop, quantity FROM orders", {}),
    "spread": ("SELECT shop, STDDEV(rating) AS spread, VAR_POP(quantity) AS var FROM orders GROUP BY shop", {}),
    "ranked": (
        "SELECT customer, region, RANK() OVER (PARTITION BY region ORDER BY credit DESC, customer) AS r FROM customers",
        {"refresh": "full"},
    ),
    "shared_one": (f"SELECT shop, region, SUM(amount) AS amount {_JOIN} GROUP BY shop, region", {}),
    "shared_two": (f"SELECT region, MAX(amount) AS most, COUNT(*) AS n {_JOIN} GROUP BY region", {}),
    "waiting": (
        f"SELECT quantity, region, COUNT(*) AS n {_JOIN} GROUP BY quantity, region",
        {"goal": hr.FinalWork(0.5), "trigger": hr.EveryRows(2_000)},
    ),
    "asked_for": ("SELECT quantity, SUM(amount) AS amount FROM orders GROUP BY quantity", {"goal": hr.Manual()}),
    "soon": ("SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer", {"goal": hr.TargetLag("2 s")}),
    "streamed": ("SELECT shop, COUNT(*) AS n, SUM(amount) AS amount, MIN(id) AS first FROM events GROUP BY shop", {}),
}
GOALS = tuple(name for name, (_, options) in VIEWS.items() if "goal" in options)
GUEST = "guest_"
_GUESTS: list[tuple[str, dict[str, Any]]] = [
    ("SELECT g, COUNT(*) AS n, SUM(x) AS x FROM {table} GROUP BY g", {}),
    ("SELECT region, SUM(x) AS x FROM {table} JOIN customers ON g = customers.customer GROUP BY region", {}),
    ("SELECT g, MAX(x) AS x FROM {table} WHERE x > {number} GROUP BY g", {"strategy": "operators"}),
    (
        "SELECT region, COUNT(*) AS n FROM {table} JOIN customers ON g = customers.customer GROUP BY region",
        {"strategy": "factorized"},
    ),
]


def define(engine: Engine, views: Collection[str]) -> None:
    """Make the tables and the views that stay; those that are there already stay as they are."""
    engine.table("customers", "customer BIGINT NOT NULL, region STRING, credit DOUBLE", key="customer")
    engine.table(
        "orders",
        "id BIGINT NOT NULL, customer BIGINT, shop INT, quantity INT, amount DECIMAL(12, 2), rating DOUBLE",
        key="id",
        references={"customer": "customers"},
    )
    engine.table("events", "id BIGINT NOT NULL, shop INT, amount BIGINT", key="id")
    for name in views:
        sql, options = VIEWS[name]
        engine.view(name, sql, **options)
    engine.model("rating", hr.LinearRegression(label="rating"), over=TRAINING)


def stream_of(spark: SparkSession) -> DataFrame:
    """An endless stream of events, each of which takes an earlier one away: so many are alive at any time."""
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", EVENTS_PER_BATCH).load()
    both = rates.selectExpr(
        "inline(array(struct(value AS id, CAST(1 AS BIGINT) AS d), "
        f"struct(value - {EVENTS} AS id, CAST(-1 AS BIGINT) AS d)))"
    ).where("id >= 0")
    return both.selectExpr("id", "CAST(id % 20 AS INT) AS shop", "(id * 7919) % 1000 AS amount", f"d AS {DIFF}")


class Changes:
    """Random changes to the tables; it has their rows as well, which it takes from the engine in the beginning."""

    def __init__(self, rng: np.random.Generator, rows: Mapping[str, pa.Table]) -> None:
        self.rng = rng
        self._next = 1 + max([-1, *rows["orders"].column("id").to_pylist()])
        made = {"orders": self._orders(0), "customers": self._customers(np.arange(0))}
        self.rows = {name: rows[name].cast(made[name].schema) for name in made}  # an engine gives large strings

    def filling(self) -> dict[str, pa.Table]:
        """The first rows."""
        numbers = np.arange(CUSTOMERS)
        self.rows = {"customers": self._customers(numbers), "orders": self._orders(ORDERS)}
        return dict(self.rows)

    def orders(self, count: int) -> pa.Table:
        """Replace so many orders: half of them keep their id, the others are new ones."""
        before = self.rows["orders"]
        gone = np.sort(self.rng.choice(before.num_rows, count, replace=False))
        old, new = before.take(gone), self._orders(count)
        same = np.arange(count) < count // 2
        ids = np.where(same, old.column("id").to_numpy(), new.column("id").to_numpy())
        new = new.set_column(0, new.schema.field(0), pa.array(ids))
        kept = np.ones(before.num_rows, bool)
        kept[gone] = False
        self.rows["orders"] = pa.concat_tables([before.filter(pa.array(kept)), new]).combine_chunks()
        return changed(old, new)

    def customers(self, count: int) -> pa.Table:
        """Give so many customers another region and another credit."""
        before = self.rows["customers"]
        at = np.sort(self.rng.choice(before.num_rows, count, replace=False))
        old = before.take(at)
        new = self._customers(old.column("customer").to_numpy())
        kept = np.ones(before.num_rows, bool)
        kept[at] = False
        self.rows["customers"] = pa.concat_tables([before.filter(pa.array(kept)), new]).combine_chunks()
        return changed(old, new)

    def bad(self, count: int) -> pa.Table:
        """Orders that are not there, to be deleted."""
        return self._orders(count).append_column(DIFF, pa.array(np.full(count, -1)))

    def guest_rows(self) -> pa.Table:
        """Rows for a table that comes and goes."""
        return pa.table({"g": self.rng.integers(0, 50, 500), "x": self.rng.integers(0, 1_000, 500)})

    def _orders(self, count: int) -> pa.Table:
        first, self._next = self._next, self._next + count
        return self.orders_of(self.rng, first, count)

    def _customers(self, numbers: Any) -> pa.Table:
        return self.customers_of(self.rng, numbers)

    @staticmethod
    def orders_of(rng: np.random.Generator, first: int, count: int) -> pa.Table:
        """Orders with random values, numbered from the first on."""
        cents = rng.integers(100, 1_000_000, count)
        return pa.table(
            {
                "id": np.arange(first, first + count),
                "customer": rng.integers(0, CUSTOMERS, count),
                "shop": rng.integers(0, SHOPS, count).astype(np.int32),
                "quantity": rng.integers(1, 10, count).astype(np.int32),
                "amount": pa.array(cents).cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
                "rating": rng.integers(0, 500, count) / 100,
            }
        )

    @staticmethod
    def customers_of(rng: np.random.Generator, numbers: Any) -> pa.Table:
        """Customers with random values, of these numbers."""
        regions = np.array(REGIONS)[rng.integers(0, len(REGIONS), len(numbers))]
        credit = rng.integers(0, 100_000, len(numbers)) / 100
        return pa.table({"customer": numbers, "region": regions, "credit": credit})


def changed(old: pa.Table, new: pa.Table) -> pa.Table:
    """A change that takes rows away and puts others in their place."""
    signs = np.repeat([-1, 1], [old.num_rows, new.num_rows])
    return pa.concat_tables([old, new]).combine_chunks().append_column(DIFF, pa.array(signs))


def guest(engine: Engine, number: int, rows: pa.Table) -> str:
    """Have a table and a view come, with a name that nothing has had; returns the name of the view."""
    table, name = f"{GUEST}table_{number}", f"{GUEST}view_{number}"
    engine.table(table, "g BIGINT, x BIGINT")
    sql, options = _GUESTS[number % len(_GUESTS)]
    engine.view(name, sql.format(table=table, number=number), **options)
    engine.apply({table: rows})
    return name


def guest_windows(engine: Engine, number: int, rng: np.random.Generator) -> str | None:
    """Have a window join come, and let some windows pass; returns what is wrong with its final answers, if anything."""
    left, right, name = (f"{GUEST}{what}_{number}" for what in ("left", "right", "windows"))
    for table in (left, right):
        engine.table(table, "k BIGINT, at TIMESTAMP, came TIMESTAMP", append_only=True, keep_rows=False)
    asked: dict[str, Any] = {
        "on": "k",
        "time": "at",
        "arrival": "came",
        "window": "10 s",
        "horizon": "10 s",
        "revisions": "final",
    }
    view = engine.window_join(name, left, right, **asked)
    counts: list[dict[tuple[int, int], int]] = [{}, {}]
    for minute in range(3):
        step = {}
        for side, table in enumerate((left, right)):
            came = np.sort(rng.integers(minute * 60, (minute + 1) * 60, 100)) * 1_000_000
            at = np.maximum(came - rng.integers(0, 9_000_000, 100), 0)
            keys = rng.integers(0, 5, 100)
            for key, window in zip(keys.tolist(), (at // 10_000_000).tolist(), strict=True):
                counts[side][key, window] = counts[side].get((key, window), 0) + 1
            times = [pa.array(values).cast(pa.timestamp("us", tz="UTC")) for values in (at, came)]
            step[table] = pa.table({"k": keys, "at": times[0], "came": times[1]})
        engine.apply(step)
    for answer in view.to_arrow().to_pylist():
        window = round(answer["window_start"].timestamp()) // 10
        pairs = sum(n * counts[1].get((k, w), 0) for (k, w), n in counts[0].items() if w == window)
        if answer["value"] != pairs:
            return f"window {window} has {answer['value']} pairs instead of {pairs}"
    return None


def send_guests_away(engine: Engine) -> None:
    """Drop whatever is there for a while only."""
    for names in (list(engine.views), list(engine.tables)):
        for name in names:
            if name.startswith(GUEST):
                engine.drop(name)
