"""Sums in rings of the user, from SQL: DuckDB computes the same answers after every step without any ring."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.forks import Forks
from tests.own_rings import RINGS, Complex, MaxProduct, register_all
from tests.seeds import seeds

import headrace as hr
from headrace.engine.looking import Look
from headrace.errors import BadRowsError, SchemaError, StorageError, UnsupportedSQLError
from headrace.rings import registry

AB = "a JOIN b ON a.y = b.y"
ABC = f"{AB} JOIN c ON b.z = c.z"
INSERTED: dict[str, tuple[str, str]] = {  # Headrace's query, and DuckDB's
    "best": (
        f"SELECT a.x AS x, most_reliable(a.p, b.p) AS p, COUNT(*) AS n FROM {AB} GROUP BY a.x",
        f"SELECT a.x, MAX(a.p * b.p), COUNT(*) FROM {AB} GROUP BY a.x",
    ),
    "along": (
        f"SELECT a.x AS x, c.w AS w, most_reliable(a.p, b.p, c.p) AS p FROM {ABC} GROUP BY a.x, c.w",
        f"SELECT a.x, c.w, MAX(a.p * b.p * c.p) FROM {ABC} GROUP BY a.x, c.w",
    ),
    "length": (
        f"SELECT a.x AS x, shortest(a.y, b.z + 1) AS n, SUM(b.z) AS s FROM {AB} WHERE b.z > 0 GROUP BY a.x",
        f"SELECT a.x, MIN(a.y + b.z + 1), SUM(b.z) FROM {AB} WHERE b.z > 0 GROUP BY a.x",
    ),
    "alone": (
        "SELECT x, most_reliable(p) AS p, most_reliable(p, p) AS q, any_true(y, x) AS t FROM a GROUP BY x",
        "SELECT x, MAX(p), MAX(p * p), BOOL_OR(y * x <> 0) FROM a GROUP BY x",
    ),
    "total": (
        f"SELECT most_reliable(a.p, c.p) AS p, shortest(b.z) AS z FROM {ABC}",
        f"SELECT MAX(a.p * c.p), MIN(b.z) FILTER (WHERE b.z >= 0) FROM {ABC}",
    ),
    "chosen": (
        f"SELECT a.x AS x, most_reliable(a.p, CASE WHEN b.z > 1 THEN b.p END) AS p FROM {AB} GROUP BY a.x "
        "HAVING most_reliable(a.p, b.p) > 0.25",
        f"SELECT a.x, MAX(a.p * b.p) FILTER (WHERE b.z > 1) FROM {AB} GROUP BY a.x HAVING MAX(a.p * b.p) > 0.25",
    ),
}
CHANGED: dict[str, tuple[str, str]] = {
    "product": (
        f"SELECT a.x AS x, real_part(a.x, b.z) AS r, imaginary_part(a.x, b.z) AS i, COUNT(*) AS n FROM {AB} "
        "GROUP BY a.x",
        f"SELECT a.x, SUM(a.x * b.z - 1), SUM(a.x + b.z), COUNT(*) FROM {AB} GROUP BY a.x",
    ),
    "squares": (
        f"SELECT c.w AS w, squares_of_sums(a.p, b.p, c.p) AS q FROM {ABC} GROUP BY c.w",
        f"SELECT c.w, SUM(power(a.p + b.p + c.p, 2)) FROM {ABC} GROUP BY c.w",
    ),
    "one": (
        "SELECT y, squares_of_sums(p) AS q, squares_of_sums(p, x) AS s, SUM(p) AS t FROM a GROUP BY y",
        "SELECT y, SUM(p * p), SUM(power(p + x, 2)), SUM(p) FROM a GROUP BY y",
    ),
    "whole": (
        f"SELECT squares_of_sums(b.p) AS q, real_part(a.x) AS r FROM {AB}",
        f"SELECT SUM(b.p * b.p), SUM(a.x) FROM {AB}",
    ),
}
SCHEMAS = {
    "a": pa.schema([("x", pa.int64()), ("y", pa.int64()), ("p", pa.float64())]),
    "b": pa.schema([("y", pa.int64()), ("z", pa.int64()), ("p", pa.float64())]),
    "c": pa.schema([("z", pa.int64()), ("w", pa.int64()), ("p", pa.float64())]),
}
DDL = {
    "a": "x BIGINT, y BIGINT, p DOUBLE",
    "b": "y BIGINT, z BIGINT, p DOUBLE NOT NULL",
    "c": "z BIGINT, w BIGINT, p DOUBLE",
}
Row = tuple[int | None, int | None, float | None]
Rows = dict[str, list[Row]]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_all()
    yield
    for name, ring in RINGS.items():  # a test may have taken one away
        registry._RINGS[name] = ring


def some_row(rng: random.Random, table: str) -> Row:
    def maybe(value: int) -> int | None:
        return None if rng.random() < 0.05 else value

    p = None if table != "b" and rng.random() < 0.2 else rng.randrange(17) / 16
    return maybe(rng.randrange(4)), maybe(rng.randrange(4)), p


def changes(rng: random.Random, rows: Rows, size: int, deletes: bool) -> dict[str, pa.Table]:
    """Random changes, which `rows` follow; by chance a row is deleted and another one like it inserted."""
    out = {}
    for table in rng.sample(sorted(rows), rng.randrange(1, 4)):
        gone = [rows[table].pop(rng.randrange(len(rows[table]))) for _ in range(size // 2) if deletes and rows[table]]
        new = [some_row(rng, table) for _ in range(rng.randrange(size + 1))]
        new += [rng.choice(gone)] if gone and rng.random() < 0.3 else []
        rows[table] += new
        signed = [(*row, 1) for row in new] + [(*row, -1) for row in gone]
        rng.shuffle(signed)
        schema = SCHEMAS[table].append(pa.field("__diff", pa.int64()))
        columns = [list(column) for column in zip(*signed, strict=True)] if signed else [[]] * 4
        out[table] = pa.table(columns, schema=schema)
    return out


def expected(rows: Rows, sql: str) -> Counter[tuple[object, ...]]:
    with duckdb.connect() as connection:
        for table, schema in SCHEMAS.items():
            columns = [list(column) for column in zip(*rows[table], strict=True)] if rows[table] else [[]] * 3
            connection.register(table, pa.table(columns, schema=schema))
        return Counter(connection.execute(sql).fetchall())


def answer(view: hr.View) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in view.to_arrow().to_pylist())


def tables(engine: hr.Engine) -> None:
    for table, ddl in DDL.items():
        engine.table(table, ddl)


def play(
    spark: SparkSession,
    folder: Path,
    rng: random.Random,
    queries: dict[str, tuple[str, str]],
    sizes: list[int],
    executor: str,
    strategy: str = "auto",
) -> None:
    """Random steps, some before the views are made, and a restart between two of them."""
    deletes = queries is CHANGED
    rows: Rows = {table: [] for table in SCHEMAS}
    with hr.Engine(spark, folder, executor=executor, buckets=3) as engine:
        tables(engine)
        engine.apply(changes(rng, rows, 8, True))
        engine.apply(changes(rng, rows, 8, True))  # also deletions: no view looks yet
        views = {name: engine.view(name, own, strategy=strategy) for name, (own, _) in queries.items()}
        before = {name: answer(view) for name, view in views.items()}
        for size in sizes[:-1]:
            engine.apply(changes(rng, rows, size, deletes))
            for name, (_, theirs) in queries.items():
                found = answer(views[name])
                assert found == expected(rows, theirs), name
                moved = views[name].changes().to_pylist()
                for row in moved:
                    before[name][tuple(v for k, v in row.items() if k != "__diff")] += row["__diff"]
                assert +before[name] == found, name
    with hr.Engine(spark, folder, executor=executor) as engine:
        engine.apply(changes(rng, rows, sizes[-1], deletes))
        for name, (_, theirs) in queries.items():
            found = answer(engine.views[name])  # type: ignore[arg-type]
            assert found == expected(rows, theirs), name


@seeds("semirings under insertions", 4)
def test_semirings_follow_insertions(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 5, 20]) for _ in range(6)]
    play(spark, tmp_path, rng, INSERTED, sizes, "inline")


@seeds("rings under changes", 4)
def test_rings_follow_insertions_and_deletions(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 5, 20]) for _ in range(6)]
    play(spark, tmp_path, rng, CHANGED, sizes, "inline")


@pytest.mark.parametrize("queries", [INSERTED, CHANGED], ids=["semirings", "rings"])
def test_the_spark_executor_gives_the_same(
    spark: SparkSession, tmp_path: Path, queries: dict[str, tuple[str, str]]
) -> None:
    play(spark, tmp_path, random.Random(5), queries, [20, 6, 3], "spark")


@pytest.mark.parametrize("strategy", ["recursive", "first-order"])
@pytest.mark.parametrize("queries", [INSERTED, CHANGED], ids=["semirings", "rings"])
def test_other_trees_of_views_keep_rings_too(
    spark: SparkSession, tmp_path: Path, queries: dict[str, tuple[str, str]], strategy: str
) -> None:
    of_joins = {name: both for name, both in queries.items() if " JOIN " in both[0]}
    rng = random.Random(7)
    rows: Rows = {table: [] for table in SCHEMAS}
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        views = {name: engine.view(name, own, strategy=strategy) for name, (own, _) in of_joins.items()}
        for size in (9, 2, 14):
            engine.apply(changes(rng, rows, size, queries is CHANGED))
            for name, (_, theirs) in of_joins.items():
                assert answer(views[name]) == expected(rows, theirs), name


@seeds("semirings over cycles", 2)
def test_cycles_of_one_table(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Every copy of the table changes at once, and indicator projections stand below the sums."""
    rng = random.Random(seed)
    cycle = "a AS e JOIN a AS f ON e.y = f.x JOIN a AS g ON f.y = g.x AND g.y = e.x"
    both = f"SELECT {{}} FROM {cycle}"
    rows: Rows = {table: [] for table in SCHEMAS}
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        best = engine.view("best", both.format("most_reliable(e.p, f.p, g.p) AS p"))
        squares = engine.view("squares", both.format("squares_of_sums(e.p, g.p) AS q"))
        for size in (10, 1, 6):
            new = [some_row(rng, "a") for _ in range(size)]
            rows["a"] += new
            engine.apply({"a": pa.table([list(c) for c in zip(*new, strict=True)], schema=SCHEMAS["a"])})
            assert answer(best) == expected(rows, both.format("MAX(e.p * f.p * g.p)"))
            assert answer(squares) == expected(rows, both.format("SUM(power(e.p + g.p, 2))"))


def rows_of(*rows: tuple[object, ...]) -> pa.Table:
    names = ["x", "y", "p", "__diff"]
    return pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_semiring_refuses_deletions(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    with hr.Engine(spark, tmp_path, executor=executor, buckets=2) as engine:
        tables(engine)
        view = engine.view("best", "SELECT x, most_reliable(p) AS p FROM a WHERE y > 0 GROUP BY x")
        engine.apply({"a": rows_of((1, 1, 0.5, 1), (1, 2, 0.75, 1), (2, 0, 0.25, 1))})
        step = engine.step
        deleting = {"a": rows_of((1, 2, 0.75, -1), (3, 1, 1.0, 1))}
        with pytest.raises(BadRowsError, match="view 'best': sums in the semiring 'most_reliable', which cannot take"):
            engine.apply(deleting)
        # An update is a deletion too, also of a row that the same batch inserts.
        for batch in (((1, 2, 0.75, -1), (1, 2, 0.75, 1)), ((5, 5, 0.5, 1), (5, 5, 0.5, -1))):
            with pytest.raises(BadRowsError, match="semiring"):
                engine.apply({"a": rows_of(*batch)})
        assert engine.step == step
        assert answer(view) == Counter({(1, 0.75): 1})
        assert engine.tables["a"].rows == 3
        engine.apply({"a": rows_of((2, 0, 0.25, -1))})  # a row that the view leaves out
        done = engine.apply(deleting, on_bad_rows="quarantine")
        assert done.quarantined == {"a": 1}
        assert answer(view) == Counter({(1, 0.75): 1, (3, 1.0): 1})
        aside = engine.quarantine("a").to_pylist()
        assert [(row["x"], row["y"], row["__diff"]) for row in aside] == [(1, 2, -1)]
        assert "semiring 'most_reliable'" in aside[0]["__reason"]
        engine.drop("best")
        engine.apply({"a": rows_of((1, 2, 0.75, -1))})


def test_a_view_with_a_goal_refuses_deletions_when_they_come(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        view = engine.view("best", "SELECT x, most_reliable(p) AS p FROM a GROUP BY x", goal=hr.Manual())
        engine.apply({"a": rows_of((1, 1, 0.5, 1))})
        engine.apply({"a": rows_of((1, 2, 0.75, 1), (2, 2, 0.25, 1))})
        with pytest.raises(BadRowsError, match="semiring"):
            engine.apply({"a": rows_of((1, 2, 0.75, -1))})
        assert answer(view) == Counter()
        view.refresh()
        assert answer(view) == Counter({(1, 0.75): 1, (2, 0.25): 1})


def test_every_table_of_the_join_refuses_deletions(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        engine.view("best", f"SELECT a.x, most_reliable(a.p) AS p FROM {AB} GROUP BY a.x")
        b = pa.table({"y": [1], "z": [1], "p": [0.5]})
        engine.apply({"b": b})
        with pytest.raises(BadRowsError, match="which cannot take a row away again; use MIN or MAX"):
            engine.apply({"b": b.append_column("__diff", pa.array([-1]))})


@pytest.mark.parametrize("value", [-0.5, float("nan"), 101.0])
def test_values_that_the_ring_does_not_take_are_bad_rows(spark: SparkSession, tmp_path: Path, value: float) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        view = engine.view("best", f"SELECT a.x, most_reliable(a.p, b.p) AS p FROM {AB} GROUP BY a.x")
        bad = rows_of((1, 1, 0.5, 1), (1, 1, value, 1))
        with pytest.raises(BadRowsError, match=f"{value} in p, which the ring 'most_reliable' does not take"):
            engine.apply({"a": bad})
        engine.apply({"a": bad, "b": pa.table({"y": [1], "z": [1], "p": [0.5]})}, on_bad_rows="quarantine")
        assert answer(view) == Counter({(1, 0.25): 1})
        assert engine.quarantine("a").num_rows == 1


def test_spark_evaluates_the_same_query(spark: SparkSession, tmp_path: Path) -> None:
    """refresh="full" knows the rings as functions, over changes of all kinds."""
    own = {
        "best": INSERTED["along"],
        "alone": INSERTED["alone"],
        "squares": CHANGED["squares"],
    }
    rng = random.Random(3)
    rows: Rows = {table: [] for table in SCHEMAS}
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        views = {name: engine.view(name, sql, refresh="full") for name, (sql, _) in own.items()}
        for size in (12, 5):
            engine.apply(changes(rng, rows, size, True))
            for name, (_, theirs) in own.items():
                assert answer(views[name]) == expected(rows, theirs), name
    with hr.Engine(spark, tmp_path) as engine:
        assert answer(engine.views["best"]) == expected(rows, own["best"][1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT most_reliable(p) AS p FROM a", "without GROUP BY .* gives no row where there are no rows"),
        ("SELECT x, most_reliable(p) AS p, COUNT(*) AS n FROM a GROUP BY x", "beside other aggregates .* not mix them"),
        ("SELECT x FROM a WHERE p > (SELECT most_reliable(p) FROM a)", "gives no row"),
    ],
)
def test_what_spark_would_get_wrong_is_refused(spark: SparkSession, tmp_path: Path, sql: str, why: str) -> None:
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        tables(engine)
        with pytest.raises(UnsupportedSQLError, match=why):
            engine.view("v", sql, refresh="full")


def test_opening_needs_the_rings_of_the_views(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        engine.view("best", "SELECT x, most_reliable(p) AS p FROM a GROUP BY x")
        engine.view("full", "SELECT x, most_reliable(p) AS p FROM a GROUP BY x", refresh="full")
        engine.apply({"a": rows_of((1, 1, 0.5, 1))})
    looked = Look(tmp_path)
    assert answer(looked.views["best"]) == Counter({(1, 0.5): 1})  # type: ignore[arg-type]
    del registry._RINGS["most_reliable"]
    with hr.Engine(spark, tmp_path) as engine:
        for name in ("best", "full"):
            with pytest.raises(StorageError, match="which is not registered") as no:
                engine.views[name].to_arrow()
            assert "call hr.register_ring('most_reliable', ...)" in no.value.way_out
    # What is kept can be told without the ring; what it comes to cannot.
    assert [view["name"] for view in Look(tmp_path).status()["views"]] == ["best", "full"]
    assert "sum of a.p in most_reliable" in str(Look(tmp_path).views["best"].explain())
    with pytest.raises(SchemaError, match="the ring 'most_reliable' is not registered in this process"):
        Look(tmp_path).views["best"].to_arrow()  # type: ignore[union-attr]
    hr.register_ring("most_reliable", RINGS["shortest"])
    with hr.Engine(spark, tmp_path) as engine:
        assert "another one than that which the state was written with" in engine.views["best"].problem  # type: ignore[union-attr]
    registry._RINGS["most_reliable"] = MaxProduct()
    with hr.Engine(spark, tmp_path) as engine:
        assert answer(engine.views["best"]) == Counter({(1, 0.5): 1})  # type: ignore[arg-type]


def test_a_name_keeps_its_ring_while_a_view_uses_it(spark: SparkSession, tmp_path: Path) -> None:
    hr.register_ring("of_this_test", Complex(0))
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        tables(engine)
        engine.view("v", "SELECT y, Of_This_Test(x) AS r FROM a GROUP BY y")
        hr.register_ring("of_this_test", Complex(0))
        with pytest.raises(SchemaError, match=r"belongs to another ring, .*, which v uses"):
            hr.register_ring("OF_THIS_TEST", Complex(1))
        engine.apply({"a": rows_of((5, 1, 0.0, 1))})
        engine.drop("v")
        hr.register_ring("of_this_test", Complex(1))
        view = engine.view("v", "SELECT y, of_this_test(x) AS r FROM a GROUP BY y")
        assert answer(view) == Counter({(1, 1): 1})
    hr.register_ring("of_this_test", Complex(0))  # a closed engine has no say


@pytest.mark.parametrize("name", ["sum", "Explode", "max", "percentile"])
def test_no_ring_has_the_name_of_a_function(spark: SparkSession, name: str) -> None:
    with pytest.raises(SchemaError, match=f"Spark has a function '{name}'"):
        hr.register_ring(name, MaxProduct())


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (f"SELECT most_reliable(a.p * b.p) AS p FROM {AB}", "give an argument per table: the ring multiplies them"),
        (f"SELECT most_reliable(greatest(a.p, b.p)) AS p FROM {AB}", "a ring lifts a number where its table is"),
        ("SELECT most_reliable(CAST(p AS DECIMAL(9, 2))) AS p FROM a", "a ring lifts doubles and integers"),
        ("SELECT most_reliable(DISTINCT p) AS p FROM a", "a ring takes no FILTER and no DISTINCT"),
        ("SELECT most_reliable(p) FILTER (WHERE x > 1) AS p FROM a", "write CASE WHEN"),
        ("SELECT most_reliable() AS p FROM a", "it has nothing to multiply"),
        ("SELECT a.x, most_reliable(a.p) AS p FROM a LEFT JOIN b ON a.y = b.y GROUP BY a.x", "only inner joins"),
        ("SELECT x, most_reliable(p) OVER (PARTITION BY y) AS p FROM a", "window function"),
    ],
)
def test_what_no_view_keeps_is_refused(spark: SparkSession, tmp_path: Path, sql: str, why: str) -> None:
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        tables(engine)
        with pytest.raises(UnsupportedSQLError) as refused:
            engine.view("v", sql)
        assert why in str(refused.value)


@pytest.mark.parametrize("strategy", ["operators", "foreign-key"])
def test_other_strategies_refuse_rings(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        engine.table("a", "x BIGINT, y BIGINT, p DOUBLE", references={"y": "d"})
        engine.table("d", "y BIGINT, q DOUBLE", key="y")
        sql = "SELECT x, most_reliable(a.p, d.q) AS p FROM a JOIN d ON a.y = d.y GROUP BY x"
        with pytest.raises(UnsupportedSQLError, match="sums in a ring are kept by views over rings"):
            engine.view("v", sql, strategy=strategy)
        assert engine.view("v", sql).explain().strategy == "factorized"


def test_explain_says_what_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        tables(engine)
        best, alone = (str(engine.view(name, INSERTED[name][0]).explain()) for name in ("best", "alone"))
        assert "sum of a.p * b.p in most_reliable" in " ".join(best.split())
        assert "sum of a.p in most_reliable, sum of a.p * a.p in most_reliable" in " ".join(alone.split())


IN_MAIN = """
import numpy as np, pyarrow as pa
import headrace as hr
from pyspark.sql import SparkSession

class Best(hr.Semiring):
    def zeros(self, n): return (np.zeros(n),)
    def ones(self, n): return (np.ones(n),)
    def add(self, left, right): return (np.maximum(left[0], right[0]),)
    def multiply(self, left, right): return (left[0] * right[0],)
    def takes(self, values): return values >= 0

hr.register_ring("best_of_main", Best())
with hr.Engine(SparkSession.builder.getOrCreate(), "state", executor="spark", buckets=2) as engine:
    engine.table("t", "x BIGINT, p DOUBLE")
    view = engine.view("v", "SELECT x, best_of_main(p, p) AS p FROM t GROUP BY x ORDER BY x")
    engine.apply({"t": pa.table({"x": [1, 1, 2], "p": [0.5, 0.25, None]})})
    print(view.to_arrow().to_pylist(), view.to_df().collect())
"""


def test_a_ring_of_the_main_program_goes_to_tasks(forks: Forks, tmp_path: Path) -> None:
    done = forks.run("-c", IN_MAIN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = "[{'x': 1, 'p': 0.25}, {'x': 2, 'p': None}]"
    assert done.stdout == f"{rows} [Row(x=1, p=0.25), Row(x=2, p=None)]\n"
