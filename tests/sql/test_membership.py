"""`IN (SELECT ... GROUP BY ... HAVING ...)` as a HAVING of the query around it, and where it is not one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.datasets import TPCH_SCHEMAS
from headrace.errors import UnsupportedSQLError
from headrace.relation.types import SqlType
from headrace.sql.catalyst import AnalysedView, analyse
from headrace.sql.session import SqlSession

Q18 = (Path(__file__).parents[1] / "fixtures" / "tpch" / "q18.sql").read_text()
LARGE = "(SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING SUM(l_price) > 9)"
ONE = "SELECT l_orderkey, COUNT(*) AS n FROM lineitem WHERE"
BOTH = "SELECT o_orderkey, COUNT(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey WHERE"


def parts(view: AnalysedView) -> tuple[list[tuple[str, str | None]], str | None]:
    plan = view.plan
    aggregates = [
        (a.function, None if a.argument is None else str(plan.arguments[a.argument])) for a in plan.aggregates
    ]
    return aggregates, None if plan.having is None else str(plan.having)


def test_q18_of_tpch(spark: SparkSession) -> None:
    session = SqlSession(spark, {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"})
    for name, table in TPCH_SCHEMAS.items():
        columns = re.findall(r"(\w+) (\w+(?:\([^)]*\))?) NOT NULL", table.ddl)
        session.register(name, [(c, SqlType.parse(kind.lower().replace(" ", "")), False) for c, kind in columns])
    view = analyse(session, "q18", Q18)
    assert parts(view) == ([("sum", "lineitem.l_quantity")], "(a0 > 300.00BD)"), "one sum serves both"
    assert [str(key) for key in view.plan.keys][2] == "orders.o_orderkey"
    assert [table for table, _ in view.catalyst.flat.leaves] == ["customer", "orders", "lineitem"]
    assert view.catalyst.flat.root_required == 2
    assert view.plan.root_required.startswith("o_orderkey IN ( SELECT l_orderkey FROM lineitem GROUP BY")
    assert view.plan.limit == 100


ACCEPTED = {
    # of one table, which is its own root; NULL is IN nothing
    f"{ONE} l_orderkey IN {LARGE} GROUP BY l_orderkey": (
        [("count", None), ("sum", "l_price")],
        "((k0 IS NOT NULL) AND (a1 > 9.00BD))",
    ),
    f"{ONE} l_orderkey > 2 AND l_orderkey IN {LARGE} GROUP BY l_orderkey HAVING n < 5": (
        [("count", None), ("sum", "l_price")],
        "(((k0 IS NOT NULL) AND (a1 > 9.00BD)) AND (a0 < 5L))",
    ),
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING COUNT(DISTINCT l_suppkey) > 1)"
    " GROUP BY l_orderkey": (
        [("count", None), ("count_distinct", "l_suppkey")],
        "((k0 IS NOT NULL) AND (a1 > 1L))",
    ),
    # the subquery's own conditions on its group, and an aggregate that both have
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem WHERE l_orderkey > 1 GROUP BY l_orderkey"
    " HAVING COUNT(*) > 2 AND l_orderkey < 8) GROUP BY l_orderkey": (
        [("count", None)],
        "(((k0 IS NOT NULL) AND ((k0 > 1) AND (k0 < 8))) AND (a0 > 2L))",
    ),
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey) GROUP BY l_orderkey": (
        [("count", None)],
        "(k0 IS NOT NULL)",
    ),
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey"
    " HAVING MAX(l_shipdate) IS NULL OR AVG(l_price) FILTER (WHERE l_returned = 'A') > 1) GROUP BY l_orderkey": (
        [
            ("count", None),
            ("max", "l_shipdate"),
            ("avg", "(IF((l_returned = 'A'), l_price, CAST(NULL AS DECIMAL(12,2))))"),
        ],
        "((k0 IS NOT NULL) AND ((a1 IS NULL) OR (a2 > 1.000000BD)))",
    ),
    f"{ONE} l_orderkey IN {LARGE} AND l_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey"
    " HAVING COUNT(*) > 2) GROUP BY l_orderkey": (
        [("count", None), ("sum", "l_price")],
        "((((k0 IS NOT NULL) AND (a1 > 9.00BD)) AND (k0 IS NOT NULL)) AND (a0 > 2L))",
    ),
    # over a join, by either of the columns that are equal
    f"{BOTH} o_orderkey IN {LARGE} GROUP BY o_orderkey": (
        [("count", None), ("sum", "lineitem.l_price")],
        "(a1 > 9.00BD)",
    ),
    f"{BOTH} l_orderkey IN {LARGE} AND o_priority > 0 GROUP BY o_orderkey, o_orderdate": (
        [("count", None), ("sum", "lineitem.l_price")],
        "(a1 > 9.00BD)",
    ),
    f"{BOTH} o_orderkey IN {LARGE} GROUP BY l_orderkey, o_orderkey": (
        [("count", None), ("sum", "lineitem.l_price")],
        "((k0 IS NOT NULL) AND (a1 > 9.00BD))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("sql", ACCEPTED)
def test_membership_becomes_a_condition_on_the_groups(shop: SqlSession, sql: str) -> None:
    view = analyse(shop, "v", sql)
    assert parts(view) == ACCEPTED[sql]
    flat = view.catalyst.flat
    if len(flat.leaves) == 1:
        assert (flat.root_required, view.plan.root_required) == (None, "")
    else:
        assert flat.leaves[flat.root_required][0] == "lineitem"
        assert "IN (SELECT l_orderkey" in view.plan.root_required


REFUSED = {
    f"SELECT l_orderkey FROM lineitem WHERE l_orderkey IN {LARGE}": "the query around it does not group",
    f"SELECT COUNT(*) FROM lineitem WHERE l_orderkey IN {LARGE}": "does not group by l_orderkey",
    f"SELECT o_custkey, COUNT(*) FROM orders JOIN lineitem ON o_orderkey = l_orderkey WHERE o_orderkey IN {LARGE}"
    " GROUP BY o_custkey": "does not group by l_orderkey of lineitem",
    f"{ONE} l_orderkey IN {LARGE} GROUP BY l_orderkey, l_suppkey": "GROUP BY l_suppkey reads more of lineitem",
    f"{ONE} l_orderkey IN {LARGE} AND l_price > 0 GROUP BY l_orderkey": "its condition l_price > 0 reads more of",
    "SELECT o_orderkey, COUNT(*) FROM orders, lineitem, supplier WHERE o_orderkey = l_orderkey"
    f" AND l_suppkey = s_suppkey AND o_orderkey IN {LARGE} GROUP BY o_orderkey":
        "l_suppkey = s_suppkey reads more of lineitem than l_orderkey",
    f"SELECT o_orderkey, COUNT(*) FROM orders WHERE o_orderkey IN {LARGE} GROUP BY o_orderkey":
        "must join lineitem exactly once, and does so 0 times",
    f"SELECT a.l_orderkey, COUNT(*) FROM lineitem a JOIN lineitem b USING (l_orderkey) WHERE a.l_orderkey IN {LARGE}"
    " GROUP BY a.l_orderkey": "and does so 2 times",
    f"{BOTH} o_custkey IN {LARGE} GROUP BY o_orderkey": "o_custkey IN .* what is looked for does not equal l_orderkey",
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem WHERE l_price > 0 GROUP BY l_orderkey HAVING COUNT(*) > 1)"
    " GROUP BY l_orderkey": "the subquery leaves out rows of lineitem by l_price > 0",
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem JOIN orders ON l_orderkey = o_orderkey GROUP BY l_orderkey"
    " HAVING COUNT(*) > 1) GROUP BY l_orderkey": "more than one table",
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey, l_suppkey HAVING COUNT(*) > 1)"
    " GROUP BY l_orderkey": "must group by one column",
    "SELECT x, COUNT(*) FROM f WHERE x IN (SELECT x FROM f GROUP BY x HAVING COUNT(*) > 1) GROUP BY x": "floating",
    f"{ONE} l_orderkey IN (SELECT MAX(l_suppkey) FROM lineitem GROUP BY l_orderkey HAVING COUNT(*) > 1)"
    " GROUP BY l_orderkey": "selects something other than the column it groups by",
    f"{ONE} l_orderkey IN (SELECT MAX(l_orderkey) FROM lineitem) GROUP BY l_orderkey": "the subquery does not group",
    f"{ONE} (l_orderkey, l_suppkey) IN (SELECT l_orderkey, l_suppkey FROM lineitem GROUP BY l_orderkey, l_suppkey"
    " HAVING COUNT(*) > 1) GROUP BY l_orderkey": "it compares several columns",
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING try_sum(l_price) > 1)"
    " GROUP BY l_orderkey": "TRY_SUM",
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING MAX(l_shipdate) < current_date)"
    " GROUP BY l_orderkey": "the clock",
    f"{ONE} l_orderkey IN (SELECT o_orderkey FROM orders GROUP BY o_orderkey HAVING COUNT(*) > 1) GROUP BY l_orderkey":
        "must join orders exactly once",
    "SELECT l_orderkey, COUNT(*) FROM lineitem GROUP BY l_orderkey HAVING COUNT(*) IN (SELECT l_orderkey FROM lineitem"
    " GROUP BY l_orderkey HAVING COUNT(*) > 1)": "a condition on the groups of the query",
    f"{ONE} l_orderkey NOT IN {LARGE} GROUP BY l_orderkey": "a subquery inside an expression",
    f"{ONE} l_orderkey IN {LARGE} OR l_price > 0 GROUP BY l_orderkey": "a subquery inside an expression",
    f"{ONE} l_orderkey IN (SELECT l_orderkey FROM lineitem) GROUP BY l_orderkey": "a subquery inside an expression",
}  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_what_fails_is_said(shop: SqlSession, sql: str) -> None:
    with pytest.raises(UnsupportedSQLError, match=REFUSED[sql]) as refusal:
        analyse(shop, "v", sql)
    assert "refresh=" in refusal.value.way_out or "clock" in REFUSED[sql]
