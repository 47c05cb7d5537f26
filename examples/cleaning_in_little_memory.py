"""Tables that are cleaned one after the other: how much state a view has to keep meanwhile.

Run it with `python examples/cleaning_in_little_memory.py`. Most rows are there; the rest was dirty, and comes table by
table, as a cleaning tool delivers it. One engine keeps all state of its view. The other one says
`idle_after="0 seconds"`: after each change the view keeps only what the next change is expected to need, which is found
out from what comes. Both give the same answers. The example works in a temporary folder, and takes a few seconds.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.testing.oracle import assert_same

TABLES = {
    "orders": ("number BIGINT, customer BIGINT, cents BIGINT", "number"),
    "customers": ("customer BIGINT, city BIGINT", "customer"),
    "cities": ("city BIGINT, country STRING", "city"),
}
SALES = """
SELECT country, COUNT(*) AS orders, SUM(cents) AS cents
FROM orders JOIN customers USING (customer) JOIN cities USING (city)
GROUP BY country
"""
ORDERS, CUSTOMERS, CITIES = 50_000, 5_000, 100
COUNTRIES = ["Chile", "Ghana", "Japan", "Norway"]
DIRTY = 0.2  # of the rows of each table
BATCHES = 4  # in which the cleaned rows of a table come


def main() -> None:
    """Clean all tables, and compare the state and the answers of both engines."""
    rows = drawn()
    clean = {name: table.slice(0, round((1 - DIRTY) * table.num_rows)) for name, table in rows.items()}
    with tempfile.TemporaryDirectory(prefix="headrace-cleaning-") as scratch:
        options = {"calibrate": False, "sharing": "off"}
        with (
            hr.connect(Path(scratch) / "all", **options) as whole,
            hr.connect(Path(scratch) / "little", **options) as thrifty,
        ):
            everything = begun(whole, clean, None)
            little = begun(thrifty, clean, "0 seconds")
            print(f"{'cleaned':10} {'all state':>12} {'needed':>12}")
            for name in ("cities", "customers", "orders"):
                for batch in cleaned(rows[name], clean[name].num_rows):
                    whole.apply({name: batch})
                    thrifty.apply({name: batch})
                    assert_same(everything.to_arrow(), little.to_arrow())
                print(f"{name:10} {kept(whole):10,} B {kept(thrifty):10,} B")
    print("all answers are equal")


def drawn() -> dict[str, pa.Table]:
    """All rows, in any order."""
    random = np.random.default_rng(3)
    orders = {"customer": random.integers(0, CUSTOMERS, ORDERS), "cents": random.integers(100, 10_000, ORDERS)}
    cities = {"city": np.arange(CITIES), "country": [COUNTRIES[i % len(COUNTRIES)] for i in range(CITIES)]}
    return {
        "orders": pa.table({"number": np.arange(ORDERS), **orders}),
        "customers": pa.table({"customer": np.arange(CUSTOMERS), "city": random.integers(0, CITIES, CUSTOMERS)}),
        "cities": pa.table(cities),
    }


def begun(engine: hr.Engine, clean: dict[str, pa.Table], idle_after: str | None) -> hr.View:
    """Register the tables with their clean rows, and the view over them."""
    for name, (columns, key) in TABLES.items():
        engine.table(name, columns, key=key)
    engine.apply(clean)
    return engine.view("sales", SALES, strategy="operators", idle_after=idle_after)


def cleaned(rows: pa.Table, first: int) -> list[pa.Table]:
    """The rows of a table that were dirty, in batches."""
    size = (rows.num_rows - first) // BATCHES
    return [rows.slice(first + number * size, size) for number in range(BATCHES)]


def kept(engine: hr.Engine) -> int:
    """The bytes of state that wait for the next change."""
    return int(engine.status()["memory"]["kept_bytes"])


if __name__ == "__main__":
    main()
