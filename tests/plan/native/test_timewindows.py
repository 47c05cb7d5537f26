"""The bounds of windows against Spark: around 1970, around changes of the clock, in several time zones."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.plan import native
from headrace.plan.expression import Expression, column
from headrace.plan.native import timewindows
from headrace.plan.timewindow import window_bound
from headrace.relation.types import SqlType
from headrace.sql.analyse_tree import analyse_tree
from headrace.sql.catalyst import analyse
from headrace.sql.session import SqlSession

COLUMNS = {"ts": SqlType("timestamp"), "tn": SqlType("timestamp_ntz"), "tq": SqlType("timestamp")}
WINDOWS = [
    "'10 minutes'",
    "'1 day'",
    "'1 week'",
    "'7 seconds'",
    "'1 microsecond'",
    "'1 hour', '1 hour', '17 minutes'",
    "'1 hour', '1 hour', '-17 minutes'",
]
SLIDING = ["'1 hour', '10 minutes'", "'10 minutes', '4 minutes', '1 minute'", "'1 day', '7 hours'"]


def times() -> list[datetime | None]:
    pick = random.Random(5)
    edges = [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2024, 3, 10, 7, tzinfo=UTC),
        datetime(2024, 10, 27, 1, tzinfo=UTC),
    ]
    near = [edge + timedelta(microseconds=pick.choice([-1, 0, 1, 10**9, -(10**9)])) for edge in edges for _ in range(9)]
    far = [datetime(1900, 1, 1, tzinfo=UTC) + timedelta(microseconds=pick.randrange(7 * 10**15)) for _ in range(60)]
    return [*near, *far, None]


def rows(spark: SparkSession) -> dict[str, pa.Array]:
    found = times()
    naive = [None if time is None else time.replace(tzinfo=None) for time in found]
    return {
        "ts": pa.array(found, COLUMNS["ts"].arrow),
        "tn": pa.array(naive, COLUMNS["tn"].arrow),
        "tq": pa.array(found[::-1], COLUMNS["tq"].arrow),
    }


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_bounds_are_sparks(spark: SparkSession, zone: str) -> None:
    session = SqlSession(spark, {"spark.sql.session.timeZone": zone})
    session.register("e", [(name, kind, True) for name, kind in COLUMNS.items()])
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", zone)
    data = rows(spark)
    ddl = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    own.createDataFrame(pa.table(data), ddl).coalesce(1).createOrReplaceTempView("e")
    ops: set[str] = set()
    for time in ("ts", "tn"):
        there = data[time].is_valid()
        inputs = {name: values.filter(there) for name, values in data.items()}
        for window in WINDOWS:
            w = f"window({time}, {window})"
            sql = f"SELECT {w}.start AS s, {w}.end AS e FROM e"
            expected = own.sql(sql).toArrow()
            plan = analyse(session, "v", sql).plan
            for key, name in zip(plan.keys, ("s", "e"), strict=True):
                assert native.why_not(key) is None
                bound = window_bound(key)
                assert bound is not None
                assert bound.is_end == (name == "e")
                got = native.evaluate(key, inputs, len(inputs[time]))
                assert got.to_pylist() == expected[name].combine_chunks().cast(key.type.arrow).to_pylist(), (sql, zone)
                ops |= ops_of(key)
    assert set(timewindows.RULES) <= ops


@pytest.mark.parametrize("window", SLIDING)
def test_bounds_of_windows_that_overlap_are_sparks(spark: SparkSession, window: str) -> None:
    session = SqlSession(spark, {"spark.sql.session.timeZone": "UTC"})
    session.register("e", [(name, kind, True) for name, kind in COLUMNS.items()])
    data = rows(spark)
    own = spark.newSession()
    own.createDataFrame(pa.table(data), "ts timestamp, tn timestamp_ntz, tq timestamp").createOrReplaceTempView("e")
    sql = f"SELECT window.start AS s, window.end AS e, count(*) AS n FROM e GROUP BY window(ts, {window})"
    expected = {(row["s"], row["e"]): row["n"] for row in own.sql(sql).toArrow().to_pylist()}
    found: dict[tuple[object, object], int] = {}
    for feed in analyse_tree(session, "v", sql).tree.root.port.feeds:
        assert feed.condition is not None
        mask = native.evaluate(feed.condition, data, len(data["ts"]))
        chosen = {name: values.filter(mask) for name, values in data.items()}
        bounds = [native.evaluate(output, chosen, len(chosen["ts"])).to_pylist() for output in feed.outputs]
        for pair in zip(*bounds, strict=True):
            found[pair] = found.get(pair, 0) + 1
    assert found == expected


def test_the_text_of_a_bound_means_the_same(spark: SparkSession) -> None:
    session = SqlSession(spark, {"spark.sql.session.timeZone": "UTC"})
    session.register("e", [(name, kind, True) for name, kind in COLUMNS.items()])
    for window in [*WINDOWS, *SLIDING]:
        sql = f"SELECT window.start AS s, window.end AS e, count(*) FROM e GROUP BY window(ts, {window})"
        for feed in analyse_tree(session, "v", sql).tree.root.port.feeds:
            for output in feed.outputs:
                again = analyse(session, "v", f"SELECT {output.sql} AS x FROM e").plan.keys[0]
                data = {"ts": rows(spark)["ts"].drop_null()}
                expected = native.evaluate(output, data, len(data["ts"]))
                if native.supported(again):  # a day is no fixed length to Spark, so days are not added here
                    assert native.evaluate(again, data, len(data["ts"])) == expected, output.sql


def test_times_that_are_too_far_away_are_left_to_catalyst(spark: SparkSession) -> None:
    session = SqlSession(spark, {"spark.sql.session.timeZone": "UTC"})
    session.register("e", [(name, kind, True) for name, kind in COLUMNS.items()])
    (key,) = analyse(session, "v", "SELECT window(ts, '1 day').start AS s FROM e").plan.keys
    far = pa.array([-(2**63) + 5], pa.int64()).cast(COLUMNS["ts"].arrow)
    with pytest.raises(native.NeedsCatalyst):
        native.evaluate(key, {"ts": far}, 1)


def test_arithmetic_that_only_looks_like_a_window_is_none() -> None:
    time, number = column("ts", COLUMNS["ts"]), SqlType("bigint")
    micros = Expression("PreciseTimestampConversion", number, "m", (time,))
    other = Expression("PreciseTimestampConversion", number, "o", (column("tq", COLUMNS["tq"]),))

    def of(value: int) -> Expression:
        return Expression("literal", number, str(value), value=value)

    def node(op: str, *args: Expression) -> Expression:
        return Expression(op, number, op, args)

    def bound(since: Expression, length: int = 60) -> Expression:
        start = node("Subtract", node("Subtract", micros, since), of(0))
        end = node("Add", start, of(length))
        return Expression("PreciseTimestampConversion", COLUMNS["ts"], "w", (end,))

    def case(remainder: Expression, slide: int, limit: int = 0) -> Expression:
        condition = node("LessThan", remainder, of(limit))
        return node("CaseWhen", condition, node("Add", remainder, of(slide)), remainder)

    right = node("Remainder", node("Subtract", micros, of(5)), of(60))
    found = window_bound(bound(case(right, 60)))
    assert found is not None
    assert (found.slide, found.offset, found.back, found.duration, found.time) == (60, 5, 0, 60, time)
    assert window_bound(bound(case(right, 61))) is None
    assert window_bound(bound(case(right, 60, limit=1))) is None
    assert window_bound(bound(case(right, 60), length=-60)) is None
    assert window_bound(bound(right)) is None
    assert window_bound(bound(case(node("Remainder", node("Subtract", other, of(5)), of(60)), 60))) is None
    assert window_bound(micros) is None
    assert window_bound(time) is None


def ops_of(expression: Expression) -> set[str]:
    return {expression.op}.union(*map(ops_of, expression.args))
