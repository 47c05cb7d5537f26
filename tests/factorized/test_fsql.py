"""The query that F/SQL writes, run by DuckDB, gives the moments of the join as NumPy computes them row by row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import duckdb
import numpy as np
import pytest

from headrace.errors import SchemaError
from headrace.factorized.fsql import over_rows, rewrite
from headrace.factorized.planner import Options, moments_view
from headrace.plan.expression import Expression, column
from headrace.plan.join import JoinPlan, Source
from headrace.relation.types import SqlType

BIGINT, DOUBLE = SqlType("bigint"), SqlType("double")
Rows = dict[str, list[dict[str, float | None]]]

PATH = {"R": "ab", "S": "bcx", "T": "cdy"}
STAR = {"F": "abcx", "A": "ay", "B": "bz", "C": "cw"}
SNOWFLAKE = {"F": "abx", "A": "acy", "B": "bz", "C": "cdw", "D": "dv"}


def join_of(schemas: dict[str, str], nullable: str = "") -> JoinPlan:
    def source(name: str, columns: str) -> Source:
        variables = tuple((v, column(v, DOUBLE if v in "vwxyz" else BIGINT, v in nullable)) for v in columns)
        shared = {v for other, names in schemas.items() if other != name for v in names}
        return Source(name, name, None, variables, required=frozenset(shared.intersection(nullable, columns)))

    return JoinPlan(tuple(source(name, columns) for name, columns in schemas.items()), (), ())


def some_rows(schemas: dict[str, str], nullable: str = "", n: int = 30) -> Rows:
    rng = np.random.default_rng(len(schemas))

    def value(v: str) -> float | None:
        if v in nullable and rng.random() < 0.2:
            return None
        return float(rng.normal(100.0)) if v in "vwxyz" else int(rng.integers(0, 4))

    return {name: [{v: value(v) for v in columns} for _ in range(n)] for name, columns in schemas.items()}


def brute_force(
    schemas: dict[str, str], rows: Rows, features: str, groups: str, shifts: dict[str, float]
) -> dict[tuple[float | None, ...], np.ndarray]:
    found: list[dict[str, float | None]] = [{}]
    for name in schemas:
        met = product(found, rows[name])
        found = [a | b for a, b in met if all(a[v] == b[v] and b[v] is not None for v in a.keys() & b.keys())]
    out: dict[tuple[float | None, ...], np.ndarray] = {}
    for row in found:
        if None not in [row[f] for f in features]:
            x = np.array([1.0, *(row[f] - shifts.get(f, 0.0) for f in features)])  # type: ignore[operator]
            key = tuple(row[g] for g in groups)
            out[key] = out.get(key, 0.0) + np.outer(x, x)[np.triu_indices(len(x))]
    return out


def answer(sql: str, schemas: dict[str, str], rows: Rows, groups: Sequence[str]) -> dict:
    with duckdb.connect() as database:
        for name, columns in schemas.items():
            kinds = ", ".join(f"{v} {'DOUBLE' if v in 'vwxyz' else 'BIGINT'}" for v in columns)
            database.execute(f"CREATE TABLE {name} ({kinds})")
            for row in rows[name]:
                marks = ", ".join("?" * len(columns))
                database.execute(f"INSERT INTO {name} VALUES ({marks})", [row[v] for v in columns])
        found = database.execute(sql.replace("`", '"')).fetchall()
    n = len(groups)
    return {tuple(row[:n]): np.array(row[n:], float) for row in found if row[n]}


def rewritten(join: JoinPlan, features: str, groups: str, shifts: dict[str, float], order: str | None = None) -> str:
    view, _ = moments_view(join, list(groups), list(features), Options(order=order), 2, 1, shifts)
    return rewrite(view.plan, join, features, groups, shifts)


def check(actual: dict, expected: dict) -> None:
    assert actual.keys() == expected.keys()
    for key, moments in expected.items():
        np.testing.assert_allclose(actual[key], moments, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("schemas", "features", "groups"),
    [
        (PATH, "xy", ""),
        (PATH, "yxb", ""),  # one that is joined on, and not in the order of the tree
        (PATH, "x", "a"),
        (PATH, "ybx", "da"),
        (STAR, "xyzw", ""),
        (STAR, "xayb", "c"),
        (SNOWFLAKE, "xyzwv", ""),
        (SNOWFLAKE, "vdx", "b"),
        ({"S": "bcx"}, "xc", "b"),
        ({"A": "ay", "B": "bz"}, "yz", "a"),  # a product: nothing is shared
    ],
)
def test_it_gives_the_moments(schemas: dict[str, str], features: str, groups: str) -> None:
    rows, shifts = some_rows(schemas), {"x": 100.0, "b": -1.5}
    expected = brute_force(schemas, rows, features, groups, shifts)
    assert expected
    check(answer(rewritten(join_of(schemas), features, groups, shifts), schemas, rows, groups), expected)
    body = f"SELECT * FROM {' NATURAL JOIN '.join(schemas)} -- all of it"
    if schemas != {"A": "ay", "B": "bz"}:
        plain = over_rows(body, features, groups, [shifts.get(f, 0.0) for f in features])
        check(answer(plain, schemas, rows, groups), expected)


def test_rows_with_null_in_a_feature_or_a_join_variable_take_no_part() -> None:
    schemas, nullable = {"R": "abz", "S": "bcx"}, "bcxa"
    rows = some_rows(schemas, nullable)
    sql = rewritten(join_of(schemas, nullable), "xzb", "ca", {})
    expected = brute_force(schemas, rows, "xzb", "ca", {})
    assert any(None in key for key in expected)  # NULL is a group like any other
    check(answer(sql, schemas, rows, "ca"), expected)


@pytest.mark.parametrize("order", ["c\n  b", "b\n  c !stop", "c\n  b\n    x !stop"])
def test_an_order_that_is_given_and_views_that_are_not_summed_at_once(order: str) -> None:
    rows = some_rows(PATH)
    sql = rewritten(join_of(PATH), "xy", "", {}, order)
    check(answer(sql, PATH, rows, ""), brute_force(PATH, rows, "xy", "", {}))


@pytest.mark.parametrize("empty", ["R", "T"])
def test_an_empty_relation_leaves_no_moments(empty: str) -> None:
    rows = some_rows(PATH) | {empty: []}
    assert answer(rewritten(join_of(PATH), "xy", "", {}), PATH, rows, "") == {}
    assert answer(rewritten(join_of(PATH), "xy", "a", {}), PATH, rows, "a") == {}


def test_aggregates_are_pushed_past_joins() -> None:
    sql = rewritten(join_of(STAR), "xyzw", "", {})
    assert sql.count("GROUP BY") == 6  # every view of the tree but the root is summed by its keys
    for name, columns in STAR.items():
        assert re.search(rf"SELECT [^()]* AS v\d FROM `{name}`\) AS a0 GROUP BY a0.v0", sql), columns


def test_conditions_and_expressions_are_written_as_catalyst_renders_them() -> None:
    doubled = Expression("Multiply", DOUBLE, "(x * 2.0D)", (column("x", DOUBLE),))
    inner = Expression("NormalizeNaNAndZero", DOUBLE, "normalizenanandzero(w)", (column("we`ird", DOUBLE),))
    joined = Expression("KnownFloatingPointNormalized", DOUBLE, "knownfloatingpointnormalized(..)", (inner,))
    condition = Expression("GreaterThan", SqlType("boolean"), "(b > 1L)", (column("b", BIGINT),))
    one = Source("R", "R", condition, (("x", doubled), ("w", joined)), required=frozenset("w"))
    two = Source("R#2", "R", None, (("w", joined),), required=frozenset("w"))
    sql = rewritten(JoinPlan((one, two), (), ()), "x", "", {})
    assert "FROM `R` WHERE (b > 1L)" in sql
    assert "(x * 2.0D) AS v" in sql
    assert "`we``ird` AS v" in sql
    assert sql.count("IS NOT NULL") == 3


def test_a_feature_cannot_be_a_group() -> None:
    view, _ = moments_view(join_of(PATH), ["a"], ["x"], Options(), 2, 1, {})
    with pytest.raises(SchemaError, match="'a' is grouped by"):
        rewrite(view.plan, join_of(PATH), ["x", "a"], ["a"], {})
