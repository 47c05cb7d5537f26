"""Run on a quiet cluster: every registered kind of view, a million rows as jobs, streams that run, rings of a user.

The same steps go through an engine whose work is done by tasks of the cluster and through one that does all of it in
the driver; where Spark itself can answer, it is asked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.cluster.session import cluster_session

import headrace as hr
from headrace.errors import SchemaError
from headrace.rings import Payload
from headrace.testing.oracle import assert_same
from headrace.testing.subjects import Subject, subjects

STEPS = 3
MILLION = 1_000_000


def every_subject(spark: SparkSession, home: Path, seed: int) -> int:
    """Each strategy, handle, model and estimator: tasks of the cluster do what the driver does."""
    for number, subject in enumerate(subjects()):
        one_subject(spark, home / f"subject{number}", subject, seed)
        print(json.dumps({"subject": str(subject)}), flush=True)
    return number + 1


def one_subject(spark: SparkSession, home: Path, subject: Subject, seed: int) -> None:
    steps, answers, ran = subject.steps(seed, STEPS), [], set()
    for executor in ("inline", "spark"):
        with hr.Engine(spark, home / executor, executor=executor, buckets=3) as engine:
            subject.tables(engine)
            if first := {name: rows for name, rows in steps[0].items() if name in engine.tables}:
                engine.apply(first)  # the view is filled from what is stored
            handle = subject.make(engine)  # a chain of matrices makes its tables itself
            done = [engine.apply(step) for step in (steps[1:] if first else steps)]
            ran |= {(executor, step.ran) for step in done}
            answers.append(subject.answer(handle))
            assert engine.verify() == []
    assert ("spark", "job") in ran, ran
    assert answers[0].num_rows, "nothing is compared"
    assert_same(answers[1], answers[0], relative=1e-9)


def a_million_rows(spark: SparkSession, home: Path, seed: int) -> int:
    """Steps of a million rows as jobs, from files and from a DataFrame, with a join: Spark computes the same."""
    rng = np.random.default_rng(seed)
    rows = pa.table(
        {"id": np.arange(MILLION), "place": rng.integers(0, 500, MILLION), "x": rng.integers(0, 64, MILLION)}
    )
    places = pa.table({"id": np.arange(500), "city": [f"city {i % 40}" for i in range(500)]})
    more = spark.range(MILLION, 2 * MILLION).select(
        "id", (F.col("id") % 500).alias("place"), (F.col("id") % 64).alias("x")
    )
    sql = "SELECT city, COUNT(*) AS n, SUM(x) AS x, SUM(x * x) AS squares FROM t JOIN p ON t.place = p.id GROUP BY city"
    with hr.Engine(spark, home / "million", driver_rows=100_000) as engine:
        engine.table("t", "id BIGINT NOT NULL, place BIGINT, x BIGINT", key="id")
        engine.table("p", "id BIGINT NOT NULL, city STRING", key="id")
        views = [engine.view(name, sql, strategy=name.replace("_", "-")) for name in ("operators", "factorized")]
        engine.apply({"p": places})
        gone = rows.slice(0, MILLION // 2).append_column("__diff", pa.array(np.full(MILLION // 2, -1)))
        ran = [engine.apply({"t": changes}).ran for changes in (rows, more, gone)]
        assert ran == ["job"] * 3, ran
        pq.write_table(rows.slice(MILLION // 2), home / "rows.parquet")
        pq.write_table(places, home / "places.parquet")
        spark.read.parquet(str(home / "rows.parquet")).unionAll(more).createOrReplaceTempView("t")
        spark.read.parquet(str(home / "places.parquet")).createOrReplaceTempView("p")
        truth = spark.sql(sql).toArrow()
        for view in views:
            assert_same(view.to_arrow(), truth)
            assert_same(view.to_df().toArrow(), truth)
        assert engine.tables["t"].to_df().count() == engine.tables["t"].rows == 3 * MILLION // 2
        assert engine.verify() == []
    return 3


def streams_that_run(spark: SparkSession, home: Path, seed: int) -> int:
    """A stream that runs beside steps, and a window join of two DataFrames that has to be told where."""
    incoming = home / "incoming"
    incoming.mkdir()
    with hr.Engine(spark, home / "streams", driver_rows=10) as engine:
        engine.table("r", "k BIGINT, v BIGINT")
        view = engine.view("v", "SELECT k, COUNT(*) AS n, SUM(v) AS v FROM r GROUP BY k")
        source = spark.readStream.schema("k BIGINT, v BIGINT").option("maxFilesPerTrigger", 1).parquet(str(incoming))
        engine.stream("r", source)
        engine.start()
        for number in range(3):
            values = np.arange(200) + 1000 * number
            pq.write_table(pa.table({"k": values % 7, "v": values}), home / "next.parquet")
            (home / "next.parquet").rename(incoming / f"{number}.parquet")
            engine.apply({"r": pa.table({"k": [number], "v": [1]})})
        deadline = time.monotonic() + 120
        while engine.tables["r"].rows < 603 and time.monotonic() < deadline:
            time.sleep(0.1)
        engine.stop()
        spark.read.parquet(str(incoming)).createOrReplaceTempView("r")
        by_steps = "SELECT k, 1L AS v FROM (SELECT explode(array(0L, 1L, 2L)) AS k)"
        truth = spark.sql(
            f"SELECT k, COUNT(*) AS n, SUM(v) AS v FROM (SELECT * FROM r UNION ALL {by_steps}) GROUP BY k"
        )
        assert_same(view.to_arrow(), truth.toArrow())
    events = spark.range(400).select(
        (F.col("id") % 3).alias("k"),
        F.timestamp_micros(F.col("id") * 1000).alias("at"),
        F.timestamp_micros(F.col("id") * 1000 + 500).alias("came"),
    )
    asked = {"on": "k", "time": "at", "arrival": "came", "window": "100 ms", "revisions": "final"}
    with pytest.raises(SchemaError, match="location"):
        hr.window_join(events, events, **asked)
    with hr.window_join(events, events, location=home, **asked) as join:
        found = sorted((row["window_start"], row["value"]) for row in join.to_df().toArrow().to_pylist())
    left, right = events.alias("l"), events.alias("r")
    window = "floor(unix_micros({}.at) / 100000)"
    pairs = left.join(right, F.expr(f"l.k = r.k AND {window.format('l')} = {window.format('r')}"))
    truth = sorted(row[1] for row in pairs.groupBy(F.expr(window.format("l"))).count().collect())
    assert sorted(value for _, value in found) == truth, (found, truth)
    return 5


class Best(hr.Semiring):
    """The best product of probabilities: a ring of this program alone, which no worker could import."""

    def zeros(self, n: int) -> Payload:
        return (np.zeros(n),)

    def ones(self, n: int) -> Payload:
        return (np.ones(n),)

    def add(self, left: Payload, right: Payload) -> Payload:
        return (np.maximum(left[0], right[0]),)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        return (left[0] * right[0],)

    def takes(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return (values >= 0) & (values <= 100)


def what_users_bring(spark: SparkSession, home: Path, seed: int) -> int:
    """Sums in a ring of the user's program, and bad rows of DataFrames, which tasks set aside."""
    hr.register_ring("best_product", Best())
    rows = spark.range(1, 500).selectExpr("id", "id % 7 AS k", "concat('n', id % 10) AS name", "id / 500D AS p")
    bad = spark.createDataFrame([(None, 1, "no key", 0.5)], "id BIGINT, k BIGINT, name STRING, p DOUBLE")
    joined = "{}(l.p, r.p) AS p FROM u l JOIN u r ON l.id = r.k GROUP BY l.name"
    with hr.Engine(spark, home / "users", executor="spark", on_bad_rows="quarantine", buckets=3) as engine:
        engine.table("u", "id BIGINT NOT NULL, k BIGINT, name STRING, p DOUBLE", key="id")
        best = engine.view("best", f"SELECT l.name AS name, {joined.format('best_product')}")
        shouted = engine.view(
            "shouted", "SELECT upper(hex(name)) AS name, COUNT(*) AS n FROM u GROUP BY upper(hex(name))"
        )
        engine.apply({"u": bad.unionAll(rows.where("id <= 250"))})
        engine.apply({"u": rows.where("id > 250")})
        assert engine.quarantine("u").num_rows == 1
        rows.createOrReplaceTempView("u")
        for view, sql in (
            (best, f"SELECT l.name AS name, {joined.replace('{}(l.p, r.p)', 'MAX(l.p * r.p)')}"),
            (shouted, shouted.sql),
        ):
            assert_same(view.to_arrow(), spark.sql(sql).toArrow())
            assert_same(view.to_df().toArrow(), spark.sql(sql).toArrow())
        assert engine.verify() == []
    return 2


PARTS: dict[str, Callable[[SparkSession, Path, int], int]] = {
    "subjects": every_subject,
    "million": a_million_rows,
    "streams": streams_that_run,
    "users": what_users_bring,
}


def main() -> None:
    url, home, seed, *names = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]
    spark = cluster_session(url, home)
    for name in names or PARTS:
        print(json.dumps({name: PARTS[name](spark, home, seed)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
