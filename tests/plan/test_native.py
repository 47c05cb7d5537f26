"""Every native operation against Spark's own result of the same SQL, over columns full of edges."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from headrace.plan import native
from headrace.plan.expression import Expression, column
from headrace.relation.types import SqlType
from headrace.sql.catalyst import analyse
from headrace.sql.session import SqlSession

EXACT = Context(prec=40)
FLOATS = [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324, 1e300]
STRINGS = ["", "a", "A", "ab", "abc", "b", "é", "aé", "\U0001f600", "a\U0001f600b", "zz", "\uffff"]
EDGES: dict[str, list[object]] = {
    "tinyint": [0, 1, -1, 11, -11, 5],
    "smallint": [0, 1, -1, 181, -181, 5],
    "int": [0, 1, -1, 46340, -46340, 7],
    "bigint": [0, 1, -1, 2**31, -(2**31) + 1, 3],
    "float": [0.0, -0.0, 0.5, math.nan, math.inf, -math.inf, 1e-45, 3e38],
    "double": FLOATS,
    "decimal(12,2)": [Decimal("0.00"), Decimal("9999999999.99"), Decimal("-9999999999.99"), Decimal("0.01")],
    "decimal(4,3)": [Decimal("0.000"), Decimal("9.999"), Decimal("-9.999"), Decimal("-0.001")],
    "decimal(36,2)": [Decimal(10**36 - 1).scaleb(-2, EXACT), Decimal(1 - 10**36).scaleb(-2, EXACT), Decimal("0.07")],
    "decimal(18,9)": [
        Decimal(10**18 - 1).scaleb(-9, EXACT),
        Decimal(1 - 10**18).scaleb(-9, EXACT),
        Decimal("0.000000001"),
    ],
    "decimal(38,0)": [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0)],
    "string": STRINGS,
    "date": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2000, 2, 29), date(9999, 12, 31)],
    "timestamp": [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2020, 2, 29, tzinfo=UTC)],
    "timestamp_ntz": [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2020, 2, 29)],
    "boolean": [True, False],
}
TYPES = {
    "ti": "tinyint", "si": "smallint", "i": "int", "l": "bigint", "f": "float", "d": "double", "p": "decimal(12,2)",
    "q": "decimal(4,3)", "w": "decimal(38,0)", "h": "decimal(36,2)", "m": "decimal(18,9)",
    "s": "string", "dt": "date", "ts": "timestamp", "tn": "timestamp_ntz",
    "o": "boolean",
}  # fmt: skip
NAMES = {f"{name}{n}": SqlType.parse(type) for name, type in TYPES.items() for n in (1, 2)}
N = 300


def _expressions() -> Iterator[str]:
    for name in TYPES:
        a, b = f"{name}1", f"{name}2"
        yield from (a, f"{a} IS NULL", f"{a} IS NOT NULL", f"coalesce({a}, {b})", f"if(o1, {a}, {b})")
        yield from (f"{a} {op} {b}" for op in ("=", "<=>", "<", "<=", ">", ">=", "<>"))
        yield f"CASE WHEN o1 THEN {a} WHEN o2 THEN {b} END"
        yield f"CASE WHEN {a} = {b} THEN 1 WHEN o2 THEN 2 ELSE 3 END"
        yield f"{a} IN ({b}, NULL)"
        if name not in ("s", "o"):
            yield from (f"{a} IN ({b})", f"nullif({a}, {b})")
    yield from (
        "o1 AND o2",
        "o1 OR o2",
        "NOT o1",
        "o1 AND NULL",
        "o1 OR (d1 < 0 AND s1 = 'a')",
        "isnan(d1)",
        "isnan(f1)",
    )
    for a in ("ti", "si", "i", "l", "f", "d", "p", "q"):
        yield from (f"{a}1 {op} {a}2" for op in "+-*")
        yield from (f"-{a}1", f"abs({a}1)")
    yield from (
        "p1 + q1",
        "q1 - p1",
        "p1 * q1",
        "p1 * (1 - q1)",
        "p1 * (1 - q1) * (1 + q2)",
        "p1 > q1",
    )
    yield from (
        "h1 + h2",
        "h1 - h2",
        "h1 + p1",
        "m1 * m2",
        "m1 - m2",
        "h1 + 0 = h2",
        "m1 * q1 * q2 * q1",
        "CAST(i1 AS DECIMAL(30,0)) * l1",
        "CAST(i1 AS DECIMAL(38,0)) - l1",
        "-m1",
        "abs(m1)",
    )
    yield from ("ti1 + l1", "i1 * 2L", "l1 * d1", "i1 + f1", "i1 + p1", "l1 - q1", "ti1 + 1.5", "f1 = d1", "i1 > p1")
    for a in ("ti1", "si1", "i1", "l1"):
        yield from (f"CAST({a} AS BIGINT)", f"CAST({a} AS DOUBLE)", f"CAST({a} AS DECIMAL(24,4))")
    yield from (
        "CAST(p1 AS DECIMAL(20,5))",
        "CAST(q1 AS DECIMAL(4,3))",
        "CAST(f1 AS DOUBLE)",
        "CAST(l1 + 9007199254740992 AS DOUBLE)",
    )
    yield from (
        "d1 < 1.5D",
        "d1 > 1.5D",
        "d1 >= double('NaN')",
        "d1 = double('NaN')",
        "d1 < double('NaN')",
        "d1 = -0.0D",
    )
    yield from (
        "d1 IN (0.0D, double('NaN'))",
        "d1 IN (1.5D, NULL)",
        "i1 IN (1, 7)",
        "i1 IN (1, NULL)",
        "i1 NOT IN (1, 7)",
    )
    yield from ("p1 IN (0, 0.01)", "s1 IN ('a', 'é')", "s1 NOT IN ('a', NULL)", "dt1 IN (DATE '1970-01-01')")
    yield "i1 IN (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15)"
    yield from (
        "dt1 <= DATE '1998-09-02'",
        "ts1 < TIMESTAMP '2000-01-01'",
        "tn1 < TIMESTAMP_NTZ '2000-01-01'",
        "o1 = true",
    )
    yield from ("dt1 BETWEEN DATE '1970-01-01' AND DATE '2000-02-29'", "s1 >= 'b'", "s1 < 'é'")
    yield from (
        "s1 LIKE 'a%'",
        "s1 LIKE '%b'",
        "s1 LIKE '%é%'",
        "contains(s1, '')",
        "startswith(s1, 'aé')",
        "endswith(s1, '')",
    )
    yield from (
        "concat(s1, s2)",
        "s1 || 'x' || s2",
        "concat(s1)",
        "datediff(dt1, dt2)",
        "datediff(dt1, DATE '1970-01-01')",
    )
    for a in ("ti", "l", "p", "w", "s", "dt"):
        yield from (f"greatest({a}1, {a}2)", f"least({a}1, {a}2, {a}1)")
    yield from ("length(s1)", "substr(s1, 2, 1)", "substr(s1, 1, 0)", "substring(s1, 2)", "left(s1, 2)")
    yield from (
        "year(dt1)",
        "month(dt1)",
        "day(dt1)",
        "year(dt1) = 2000",
        "1",
        "'x'",
        "NULL",
        "CAST(NULL AS INT)",
        "1.5",
        "true",
    )
    yield from (
        "DATE '2020-01-01'",
        "TIMESTAMP '2020-01-01'",
        "if(d1 > 0, p1 * 2, 0)",
        "coalesce(i1, 0) + 1",
        "2Y",
        "3S",
    )


EXPRESSIONS = [e for e in dict.fromkeys(_expressions()) if e != "NULL"]
LEFT_TO_CATALYST = {
    "i1 / i2": "Divide",
    "greatest(d1, d2)": "Greatest",
    "least(ts1, ts2)": "Least",
    "m1 * m2 * m1": "Multiply",
    "-w1": "UnaryMinus",
    "abs(h1)": "Abs",
    "upper(s1) = 'A'": "Upper",
    "CAST(dt1 AS TIMESTAMP) = ts1": "Cast",
    "hour(ts1)": "Hour",
    "CAST(d1 AS INT)": "Cast",
    "CAST(i1 AS DECIMAL(5,2))": "Cast",
    "CAST(p1 AS DOUBLE)": "Cast",
    "CAST(l1 AS STRING)": "Cast",
    "i1 % 2": "Remainder",
    "contains(s1, s2)": "Contains",
    "substr(s1, -1, 1)": "Substring",
    "s1 COLLATE UTF8_LCASE = 'a'": "Collate",
    "s1 LIKE 'a%b%c'": "Like",
    "dt1 + i1": "DateAdd",
}
OVERFLOWS = [
    "w1 + w2",
    "h1 * h2",
    "i1 + 2147483647",
    "ti1 * 100Y",
    "l1 * 9223372036854775807",
    "-(i1 - 2147483600)",
    "abs(l1 - 9223372036854775807)",
]


def _tied(pick: random.Random, type: str) -> list[object]:
    return [None if pick.random() < 0.15 else pick.choice(EDGES[type]) for _ in range(N)]


@pytest.fixture(scope="module")
def data() -> pa.Table:
    pick = random.Random(11)
    columns = {name: pa.array(_tied(pick, str(type)), type.arrow) for name, type in NAMES.items()}
    return pa.table(columns)


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> SqlSession:
    session = SqlSession(spark, {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"})
    session.register("e", [(name, type, True) for name, type in NAMES.items()])
    return session


def natively(session: SqlSession, texts: list[str]) -> list[Expression]:
    items = ", ".join(f"{text} AS x{i}" for i, text in enumerate(texts))
    return list(analyse(session, "v", f"SELECT {items} FROM e").plan.keys)


def shown(values: list[object]) -> list[str]:
    return [repr(value) for value in values]  # so that NaN equals itself and -0.0 differs from 0.0


def test_every_expression_gives_sparks_values(spark: SparkSession, sql: SqlSession, data: pa.Table) -> None:
    expressions = natively(sql, EXPRESSIONS)
    inputs = {name: data[name].combine_chunks() for name in data.column_names}
    df = spark.createDataFrame(data).coalesce(1)
    expected = df.selectExpr(*(f"{text} AS x{i}" for i, text in enumerate(EXPRESSIONS))).toArrow()
    for i, (text, expression) in enumerate(zip(EXPRESSIONS, expressions, strict=True)):
        assert native.why_not(expression) is None, text
        got = native.evaluate(expression, inputs, N)
        assert got.type == expression.type.arrow, text
        want = expected[f"x{i}"].combine_chunks().cast(expression.type.arrow)
        assert shown(got.to_pylist()) == shown(want.to_pylist()), text


def test_every_rule_was_among_them(sql: SqlSession) -> None:
    def ops(expression: Expression) -> set[str]:
        return {expression.op}.union(*map(ops, expression.args))

    tested = set().union(*map(ops, natively(sql, EXPRESSIONS)))
    # Only a GROUP BY makes these two; below.
    assert set(native._RULES) - tested == {"NormalizeNaNAndZero", "KnownFloatingPointNormalized"}


def test_keys_of_floats_have_one_zero_and_one_nan(sql: SqlSession, data: pa.Table) -> None:
    for name in ("d1", "f1"):
        key = analyse(sql, "v", f"SELECT {name} FROM e GROUP BY {name}").plan.keys[0]
        raw = data[name].combine_chunks()
        values = native.evaluate(key, {name: raw}, N)
        assert {repr(v) for v in values.to_pylist()} == {repr(v) for v in raw.to_pylist()} - {"-0.0"}
        assert len(values.drop_null().view("int64" if name == "d1" else "int32").unique()) == len(
            {repr(v) for v in values.drop_null().to_pylist()}
        )


@pytest.mark.parametrize("text", LEFT_TO_CATALYST)
def test_left_to_catalyst_by_name(sql: SqlSession, text: str) -> None:
    (expression,) = natively(sql, [text])
    assert not native.supported(expression)
    assert str(native.why_not(expression)).startswith(LEFT_TO_CATALYST[text] + " in ")


@pytest.mark.parametrize("text", OVERFLOWS)
def test_overflow_is_left_to_catalyst_which_raises(
    spark: SparkSession, sql: SqlSession, data: pa.Table, text: str
) -> None:
    (expression,) = natively(sql, [text])
    assert native.supported(expression)
    with pytest.raises(native.NeedsCatalyst):
        native.evaluate(expression, {name: data[name].combine_chunks() for name in data.column_names}, N)
    with pytest.raises(ArithmeticException):
        spark.createDataFrame(data).selectExpr(text).collect()


def test_dates_beyond_the_calendar_are_left_to_catalyst() -> None:
    expression = Expression("Year", SqlType("int"), "year(x)", (column("x", SqlType("date")),))
    far = pa.array([0, None, 3_000_000], pa.int32()).cast(pa.date32())
    with pytest.raises(native.NeedsCatalyst, match="years 1 to 9999"):
        native.evaluate(expression, {"x": far}, 3)
    assert native.evaluate(expression, {"x": far[:2]}, 2).to_pylist() == [1970, None]


def test_empty_sliced_and_differently_encoded_columns() -> None:
    expression = Expression("Length", SqlType("int"), "length(x)", (column("x", SqlType("string")),))
    words = pa.array(["skip", "é", None, "abc"])
    for array in (words[1:], words.dictionary_encode()[1:], words.cast(pa.large_string())[1:]):
        assert native.evaluate(expression, {"x": array}, 3).to_pylist() == [1, None, 3]
    assert native.evaluate(expression, {"x": words[:0]}, 0).to_pylist() == []
