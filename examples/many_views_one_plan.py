"""A board of six views that begin alike: what sharing their joins and sums saves.

Run it with `python examples/many_views_one_plan.py`. Orders and their items come in small steps. Two engines keep the
same six views: one shares what the views have in common, as engines do by default, and one keeps each view alone. Both
take the same steps in turn. At the end all answers are compared, and the shared plan is drawn into
`many_views_one_plan.svg`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.testing.oracle import assert_same

TABLES = {
    "customers": ("customer BIGINT, city STRING, segment STRING", "customer"),
    "orders": ("number BIGINT, customer BIGINT, day INT, channel STRING", "number"),
    "items": ("item BIGINT, number BIGINT, kind STRING, cents DECIMAL(12, 2)", "item"),
}
JOIN = "FROM items JOIN orders USING (number) JOIN customers USING (customer)"
TOTALS = "(SELECT number, SUM(cents) AS total, COUNT(*) AS items FROM items GROUP BY number)"
BOARD = {
    "by_city": f"SELECT city, COUNT(DISTINCT day) AS days, MAX(cents) AS dearest {JOIN} GROUP BY city",
    "by_segment": f"SELECT segment, kind, MIN(cents) AS least, SUM(cents) AS cents {JOIN} GROUP BY segment, kind",
    "on_the_web": f"SELECT city, MAX(cents) AS dearest {JOIN} WHERE channel = 'web' GROUP BY city",
    "largest_order": f"SELECT channel, MAX(total) AS largest FROM {TOTALS} JOIN orders USING (number) GROUP BY channel",
    "order_sizes": f"SELECT items, COUNT(*) AS orders FROM {TOTALS} GROUP BY items",
    "big_days": f"SELECT day, COUNT(*) AS n FROM {TOTALS} JOIN orders USING (number) WHERE total > 300 GROUP BY day",
}
CUSTOMERS, ITEMS = 2_000, 4  # how many there are, and how many an order has


def main() -> None:
    """Keep the board twice, and say what each way took."""
    options = parse()
    with tempfile.TemporaryDirectory(prefix="headrace-board-") as folder:
        engines = {way: opened(Path(folder) / way, sharing) for way, sharing in (("shared", "auto"), ("alone", "off"))}
        taken: dict[str, list[float]] = {way: [] for way in engines}
        for number, step in enumerate(steps(options.steps, options.orders)):
            for way in sorted(engines, reverse=number % 2 == 0):  # who comes first takes turns
                start = time.process_time()
                engines[way].apply(step)
                taken[way].append(time.process_time() - start)
        for name in BOARD:
            assert_same(*(engine.views[name].to_arrow() for engine in engines.values()))
        print(engines["shared"].explain())
        for way, engine in engines.items():
            step = 1e3 * statistics.median(taken[way][1:])
            print(f"{way}: {step:.1f} ms of CPU per step, {engine.status()['state_bytes']:,} bytes with the tables")
        print(f"all {len(BOARD)} answers are equal")
        Path("many_views_one_plan.svg").write_text(engines["shared"].explain().to_svg(), encoding="utf-8")
        for engine in engines.values():
            engine.close()


def parse() -> argparse.Namespace:
    """Read how much is to be played."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--steps", type=int, default=20, help="steps to take (default 20)")
    made.add_argument("--orders", type=int, default=500, help="orders that come in a step (default 500)")
    options = made.parse_args()
    if min(options.steps, options.orders) < 2:
        made.error("--steps and --orders take numbers from 2 on")
    return options


def opened(location: Path, sharing: str) -> hr.Engine:
    """Open an engine with the tables and views of the board."""
    engine = hr.connect(location, sharing=sharing)
    for table, (schema, key) in TABLES.items():
        engine.table(table, schema, key=key)
    for name, sql in BOARD.items():
        engine.view(name, sql, strategy="operators")
    return engine


def steps(count: int, orders: int) -> Iterator[dict[str, pa.Table]]:
    """Changes: all customers and the first orders, then more orders."""
    rng = np.random.default_rng(1)
    who = np.arange(CUSTOMERS)
    cities, segments = np.array(["Bergen", "Cork", "Delft"]), np.array(["home", "trade"])
    customers = pa.table({"customer": who, "city": cities[who % 3], "segment": segments[who % 2]})
    for step in range(count):
        numbers = step * orders + np.arange(orders)
        items = ITEMS * step * orders + np.arange(ITEMS * orders)
        cents = pa.array(rng.integers(1, 200, len(items))).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2))
        changes = {
            "orders": pa.table(
                {
                    "number": numbers,
                    "customer": rng.integers(0, CUSTOMERS, orders),
                    "day": pa.array(numbers % 365, pa.int32()),
                    "channel": np.array(["web", "shop", "phone"])[rng.integers(0, 3, orders)],
                }
            ),
            "items": pa.table(
                {
                    "item": items,
                    "number": rng.choice(numbers, len(items)),
                    "kind": np.array(["books", "toys"])[items % 2],
                    "cents": cents,
                }
            ),
        }
        yield changes if step else {"customers": customers, **changes}


if __name__ == "__main__":
    main()
