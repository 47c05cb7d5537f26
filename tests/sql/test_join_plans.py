"""What a join becomes: sources, variables, factors; and what no join plan can say is refused, with a way out."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from headrace.errors import UnsupportedSQLError
from headrace.plan.join import Argument, JoinPlan, Term
from headrace.plan.view import Order, Shape
from headrace.sql.catalyst import AnalysedView, analyse, features
from headrace.sql.query import SqlQuery
from headrace.sql.session import SqlSession


def plan_of(session: SqlSession, sql: str) -> JoinPlan:
    plan = analyse(session, "v", sql).plan.over
    assert isinstance(plan, JoinPlan)
    return plan


def read_features(session: SqlSession, name: str, sql: str) -> AnalysedView:
    return features(SqlQuery(session, name, sql))


def said(plan: JoinPlan) -> dict[str, tuple[str | None, dict[str, str], list[str], set[str]]]:
    return {
        s.name: (
            None if s.condition is None else str(s.condition),
            {name: str(e) for name, e in s.variables},
            [str(f) for f in s.factors],
            set(s.required),
        )
        for s in plan.sources
    }


def test_the_parts_of_a_join(shop: SqlSession) -> None:
    sql = """SELECT city, kind, SUM(units * cost) AS x, COUNT(*) AS n FROM sales NATURAL JOIN store JOIN item i
             ON sales.item = i.item AND i.grade > 1 WHERE open AND units <> 0 AND units < price
             GROUP BY city, kind HAVING x > 1 ORDER BY n DESC"""
    plan = analyse(shop, "v", sql).plan
    assert plan.tables == ("sales", "store", "item")
    assert [str(key) for key in plan.keys] == ["store.city", "item.kind"]
    assert [(str(a), str(a.type), a.nullable) for a in plan.arguments] == [
        ("(CAST(sales.units AS DECIMAL(10,0)) * item.cost)", "decimal(21,3)", True)
    ]
    assert [(o.name, str(o.expression)) for o in plan.outputs] == [
        ("city", "k0"),
        ("kind", "k1"),
        ("x", "a0"),
        ("n", "a1"),
    ]
    assert str(plan.having) == "(a0 > 1.000BD)"
    assert plan.order == (Order("n", True, False),)
    assert isinstance(plan.over, JoinPlan)
    assert said(plan.over) == {
        "sales": (
            "((NOT (units = 0)) AND (CAST(units AS DECIMAL(12,2)) < CAST(price AS DECIMAL(12,2))))",
            {"store": "store", "item": "item"},
            ["CAST(units AS DECIMAL(10,0))"],
            {"store", "item"},
        ),
        "store": ("open", {"store": "store", "city": "city"}, [], {"store"}),
        "item": ("(grade > 1S)", {"item": "item", "kind": "kind"}, ["cost"], {"item"}),
    }
    assert plan.over.keys == ("city", "kind")
    assert plan.over.arguments == (Argument((Term(1, ((0, 0), (2, 0))),), ((0, 0), (2, 0))),)
    assert not plan.over.cross
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_a_table_read_twice_is_two_sources(shop: SqlSession) -> None:
    sql = """SELECT n1.n_name AS a, n2.n_name AS b, COUNT(*) FROM nation n1, nation n2, nation n3
             WHERE n1.n_regionkey = n2.n_regionkey AND n2.n_nationkey = n3.n_nationkey AND n2.n_name = 'A'
             GROUP BY n1.n_name, n2.n_name"""
    plan = plan_of(shop, sql)
    assert plan.tables == ("nation",)
    assert plan.keys == ("n_name", "nation#2.n_name")
    assert said(plan) == {
        "nation": (None, {"n_regionkey": "n_regionkey", "n_name": "n_name"}, [], {"n_regionkey"}),
        "nation#2": (
            "(n_name = 'A')",
            {"n_regionkey": "n_regionkey", "n_nationkey": "n_nationkey", "nation#2.n_name": "n_name"},
            [],
            {"n_regionkey"},
        ),
        "nation#3": (None, {"n_nationkey": "n_nationkey"}, [], set()),
    }


def test_sources_keep_the_order_of_the_query(shop: SqlSession) -> None:
    plan = plan_of(shop, "SELECT COUNT(*) FROM sales a, item, store, sales b WHERE a.item = item.item"
                         " AND b.store = store.store AND a.store = store.store")  # fmt: skip
    assert [source.name for source in plan.sources] == ["sales", "item", "store", "sales#2"]


def test_classes_of_equal_expressions(shop: SqlSession) -> None:
    plan = plan_of(
        shop, "SELECT COUNT(*) FROM f, g WHERE f.m = g.n AND f.small = g.n AND CAST(g.n AS BIGINT) = f.n + 1"
    )
    assert said(plan) == {
        "f": ("(m = small)", {"m": "m", "(n + 1L)": "(n + 1L)"}, [], {"m"}),
        "g": (None, {"m": "n", "(n + 1L)": "CAST(n AS BIGINT)"}, [], {"m", "(n + 1L)"}),
    }


def test_a_key_that_is_joined_on_is_the_join_variable(shop: SqlSession) -> None:
    plan = plan_of(shop, "SELECT f.m AS a, g.n AS b, COUNT(*) FROM f JOIN g ON f.m = g.n GROUP BY f.m, g.n")
    assert plan.keys == ("m", "m")
    plan = plan_of(shop, "SELECT f.x AS a, COUNT(*) FROM f JOIN g ON f.x = g.x GROUP BY f.x")
    assert plan.keys == ("x",)
    assert all("normalize" in str(dict(source.variables)["x"]) for source in plan.sources)
    # A row shows its float as it is, be it -0.0.
    plan = plan_of(shop, "SELECT f.x AS a FROM f JOIN g ON f.x = g.x")
    assert plan.keys == ("f.x",)
    assert str(dict(plan.sources[0].variables)["f.x"]) == "x"


def test_names_of_variables_are_unique(shop: SqlSession) -> None:
    plan = plan_of(shop, "SELECT f.n + 1 AS a, f.n AS b, g.n AS c, f.small + 1 AS d FROM f JOIN g ON f.n + 1 = g.y + 1")
    names = {name for source in plan.sources for name in source.variable_names}
    assert names == {"CAST((n + 1L) AS DOUBLE)", *plan.keys}
    assert plan.keys[1:3] == ("n", "g.n")


def test_products_multiply_out(shop: SqlSession) -> None:
    plan = plan_of(shop, "SELECT SUM((units - grade) * units + 3) FROM sales JOIN item USING (item)")
    assert [str(f) for f in plan.sources[0].factors] == [
        "(CAST(units AS BIGINT) * CAST(units AS BIGINT))",
        "units",
        "3",
    ]
    assert [str(f) for f in plan.sources[1].factors] == ["CAST(grade AS INT)"]
    terms = (Term(1, ((0, 0),)), Term(-1, ((0, 1), (1, 0))), Term(1, ((0, 2),)))
    assert plan.arguments == (Argument(terms, ((0, 0), (0, 1))),)


def test_what_is_counted_need_not_be_a_number(shop: SqlSession) -> None:
    plan = plan_of(shop, "SELECT COUNT(city), COUNT(units), COUNT(*) FROM sales JOIN store USING (store)")
    assert plan.arguments == (Argument((), ((1, 0),)), Argument((Term(1, ((0, 0),)),), ((0, 0),)))


def test_products_must_be_asked_for(shop: SqlSession) -> None:
    assert plan_of(shop, "SELECT COUNT(*) FROM region CROSS JOIN store").cross
    assert not plan_of(shop, "SELECT COUNT(*) FROM region CROSS JOIN nation WHERE r_regionkey = n_regionkey").cross
    assert plan_of(shop, "WITH c AS (SELECT 1 FROM f CROSS JOIN g) SELECT COUNT(*) FROM c a CROSS JOIN c b").cross
    with pytest.raises(UnsupportedSQLError, match="a join of f with region"):
        analyse(shop, "v", "SELECT COUNT(*) FROM f, region CROSS JOIN store")


def test_only_what_is_asked_for_is_evaluated(shop: SqlSession, tables: dict[str, DataFrame]) -> None:
    view = analyse(
        shop, "v", "SELECT city, SUM(10 / units) FROM sales NATURAL JOIN store WHERE units > 0 GROUP BY city"
    )
    sales = tables["sales"].select("units")
    columns = view.catalyst.map_columns(sales, "x_", only=["c", "v0"], source="sales")
    rows = sales.select(*columns).collect()
    assert sales.select(*columns).columns == ["x_c", "x_v0"]
    assert all((row.x_v0 is not None) == bool(row.x_c) for row in rows)


def test_plans_are_the_same_in_a_new_session(new_shop: Callable[..., SqlSession], shop: SqlSession) -> None:
    sql = "SELECT a.x, SUM(a.n * b.n) FROM f a JOIN g b ON a.x = b.x AND a.m = b.n WHERE a.m > 1 GROUP BY a.x"
    assert analyse(new_shop(), "v", sql).plan == analyse(shop, "v", sql).plan


REFUSED = {
    "SELECT COUNT(*) FROM f JOIN g ON f.m = g.n AND f.n > g.y": r"the condition f.n > g.y .* compares columns",
    "SELECT COUNT(*) FROM f, g WHERE f.m = g.n OR f.n = g.n": "compares columns of several tables",
    "SELECT COUNT(*) FROM f, g WHERE f.m <=> g.n": r"the condition f.m <=> g.n",
    "SELECT COUNT(*) FROM f a, f b, g WHERE a.m = b.m AND a.small + b.small = g.n": r"a.small \+ b.small = g.n",
    "SELECT COUNT(*) FROM f, g": "no condition connects them",
    "SELECT COUNT(*) FROM region NATURAL JOIN store": "a join of region with store",
    "SELECT COUNT(*) FROM f, g WHERE f.m = 1 AND g.n = 1": "no condition connects them",
    "SELECT MAX(units) FROM sales NATURAL JOIN store": r"MAX\(units\) cannot .* over joins by sums",
    "SELECT bool_or(open) FROM sales NATURAL JOIN store": "not kept up to date over joins by sums",
    "SELECT COUNT(DISTINCT units) FROM sales NATURAL JOIN store": "DISTINCT",
    "SELECT f.small + g.y AS z FROM f JOIN g ON f.m = g.n": r"the column f.small \+ g.y .* several tables",
    "SELECT COUNT(*) FROM f JOIN g ON f.m = g.n GROUP BY f.small + g.y": r"GROUP BY f.small \+ g.y",
    "SELECT SUM(f.small / g.y) FROM f JOIN g ON f.m = g.n": r"f.small / g.y cannot .* no sum of products",
    "SELECT SUM(greatest(f.small, g.y)) FROM f JOIN g ON f.m = g.n": r"greatest\(f.small, g.y\) cannot",
    "SELECT COUNT(concat(city, kind)) FROM sales NATURAL JOIN store NATURAL JOIN item": "concat",
    "SELECT SUM(CAST(f.n * g.n AS INT)) FROM f JOIN g ON f.x = g.x": "no sum of products",
    "SELECT SUM(try_multiply(f.small, g.n)) FROM f JOIN g ON f.x = g.x": "whether it is NULL depends on several tables",
    "SELECT SUM(f.g * g.g) FROM f JOIN g ON f.m = g.n": "to a FLOAT in every row",
    "SELECT SUM(a.w * b.u) FROM wide a JOIN wide b USING (n)": r"a.w \* b.u cannot .* Spark would round it",
    "SELECT SUM(CASE WHEN f.m > 0 THEN g.n ELSE 0 END) FROM f JOIN g ON f.n = g.n": "would make it NULL",
    "SELECT SUM(CASE WHEN f.m > 0 THEN g.y ELSE 0 END) FROM f JOIN g ON f.n = g.n": "would make it NaN",
    "SELECT SUM(CASE WHEN f.m > 0 THEN g.n ELSE 1 END) FROM f JOIN g ON f.n = g.n": "neither 0 nor NULL",
    "SELECT SUM(CASE WHEN f.m > 0 THEN g.n ELSE f.m END) FROM f JOIN g ON f.n = g.n": "neither 0 nor NULL",
    "SELECT STDDEV(f.m * g.n) FROM f JOIN g ON f.n = g.n": "squares are not kept",
    "SELECT SUM(DISTINCT f.m) FROM f JOIN g ON f.n = g.n": "DISTINCT values are not kept",
    "SELECT AVG(DISTINCT f.m) FROM f JOIN g ON f.n = g.n": "DISTINCT values are not kept",
    "SELECT COUNT(DISTINCT f.m, g.y) FROM f JOIN g ON f.n = g.n": "DISTINCT values are not kept",
    "SELECT SUM(CASE WHEN f.m > 0 THEN g.n WHEN f.m < 0 THEN 1 END) FROM f JOIN g ON f.n = g.n": "no sum of products",
    "SELECT SUM(g.y) FILTER (WHERE f.m > g.y) FROM f JOIN g ON f.n = g.n": "compares columns of several tables",
    "SELECT COUNT(*) FROM f JOIN (SELECT n, COUNT(*) FROM g GROUP BY n) h ON f.n = h.n": "a join with the answer",
    "SELECT COUNT(*) FROM f JOIN (SELECT DISTINCT n FROM g) h ON f.n = h.n": "a join with the answer",
    "SELECT COUNT(*) FROM f JOIN g ON array(f.n) = array(g.n)": "of type array<bigint>",
    "SELECT COUNT(*) FROM f LEFT JOIN g ON f.n = g.n WHERE g.y > 0": "LEFT OUTER JOIN",
    "SELECT f.n FROM f JOIN g ON f.n = g.n UNION ALL SELECT n FROM g": "UNION .* for now",
}  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_refused_with_a_way_out(shop: SqlSession, sql: str) -> None:
    with pytest.raises(UnsupportedSQLError, match=REFUSED[sql]) as refusal:
        analyse(shop, "v", sql)
    assert refusal.value.what.startswith("view 'v': ")
    assert len(refusal.value.way_out) > 10


def test_products_need_ansi_mode_where_they_can_overflow(new_shop: Callable[..., SqlSession]) -> None:
    lenient = new_shop(ansi=False)
    with pytest.raises(UnsupportedSQLError, match="without ANSI mode an overflow"):
        analyse(lenient, "v", "SELECT SUM(f.n * g.n) FROM f JOIN g ON f.x = g.x")
    analyse(lenient, "v", "SELECT SUM(price * cost) FROM sales JOIN item USING (item)")


def test_rows_for_features(shop: SqlSession) -> None:
    sql = "SELECT city, price, cost * 2 AS twice, store AS shop FROM sales NATURAL JOIN store NATURAL JOIN item"
    plan = read_features(shop, "m", sql).plan
    assert plan.shape is Shape.ROWS
    assert isinstance(plan.over, JoinPlan)
    assert plan.over.keys == ("city", "price", "twice", "shop") == tuple(output.name for output in plan.outputs)
    assert said(plan.over)["sales"][1] == {"shop": "store", "item": "item", "price": "price"}
    assert said(plan.over)["item"][1] == {"item": "item", "twice": "(cost * 2BD)"}


def test_rows_of_one_table_are_a_join_too(shop: SqlSession, tables: dict[str, DataFrame]) -> None:
    view = read_features(
        shop, "m", "SELECT store AS item, item AS store, store + 1 AS x, store y FROM sales WHERE units > 0"
    )
    plan = view.plan.over
    assert plan is not None
    assert plan.keys == ("item", "store", "x", "item")
    assert said(plan) == {"sales": ("(units > 0)", {"item": "store", "store": "item", "x": "(store + 1)"}, [], set())}
    columns = view.catalyst.map_columns(tables["sales"], source="sales")
    assert tables["sales"].select(*columns).columns == ["c", "k0", "k1", "k2"]


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT city, SUM(price) FROM sales NATURAL JOIN store GROUP BY city", "an aggregate"),
        ("SELECT DISTINCT price FROM sales", "an aggregate"),
        (
            "SELECT units * grade AS z FROM sales NATURAL JOIN item",
            "the column 'z' .* a feature must come from one table",
        ),
    ],
)
def test_rows_that_are_refused(shop: SqlSession, sql: str, what: str) -> None:
    with pytest.raises(UnsupportedSQLError, match=what):
        read_features(shop, "m", sql)
