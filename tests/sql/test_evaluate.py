"""Map side, a grouping in plain Python, and finish, against Spark's own answer to the same query."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import SchemaError
from headrace.relation.types import SqlType
from headrace.sql.catalyst import AnalysedView, analyse
from headrace.sql.session import SqlSession

Finished = Callable[[AnalysedView, list[dict[str, object]]], DataFrame]

QUERIES = [
    "SELECT * FROM t",
    "SELECT a, a AS again, b + 1 AS next FROM t WHERE a > 0 OR s IS NULL",
    "SELECT s, SUM(p * (1 - q)) AS revenue, AVG(q), COUNT(*), COUNT(b), COUNT(a), COUNT(a, d) FROM t"
    " WHERE dt <= DATE '1998-12-01' - INTERVAL 90 DAYS GROUP BY s ORDER BY s",
    "SELECT a + 1, COUNT(*) FROM t GROUP BY a + 1 HAVING SUM(b) > 3 AND a + 1 > 2",
    "SELECT DISTINCT a, s FROM t",
    "SELECT DISTINCT d, f FROM t",
    "SELECT d, COUNT(*) FROM t GROUP BY d",
    "SELECT 1 FROM t GROUP BY s",
    "SELECT 1, COUNT(*) FROM t GROUP BY 1",
    "SELECT 'x' AS x, MAX(b) FROM t GROUP BY 'x', s",
    "SELECT COUNT(NULL), COUNT(*) FROM t",
    "SELECT * FROM t WHERE false",
    "SELECT COUNT(*), SUM(a), AVG(p) FROM t WHERE 1 = 0",
    "SELECT s, COUNT(*) FROM t WHERE CAST(NULL AS BOOLEAN) GROUP BY s",
    "SELECT COUNT(*) FROM t HAVING COUNT(*) > 3",
    "SELECT COUNT(*) FROM t HAVING COUNT(*) > 1000000",
    "SELECT 7 AS seven FROM t HAVING MIN(a) < 0",
    "SELECT SUM(a) FILTER (WHERE a > 1), COUNT(*) FILTER (WHERE o), COUNT(a) FILTER (WHERE b > 2),"
    " AVG(p) FILTER (WHERE s LIKE 'a%'), MIN(s) FILTER (WHERE o) FROM t",
    "SELECT COUNT_IF(a > 1), BOOL_OR(o), EVERY(o), MIN(DISTINCT a) FROM t",
    "SELECT s, COUNT(DISTINCT a) AS n FROM t GROUP BY s HAVING COUNT(DISTINCT d) > 1 ORDER BY n, s",
    "SELECT COUNT(DISTINCT d), COUNT(DISTINCT f), COUNT(DISTINCT p), COUNT(DISTINCT o), COUNT(DISTINCT 1) FROM t",
    "SELECT o, COUNT(DISTINCT s) FILTER (WHERE a > 0), COUNT(DISTINCT s) + COUNT(DISTINCT a % 2), MIN(DISTINCT s),"
    " SUM(a), COUNT(s) FROM t GROUP BY o",
    "SELECT COUNT(DISTINCT a), COUNT(DISTINCT s) FROM t WHERE a > 1000",
    "SELECT NULLIF(a, 3) AS x, a BETWEEN b AND 7 AS y, a IN (1,2,3,4,5,6,7,8,9,10,11,12,13) AS z FROM t",
    "WITH c AS (SELECT a, a * 2 AS x FROM t) SELECT x, COUNT(*) FROM c WHERE a > 1 GROUP BY x",
    "SELECT sum(a) + sum(b) x, a * 2, a FROM (SELECT a, b + 1 AS b FROM t) GROUP BY a HAVING x > 2 ORDER BY x DESC, a",
    "SELECT SUM(a) / COUNT(a) AS mean, AVG(a), SUM(a) * 1.0 / COUNT(*), MIN(ts), MAX(dt), MIN(d) FROM t GROUP BY o",
    "SELECT SUM(b) FROM (SELECT b FROM t ORDER BY b)",
    "SELECT DISTINCT a, COUNT(*) FROM t GROUP BY a",
    "SELECT year(dt), month(ts), COUNT(*) AS n FROM t GROUP BY year(dt), month(ts) ORDER BY n DESC NULLS FIRST, 1, 2",
    "SELECT upper(s) u, SUM(CASE WHEN o THEN p ELSE 0 END) FROM t GROUP BY upper(s)",
    "SELECT `mixed case`, MAX(A) FROM T WHERE `MIXED CASE` IS NOT NULL GROUP BY `Mixed Case`",
    "SELECT size(split(s, 'b')), COUNT(*) FROM t GROUP BY size(split(s, 'b'))",
    "SELECT ts - INTERVAL '1' HOUR AS earlier, CAST(ts AS DATE) AS day FROM t",
    "SELECT 10 / b AS x FROM t WHERE b <> 0",
    "SELECT s, SUM(10 % b) FROM t WHERE b <> 0 AND b < 100 GROUP BY s",
    "SELECT k, MAX(v) FROM (SELECT s AS k, 10 / b AS v FROM t WHERE b <> 0) WHERE v > 2 GROUP BY k",
    "SELECT a AS `a.b``c`, COUNT(*) AS `x y` FROM t GROUP BY a ORDER BY `a.b``c` DESC",
    "SELECT 1 AS one FROM t HAVING true",
    "SELECT MAX(1), MIN('x'), SUM(2) FROM t",
    "SELECT MAX(1), MIN('x'), SUM(2) FROM t WHERE a > 1000",
    "SELECT DISTINCT 1 FROM t",
    "SELECT DISTINCT 1 FROM t WHERE a > 1000",
    "SELECT COUNT(*) FROM t WHERE a = a",
    "SELECT s, o, COUNT(*) AS n FROM t GROUP BY ALL ORDER BY ALL",
    "FROM t |> WHERE a > 0 |> AGGREGATE SUM(b) AS total GROUP BY s |> WHERE total > 5",
    "SELECT * EXCEPT (d, f, p) FROM t WHERE s RLIKE '^a' AND a IS NOT NULL",
    "SELECT a + 1 AS x, x * 2 AS y FROM t",
    "SELECT s, SUM(b) AS x, x + COUNT(*) AS y FROM t GROUP BY s HAVING y > 3",
    "SELECT s AS k, CASE WHEN SUM(a) > 0 THEN 'up' WHEN COUNT(a) = 0 THEN NULL ELSE 'down' END AS x FROM t GROUP BY k",
    "SELECT round(AVG(p), 1), format_number(SUM(q), 3), coalesce(MAX(s), '-') FROM t GROUP BY date_trunc('month', ts)",
    "SELECT f, MAX(f), SUM(f * 0) FROM t WHERE NOT isnan(f) GROUP BY f",
    "SELECT k0, k0 + 1 AS a0 FROM (SELECT a AS k0 FROM t) GROUP BY k0",
]


def answer(view: AnalysedView, table: DataFrame, finished: Finished) -> DataFrame:
    mapped = table.select(*view.catalyst.map_columns(table, "m_")).collect()
    keys = len(view.plan.keys)  # of Catalyst's columns k0, k1, ...; the others are arguments
    named = {f"m_k{keys + i}": f"v{i}" for i in range(len(view.plan.arguments))}
    lines = [{named.get(name, name[2:]): value for name, value in row.asDict().items()} for row in mapped]
    return finished(view, [line for line in lines if getattr(view.plan.over, "condition", None) is None or line["c"]])


@pytest.mark.parametrize("sql", QUERIES)
def test_the_three_parts_give_sparks_answer(
    spark: SparkSession,
    session: SqlSession,
    table: DataFrame,
    finished: Finished,
    shown: Callable[[DataFrame, bool], list[str]],
    sql: str,
) -> None:
    view = analyse(session, "v", sql)
    got, expected = answer(view, table, finished), spark.sql(sql)
    assert got.columns == [*expected.columns, "__diff"]
    got = got.drop("__diff")
    assert got.schema.simpleString() == expected.schema.simpleString()
    assert [f.nullable for f in got.schema] == [f.nullable for f in expected.schema]
    assert [(n, str(t)) for n, t, _ in view.schema] == expected.dtypes
    assert shown(got, bool(view.plan.order)) == shown(expected, bool(view.plan.order))


def test_only_what_is_asked_for_is_evaluated(session: SqlSession, table: DataFrame) -> None:
    view = analyse(session, "v", "SELECT s, SUM(10 / b) FROM t WHERE b > 1 GROUP BY s")
    columns = view.catalyst.map_columns(table.select("b"), "x_", only=["c", "k1"])
    assert table.select("b").select(*columns).columns == ["x_c", "x_k1"]


def test_an_error_in_a_kept_row_is_sparks_own(session: SqlSession, table: DataFrame) -> None:
    view = analyse(session, "v", "SELECT 10 / b AS x FROM t")
    with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
        table.select(*view.catalyst.map_columns(table)).collect()


def test_missing_and_mistyped_columns_are_named(session: SqlSession, table: DataFrame) -> None:
    view = analyse(session, "v", "SELECT a + 1 AS x FROM t")
    with pytest.raises(SchemaError, match="column 'a' is needed once, and is there 0 times"):
        view.catalyst.map_columns(table.select("b"))
    with pytest.raises(SchemaError, match="column 'a' is bigint, not int"):
        view.catalyst.map_columns(table.selectExpr("CAST(a AS BIGINT) AS a"))


def test_settings_are_those_of_the_session_not_of_the_reader(spark: SparkSession, table: DataFrame) -> None:
    tokyo = SqlSession(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"})
    tokyo.register("t", [("ts", SqlType.parse("timestamp"), True)])
    view = analyse(tokyo, "v", "SELECT CAST(ts AS DATE) AS day, hour(ts) AS h FROM t WHERE ts = '2020-03-01 12:00:00'")
    noon = spark.sql("SELECT TIMESTAMP '2020-03-01 03:00:00Z' AS ts")
    row = noon.select(*view.catalyst.map_columns(noon)).collect()[0]
    assert (row.c, row.k1) == (True, 12)


def test_ansi_mode_is_that_of_the_session_too(spark: SparkSession, table: DataFrame) -> None:
    lenient = SqlSession(spark, {"spark.sql.ansi.enabled": "false"})
    lenient.register("t", [("a", SqlType.parse("int"), True), ("s", SqlType.parse("string"), True)])
    view = analyse(lenient, "v", "SELECT 1 / a AS x, a + 2147483647 AS y, CAST(s AS INT) AS z FROM t WHERE a >= 0")
    edge = spark.sql("SELECT 0 AS a, 'word' AS s UNION ALL SELECT 1, '2'")
    rows = edge.select(*view.catalyst.map_columns(edge)).collect()
    assert [tuple(row) for row in rows] == [(True, None, 2147483647, None), (True, 1.0, -2147483648, 2)]
