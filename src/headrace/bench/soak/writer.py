"""The process that writes: changes without end, until it is told to stop or killed.

It tells what it does as lines of JSON on its standard output, and does what lines on its standard input ask for.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from headrace.bench.soak import workload
from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.errors import HeadraceError
from headrace.runtime.session import local_session
from headrace.testing.oracle import Oracle, assert_same

_BATCH = 60  # orders that a usual step replaces: two changed rows for each
_LARGE = 3_000  # orders that a step of a job replaces
_DRIVER_ROWS = 4_000
_FRAME_EVERY, _CUSTOMERS_EVERY, _STREAM_EVERY, _BAD_EVERY, _LARGE_EVERY = 7, 5, 11, 23, 61
_GUEST_EVERY, _WINDOWS_EVERY, _BUDGET_EVERY, _DISCARD_EVERY = 37, 151, 53, 97


def tell(**what: Any) -> None:
    """Tell the benchmark something."""
    print(json.dumps(what), flush=True)


class Writer:
    """Makes one step after another."""

    def __init__(self, spark: SparkSession, engine: Engine, seed: int, views: Sequence[str]) -> None:
        self.spark = spark
        self.engine = engine
        self.views = views
        self.rng = np.random.default_rng(seed)
        self.oracle = Oracle(spark)
        workload.define(engine, views)
        workload.send_guests_away(engine)
        engine.stream("events", workload.stream_of(spark))
        rows = {name: engine.tables[name].to_arrow() for name in ("orders", "customers")}
        self.changes = workload.Changes(self.rng, rows)
        if not rows["orders"].num_rows:
            engine.apply(self.changes.filling())
            for _ in range(workload.EVENTS // workload.EVENTS_PER_BATCH + 1):
                engine.process_available()

    def one(self, number: int) -> str:
        """Do the work of one turn; returns its kind."""
        engine = self.engine
        if number % _LARGE_EVERY == 0:
            engine.apply({"orders": self.changes.orders(_LARGE)})
            return "job"
        if number % _STREAM_EVERY == 0:
            engine.process_available()
            return "stream"
        if number % _GUEST_EVERY == 0:
            workload.send_guests_away(engine)
            workload.guest(engine, engine.step, self.changes.guest_rows())
            return "guest"
        if number % _WINDOWS_EVERY == 0:
            wrong = workload.guest_windows(engine, engine.step, self.rng)
            if wrong is not None:
                tell(wrong=f"windows: {wrong}")
            return "windows"
        if number % _BUDGET_EVERY == 0:
            kept = engine.status()["memory"]["kept_bytes"]
            engine.memory_budget = None if engine.memory_budget is not None else kept // 2
        if number % _DISCARD_EVERY == 0:
            engine.discard_quarantine("orders")
        if number % _BAD_EVERY == 0:
            engine.apply({"orders": self.changes.bad(3)}, on_bad_rows="quarantine")
            return "bad rows"
        change = self.changes.orders(_BATCH)
        if number % _FRAME_EVERY == 0:
            engine.apply({"orders": self.spark.createDataFrame(change)})
            return "frame"
        if number % _CUSTOMERS_EVERY == 0:
            engine.apply({"orders": change, "customers": self.changes.customers(5)})
            return "two tables"
        engine.apply({"orders": change})
        return "batch"

    def check(self) -> list[str]:
        """Compare every answer with Spark's, and the tables with what they should be; returns what is wrong."""
        engine, wrong = self.engine, []
        engine.refresh(*(name for name in self.views if name in workload.GOALS))
        rows = {name: engine.tables[name].to_arrow() for name in ("orders", "customers", "events")}
        for name, should in self.changes.rows.items():
            try:
                assert_same(rows[name], should.cast(rows[name].schema))
            except AssertionError as error:
                wrong.append(f"table {name}: {str(error)[:300]}")
        if rows["events"].num_rows != workload.EVENTS:
            wrong.append(f"table events has {rows['events'].num_rows} rows")
        self.oracle.set_rows(rows)
        for name in self.views:
            view, sql = engine.views[name], workload.VIEWS[name][0]
            assert isinstance(view, View)
            try:
                # Sums of doubles are summed in another order by Spark, so they agree to rounding only.
                assert_same(view.to_arrow(), self.oracle.answer(sql), relative=1e-9)
            except AssertionError as error:
                wrong.append(f"view {name}: {str(error)[:300]}")
        wrong += self._check_model()
        return wrong

    def _check_model(self) -> list[str]:
        model: Any = self.engine.views["rating"]
        given = self.oracle.answer(workload.TRAINING)
        rating, quantity, credit = (given.column(i).to_numpy().astype(float) for i in range(3))
        terms = np.column_stack([np.ones(len(rating)), quantity, credit])
        best, *_ = np.linalg.lstsq(terms, rating, rcond=None)
        by_name = dict(zip(model.feature_names_, model.coef_.tolist(), strict=True))
        found = np.array([model.intercept_, by_name["quantity"], by_name["credit"]])
        same = np.allclose(found, best, rtol=1e-6, atol=1e-9)
        return [] if same else [f"model rating: {found.tolist()} instead of {best.tolist()}"]


def java_bytes(spark: SparkSession) -> int:
    """What is alive in the memory of Spark's JVM: its heap after a collection, and classes and code beside it."""
    java: Any = spark.sparkContext._jvm
    java.java.lang.System.gc()
    memory = java.java.lang.management.ManagementFactory.getMemoryMXBean()
    return int(memory.getHeapMemoryUsage().getUsed() + memory.getNonHeapMemoryUsage().getUsed())


def reference_seconds() -> float:
    """How long a fixed piece of work takes now: other work on the machine slows it as it slows a step."""
    numbers = np.random.default_rng(1).random(200_000)
    start = time.perf_counter()
    np.sort(numbers)
    return time.perf_counter() - start


def main() -> None:
    """Open the location and work until told to stop."""
    location, seed, cores, views = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(",")
    # All of the heap is there from the beginning, so that what the JVM takes can only grow by what is beside it.
    fixed = {"spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch"}
    spark = local_session(cores, "1g", **fixed)
    start = time.perf_counter()
    with Engine(spark, location, buckets=4, driver_rows=_DRIVER_ROWS) as engine:
        tell(opened=engine.step, seconds=time.perf_counter() - start)
        writer, number = Writer(spark, engine, seed, views), 0
        tell(ready=engine.step)
        while True:
            number += 1
            start = time.perf_counter()
            kind = writer.one(number)
            seconds = time.perf_counter() - start
            tell(step=engine.step, kind=kind, seconds=seconds, reference=reference_seconds())
            while select.select([sys.stdin], [], [], 0)[0]:
                asked = sys.stdin.readline().strip()
                if asked == "sample":
                    tell(java=java_bytes(spark))
                elif asked == "check":
                    tell(checked=len(views) + 1, wrong_answers=writer.check())
                else:  # "stop", or nobody is there any more
                    break
            else:
                continue
            break
    spark.stop()
    tell(closed=True)


if __name__ == "__main__":
    try:
        main()
    except HeadraceError as error:
        tell(wrong=f"the writer failed: {error}")
        raise
