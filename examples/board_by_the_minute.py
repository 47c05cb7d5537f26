"""A board that is read once a minute: what it takes to keep it for that, beside every step, and beside Spark.

Run it with `python examples/board_by_the_minute.py`. Orders come and prices change, in many small steps. The board says
what all orders are worth at the prices of now, and is wanted at the end of every minute, within a second. One engine is
told so, by a goal. A second one keeps the same view without a goal, so every step brings it up to date. Spark alone
runs the query at the end of every minute. Here a minute has 3 seconds (`--minute SECONDS`). The example works in a
temporary folder, and ends by itself in about half a minute.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headrace as hr
from headrace.testing.oracle import assert_same

LAG = "1 s"
TABLES = {
    "orders": ("number BIGINT, shop BIGINT, product BIGINT, units BIGINT", "number"),
    "shops": ("shop BIGINT, city STRING", "shop"),
    "products": ("product BIGINT, kind STRING, cents BIGINT", "product"),
}
BOARD = """
SELECT city, kind, COUNT(*) AS orders, SUM(units * cents) AS cents, MAX(units * cents) AS largest
FROM orders JOIN shops USING (shop) JOIN products USING (product)
GROUP BY city, kind
"""
CITIES = ["Bergen", "Cork", "Delft", "Espoo", "Faro", "Gent"]
KINDS = ["books", "games", "tools", "toys"]
SHOPS, PRODUCTS = 60, 400
PRICES_A_STEP = 2
PATIENCE = 0.005  # seconds between two looks whether the board is there
LATE = 60.0  # seconds after which it will not come any more

Changes = dict[str, pa.Table]


def main() -> None:
    """Keep the board in three ways, and compare what each of them took."""
    options = parse()
    shop = Shop(options.rows)
    start = shop.start()
    minutes = [[shop.step(options.orders) for _ in range(options.steps)] for _ in range(options.minutes)]
    with tempfile.TemporaryDirectory(prefix="headrace-minute-") as scratch:
        folder = Path(scratch)
        with (
            hr.connect(folder / "goal", calibrate=False) as patient,
            hr.connect(folder / "eager", calibrate=False) as eager,
        ):
            period = timedelta(seconds=options.minute)
            begin(patient, start)
            begin(eager, start)
            board = patient.view("board", BOARD, goal=hr.TargetLag(LAG), trigger=hr.Every(period))
            every = eager.view("board", BOARD)
            print(f"{options.minutes} minutes of {options.minute:g} s, each with {options.steps} steps of", end=" ")
            print(f"{options.orders:,} orders and {PRICES_A_STEP} new prices; {options.rows:,} orders are there before")
            print(f"{board.goal}\n")
            costs = Costs(patient.spark)
            with_goal = by_the_minute(patient, board, minutes, options.minute, costs)
            with_steps = step_by_step(eager, every, minutes, costs)
            recomputed = by_spark(patient.spark, folder / "files", start, minutes, costs)
            found = next(view for view in patient.status()["views"] if view["name"] == "board")
            with_goal.met = f"{found['met']} of {found['triggers']}"
            show([with_goal, with_steps, recomputed], costs)
            check(with_goal, with_steps, recomputed)


def parse() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minute", type=float, default=3, help="seconds of a minute (default 3)")
    parser.add_argument("--minutes", type=int, default=2, help="how many of them (default 2)")
    parser.add_argument("--steps", type=int, default=30, help="steps a minute (default 30)")
    parser.add_argument("--orders", type=int, default=200, help="orders a step (default 200)")
    parser.add_argument("--rows", type=int, default=20_000, help="orders that are there before (default 20,000)")
    options = parser.parse_args()
    for name in ("minute", "minutes", "steps", "orders", "rows"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name}: give a number above 0")
    return options


# -- what happens -----------------------------------------------------------------------------------------------------


class Shop:
    """Draws orders, and prices that change: an update is the old row with `__diff` -1 and the new one with +1."""

    def __init__(self, rows: int) -> None:
        self.random = np.random.default_rng(7)
        self.rows = rows
        self.number = 0
        self.prices = self.random.integers(100, 10_000, PRODUCTS)

    def start(self) -> Changes:
        """The rows that are there before the first minute."""
        shops = {"shop": np.arange(SHOPS), "city": [CITIES[i % len(CITIES)] for i in range(SHOPS)]}
        return {"orders": self.orders(self.rows), "shops": pa.table(shops), "products": self.products()}

    def step(self, orders: int) -> Changes:
        """The next orders, and a few prices that change."""
        changed = self.random.choice(PRODUCTS, PRICES_A_STEP, replace=False)
        before = self.products().take(changed)
        self.prices[changed] = self.random.integers(100, 10_000, PRICES_A_STEP)
        after = self.products().take(changed)
        signs = [(before, -1), (after, 1)]
        rows = [part.append_column("__diff", pa.array([sign] * PRICES_A_STEP, pa.int64())) for part, sign in signs]
        return {"orders": self.orders(orders), "products": pa.concat_tables(rows)}

    def orders(self, count: int) -> pa.Table:
        """New orders."""
        first, self.number = self.number, self.number + count
        drawn = {name: self.random.integers(0, most, count) for name, most in (("shop", SHOPS), ("product", PRODUCTS))}
        return pa.table({"number": np.arange(first, self.number), **drawn, "units": self.random.integers(1, 20, count)})

    def products(self) -> pa.Table:
        """All products, at the prices of now."""
        kinds = [KINDS[i % len(KINDS)] for i in range(PRODUCTS)]
        return pa.table({"product": np.arange(PRODUCTS), "kind": kinds, "cents": self.prices.copy()})


# -- three ways to have the board -------------------------------------------------------------------------------------


@dataclass
class Way:
    """What one way to have the board took: CPU seconds, and seconds in which it was at work."""

    name: str
    cpu: float = 0.0
    wall: float = 0.0
    answers: list[pa.Table] = field(default_factory=list)  # at the end of every minute
    met: str = "-"


def begin(engine: hr.Engine, rows: Changes) -> None:
    """Register the tables, with the rows that are there before."""
    for name, (columns, key) in TABLES.items():
        engine.table(name, columns, key=key)
    engine.apply(rows)


def by_the_minute(engine: hr.Engine, board: hr.View, minutes: list[list[Changes]], minute: float, costs: Costs) -> Way:
    """Spread the steps of each minute over it; the engine brings the board up to date when the minute is over."""
    way = Way("a goal, by the minute")
    first = minute * (time.time() // minute + 1)
    sleep_until(first)  # periods end with those of the clock
    with costs.of(way):
        for number, steps in enumerate(minutes):
            for i, changes in enumerate(steps):
                sleep_until(first + minute * (number + (i + 1) / (len(steps) + 1)))
                way.wall += engine.apply(changes).seconds
            end = first + minute * (number + 1)
            sleep_until(end)
            while board.lag and time.time() < end + LATE:
                time.sleep(PATIENCE)
            way.answers.append(board.to_arrow())
            took = time.time() - end
            way.wall += took
            changed = sum(row["__diff"] > 0 for row in board.changes().to_pylist())
            print(f"minute {number + 1}: {changed} rows of the board changed, and were read {took:.3f} s after its end")
    return way


def step_by_step(engine: hr.Engine, board: hr.View, minutes: list[list[Changes]], costs: Costs) -> Way:
    """Every step brings the board up to date; the steps follow each other directly, since the clock plays no part."""
    way = Way("no goal, by every step")
    with costs.of(way):
        start = time.perf_counter()
        for steps in minutes:
            for changes in steps:
                engine.apply(changes)
            way.answers.append(board.to_arrow())
        way.wall = time.perf_counter() - start
    return way


def by_spark(spark: SparkSession, folder: Path, start: Changes, minutes: list[list[Changes]], costs: Costs) -> Way:
    """Spark runs the query when a minute is over, over a folder of Parquet files, one for each minute."""
    way = Way("Spark, by the minute")
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    folder.mkdir()
    pq.write_table(start["orders"], folder / "start.parquet")
    session.createDataFrame(start["shops"]).createOrReplaceTempView("shops")
    products = start["products"]
    answer_by_spark(session, folder, products)  # the first query takes longer than all others, and is not counted
    with costs.of(way):
        began = time.perf_counter()
        for number, steps in enumerate(minutes):
            orders = pa.concat_tables(changes["orders"] for changes in steps)
            pq.write_table(orders, folder / f"minute-{number}.parquet")
            for changes in steps:
                products = with_prices(products, changes["products"])
            way.answers.append(answer_by_spark(session, folder, products))
        way.wall = time.perf_counter() - began
    return way


def answer_by_spark(session: SparkSession, folder: Path, products: pa.Table) -> pa.Table:
    """Compute the board from all rows."""
    session.read.parquet(str(folder)).createOrReplaceTempView("orders")
    session.createDataFrame(products).createOrReplaceTempView("products")
    return session.sql(BOARD).toArrow()


def with_prices(products: pa.Table, changes: pa.Table) -> pa.Table:
    """The products after some of their prices changed; products are numbered as they lie."""
    cents = products["cents"].to_numpy().copy()
    for row in changes.to_pylist():
        if row["__diff"] > 0:
            cents[row["product"]] = row["cents"]
    return products.set_column(products.column_names.index("cents"), "cents", pa.array(cents))


def sleep_until(moment: float) -> None:
    """Sleep until a moment of the clock."""
    time.sleep(max(0.0, moment - time.time()))


# -- what it costs ----------------------------------------------------------------------------------------------------


class Costs:
    """CPU seconds of this process, of Spark's JVM and of the JVM's child processes."""

    def __init__(self, spark: SparkSession) -> None:
        java = spark.sparkContext._jvm
        assert java is not None
        self.java = int(java.java.lang.ProcessHandle.current().pid())
        self.has_proc = Path(f"/proc/{self.java}/stat").exists()

    @contextmanager
    def of(self, way: Way) -> Iterator[None]:
        """Add what is spent meanwhile to a way."""
        before = self.by_process()
        yield
        # Process by process: the total over those that are there now falls when a worker of Spark's ends meanwhile.
        way.cpu += sum(seconds - before.get(pid, 0.0) for pid, seconds in self.by_process().items())

    def by_process(self) -> dict[int, float]:
        """CPU seconds so far, by number of process."""
        return {**(self.java_seconds() if self.has_proc else {}), os.getpid(): time.process_time()}

    def java_seconds(self) -> dict[int, float]:
        """CPU seconds of the JVM and its child processes, by number of process."""
        children: dict[int, list[int]] = {}
        ticks: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has ended meanwhile
            pid = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            ticks[pid] = int(fields[11]) + int(fields[12])  # user and system
        found, left = {}, [self.java]
        while left:
            pid = left.pop()
            if pid != os.getpid():  # this process is counted by its own clock
                found[pid] = ticks.get(pid, 0) / os.sysconf("SC_CLK_TCK")
                left += children.get(pid, [])
        return found


def show(ways: list[Way], costs: Costs) -> None:
    """Print what each way took."""
    print(f"\n{'the board':24} {'answers':>7} {'CPU s':>8} {'wall s':>8} {'lag met':>8}")
    for way in ways:
        print(f"{way.name:24} {len(way.answers):7} {way.cpu:8.2f} {way.wall:8.2f} {way.met:>8}")
    if not costs.has_proc:
        print("CPU is that of this process alone: without /proc, that of the JVM is not known")


def check(*ways: Way) -> None:
    """End with an error unless all ways gave the same board every minute."""
    first, *others = ways
    for other in others:
        for minute, (one, same) in enumerate(zip(first.answers, other.answers, strict=True), 1):
            try:
                assert_same(one, same)
            except AssertionError as error:
                raise SystemExit(f"minute {minute}, {first.name} and {other.name}: {error}") from error
    print(f"all answers of all {len(first.answers)} minutes are equal")


if __name__ == "__main__":
    main()
