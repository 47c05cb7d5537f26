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
    "SELECT corr(DISTINCT a, d), COUNT(DISTINCT b) FROM t": r"corr\(DISTINCT a, d\) cannot .* of the different values",
    "SELECT COUNT_IF(DISTINCT a > 1) FROM t": r"COUNT_IF\(DISTINCT a > 1\) cannot .* of the different values",
    "SELECT try_sum(DISTINCT a) FROM t": r"try_sum\(DISTINCT a\) cannot",
    "SELECT COUNT(DISTINCT (a, b)) FROM t": r"\(a, b\) of type struct<.*> in COUNT\(DISTINCT \(a, b\)\)",
    "SELECT COUNT(DISTINCT array(a)) FROM t": r"array\(a\) of type array<int> in COUNT\(DISTINCT array\(a\)\)",
    "SELECT collect_list(a) FROM t": r"COLLECT_LIST in collect_list\(a\) .* all values of a group",
    "SELECT size(collect_list(a)) FROM t": r"COLLECT_LIST in collect_list\(a\)",
    "SELECT '\U0001f600' AS smile, Collect_list(a) FROM t": r"COLLECT_LIST in Collect_list\(a\) ",
    "SELECT collect_set(a) FROM t": r"COLLECT_SET in collect_set\(a\)",
    "SELECT size(percentile(a, array(0.5))) FROM t": "type array<double>",
    "SELECT percentile(a, 0.5, b) FROM t": r"percentile\(a, 0.5, b\) cannot .* several times",
    "SELECT listagg(s) WITHIN GROUP (ORDER BY a, b) FROM t": "the order of listagg.* by one value",
    "SELECT listagg(s) WITHIN GROUP (ORDER BY s, a) FROM t": "the order of listagg.* by one value",
    "SELECT listagg(s) WITHIN GROUP (ORDER BY s || s) FROM t": "the order of listagg.* by another text",
    "SELECT size(histogram_numeric(a, 3)) FROM t": "HISTOGRAM_NUMERIC in .* none of the aggregates that are kept",
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
