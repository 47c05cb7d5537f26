"""Dates and timestamps as text against Spark: patterns of fixed width, edges of years and days, other time zones."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.plan import native
from headrace.plan.native import datetext
from headrace.relation.types import SqlType
from headrace.sql.catalyst import analyse
from headrace.sql.session import SqlSession

PATTERNS = [
    "yyyy-MM", "yyyy", "MM", "dd", "yyyyMMdd", "dd.MM.yyyy", "yyyy/MM/dd", "dd, MM yyyy", "MM_dd",
    "yyyy-MM-dd HH:mm:ss", "HH:mm", "HHmmss", "yyyy-MM-dd'T'HH:mm:ss", "'day' dd",
]  # fmt: skip
NEW = "if({0} BETWEEN '1582-10-15' AND '9999-12-31 23:59:59.999999', {0}, NULL)"
EXPRESSIONS = [
    *(f'date_format({NEW.format(column)}, "{p}")' for p in PATTERNS for column in ("dt1", "k1", "ts1", "tn1")),
    f"to_char({NEW.format('dt1')}, 'yyyy-MM')",
    f"date_format({NEW.format('dt1')}, 'yyyy') = '2000'",
    "date_format(DATE '2024-02-29', 'yyyyMMdd')",
    "date_format(CAST(NULL AS DATE), 'yyyyMMdd')",
]


def test_texts_are_sparks(agrees: Callable[..., None]) -> None:
    agrees(EXPRESSIONS, datetext.RULES)
    agrees(EXPRESSIONS, ansi=False)


def test_texts_are_sparks_over_all_years(spark: SparkSession) -> None:
    pick = random.Random(5)
    first, last = date(1582, 10, 15), date(9999, 12, 31)
    days = [first, last, None, *(first + timedelta(pick.randrange((last - first).days)) for _ in range(3000))]
    rows = pa.table({"x": days})
    expected = spark.createDataFrame(rows).coalesce(1).selectExpr("date_format(x, 'yyyyMMdd') t").toArrow()
    found = datetext.pieces("yyyyMMdd")
    assert found is not None
    assert datetext._written(rows["x"].chunk(0), found).to_pylist() == expected["t"].to_pylist()


def test_old_dates_are_left_to_catalyst(refuses: Callable[..., None]) -> None:
    refuses("date_format(k1, 'yyyy')")


@pytest.mark.parametrize(
    "pattern",
    ["yyyy-MMM", "EEE", "yy", "y", "yyyyy", "MMMM", "d", "hh", "SSS", "yyyy-MM-dd[ HH]", "''", "a", "YYYY", "#"],
)
def test_other_patterns_are_left_to_catalyst(leaves: Callable[..., None], pattern: str) -> None:
    assert datetext.pieces(pattern) is None
    if pattern not in ("YYYY", "#"):  # which Spark refuses
        leaves(f'date_format(dt1, "{pattern}")', "DateFormatClass")


@pytest.mark.parametrize("pattern", ["", "'a''b'", "yyyy''", "'a", "yyyy'T", None])
def test_doubtful_quotes_are_left_to_catalyst(pattern: str | None) -> None:
    assert datetext.pieces(pattern) is None


@pytest.mark.parametrize("zone", ["America/Sao_Paulo", "Asia/Tokyo", "Europe/Amsterdam"])
def test_in_other_zones_only_days_are_written(spark: SparkSession, zone: str) -> None:
    session = SqlSession(spark, {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": "true"})
    session.register("t", [("x", SqlType("date"), True), ("i", SqlType("timestamp"), True)])
    for text in (
        "date_format(x, 'HH')",
        "date_format(i, 'yyyy')",
        "hour(i)",
        "CAST(i AS DATE)",
        "CAST(x AS TIMESTAMP)",
    ):
        (key,) = analyse(session, "v", f"SELECT {text} AS a FROM t").plan.keys
        assert not native.supported(key), text
    # In Sao Paulo days of summer began at one o'clock; before zones there was local time, with seconds.
    days = [date(2017, 10, 15) + timedelta(n) for n in range(-400, 400)] + [date(1800, 1, n) for n in range(1, 28)]
    rows = pa.table({"x": days})
    (key,) = analyse(session, "v", "SELECT date_format(x, 'yyyyMMdd') AS a FROM t").plan.keys
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", zone)
    expected = other.createDataFrame(rows).selectExpr("date_format(x, 'yyyyMMdd') t").toArrow()
    got = native.evaluate(key, {"x": rows["x"].chunk(0)}, len(days))
    assert sorted(got.to_pylist()) == sorted(expected["t"].to_pylist())


def test_slices_and_no_rows() -> None:
    found = datetext.pieces("MM")
    assert found is not None
    days = pa.array([date(2020, 5, 1), None, date(2020, 6, 1)])
    assert datetext._written(days[1:], found).to_pylist() == [None, "06"]
    assert datetext._written(days[:0], found).to_pylist() == []
