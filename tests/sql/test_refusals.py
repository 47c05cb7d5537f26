"""SQL that cannot be maintained is refused when the view is created: what, why, and the way out."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headrace.errors import SchemaError, UnsupportedSQLError
from headrace.relation.types import SqlType
from headrace.sql.catalyst import analyse
from headrace.sql.session import SqlSession

REFUSED = {
    "SELECT x.a FROM t x LEFT JOIN t y ON x.a = y.a": "LEFT OUTER JOIN cannot be maintained: only inner joins",
    "SELECT x.a FROM t x RIGHT JOIN t y ON x.a = y.a": "RIGHT OUTER JOIN",
    "SELECT x.a FROM t x FULL JOIN t y ON x.a = y.a": "FULL OUTER JOIN",
    "SELECT a FROM t LEFT SEMI JOIN t y USING (a)": "LEFT SEMI JOIN .* for now",
    "SELECT a FROM t LEFT ANTI JOIN t y USING (a)": "LEFT ANTI JOIN",
    "SELECT t.a FROM t, LATERAL (SELECT t.a + 1)": "a lateral join",
    "SELECT a FROM t WHERE a IN (SELECT b FROM t)": "a subquery",
    "SELECT a, (SELECT MAX(b) FROM t) FROM t": "a subquery",
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM t)": "a subquery",
    "SELECT a FROM t UNION ALL SELECT b FROM t": "UNION",
    "SELECT a FROM t INTERSECT SELECT b FROM t": "INTERSECT",
    "SELECT a FROM t EXCEPT SELECT b FROM t": "EXCEPT",
    "SELECT a FROM (SELECT a FROM t LIMIT 3)": "LIMIT inside a subquery",
    "SELECT a FROM (SELECT a FROM t LIMIT 3) LIMIT 2": "LIMIT inside a subquery",
    "WITH c AS (SELECT a FROM t ORDER BY b LIMIT 3) SELECT SUM(a) FROM c": "LIMIT inside a subquery",
    "SELECT x.a FROM t x JOIN (SELECT a FROM t LIMIT 3) y ON x.a = y.a LIMIT 4": "LIMIT inside a subquery",
    "SELECT a FROM t LIMIT a": "INVALID_LIMIT",
    "SELECT a FROM t LIMIT -1": "INVALID_LIMIT",
    "SELECT a FROM t OFFSET 3": "OFFSET",
    "SELECT a FROM t ORDER BY a LIMIT 3 OFFSET 1": "OFFSET",
    "SELECT a, ROW_NUMBER() OVER (ORDER BY a) FROM t": "a window function",
    "SELECT a, SUM(b) FROM t GROUP BY ROLLUP(a)": "ROLLUP",
    "SELECT EXPLODE(array(a, 2)) FROM t": "a table function",
    "SELECT a FROM t TABLESAMPLE (10 PERCENT)": "TABLESAMPLE",
    "SELECT a FROM t SORT BY a": "SORT BY",
    "SELECT /*+ REPARTITION(3) */ a FROM t": "REPARTITION",
    "SELECT COUNT(*) FROM (SELECT a, COUNT(*) FROM t GROUP BY a)": "over an aggregate",
    "SELECT STDDEV(DISTINCT a), COUNT(DISTINCT b) FROM t": r"STDDEV\(DISTINCT a\) cannot .* number, sum and average",
    "SELECT COUNT_IF(DISTINCT a > 1) FROM t": r"COUNT_IF\(DISTINCT a > 1\) cannot .* of the different values",
    "SELECT try_sum(DISTINCT a) FROM t": r"try_sum\(DISTINCT a\) cannot",
    "SELECT COUNT(DISTINCT 1, 2) FROM t": r"COUNT\(DISTINCT 1, 2\) cannot .* constants only",
    "SELECT COUNT(DISTINCT a, NULL) FROM t": r"type void in COUNT\(DISTINCT a, NULL\)",
    "SELECT COUNT(DISTINCT (a, b)) FROM t": r"\(a, b\) of type struct<.*> in COUNT\(DISTINCT \(a, b\)\)",
    "SELECT COUNT(DISTINCT array(a)) FROM t": r"array\(a\) of type array<int> in COUNT\(DISTINCT array\(a\)\)",
    "SELECT '\U0001f600' AS smile, First(a) FROM t": r"FIRST in First\(a\) ",
    "SELECT First(a) FROM t": r"FIRST in First\(a\) cannot .* left to chance",
    "SELECT last(a) FROM t": r"LAST in last\(a\) .* left to chance",
    "SELECT any_value(a) FROM t": r"ANY_VALUE in any_value\(a\) .* left to chance",
    "SELECT max_by(a, b) FROM t": r"MAX_BY in max_by\(a, b\) .* tie",
    "SELECT min_by(a, b) FROM t": r"MIN_BY in min_by\(a, b\) .* tie",
    "SELECT mode(a) FROM t": r"MODE in mode\(a\) .* as frequent",
    "SELECT collect_list(a) FROM t": r"COLLECT_LIST in collect_list\(a\) .* all values of a group",
    "SELECT size(collect_list(a)) FROM t": r"COLLECT_LIST in collect_list\(a\)",
    "SELECT collect_set(a) FROM t": r"COLLECT_SET in collect_set\(a\)",
    "SELECT listagg(s, ',') FROM t": r"LISTAGG in listagg\(s, ','\)",
    "SELECT percentile(a, 0.5) FROM t": r"PERCENTILE in percentile\(a, 0.5\) .* ranks",
    "SELECT median(a) FROM t": r"MEDIAN in median\(a\) .* ranks",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t": "PERCENTILE_CONT in .* ranks",
    "SELECT approx_percentile(a, 0.5) FROM t": r"PERCENTILE in approx_percentile\(a, 0.5\) .* ranks",
    "SELECT corr(a, d) FROM t": r"CORR in corr\(a, d\) .* products of two columns",
    "SELECT covar_pop(a, d) FROM t": "COVAR_POP in .* products of two columns",
    "SELECT covar_samp(a, d) FROM t": "COVAR_SAMP in .* products of two columns",
    "SELECT regr_slope(a, d) FROM t": "REGR_SLOPE in .* products of two columns",
    "SELECT regr_sxx(a, d) FROM t": "REGR_SXX in .* squares around the mean",
    "SELECT skewness(d) FROM t": "SKEWNESS in .* powers",
    "SELECT kurtosis(d) FROM t": "KURTOSIS in .* powers",
    "SELECT bit_and(a) FROM t": r"BIT_AND in bit_and\(a\) .* only COUNT, SUM, AVG",
    "SELECT approx_count_distinct(a) FROM t": r"APPROX_COUNT_DISTINCT in approx_count_distinct\(a\) .* approximation",
    "SELECT try_sum(a) FROM t": r"TRY_SUM in try_sum\(a\) .* NULL would hide",
    "SELECT try_avg(a) FROM t": "TRY_AVG",
    "SELECT Rand() AS r FROM t": r"Rand\(\) cannot be maintained: it gives another value each time",
    "SELECT uuid() AS r FROM t": "another value",
    "SELECT uniform(1, 3) FROM t": "another value",
    "SELECT COUNT(*) FROM t WHERE dt < current_date": "current_date cannot be maintained: it changes with the clock",
    "SELECT COUNT(*) FROM t WHERE ts < now() - INTERVAL 1 DAY": r"now\(\) cannot",
    "SELECT localtimestamp() AS x FROM t": "the clock",
    "SELECT unix_timestamp() AS x FROM t": "the clock",
    "SELECT a FROM t WHERE dt < 'today'": "the clock",
    "SELECT a FROM t WHERE dt < DATE 'yesterday'": "the clock",
    "SELECT current_user() AS me FROM t": "who runs the query",
    "SELECT 1": "a query without a table",
    "SELECT * FROM VALUES (1), (2)": "a query without a table",
    "SELECT * FROM range(10)": "a query without a table",
    "SELECT a, a + 1 AS A FROM t": "the column name 'A' cannot be maintained: two columns have it",
    "SELECT a AS __diff FROM t": "multiplicities",
    "SELECT array(a) AS x FROM t": "column 'x' of type array<int>",
    "SELECT NULL AS x FROM t": "column 'x' of type void",
    "SELECT COUNT(*) FROM t GROUP BY array(a)": "type array<int>",
    "SELECT window, COUNT(*) FROM t GROUP BY window(ts, '1 day')": "type struct",
    "SELECT a FROM t WHERE (": "PARSE_SYNTAX_ERROR",
    "SELECT nosuch(a) FROM t": "UNRESOLVED_ROUTINE",
    "SELECT a + dt + s FROM t": "DATATYPE_MISMATCH",
    "CREATE TABLE oops (a INT)": "a command",
    "DROP VIEW t": "a command",
    "SET spark.sql.ansi.enabled=false": "a command",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_refused_by_name_with_a_way_out(session: SqlSession, sql: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedSQLError, match=REFUSED[sql]) as refusal:
        analyse(session, "v", sql)
    assert refusal.value.what.startswith("view 'v': ")
    assert len(refusal.value.way_out) > 10
    assert "SQLQueryContextLogger" not in capfd.readouterr().err


def test_refused_commands_were_not_run(session: SqlSession) -> None:
    for command in ("DROP VIEW t", "SET spark.sql.ansi.enabled=false"):
        with pytest.raises(UnsupportedSQLError):
            analyse(session, "v", command)
    assert session.spark.conf.get("spark.sql.ansi.enabled") == "true"
    analyse(session, "v", "SELECT a FROM t")


@pytest.mark.parametrize("sql", ["SELECT COUNT(*) FROM nosuch", "SELECT nocol FROM t"])
def test_unknown_names_point_into_the_sql(session: SqlSession, sql: str) -> None:
    with pytest.raises(SchemaError, match=r"(?s)no(such|col).*== SQL .*\^\^\^"):
        analyse(session, "v", sql)


def test_the_users_own_tables_are_not_headraces(spark: SparkSession, session: SqlSession) -> None:
    spark.range(3).createOrReplaceTempView("mine")
    with pytest.raises(SchemaError):
        analyse(session, "v", "SELECT * FROM mine")
    spark.range(3).createOrReplaceGlobalTempView("everyones")
    with pytest.raises(UnsupportedSQLError, match="a query without a table"):
        analyse(session, "v", "SELECT * FROM global_temp.everyones")
    rows = spark.sparkContext.parallelize([(1,)])
    spark.createDataFrame(rows, "a int").createOrReplaceGlobalTempView("rows")
    with pytest.raises(UnsupportedSQLError, match="not a Headrace table"):
        analyse(session, "v", "SELECT * FROM global_temp.rows")


def test_tables_with_odd_names_come_and_go(spark: SparkSession) -> None:
    session = SqlSession(spark)
    for name in ("a b", "x.y", "ti`ck", "Überweisung"):
        session.register(name, [("c", SqlType.parse("int"), True)])
        quoted = "`" + name.replace("`", "``") + "`"
        assert analyse(session, "v", f"SELECT c FROM {quoted}").plan.tables == (name,)
        session.unregister(name)
        with pytest.raises(SchemaError):
            analyse(session, "v", f"SELECT c FROM {quoted}")
        session.unregister(name)
