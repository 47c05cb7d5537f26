"""A join plan, evaluated by brute force, gives Spark's own answer to the same query."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.plan import native
from headrace.plan.join import JoinPlan, Source
from headrace.relation.types import SqlType
from headrace.sql.catalyst import AnalysedView, analyse
from headrace.sql.session import SqlSession

Q3 = """SELECT l_orderkey, SUM(l_price * (1 - l_discount)) AS revenue, o_orderdate, o_priority
        FROM customer, orders, lineitem
        WHERE c_segment = 'A' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-05'
        GROUP BY l_orderkey, o_orderdate, o_priority ORDER BY revenue DESC, o_orderdate"""
Q5 = """SELECT n_name, SUM(l_price * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
          AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
          AND r_name = 'A' AND o_orderdate >= DATE '1995-03-02'
        GROUP BY n_name ORDER BY revenue DESC"""
Q7 = """SELECT supp_nation, cust_nation, l_year, SUM(volume) AS revenue FROM (
          SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, year(l_shipdate) AS l_year,
                 l_price * (1 - l_discount) AS volume
          FROM supplier, lineitem, orders, customer, nation n1, nation n2
          WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
            AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
            AND n1.n_name IN ('A', 'B') AND n2.n_name = 'C') AS shipping
        GROUP BY supp_nation, cust_nation, l_year ORDER BY supp_nation, cust_nation, l_year"""
Q10 = """SELECT c_custkey, c_name, SUM(l_price * (1 - l_discount)) AS revenue, c_acctbal, n_name
         FROM customer, orders, lineitem, nation
         WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_returned = 'A' AND c_nationkey = n_nationkey
         GROUP BY c_custkey, c_name, c_acctbal, n_name HAVING SUM(l_price) > 0"""

QUERIES = [
    Q3, Q5, Q7, Q10,
    "SELECT city, kind, SUM(units * price), COUNT(*), AVG(cost) FROM sales NATURAL JOIN store NATURAL JOIN item"
    " WHERE grade > -1 AND units > 0 GROUP BY city, kind",
    "SELECT store, item, COUNT(units) AS n FROM sales JOIN store USING (store) JOIN item USING (item)"
    " GROUP BY store, item HAVING n > 1 ORDER BY n DESC, store, item",
    "SELECT COUNT(*), SUM(units), AVG(cost), COUNT(city) FROM sales, store, item"
    " WHERE sales.store = store.store AND item.item = sales.item",
    "SELECT s.city, i.kind, s.store FROM sales NATURAL JOIN store s NATURAL JOIN item i WHERE i.kind IS NOT NULL",
    "SELECT a.n_name AS x, b.n_name AS y, COUNT(*) FROM nation a JOIN nation b ON a.n_regionkey = b.n_regionkey"
    " WHERE a.n_name <> 'A' GROUP BY x, y",
    "SELECT DISTINCT c.n_name FROM nation a JOIN nation b USING (n_regionkey) JOIN nation c USING (n_regionkey)",
    # NULL factors, and sums of products over several tables
    "SELECT city, SUM(units * cost), AVG(units * cost), COUNT(units * cost), SUM(units * (price - cost))"
    " FROM sales NATURAL JOIN store NATURAL JOIN item GROUP BY city",
    "SELECT SUM((units + grade) * (units - grade)), SUM(-(units * grade)), SUM(units * grade + 3 * units - 7),"
    " SUM(2 * units * grade * 5), SUM(units * cost + grade) FROM sales JOIN item USING (item)",
    "SELECT kind, SUM(units * CAST(grade AS DOUBLE)), AVG(size * units), SUM(CAST(units * grade AS DECIMAL(20, 2)))"
    " FROM sales NATURAL JOIN item NATURAL JOIN (SELECT store, size FROM store WHERE NOT isnan(size)) GROUP BY kind",
    "SELECT SUM(cost * price), SUM(price * price * cost), AVG(cost * price) FROM sales JOIN item USING (item)",
    "SELECT SUM((units * grade + 2) * (3 - grade * cost)), SUM(-2 * (units - (grade - price)) * -cost),"
    " AVG(CAST(units + grade AS DOUBLE) * 1.5D * (grade - units)) FROM sales JOIN item USING (item)",
    # CASE and FILTER
    "SELECT city, SUM(CASE WHEN kind = 'A' THEN price ELSE 0 END), SUM(CASE WHEN kind = 'A' THEN units * cost END),"
    " AVG(CASE WHEN units > 1 THEN price * grade ELSE 0 END) FROM sales NATURAL JOIN store NATURAL JOIN item"
    " GROUP BY city",
    "SELECT COUNT(*) FILTER (WHERE open), COUNT(units) FILTER (WHERE open), SUM(price) FILTER (WHERE open),"
    " AVG(units * cost) FILTER (WHERE open AND kind <> 'B'), SUM(units) FILTER (WHERE units > 1),"
    " COUNT_IF(open), COUNT_IF(open AND kind = 'A' AND units > 1) FROM sales NATURAL JOIN store NATURAL JOIN item",
    "SELECT SUM(IF(open AND kind = 'A', price * 2, 0)), AVG(CASE WHEN open THEN 1 ELSE 0 END),"
    " SUM(IF(open AND kind = 'A', 1.5D, 0)), SUM(IF(kind = 'A', units + size, NULL) - grade),"
    " COUNT(CASE WHEN open AND units > 1 THEN 1 END), SUM(2), COUNT(NULL), COUNT(units, cost),"
    " COUNT(units * cost - grade) FILTER (WHERE open), COUNT(units + cost, city)"
    " FROM sales NATURAL JOIN store NATURAL JOIN item",
    # floats as join columns and keys, types that Catalyst aligns
    "SELECT f.x, COUNT(*), SUM(f.n) FROM f JOIN g ON f.x = g.x GROUP BY f.x",
    "SELECT f.x, g.x AS gx, f.g FROM f JOIN g ON f.x = g.x",
    "SELECT DISTINCT f.g FROM f JOIN g ON f.n = g.n",
    "SELECT f.n, g.n AS m, COUNT(*) FROM f JOIN g ON f.n = g.n GROUP BY f.n, g.n",
    "SELECT COUNT(*) FROM f JOIN g ON f.n + 1 = g.n * 2 AND f.g = g.x",
    "SELECT f.small FROM f JOIN g ON CAST(f.small AS STRING) = CAST(g.n AS STRING)",
    "SELECT SUM(f.small * y) FROM f JOIN g ON f.n = g.n",
    # classes with two expressions of one source, and conditions that read one source in the end
    "SELECT f.n, COUNT(*) FROM f JOIN g ON f.n = g.n AND f.m = g.n AND f.small = g.n GROUP BY f.n",
    "SELECT COUNT(*) FROM f, g WHERE f.m = g.n AND g.n > f.small AND f.m = f.small + 1",
    "SELECT f.m + f.small AS z, g.n + small AS zz FROM f, g WHERE f.m = g.n",
    "SELECT COUNT(*), SUM(f.m * g.n) FROM f JOIN g ON f.m = g.n AND f.m = 1 AND g.y > 0 AND g.n IN (1, 2)",
    "SELECT COUNT(*) FROM f a JOIN f b ON a.m = b.m JOIN f c ON b.m = c.m AND c.m = a.m WHERE a.small < 2",
    "SELECT a.small, SUM(b.small * c.small) FROM f a JOIN f b ON a.m = b.small JOIN f c ON b.m = c.small GROUP BY 1",
    # products that were asked for, conditions that never hold, constants
    "SELECT r_name, COUNT(*), SUM(n * r_regionkey) FROM region CROSS JOIN g GROUP BY r_name",
    "SELECT r_name, city FROM region CROSS JOIN store WHERE open",
    "SELECT COUNT(*), SUM(units) FROM sales NATURAL JOIN store WHERE 1 = 0",
    "SELECT city, COUNT(*) FROM sales NATURAL JOIN store WHERE units <> 0 AND 10 / units > 1 GROUP BY city",
    "SELECT 'x' AS x, 1 AS one, city FROM sales NATURAL JOIN store",
    "SELECT 1, COUNT(*) FROM sales NATURAL JOIN store GROUP BY 1",
    # nesting
    "WITH big AS (SELECT store, units * 2 AS twice FROM sales WHERE units > 0 ORDER BY units)"
    " SELECT a.twice, SUM(b.twice * size) FROM big a JOIN big b USING (store) JOIN (SELECT * FROM store WHERE open)"
    " USING (store) WHERE NOT isnan(size) GROUP BY a.twice",
    "SELECT city, SUM(v) FROM (SELECT city, price * grade AS v, store FROM (SELECT * FROM sales NATURAL JOIN item)"
    " JOIN store USING (store)) WHERE city > 'A' GROUP BY city",
]  # fmt: skip


def joined_of(view: AnalysedView) -> JoinPlan:
    assert isinstance(view.plan.over, JoinPlan)
    return view.plan.over


def side(view: AnalysedView, source: Source, table: DataFrame) -> list[dict[str, object]]:
    """What the rows of one source bring, by Catalyst; wherever it can be, also natively, with the same result."""
    mapped = table.select(*view.catalyst.map_columns(table, "m_", source=source.name))
    rows = [{name[2:]: v for name, v in row.asDict().items()} for row in mapped.collect()]
    kept = [row for row in rows if source.condition is None or row["c"]]
    arrow = table.toArrow()
    columns = {name: arrow[name].combine_chunks() for name in arrow.column_names}
    columns = {n: c.cast(pa.large_string()) if pa.types.is_string(c.type) else c for n, c in columns.items()}
    expressions = {f"k{i}": e for i, (_, e) in enumerate(source.variables)}
    expressions |= {f"v{i}": e for i, e in enumerate(source.factors)}
    for name, expression in expressions.items():
        assert expression.columns <= set(table.columns)
        if native.supported(expression):
            values = native.evaluate(expression, columns, len(arrow)).to_pylist()
            values = [v for v, row in zip(values, rows, strict=True) if source.condition is None or row["c"]]
            assert repr(values) == repr([row[name] for row in kept])
    return kept


def brute_force(view: AnalysedView, tables: dict[str, DataFrame]) -> Iterator[dict[str, object]]:
    """The lines (`k0..`, `v0..`) of a view by its plan: all combinations of rows that agree in their variables."""
    plan = joined_of(view)
    combined: list[tuple[dict[str, object], list[dict[str, object]]]] = [({}, [])]
    for source in plan.sources:
        rows = []
        for row in side(view, source, tables[source.table]):
            bound = {name: same(row[f"k{i}"]) for i, name in enumerate(source.variable_names)}
            if all(bound[name] is not None for name in source.required):
                rows.append((bound, row))
        combined = [
            (known | bound, [*brought, row])
            for known, brought in combined
            for bound, row in rows
            if all(known.get(name, v) == v for name, v in bound.items())
        ]
    for bound, brought in combined:
        line = {f"k{i}": float("nan") if bound[name] == "NaN" else bound[name] for i, name in enumerate(plan.keys)}
        for i, argument in enumerate(plan.arguments):
            value: object = 0
            for term in argument.terms:
                factors = [brought[s][f"v{f}"] for s, f in term.factors]
                value = None if None in factors or value is None else value + term.sign * math.prod(factors)
            unknown = any(brought[s][f"v{f}"] is None for s, f in argument.nullable)
            assert not argument.terms or (value is None) == unknown
            line[f"v{i}"] = None if unknown else value
        yield line


def same(value: object) -> object:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("sql", QUERIES)
def test_the_plan_means_what_the_query_means(
    spark: SparkSession,
    shop: SqlSession,
    tables: dict[str, DataFrame],
    finished: Callable[[AnalysedView, list[dict[str, object]]], DataFrame],
    shown: Callable[[DataFrame, bool], list[str]],
    sql: str,
) -> None:
    view = analyse(shop, "v", sql)
    assert isinstance(view.plan.over, JoinPlan)
    got, expected = finished(view, list(brute_force(view, tables))).drop("__diff"), spark.sql(sql)
    assert [(f.name, f.dataType, f.nullable) for f in got.schema] == [
        (f.name, f.dataType, f.nullable) for f in expected.schema
    ]
    assert shown(got, bool(view.plan.order)) == shown(expected, bool(view.plan.order))
    for argument, plan in zip(view.plan.arguments, joined_of(view).arguments, strict=True):
        check_types(
            argument.type, [[joined_of(view).sources[s].factors[f].type for s, f in t.factors] for t in plan.terms]
        )


def check_types(type: SqlType, terms: list[list[SqlType]]) -> None:
    """Every term has the family of its argument, and the scale; at most one factor a source."""
    for factors in terms:
        if type.is_decimal:
            assert all(factor.is_decimal for factor in factors)
            assert sum(factor.scale for factor in factors) == type.scale
        elif type.is_integer:
            assert all(factor.is_integer for factor in factors)
        else:
            assert all(factor.is_floating for factor in factors)
