"""The plan that SQL becomes: which shape, which parts, each once, and readable without Spark."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from headrace.plan.expression import Expression
from headrace.plan.view import Order, Shape, TableRows, ViewPlan
from headrace.relation.types import SqlType
from headrace.sql.catalyst import analyse
from headrace.sql.flatten import Flattener
from headrace.sql.jvm import items
from headrace.sql.refusals import Refusals
from headrace.sql.session import SqlSession


def condition_of(plan: ViewPlan) -> Expression | None:
    assert isinstance(plan.over, TableRows)
    return plan.over.condition


@pytest.mark.parametrize(
    ("sql", "shape"),
    [
        ("SELECT a FROM t", Shape.ROWS),
        ("SELECT COUNT(*) FROM t", Shape.TOTAL),
        ("SELECT 1 FROM t HAVING COUNT(*) > 1", Shape.TOTAL),
        ("SELECT DISTINCT a FROM t", Shape.GROUPS),
        ("SELECT 1 FROM t GROUP BY s", Shape.GROUPS),
        ("SELECT 1, COUNT(*) FROM t GROUP BY 1", Shape.GROUPS),
    ],
)
def test_shapes(session: SqlSession, sql: str, shape: Shape) -> None:
    assert analyse(session, "v", sql).plan.shape is shape


def test_the_parts_of_a_grouping(session: SqlSession) -> None:
    sql = """SELECT s, SUM(p * (1 - q)) AS x, AVG(a) AS y, COUNT(*) AS n FROM t
             WHERE b > 2 AND dt <= DATE '1998-12-01' - INTERVAL 90 DAYS
             GROUP BY s HAVING SUM(b) > 1 ORDER BY x DESC, s"""
    view = analyse(session, "v", sql)
    plan = view.plan
    assert plan.over.tables == ("t",)
    assert str(condition_of(plan)) == "((b > 2L) AND (dt <= DATE '1998-09-02'))"
    assert [str(key) for key in plan.keys] == ["s"]
    assert [str(argument) for argument in plan.arguments] == ["(p * (1BD - q))", "a", "b"]
    assert [(a.function, a.argument, str(a.type)) for a in plan.aggregates] == [
        ("sum", 0, "decimal(28,4)"),
        ("avg", 1, "double"),
        ("count", None, "bigint"),
        ("sum", 2, "bigint"),
    ]
    assert plan.aggregates[0].sql == "SUM(p * (1 - q))"
    assert str(plan.having) == "(a3 > 1L)"
    assert [(o.name, str(o.expression)) for o in plan.outputs] == [("s", "k0"), ("x", "a0"), ("y", "a1"), ("n", "a2")]
    assert plan.order == (Order("x", True, False), Order("s", False, True))
    assert view.schema[1:] == tuple(
        (o.name, o.expression.type, n) for o, n in zip(plan.outputs[1:], [1, 1, 0], strict=True)
    )


def test_what_is_said_twice_is_kept_once(session: SqlSession) -> None:
    sql = """SELECT SUM(a + b), AVG(b + a), SUM(a + b) / 2, COUNT(*), COUNT(1) AS one, COUNT(b), COUNT(a), COUNT(a, b),
                    COUNT(*) FILTER (WHERE o), COUNT(a) FILTER (WHERE o) FROM t"""
    plan = analyse(session, "v", sql).plan
    assert [(a.function, a.argument) for a in plan.aggregates] == [
        ("sum", 0), ("avg", 0), ("count", None), ("count", 1), ("count", 2), ("count", 3),
    ]  # fmt: skip
    assert [str(a) for a in plan.arguments[2:]] == [
        "(IF(o, 1, CAST(NULL AS INT)))",
        "(IF((o AND (a IS NOT NULL)), 1, CAST(NULL AS INT)))",
    ]


def test_distinct_counts_are_kept_one_by_one_and_share_their_arguments(session: SqlSession) -> None:
    sql = """SELECT s, COUNT(DISTINCT a) FILTER (WHERE o), COUNT(DISTINCT b), MIN(DISTINCT b), COUNT(b),
                    COUNT(DISTINCT b) + 1 FROM t GROUP BY s"""
    plan = analyse(session, "v", sql).plan
    assert [(a.function, a.argument) for a in plan.aggregates] == [
        ("count_distinct", 0), ("count_distinct", 1), ("min", 1), ("count", None),
    ]  # fmt: skip
    assert [str(argument) for argument in plan.arguments] == ["(IF(o, a, CAST(NULL AS INT)))", "b"]
    assert plan.aggregates[0].sql == "COUNT(DISTINCT a) FILTER (WHERE o)"
    assert plan.over.tables == ("t",)


def test_sums_and_combinations_of_distinct_values_are_kept_one_by_one(session: SqlSession) -> None:
    sql = """SELECT s, SUM(DISTINCT a) AS x, AVG(DISTINCT a) FILTER (WHERE o) AS y, COUNT(DISTINCT a, s, a) AS z,
                    COUNT(DISTINCT s, a) AS again, COALESCE(AVG(DISTINCT b), 0) AS w, SUM(b) AS total
             FROM t GROUP BY s HAVING SUM(DISTINCT b) > 0"""
    analysed = analyse(session, "v", sql)
    plan = analysed.plan
    assert [str(argument) for argument in plan.arguments[:3]] == ["a", "(IF(o, a, CAST(NULL AS INT)))", "s"]
    kept = {output.name: str(output.expression) for output in plan.outputs}
    functions = [(a.function, a.argument, a.others) for a in plan.aggregates]
    assert functions[int(kept["x"][1:])] == ("sum_distinct", 0, ())
    assert functions[int(kept["y"][1:])] == ("avg_distinct", 1, ())
    assert functions[int(kept["z"][1:])] == ("count_distinct", 0, (2,))
    assert kept["again"] == kept["z"], "the order of what is combined does not matter"
    assert kept["w"].lower().startswith("coalesce"), "an average of nothing is NULL, so this is no idle call"
    assert {function for function, *_ in functions} == {"sum_distinct", "avg_distinct", "count_distinct", "sum"}
    assert analysed.schema == tuple(
        (field.name(), SqlType.parse(field.dataType().simpleString()), field.nullable())
        for field in items(session.query(sql).analyzed().schema())
    )


@pytest.mark.parametrize(
    ("call", "function"), [("max_by(a, b)", "max_by"), ("min_by(CAST(NULL AS BIGINT), a)", "min_by")]
)
def test_what_stands_in_for_distinct_is_never_taken_for_the_users_own(
    session: SqlSession, call: str, function: str
) -> None:
    sql = f"SELECT {call} AS x, SUM(DISTINCT a) AS y, COUNT(DISTINCT a, b) AS z FROM t"
    optimized = session.query(sql).optimizedPlan()
    flat = Flattener(session.catalyst, Refusals("v", sql)).flatten(optimized)
    assert [one.function for one in flat.aggregates] == [function, "sum_distinct", "count_distinct"]


@pytest.mark.parametrize(
    ("calls", "function"),
    [
        (("FIRST", "ANY_VALUE", "FIRST_VALUE", "MIN"), "min"),
        (("LAST", "LAST_VALUE", "MAX"), "max"),
        (("STDDEV", "STD", "STDDEV_SAMP"), "stddev_samp"),
        (("STDDEV_POP",), "stddev_pop"),
        (("VARIANCE", "VAR_SAMP"), "var_samp"),
        (("VAR_POP",), "var_pop"),
        (("BOOL_AND", "EVERY"), "min"),
        (("BOOL_OR", "ANY", "SOME"), "max"),
        (("COUNT_IF",), "count"),
    ],
)
def test_every_spelling_of_a_function_is_the_same_function(
    session: SqlSession, calls: tuple[str, ...], function: str
) -> None:
    argument = "o" if function in ("min", "max", "count") else "a"
    plan = analyse(
        session, "v", f"SELECT {', '.join(f'{c}({argument}) AS c{i}' for i, c in enumerate(calls))} FROM t"
    ).plan
    assert [a.function for a in plan.aggregates] == [function]
    assert len(plan.arguments) == 1
    if function == "count":  # and not what Spark rewrites it to, which sums of products could not take
        assert str(plan.arguments[0]) == "(IF(o, 1, CAST(NULL AS INT)))"


def test_rows_keep_one_key_an_output(session: SqlSession) -> None:
    plan = analyse(session, "v", "SELECT a, a AS again, A + 1 AS next FROM T").plan
    assert [str(key) for key in plan.keys] == ["a", "a", "(a + 1)"]
    assert [str(o.expression) for o in plan.outputs] == ["k0", "k1", "k2"]
    assert plan.keys[2].columns == {"a"}


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        ("SELECT a FROM t", None),
        ("SELECT a FROM t LIMIT ALL", None),
        ("SELECT a FROM t LIMIT 0", 0),
        ("SELECT COUNT(*) FROM t LIMIT 0", 0),
        ("SELECT a FROM t ORDER BY a DESC LIMIT 2 + 1", 3),
        ("SELECT DISTINCT a FROM t LIMIT 1", 1),
        ("SELECT s, SUM(a) AS n FROM t GROUP BY s HAVING n > 1 ORDER BY n LIMIT 4", 4),
        ("(SELECT s FROM t LIMIT 5)", 5),
        ("WITH c AS (SELECT a FROM t) SELECT a FROM c ORDER BY a LIMIT 6", 6),
        ("FROM t |> AGGREGATE COUNT(*) AS n GROUP BY s |> ORDER BY n |> LIMIT 7", 7),
        ("SELECT x.a FROM t x CROSS JOIN t y LIMIT 8", 8),
    ],
)
def test_a_limit_of_the_whole_query_is_its_last_part(session: SqlSession, sql: str, limit: int | None) -> None:
    plan = analyse(session, "v", sql).plan
    assert plan.limit == limit
    assert bool(plan.order) == ("ORDER BY" in sql)


def test_literals_have_python_values(session: SqlSession) -> None:
    sql = """SELECT 1 i, 2Y y, 3S s, 4L l, 1.5 m, 1.5D d, 2.5F f, 'é' u, true o, DATE '2020-02-29' dt, NULL + 1 n,
                    TIMESTAMP '2020-02-29 12:00:00Z' ts, TIMESTAMP_NTZ '2020-02-29 12:00:00' tn FROM t"""
    keys = analyse(session, "v", sql).plan.keys
    assert {key.op for key in keys} == {"literal"}
    assert [key.value for key in keys] == [
        1, 2, 3, 4, Decimal("1.5"), 1.5, 2.5, "é", True, date(2020, 2, 29), None,
        datetime(2020, 2, 29, 12, tzinfo=UTC), datetime(2020, 2, 29, 12),
    ]  # fmt: skip


def test_what_python_cannot_hold_is_left_to_catalyst(session: SqlSession) -> None:
    plan = analyse(session, "v", "SELECT a FROM t WHERE dt < DATE '+20000-01-01' AND ts + INTERVAL 1 HOUR > ts").plan
    condition = condition_of(plan)
    assert condition is not None
    date_literal = condition.args[0].args[1]
    assert (date_literal.op, date_literal.value) == ("Literal", None)


def test_a_plan_crosses_to_workers_and_back(session: SqlSession) -> None:
    plan = analyse(session, "v", "SELECT s, SUM(a) FROM t WHERE ts > '2020-01-01' GROUP BY s").plan
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_the_same_sql_gives_the_same_plan_in_a_new_session(
    spark: SparkSession, session: SqlSession, table_columns: list[tuple[str, SqlType, bool]]
) -> None:
    again = SqlSession(spark, session.settings)
    again.register("t", table_columns)
    sql = "SELECT upper(s) AS u, SUM(a) AS x FROM t WHERE ts > '2020-01-01' GROUP BY u HAVING x > 1 ORDER BY u"
    assert analyse(again, "v", sql).plan == analyse(session, "v", sql).plan


def test_the_users_session_is_left_alone(spark: SparkSession, session: SqlSession) -> None:
    analyse(session, "v", "SELECT a FROM t")
    active = spark._jvm.org.apache.spark.sql.classic.SparkSession.active()
    assert not active.equals(session.spark._jsparkSession)
    assert spark.conf.get("spark.sql.optimizer.excludedRules", "") == ""
