"""Casts against Spark, in both modes, and what does not fit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.plan import native
from headrace.plan.expression import Expression, column
from headrace.plan.native import casts
from headrace.relation.types import SqlType

INTEGERS = ("ti", "si", "i", "l", "xt", "xs", "xi", "xl")
DECIMALS = ("p", "q", "w", "h", "m", "c", "r", "t")


def expressions() -> Iterator[str]:
    for a in INTEGERS:
        targets = ("BIGINT", "DOUBLE", "FLOAT", "STRING", "BOOLEAN", "DECIMAL(24,4)", "DECIMAL(19,0)", "DECIMAL(38,19)")
        yield from (f"CAST({a}1 AS {target})" for target in targets)
        yield from (f"CAST(try_mod({a}1, 100Y) AS {target})" for target in ("TINYINT", "DECIMAL(2,0)", "DECIMAL(9,7)"))
    for a in DECIMALS:
        targets = ("DOUBLE", "FLOAT", "BOOLEAN", "DECIMAL(38,0)")
        yield from (f"CAST({a}1 AS {target})" for target in targets)
    for a in "pqc":
        targets = ("STRING", "BIGINT", "DECIMAL(20,5)", "DECIMAL(15,1)", "DECIMAL(14,0)")
        yield from (f"CAST({a}1 AS {target})" for target in targets)
    yield from (
        f"CAST(q1 AS {target})" for target in ("TINYINT", "INT", "DECIMAL(4,3)", "DECIMAL(4,2)", "DECIMAL(3,1)")
    )
    yield from (f"CAST(m1 AS {target})" for target in ("BIGINT", "DECIMAL(12,1)", "DECIMAL(10,0)", "DECIMAL(38,29)"))
    yield from (
        "CAST(t1 AS DECIMAL(38,5))",
        "CAST(t1 AS DECIMAL(38,37))",
        "CAST(h1 AS DECIMAL(38,4))",
        "CAST(w1 AS STRING)",
    )
    yield from (f"CAST(y1 AS {target})" for target in ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "BOOLEAN"))
    yield from (f"CAST({a}1 AS BOOLEAN)" for a in "df")
    yield from ("CAST(f1 AS DOUBLE)", "CAST(d1 AS FLOAT)", "CAST(CAST(y1 AS FLOAT) AS INT)")
    yield "CAST(l1 + 9007199254740992 AS DOUBLE)"
    targets = ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "DECIMAL(1,0)", "DECIMAL(36,35)")
    yield from (f"CAST(o1 AS {target})" for target in targets)
    yield from ("CAST(dt1 AS STRING)", "CAST(k1 AS STRING)", "CAST(dt1 AS TIMESTAMP_NTZ)", "CAST(k1 AS TIMESTAMP_NTZ)")
    yield from ("CAST(ts1 AS DATE)", "CAST(dt1 AS TIMESTAMP)", "CAST(tn1 AS TIMESTAMP)", "CAST(ts1 AS TIMESTAMP_NTZ)")
    yield from ("CAST(tn1 AS DATE)", "CAST(ts1 AS BIGINT)", "i1 || '-' || o1", "year(tn1)", "p1 / d1 IS NULL OR true")


def test_casts_give_sparks_values(agrees: Callable[..., None]) -> None:
    agrees(list(expressions()), casts.RULES)


def test_casts_give_sparks_values_outside_of_ansi_mode(agrees: Callable[..., None]) -> None:
    agrees(list(expressions()), ansi=False)


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "CAST(xi1 AS TINYINT)",
        "CAST(xl1 AS INT)",
        "CAST(xi1 AS DECIMAL(5,2))",
        "CAST(d1 AS INT)",
        "CAST(d1 AS BIGINT)",
        "CAST(f1 AS SMALLINT)",
        "CAST(p1 AS DECIMAL(10,2))",
        "CAST(p1 AS DECIMAL(9,0))",
        "CAST(q1 AS DECIMAL(4,4))",
        "CAST(p1 AS SMALLINT)",
        "CAST(w1 AS BIGINT)",
        "CAST(o1 AS DECIMAL(2,2))",
        "CAST(q1 AS DECIMAL(3,2))",
    ],
)
def test_what_does_not_fit_is_left_to_catalyst(refuses: Callable[..., None], text: str, ansi: bool) -> None:
    refuses(text, ansi)


@pytest.mark.parametrize(
    "text",
    [
        "CAST(ts1 AS STRING)",
        "CAST(d1 AS STRING)",
        "CAST(f1 AS DECIMAL(10,2))",
        "CAST(s1 AS INT)",
        "CAST(s1 AS DATE)",
        "CAST(s1 AS DOUBLE)",
        "CAST(m1 AS STRING)",
        "CAST(m1 AS INT)",
        "CAST(xl1 AS DECIMAL(38,20))",
    ],
)
def test_left_to_catalyst(leaves: Callable[..., None], text: str) -> None:
    leaves(text, "Cast")


def test_decimals_become_the_nearest_doubles(spark: SparkSession) -> None:
    """Long decimals near the middle of two doubles or floats, where anything but exact rounding shows."""
    pick, exact = random.Random(3), Context(prec=60)
    near = [2**53 + 1, 2**54 + 2, 2**24 + 1, 2**25 + 2, 10**22 + 1, 9007199254740993 * 10**9 + 1]
    unscaled = [pick.randrange(10 ** pick.randint(1, 38)) for _ in range(500)]
    unscaled += [v * 10**e + d for v in near for e in (0, 5, 10) for d in (-1, 0, 1) if v * 10**e < 10**37]
    for scale in (0, 2, 10, 22, 23, 37):
        source = SqlType("decimal", 38, scale)
        values = pa.array([Decimal(v).scaleb(-scale, exact) for v in unscaled], source.arrow)
        df = spark.createDataFrame(pa.table({"v": values})).coalesce(1)
        expected = df.selectExpr("double(v) d", "float(v) f").toArrow()
        for target, name in ((SqlType("double"), "d"), (SqlType("float"), "f")):
            cast = Expression("Cast", target, "", (column("v", source),))
            for part in (slice(None), *(slice(i, i + 1) for i in range(0, len(values), 23))):
                got = native.evaluate(cast, {"v": values[part]}, len(values[part]))
                assert got == expected[name].combine_chunks()[part], (scale, name)
