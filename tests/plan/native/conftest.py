"""Columns full of edges, and Spark's own result of the same SQL over them, for every family of native operations."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.relation.types import SqlType
from headrace.sql.catalyst import analyse
from headrace.sql.session import SqlSession

N = 300
EXACT = Context(prec=40)
FLOATS = [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324, 1e300]
STRINGS = ["", "a", "A", "ab", "abc", "b", "é", "aé", "\U0001f600", "a\U0001f600b", "zz", "\uffff"]
SENTENCES = [
    "", " ", "special requests", "no special deposits or requests, really", "requests special", "specialrequests",
    "a\nb", "a\r\nb c", "special\n\nrequests", "a_b", "a%b", "axb", "a\\b", "aéb", "a\U0001f600b",
    "\U0001f600b\U0001f600", "  padded  ", "\ttab ", "ab ab ab", "aXbab", ".*", "[a]", "(a|b)$", "x^y+z?{2}",
    "ABC def", "ÀÉ straße", "banana",
    "Ωmega", "12 34", "\x00nul", "ﬁne", "日本 語", "É", "e\u0301",
]  # fmt: skip
# The name of each pair of columns, its type, and the values that it takes.
COLUMNS: dict[str, tuple[str, list[object]]] = {
    "ti": ("tinyint", [0, 1, -1, 11, -11, 5]),
    "si": ("smallint", [0, 1, -1, 181, -181, 5]),
    "i": ("int", [0, 1, -1, 46340, -46340, 7]),
    "l": ("bigint", [0, 1, -1, 2**31, -(2**31) + 1, 3]),
    "f": ("float", [0.0, -0.0, 0.5, math.nan, math.inf, -math.inf, 1e-45, 3e38]),
    "d": ("double", FLOATS),
    "p": ("decimal(12,2)", [Decimal(v) for v in ("0.00", "9999999999.99", "-9999999999.99", "0.01", "2.50", "-7.75")]),
    "q": ("decimal(4,3)", [Decimal(v) for v in ("0.000", "9.999", "-9.999", "-0.001", "0.500", "3.000")]),
    "w": ("decimal(38,0)", [Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(0)]),
    "h": ("decimal(36,2)", [Decimal(v).scaleb(-2, EXACT) for v in (10**36 - 1, 1 - 10**36, 7)]),
    "m": ("decimal(18,9)", [Decimal(v).scaleb(-9, EXACT) for v in (10**18 - 1, 1 - 10**18, 1)]),
    "s": ("string", STRINGS),
    "dt": ("date", [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2000, 2, 29), date(9999, 12, 31)]),
    "ts": ("timestamp", [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2020, 2, 29, tzinfo=UTC)]),
    "tn": ("timestamp_ntz", [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2020, 2, 29, 13, 14, 15, 16)]),
    "o": ("boolean", [True, False]),
    # Beyond the types: values that some family is about.
    "e": ("string", SENTENCES),
    "y": ("double", [0.0, -0.0, 0.5, -0.5, 1.5, 126.999, -127.5, 9.999999999999998, 99.0, -1e-300]),
    "xt": ("tinyint", [-128, 127, -1, 3]),
    "xs": ("smallint", [-32768, 32767, -1, 3]),
    "xi": ("int", [-(2**31), 2**31 - 1, -1, 3, 10]),
    "xl": ("bigint", [-(2**63), 2**63 - 1, -1, 3, 2**53 + 1, 10**18]),
    "c": ("decimal(15,2)", [Decimal(v) for v in ("901.00", "104949.5", "0.05", "-0.05", "-12.35", "9999999999999.99")]),
    "r": ("decimal(38,18)", [Decimal(v) for v in ("1.5", "-0.000000000000000001", "12345678901234567890.5", "0.25")]),
    "t": ("decimal(38,38)", [Decimal(v).scaleb(-38, EXACT) for v in (1, -1, 5 * 10**37, 10**38 - 1, 3)]),
    "k": ("date", [date(2024, m, d) for m, d in ((1, 31), (2, 29), (3, 1), (4, 30), (12, 30), (12, 31), (1, 1))]
          + [date(1900, 2, 28), date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 29), date(2023, 1, 1)]),
}  # fmt: skip
TYPES = {f"{name}{n}": SqlType.parse(type) for name, (type, _) in COLUMNS.items() for n in (1, 2)}

Texts = list[str]


@pytest.fixture(scope="session")
def data() -> pa.Table:
    pick = random.Random(11)

    def drawn(values: list[object]) -> list[object]:
        return [None if pick.random() < 0.15 else pick.choice(values) for _ in range(N)]

    return pa.table(
        {f"{c}{n}": pa.array(drawn(v), TYPES[f"{c}{n}"].arrow) for c, (_, v) in COLUMNS.items() for n in (1, 2)}
    )


@pytest.fixture(scope="session")
def natively(spark: SparkSession) -> Callable[..., list[Expression]]:
    """SQL as expressions over the columns, in ANSI mode or not."""
    sessions = {}
    for ansi in (True, False):
        settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": str(ansi).lower()}
        sessions[ansi] = SqlSession(spark, settings)
        sessions[ansi].register("e", [(name, type, True) for name, type in TYPES.items()])

    def read(texts: Texts, ansi: bool = True) -> list[Expression]:
        items = ", ".join(f"{text} AS x{i}" for i, text in enumerate(texts))
        return list(analyse(sessions[ansi], "v", f"SELECT {items} FROM e").plan.keys)

    return read


@pytest.fixture(scope="session")
def by_spark(spark: SparkSession, data: pa.Table) -> Callable[..., pa.Table]:
    """Spark's values of SQL over the columns, as x0, x1, ..."""

    def run(texts: Texts, ansi: bool = True) -> pa.Table:
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        session.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
        df = session.createDataFrame(data).coalesce(1)
        return df.selectExpr(*(f"{text} AS x{i}" for i, text in enumerate(texts))).toArrow()

    return run


@pytest.fixture(scope="session")
def agrees(
    data: pa.Table, natively: Callable[..., list[Expression]], by_spark: Callable[..., pa.Table]
) -> Callable[..., None]:
    """Check that native values are Spark's, and that each rule of a family was among them."""
    inputs = {name: data[name].combine_chunks() for name in data.column_names}

    def check(texts: Texts, rules: dict[str, object] | None = None, ansi: bool = True) -> None:
        texts = list(dict.fromkeys(texts))
        expressions = natively(texts, ansi)
        expected = by_spark(texts, ansi)
        for i, (text, expression) in enumerate(zip(texts, expressions, strict=True)):
            assert native.why_not(expression) is None, text
            got = native.evaluate(expression, inputs, N)
            want = expected[f"x{i}"].combine_chunks().cast(expression.type.arrow)
            assert shown(got) == shown(want), text
        assert set(rules or {}) <= set().union(*map(_ops, expressions))

    return check


@pytest.fixture(scope="session")
def refuses(data: pa.Table, natively: Callable[..., list[Expression]]) -> Callable[..., None]:
    """Check that an accepted expression leaves these rows to Catalyst."""

    def check(text: str, ansi: bool = True) -> None:
        (expression,) = natively([text], ansi)
        assert native.supported(expression), text
        with pytest.raises(native.NeedsCatalyst):
            native.evaluate(expression, {name: data[name].combine_chunks() for name in data.column_names}, N)

    return check


@pytest.fixture(scope="session")
def leaves(natively: Callable[..., list[Expression]]) -> Callable[..., None]:
    """Check that an operation of an expression is left to Catalyst, whatever the rows."""

    def check(text: str, op: str, ansi: bool = True) -> None:
        (expression,) = natively([text], ansi)
        assert not native.supported(expression)
        assert str(native.why_not(expression)).startswith(op + " in "), native.why_not(expression)

    return check


def shown(values: pa.Array) -> list[str]:
    return [repr(value) for value in values.to_pylist()]  # so that NaN equals itself and -0.0 differs from 0.0


def _ops(expression: Expression) -> set[str]:
    return {expression.op}.union(*map(_ops, expression.args))
