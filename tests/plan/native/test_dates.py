"""Functions of dates and timestamps against Spark: leap days, ends of months, the first and the last year."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.plan import native
from headrace.plan.expression import Expression, column
from headrace.plan.native import calendar, dates
from headrace.relation.types import SqlType

PARTS = ("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear")
LEVELS = ("YEAR", "yyyy", "YY", "quarter", "Month", "MM", "mon", "week")
# Results stay within the years that Python can show.
INNER = "if(k1 BETWEEN DATE '1000-01-01' AND DATE '9000-01-01', k1, DATE '2000-02-29')"
EXPRESSIONS = [
    *(f"{part}({a}1)" for part in (*PARTS, "last_day", "unix_date") for a in ("dt", "k")),
    *(f"trunc({a}1, '{level}')" for level in LEVELS for a in ("dt", "k")),
    "year(dt1) = 2000",
    "extract(dow FROM k1)",
    "datediff(dt1, dt2)",
    "datediff(dt1, DATE '1970-01-01')",
    *(f"{INNER} {op} {n}" for op in "+-" for n in ("ti1", "si1", "i1", "90")),
    *(f"{INNER} {op} INTERVAL {n}" for op in "+-" for n in ("'3' MONTH", "1 YEAR", "'1-11' YEAR TO MONTH", "90 DAYS")),
    *(f"add_months({INNER}, {n})" for n in ("1", "-1", "12", "ti1", "si1")),
    "add_months(DATE '2024-02-29', ti1)",
    "DATE '2024-02-29' + i1",
    "date_from_unix_date(si1)",
    *(f"{part}({a}1)" for part in ("hour", "minute", "second", "year", "dayofweek") for a in ("tn", "ts")),
    *(f"unix_{unit}(ts1)" for unit in ("micros", "millis", "seconds")),
    *(f"tn1 {op} INTERVAL {n}" for op in "+-" for n in ("'1' HOUR", "'90' DAY", "'1 02:03:04.000005' DAY TO SECOND")),
    *(f"ts1 {op} INTERVAL {n}" for op in "+-" for n in ("'23' HOUR", "'10' MINUTE", "'0.000001' SECOND")),
    "ts1 - INTERVAL 10 MINUTES < ts2",
    *(f"date_trunc('{level}', ts1)" for level in (*LEVELS, "second", "MINUTE", "hour", "Day", "dd")),
    "date_trunc('week', k1)",
]  # fmt: skip


def test_functions_of_dates_give_sparks_values(agrees: Callable[..., None]) -> None:
    agrees(EXPRESSIONS, dates.RULES)
    agrees(EXPRESSIONS, ansi=False)


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("ts1 + INTERVAL '1' DAY", "TimestampAddInterval"),
        ("tn1 + INTERVAL '1' MONTH", "TimestampAddYMInterval"),
        ("trunc(dt1, 'day')", "TruncDate"),
        ("date_trunc('millisecond', ts1)", "TruncTimestamp"),
        ("date_trunc(s1, ts1)", "TruncTimestamp"),
        ("trunc(dt1, s1)", "TruncDate"),
        ("make_date(i1, 1, 1)", "MakeDate"),
        ("next_day(dt1, 'MO')", "NextDay"),
        ("months_between(dt1, dt2)", "MonthsBetween"),
        ("(dt1 - dt2) > INTERVAL '3' DAY", "SubtractDates"),
        ("dt1 + make_ym_interval(i1, i2)", "DateAddYMInterval"),
    ],
)
def test_left_to_catalyst(leaves: Callable[..., None], text: str, op: str) -> None:
    leaves(text, op)


def test_dates_beyond_the_calendar_are_left_to_catalyst() -> None:
    far = pa.array([0, None, 3_000_000], pa.int32()).cast(pa.date32())
    year = Expression("Year", SqlType("int"), "year(x)", (column("x", SqlType("date")),))
    with pytest.raises(native.NeedsCatalyst, match="years 1 to 9999"):
        native.evaluate(year, {"x": far}, 3)
    assert native.evaluate(year, {"x": far[:2]}, 2).to_pylist() == [1970, None]
    moved = Expression("DateAdd", SqlType("date"), "x + y", (column("x", SqlType("date")), column("y", SqlType("int"))))
    with pytest.raises(native.NeedsCatalyst, match="overflow"):
        native.evaluate(moved, {"x": far, "y": pa.array([2**31 - 1] * 3, pa.int32())}, 3)
    later = Expression("AddMonths", SqlType("date"), "", moved.args)
    with pytest.raises(native.NeedsCatalyst):
        native.evaluate(later, {"x": far, "y": pa.array([2**31 - 1] * 3, pa.int32())}, 3)


def test_truncated_timestamps_are_sparks_over_all_years(spark: SparkSession) -> None:
    pick, levels = random.Random(4), ("HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
    first, last = (int(np.datetime64(day, "us").astype(np.int64)) for day in ("0002-01-01", "9999-12-31"))
    micros = pa.array([pick.randrange(first, last) for _ in range(3000)], pa.int64())
    rows = pa.table({"x": micros.cast(pa.timestamp("us", "UTC"))})
    frame = spark.createDataFrame(rows).coalesce(1)
    expected = frame.selectExpr(*(f"unix_micros(date_trunc('{level}', x)) {level}" for level in levels)).toArrow()
    for level in levels:
        unit = Expression("literal", SqlType("string"), "", value=level)
        trunc = Expression("TruncTimestamp", SqlType("timestamp"), "", (unit, column("x", SqlType("timestamp"))), "UTC")
        got = native.evaluate(trunc, {"x": rows["x"].chunk(0)}, len(rows))
        assert got.cast(pa.int64()).to_pylist() == expected[level].to_pylist()


def test_months_are_sparks_over_all_years(spark: SparkSession) -> None:
    pick = random.Random(2)
    first, last = date(300, 1, 1), date(9700, 1, 1)
    days = [first + timedelta(pick.randrange((last - first).days)) for _ in range(3000)]
    rows = pa.table({"x": days, "n": pa.array([pick.randint(-3000, 3000) for _ in days], pa.int32())})
    moved = ("add_months(x, n) a", "last_day(x) l", "trunc(x, 'week') w")
    expected = spark.createDataFrame(rows).coalesce(1).selectExpr(*moved).toArrow()
    numbers, months = rows["x"].cast("int32").to_numpy(), rows["n"].to_numpy()
    for name, got in (
        ("a", calendar.add_months(numbers, months)),
        ("l", calendar.last_day(numbers)),
        ("w", calendar.monday(numbers)),
    ):
        assert got.tolist() == expected[name].cast("int32").to_pylist()
