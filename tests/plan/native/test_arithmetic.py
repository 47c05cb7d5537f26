"""Arithmetic against Spark: overflow, division in both modes, decimals of every length."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from headrace.plan import native
from headrace.plan.native import arithmetic, decimals
from headrace.relation.types import SqlType
from headrace.sql.catalyst import analyse
from headrace.sql.session import SqlSession

EXACT = Context(prec=160)
EXPRESSIONS = [
    *(f"{a}1 {op} {a}2" for a in ("ti", "si", "i", "l", "f", "d", "p", "q") for op in "+-*"),
    *(text for a in ("ti", "si", "i", "l", "f", "d", "p", "q", "m") for text in (f"-{a}1", f"abs({a}1)")),
    "p1 + q1",
    "q1 - p1",
    "p1 * q1",
    "p1 * (1 - q1)",
    "p1 * (1 - q1) * (1 + q2)",
    "h1 + h2",
    "h1 - h2",
    "h1 + p1",
    "m1 * m2",
    "m1 - m2",
    "h1 + 0 = h2",
    "m1 * q1 * q2 * q1",
    "CAST(i1 AS DECIMAL(30,0)) * l1",
    "CAST(i1 AS DECIMAL(38,0)) - l1",
    "ti1 + l1",
    "i1 * 2L",
    "l1 * d1",
    "i1 + f1",
    "i1 + p1",
    "l1 - q1",
    "ti1 + 1.5",
    "if(d1 > 0, p1 * 2, 0)",
    "coalesce(i1, 0) + 1",
    *(f"sqrt({a}1)" for a in ("d", "l", "y")),
    *(f"{a}1 {op} {a}2" for a in ("xt", "xs", "xi", "xl") for op in "&|^"),
    *(f"~{a}1" for a in ("xt", "xs", "xi", "xl")),
]
DIVIDED = [
    *(f"{a}1 / nullif({b}2, 0)" for a in ("ti", "i", "l", "xl", "d", "y") for b in ("i", "d", "f", "y", "xl")),
    *(f"{a}1 / nullif({b}2, 0)" for a in "pqcm" for b in "pqcm"),
    *(f"{a}1 / {b}" for a in "pqcmrti" for b in ("3", "7.0", "-0.3", "1.000001", "99999999")),
    *(f"{a} / nullif(c1, 0)" for a in ("1", "2.5", "100.00")),
    "100.00 * c1 / nullif(c2, 0)",
    "h1 / 99999999",
    "p1 / 2.0D",
    *(f"{a}1 % nullif({b}2, 0)" for a in ("ti", "i", "xt", "xs", "xi", "xl") for b in ("ti", "xt", "i", "xi", "xl")),
    *(f"{a}1 % nullif({b}2, 0)" for a in "fdy" for b in "fdy"),
    *(f"pmod({a}1, {b})" for a in ("ti", "xs", "xi", "xl", "d", "f", "y") for b in ("3", "-7Y", "2.5F", "-2.5D")),
    *(f"pmod({a}1, nullif({a}2, 0))" for a in ("ti", "si", "xt", "xs", "i", "l", "d", "f", "y")),
    *(f"{a}1 div nullif({b}2, 0)" for a in ("ti", "i", "l", "xi") for b in ("ti", "xs", "i", "xl")),
    *(f"try_divide({a}1, {a}2)" for a in "ildpqc"),
    "try_mod(i1, i2)",
    "NULL / i1",
    "CAST(NULL AS DECIMAL(5,2)) / c1",
    "if(i2 = 0, NULL, 7) / i2",
]
BY_ZERO = ["i1 / i2", "p1 / q1", "d1 / d2", "i1 % i2", "y1 % y2", "pmod(i1, i2)", "i1 div i2", "1 / i2", "c1 / p2"]
OVERFLOWS = [
    "w1 + w2",
    "h1 * h2",
    "i1 + 2147483647",
    "ti1 * 100Y",
    "l1 * 9223372036854775807",
    "-(i1 - 2147483600)",
    "abs(l1 - 9223372036854775807)",
    "xl1 div -1",
    "w1 / 0.001",
]


def test_arithmetic_gives_sparks_values(agrees: Callable[..., None]) -> None:
    made_by_group_by = {"NormalizeNaNAndZero", "KnownFloatingPointNormalized"}
    rules = {op: rule for op, rule in arithmetic.RULES.items() if op not in made_by_group_by}
    agrees([*EXPRESSIONS, *DIVIDED], rules)


def test_division_by_zero_is_null_where_it_does_not_raise(agrees: Callable[..., None]) -> None:
    agrees([*DIVIDED, *BY_ZERO], ansi=False)


@pytest.mark.parametrize("text", [*OVERFLOWS, *BY_ZERO])
def test_what_raises_is_left_to_catalyst(
    spark: SparkSession, data: pa.Table, refuses: Callable[..., None], text: str
) -> None:
    refuses(text)
    with pytest.raises(ArithmeticException):
        spark.createDataFrame(data).selectExpr(text).collect()


def test_a_remainder_that_java_lets_overflow_is_left_to_catalyst(refuses: Callable[..., None]) -> None:
    refuses("pmod(xi1, nullif(xi2, 0))")


@pytest.mark.parametrize(
    ("text", "op"),
    [
        ("m1 * m2 * m1", "Multiply"),
        ("-w1", "UnaryMinus"),
        ("abs(h1)", "Abs"),
        ("p1 % q1", "Remainder"),
        ("p1 div q1", "IntegralDivide"),
        ("exp(d1)", "Exp"),
        ("pow(d1, 2)", "Pow"),
    ],
)
def test_left_to_catalyst(leaves: Callable[..., None], text: str, op: str) -> None:
    leaves(text, op)


def test_keys_of_floats_have_one_zero_and_one_nan(spark: SparkSession, data: pa.Table) -> None:
    sql = SqlSession(spark)
    sql.register("e", [("d1", SqlType.parse("double"), True), ("f1", SqlType.parse("float"), True)])
    for name in ("d1", "f1"):
        key = analyse(sql, "v", f"SELECT {name} FROM e GROUP BY {name}").plan.keys[0]
        raw = data[name].combine_chunks()
        values = native.evaluate(key, {name: raw}, len(raw))
        assert {repr(v) for v in values.to_pylist()} == {repr(v) for v in raw.to_pylist()} - {"-0.0"}
        assert len(values.drop_null().view("int64" if name == "d1" else "int32").unique()) == len(
            {repr(v) for v in values.drop_null().to_pylist()}
        )


PAIRS = [
    ("decimal(15,2)", "decimal(15,2)"),
    ("decimal(25,2)", "decimal(20,0)"),
    ("decimal(9,9)", "decimal(9,0)"),
    ("decimal(5,0)", "decimal(3,3)"),
    ("decimal(38,6)", "decimal(20,0)"),
    ("decimal(20,0)", "decimal(38,6)"),
    ("decimal(38,18)", "decimal(38,18)"),
    ("decimal(38,37)", "decimal(38,1)"),
    ("decimal(38,0)", "decimal(38,38)"),
    ("decimal(38,38)", "decimal(38,38)"),
    ("decimal(38,38)", "decimal(1,0)"),
    ("decimal(1,1)", "decimal(38,0)"),
]


def drawn(pick: random.Random, type: SqlType, nulls: float = 0.05) -> Decimal | None:
    """A decimal of any length; often a nice one, whose quotients end in the middle of two results."""
    if pick.random() < nulls:
        return None
    length = pick.randint(1, type.precision)
    unscaled = pick.choice([pick.randrange(10**length), 5 * 10 ** (length - 1), 2 ** (length * 3), 10**length - 1])
    return Decimal(pick.choice([1, -1]) * (unscaled % 10**type.precision)).scaleb(-type.scale, EXACT)


def test_quotients_of_decimals_of_all_lengths_are_sparks(spark: SparkSession) -> None:
    pick, n = random.Random(5), 400
    types = {f"{'ab'[side]}{i}": SqlType.parse(pair[side]) for i, pair in enumerate(PAIRS) for side in (0, 1)}
    rows = pa.table({name: pa.array([drawn(pick, type) for _ in range(n)], type.arrow) for name, type in types.items()})
    sql = SqlSession(spark, {"spark.sql.ansi.enabled": "false"})
    sql.register("e", [(name, type, True) for name, type in types.items()])
    texts = [f"a{i} / b{i} AS x{i}" for i in range(len(PAIRS))]
    tried = [f"try_divide(a{i}, b{i}) AS x{i}" for i in range(len(PAIRS))]
    expected = spark.createDataFrame(rows).coalesce(1).selectExpr(*tried).toArrow()
    compared = 0
    for i, expression in enumerate(analyse(sql, "v", f"SELECT {', '.join(texts)} FROM e").plan.keys):
        want = expected[f"x{i}"].combine_chunks()
        a, b = (rows[f"{side}{i}"].combine_chunks() for side in "ab")
        # Rows that overflow are NULL there, and left to Catalyst here.
        known = pc.and_(pc.is_valid(a), pc.fill_null(pc.not_equal(b, pa.scalar(0, b.type)), False))
        fits = pc.or_(pc.is_valid(want), pc.invert(known))
        kept = {f"a{i}": a.filter(fits), f"b{i}": b.filter(fits)}
        assert native.evaluate(expression, kept, pc.sum(fits).as_py()).to_pylist() == want.filter(fits).to_pylist()
        # One value at a time, so that short operands are not computed with the room that long ones need.
        for j in range(20):
            few = {name: values[j : j + 1] for name, values in kept.items()}
            assert native.evaluate(expression, few, 1)[0] == want.filter(fits)[j]
        if not pc.all(fits).as_py():
            with pytest.raises(native.NeedsCatalyst):
                native.evaluate(expression, {f"a{i}": a, f"b{i}": b}, n)
        compared += pc.sum(pc.is_valid(want)).as_py()
    assert compared > 2000


def test_quotients_near_the_middle_are_sparks(spark: SparkSession) -> None:
    """Quotients below the middle of two results by so little that no decimal shows it: they are rounded down."""
    pick, type, middles = random.Random(6), SqlType("decimal", 38, 38), 2 * 10**6
    divisors = [10 * pick.randrange(10**36, 10**37) + pick.choice([1, 3, 7, 9]) for _ in range(200)]
    dividends = [(pow(b, -1, middles) * b - 1) // middles for b in divisors]
    a, b = (pa.array([Decimal(v).scaleb(-38, EXACT) for v in side], type.arrow) for side in (dividends, divisors))
    expected = spark.createDataFrame(pa.table({"a": a, "b": b})).coalesce(1).selectExpr("a / b AS x").toArrow()["x"]
    assert expected.type == pa.decimal128(38, 6)
    assert decimals.quotient(a, b, expected.type) == expected.combine_chunks()
    assert decimals._long_quotient(a, b, expected.type) == expected.combine_chunks()


def test_both_ways_to_divide_decimals_agree() -> None:
    pick = random.Random(8)
    for result in (pa.decimal128(38, 6), pa.decimal128(38, 18)):
        a = pa.array([drawn(pick, SqlType("decimal", 15, 2)) for _ in range(300)], pa.decimal128(15, 2))
        b = pa.array([drawn(pick, SqlType("decimal", 18, 4)) or Decimal(1) for _ in range(300)], pa.decimal128(18, 4))
        b = pc.if_else(pc.equal(b, Decimal(0)), pa.scalar(None, b.type), b)
        assert decimals.quotient(a, b, result) == decimals._long_quotient(a, b, result)
        assert decimals.quotient(a[0], b, result) == decimals._long_quotient(a[0], b, result)
        assert decimals.quotient(a, b[0], result) == decimals._long_quotient(a, b[0], result)
        assert decimals.quotient(a[0], b[0], result) == decimals._long_quotient(a[0], b[0], result)
