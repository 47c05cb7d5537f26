"""What the drivers of the tests keep fresh: tables, views of every kind, and steps that follow from a seed.

The step of a number is always the same, so a driver that was killed goes on where it was, and the tests can say what
the tables hold after any number of steps. The models here are plain Python: they import nothing that they judge.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr

STAR = "FROM sale JOIN shop ON sale.place = shop.id"
BY_CITY = f"SELECT city, COUNT(*) AS n, SUM(price) AS price, SUM(pieces * rent) AS rent {STAR} GROUP BY city"
BY_SHOP = (
    "SELECT place, COUNT(*) AS n, SUM(price) AS price, MIN(price) AS low, MAX(x) AS high, "
    "COUNT(DISTINCT pieces) AS kinds FROM sale GROUP BY place"
)
ROWS = f"SELECT sale.id, city, price {STAR}"
SQL: dict[str, tuple[str, dict[str, Any]]] = {
    "by_shop": (BY_SHOP, {}),
    "operators": (BY_CITY, {"strategy": "operators"}),
    "factorized": (BY_CITY, {"strategy": "factorized"}),
    "recursive": (BY_CITY, {"strategy": "recursive"}),
    "first_order": (BY_CITY, {"strategy": "first-order"}),
    "foreign": (ROWS, {"strategy": "foreign-key"}),
    "listed": (ROWS, {"representation": "factorized"}),
    "recomputed": (BY_CITY, {"refresh": "full"}),
    "top": ("SELECT id, price, x FROM sale ORDER BY price DESC NULLS LAST, id LIMIT 7", {}),
    "distinct": ("SELECT DISTINCT place, pieces FROM sale WHERE pieces > 2", {}),
    "outer": ("SELECT shop.id, city, sale.id AS sale FROM shop LEFT JOIN sale ON sale.place = shop.id", {}),
    "without": ("SELECT id, city FROM shop WHERE NOT EXISTS (SELECT 1 FROM sale WHERE sale.place = shop.id)", {}),
    # Two that have most in common, and so share a subplan.
    "dear": (f"SELECT city, COUNT(*) AS n, MAX(price) AS price {STAR} WHERE price > 50 GROUP BY city", {}),
    "cheap": (f"SELECT city, COUNT(*) AS n, MAX(price) AS price {STAR} WHERE price > 20 GROUP BY city", {}),
    "waiting": (BY_CITY, {"strategy": "operators", "goal": hr.FinalWork(0.5), "trigger": hr.EveryRows(150)}),
    "by_sensor": ("SELECT sensor, COUNT(*) AS n, SUM(value) AS value, MAX(n) AS last FROM reading GROUP BY sensor", {}),
}
MOMENTS = f"SELECT pieces, rent {STAR}"
START = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW, HORIZON = timedelta(seconds=10), timedelta(seconds=20)
READINGS = 25  # rows of each file of the stream
_COLUMNS = {
    "shop": pa.schema({"id": pa.int64(), "city": pa.string(), "rent": pa.int64()}),
    "sale": pa.schema(
        {"id": pa.int64(), "place": pa.int64(), "price": pa.decimal128(10, 2), "pieces": pa.int64(), "x": pa.float64()}
    ),
    "click": pa.schema({"k": pa.int64(), "at": pa.timestamp("us", "UTC"), "came": pa.timestamp("us", "UTC")}),
    "buy": pa.schema({"k": pa.int64(), "at": pa.timestamp("us", "UTC"), "came": pa.timestamp("us", "UTC")}),
    "reading": pa.schema({"sensor": pa.string(), "n": pa.int64(), "value": pa.int64()}),
}
Row = tuple[Any, ...]


@dataclass
class Replay:
    """What the tables hold after a number of steps, and the next step.

    Parameters
    ----------
    bad : how many rows were set aside because they are bad.
    """

    seed: int
    number: int = 0
    shops: dict[int, Row] = field(default_factory=dict)
    sales: dict[int, Row] = field(default_factory=dict)
    events: dict[str, list[Row]] = field(default_factory=lambda: {"click": [], "buy": []})
    bad: int = 0

    def to(self, number: int) -> Replay:
        """Go on to a step."""
        while self.number < number:
            self.next()
        return self

    def next(self) -> dict[str, pa.Table]:
        """The changes of the next step."""
        self.number += 1
        rng = random.Random(f"{self.seed} {self.number}")
        changes = {"sale": self._sales(rng, 300 if self.number % 5 == 0 else 20)}
        if self.number % 3 == 1:
            changes = {"shop": self._shops(rng)} | changes
        return changes | self._events(rng)

    def rows(self) -> dict[str, pa.Table]:
        """The rows of the tables, but for that of the stream."""
        held = {"shop": list(self.shops.values()), "sale": list(self.sales.values()), **self.events}
        return {name: _table(name, rows) for name, rows in held.items()}

    def clock(self) -> datetime:
        """The latest arrival."""
        return START + timedelta(seconds=4 * self.number)

    def _shops(self, rng: random.Random) -> pa.Table:
        changed: list[tuple[Row, int]] = []
        if self.number == 1:
            self.shops = {i: (i, rng.choice(["Ulm", "Bonn", "Rom", None]), rng.randrange(5, 50)) for i in range(12)}
            changed = [(row, 1) for row in self.shops.values()]
        for i in rng.sample(sorted(self.shops), 2 if changed == [] else 0):
            changed.append((self.shops[i], -1))
            self.shops[i] = (*self.shops[i][:2], rng.randrange(5, 50))
            changed.append((self.shops[i], 1))
        return _changes("shop", changed)

    def _sales(self, rng: random.Random, size: int) -> pa.Table:
        changed: list[tuple[Row, int]] = []
        gone = rng.sample(sorted(self.sales), min(len(self.sales) // 3, size // 2))
        changed += [(self.sales.pop(i), -1) for i in gone]
        # Two of three shops sell, so that some do not.
        shops = [None, *(i for i in self.shops if i % 3)] if self.shops else [None]
        for i in range(1000 * self.number, 1000 * self.number + size):
            price = Decimal(rng.randrange(100, 9_999)).scaleb(-2)
            self.sales[i] = (i, rng.choice(shops), price, rng.randrange(1, 9), rng.randrange(640) / 64)
            changed.append((self.sales[i], 1))
        if self.number % 6 == 3:  # a row that was never there, and one that lacks what it must have
            changed.append(((-self.number, 1, Decimal("1.00"), 1, 1.0), -1))
            changed.append(((-self.number, 1, Decimal("1.00"), None, 1.0), 1))
            self.bad += 2
        return _changes("sale", changed)

    def _events(self, rng: random.Random) -> dict[str, pa.Table]:
        now = self.clock()
        out = {}
        for name, own in self.events.items():
            new = []
            for i in range(8):
                came = now - timedelta(milliseconds=400 * (7 - i))
                new.append((rng.randrange(4), max(START, came - timedelta(milliseconds=rng.randrange(9_000))), came))
            own += new
            out[name] = _table(name, new)
        return out


def register(engine: hr.Engine) -> None:
    """Make the tables and views, or find them made."""
    engine.table("shop", "id BIGINT NOT NULL, city STRING, rent BIGINT NOT NULL", key="id")
    engine.table(
        "sale",
        "id BIGINT NOT NULL, place BIGINT, price DECIMAL(10, 2), pieces BIGINT NOT NULL, x DOUBLE",
        key="id",
        references={"place": "shop"},
    )
    engine.table("reading", "sensor STRING, n BIGINT, value BIGINT")
    for name in ("click", "buy"):
        engine.table(name, "k BIGINT, at TIMESTAMP, came TIMESTAMP", append_only=True)
    for name, (sql, options) in SQL.items():
        engine.view(name, sql, **options)
    engine.covariance("moments", MOMENTS)
    engine.model("model", hr.LinearRegression(label="rent"), MOMENTS)
    engine.window_join(
        "windows",
        "click",
        "buy",
        on="k",
        time="at",
        arrival="came",
        window=WINDOW,
        horizon=HORIZON,
        revisions="final",
    )


def write_readings(folder: Path, seed: int, number: int) -> None:
    """Put the next file of the stream in place, wholly or not at all; one that is there stays as it is."""
    path = folder / f"{number:06d}.parquet"
    if not path.exists():
        partial = folder / f".{path.name}"  # Spark passes over names that begin with a dot
        pq.write_table(readings(seed, number), partial)
        partial.rename(path)


def readings(seed: int, number: int) -> pa.Table:
    """The rows of one file of the stream."""
    rng = random.Random(f"{seed} readings {number}")
    return _table("reading", [(f"s{rng.randrange(5)}", number, rng.randrange(100)) for _ in range(READINGS)])


def final_windows(replay: Replay) -> dict[datetime, float]:
    """The pairs of each window that is complete, by nested loops."""
    out = {}
    start = START
    while start + WINDOW <= replay.clock():
        found = {name: [k for k, at, _ in rows if start <= at < start + WINDOW] for name, rows in replay.events.items()}
        out[start] = float(sum(found["buy"].count(k) for k in found["click"]))
        start += WINDOW
    return out


def _changes(name: str, changed: list[tuple[Row, int]]) -> pa.Table:
    table = _table(name, [row for row, _ in changed])
    return table.append_column("__diff", pa.array([diff for _, diff in changed], pa.int64()))


def _table(name: str, rows: list[Row]) -> pa.Table:
    schema = _COLUMNS[name]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
