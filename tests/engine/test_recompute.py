"""Recomputed views: Spark's own answer, in the commit of the step that changes their tables."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import SchemaError, StepFailedError, UnsupportedSQLError
from headrace.runtime import replacing_job
from headrace.testing.oracle import Oracle, assert_same

SALES = "id BIGINT, item STRING, shop INT, units INT, price DECIMAL(8,2), extra STRING NOT NULL"
SQL = """SELECT s.shop, max(price) AS top, row_number() OVER (ORDER BY s.shop NULLS FIRST) AS place,
                (SELECT count(*) FROM shops) AS shops, max(city) AS city
         FROM sales s LEFT JOIN shops ON s.shop = shops.shop GROUP BY s.shop HAVING count(*) > 0
         UNION ALL SELECT NULL, NULL, 99, count(DISTINCT item), 'all' FROM sales WHERE extra IS NOT NULL
         ORDER BY place DESC;"""


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Any:
    with hr.Engine(spark, tmp_path / "state", buckets=2) as engine:
        engine.table("sales", SALES)
        engine.table("shops", "shop INT, city STRING, size DOUBLE", key="shop")
        yield engine


def sales(*rows: tuple[Any, ...], diff: list[int] | None = None) -> pa.Table:
    ids, items, shops, units, prices = zip(*rows, strict=True)
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "item": pa.array(items, pa.string()),
            "shop": pa.array(shops, pa.int32()),
            "units": pa.array(units, pa.int32()),
            "price": pa.array([None if p is None else Decimal(p) for p in prices], pa.decimal128(8, 2)),
            "extra": pa.array(["..."] * len(ids), pa.string()),
        }
    )
    return table if diff is None else table.append_column("__diff", pa.array(diff))


def shops(*rows: tuple[Any, ...]) -> pa.Table:
    numbers, cities, sizes = zip(*rows, strict=True)
    return pa.table({"shop": pa.array(numbers, pa.int32()), "city": cities, "size": pa.array(sizes, pa.float64())})


A, B, C = (1, "tea", 1, 2, "1.50"), (2, "pot", 1, 1, "20.00"), (3, "tea", 7, 5, None)


def expected(spark: SparkSession, engine: hr.Engine, sql: str) -> pa.Table:
    oracle = Oracle(spark)
    oracle.set_rows({name: table.to_arrow() for name, table in engine.tables.items()})
    return oracle.answer(sql)


def test_any_query_is_as_spark_answers_it(spark: SparkSession, engine: hr.Engine) -> None:
    view = engine.view("v", SQL, refresh="full")
    assert view.to_arrow().to_pylist() == [{"shop": None, "top": None, "place": 99, "shops": 0, "city": "all"}]
    assert view.changes().num_rows == 0
    step = engine.apply({"sales": sales(A, A, B, C), "shops": shops((1, "Ulm", 10.0), (2, "Ems", None))})
    assert step.views == {"v": hr.ViewChange(inserted=3, deleted=1)}
    assert (step.ran, "Spark recomputed v" in step.why) == ("job", True)
    assert view.to_arrow().column("place").to_pylist() == [99, 2, 1]
    assert_same(view.to_arrow(), expected(spark, engine, SQL))
    before = view.to_df()
    engine.apply({"sales": sales(A, B, (4, "pot", None, 1, "2.00"), diff=[-1, -1, 3])})
    assert_same(view.to_arrow(), expected(spark, engine, SQL))
    assert {(r["shop"], r["top"], r["__diff"]) for r in view.changes().to_pylist()} == {
        (1, Decimal("20.00"), -1),
        (1, Decimal("1.50"), 1),
        (None, Decimal("2.00"), 1),
        (7, None, -1),
        (7, None, 1),
    }
    assert [row.place for row in before.collect()] == [99, 2, 1]
    assert view.to_df().columns == ["shop", "top", "place", "shops", "city"]
    assert view.rows == 4 == view.to_df().count()
    assert view.schema.field("place").type == pa.int32()
    assert view.schema.names == view.to_pandas().columns.tolist()


def test_duplicates_count_and_unread_tables_cost_nothing(spark: SparkSession, engine: hr.Engine) -> None:
    known = spark.sql("SHOW TABLES").collect()  # other tests may have left some in this session
    view = engine.view("v", "SELECT units, count(*) AS n FROM sales GROUP BY units", refresh="full")
    engine.apply({"sales": sales(A, B, diff=[3, 1])})
    assert sorted(view.to_arrow().to_pylist(), key=str) == [{"units": 1, "n": 1}, {"units": 2, "n": 3}]
    step = engine.apply({"shops": shops((1, "Ulm", 1.0))})
    assert (step.views, step.ran, view.changes().num_rows) == ({}, "driver", 0)
    step = engine.apply({"sales": sales(A, A, B, diff=[-2, -1, -1])})
    assert (view.rows, step.views) == (0, {"v": hr.ViewChange(deleted=2)})
    assert view.to_arrow().to_pylist() == [] == view.to_df().collect()
    assert spark.sql("SHOW TABLES").collect() == known


def test_restart_drop_and_explain(spark: SparkSession, tmp_path: Path, engine: hr.Engine) -> None:
    sql = "SELECT item, sum(units) AS n FROM sales LEFT JOIN shops USING (shop) GROUP BY ALL"
    view = engine.view("v", sql, refresh="full")
    over = "SELECT units, size, city FROM sales JOIN shops USING (shop) GROUP BY city"
    moments = engine.covariance("m", over, strategy="f-sql")
    engine.apply({"sales": sales(A, B, C), "shops": shops((1, "Ulm", 10.0), (7, "Ems", 100.0))})
    assert engine.view("v", sql, refresh="full") is view
    text = " ".join(str(view.explain()).split())
    assert "view v: recomputed by Spark (recompute)" in text
    assert "why it was asked for: the query as it stands" in text
    assert "reads sales (item, shop, units)" in text
    assert "changes sales or shops has Spark read all their rows (5 now)" in text
    assert "order" in str(moments.explain())
    assert moments.explain().to_dict()["values"]["statement"].startswith("SELECT k0 AS g0, c,")
    answer, cofactor = view.to_arrow(), moments.cofactor
    engine.close()
    with hr.Engine(spark, tmp_path / "state") as again:
        assert_same(again.views["v"].to_arrow(), answer)
        assert np.array_equal(again.views["m"].cofactor, cofactor)
        assert again.views["v"].changes().num_rows == 2
        again.apply({"sales": sales(C, diff=[-1])})
        assert again.views["v"].to_pandas().set_index("item").n.to_dict() == {"tea": 2, "pot": 1}
        assert again.views["m"].keys.to_pylist() == [{"city": "Ulm"}]
        with pytest.raises(SchemaError, match="is used by v, m"):
            again.drop("sales")
        again.drop("v")
        again.drop("m")
        assert not [name for name in again._store.snapshot.arrangements if name.startswith("view/")]
        again.drop("sales")


def test_a_query_that_fails_fails_its_step(engine: hr.Engine) -> None:
    view = engine.view("v", "SELECT 10 / (units - 7) AS x FROM sales", refresh="full")
    engine.apply({"sales": sales(A)})
    with pytest.raises(StepFailedError, match="DIVIDE_BY_ZERO"):
        engine.apply({"sales": sales((9, "tea", 1, 7, None))})
    assert (engine.step, engine.tables["sales"].rows, view.rows) == (1, 1, 1)
    engine.sync()
    files = {path.name for path in (engine.location / "runs").iterdir()}
    assert files == engine._store.snapshot.files()


def test_a_query_that_fails_says_why_where_spark_names_the_lost_worker(
    engine: hr.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expression and the worker that reads rows for it fail together; Spark may tell of the worker only."""
    engine.view("v", "SELECT 10 / (units - 7) AS x FROM sales", refresh="full")
    lost: list[bool] = []

    def replace_rows(*given: object) -> object:
        lost.append(True)
        raise SparkRuntimeException("Python worker exited unexpectedly (crashed)")

    monkeypatch.setattr(replacing_job, "replace_rows", replace_rows)
    with pytest.raises(StepFailedError, match="DIVIDE_BY_ZERO"):
        engine.apply({"sales": sales((9, "tea", 1, 7, None))})
    with pytest.raises(StepFailedError, match="Python worker exited unexpectedly"):
        engine.apply({"sales": sales((9, "tea", 1, 8, None))})  # there is no other reason
    assert (lost, engine.step) == ([True, True], 0)


PATH = "SELECT a, x, b, y, z FROM r JOIN s USING (b) JOIN t ON s.c = t.c"
STAR = (
    "SELECT r.x, s.y, r.b FROM r JOIN s ON r.b = s.b JOIN r AS r2 ON r2.b = s.b WHERE s.y > 98.5 AND r2.x IS NOT NULL"
)
OVERS = {
    "path": (PATH, ["y", "b", "x", "z"]),  # b is joined on
    "grouped": (f"{PATH} GROUP BY a", ["z", "x", "b"]),
    "star": (STAR, None),
    "one_table": ("SELECT x * 2 AS x2, b, name FROM r WHERE name LIKE 'n%' GROUP BY name; -- done", ["x2"]),
}

WAYS = {"kept": {"strategy": "factorized"}, "flat": {"refresh": "full"}, "fsql": {"strategy": "f-sql"}}


@pytest.fixture
def joined(spark: SparkSession, tmp_path: Path) -> Any:
    with hr.Engine(spark, tmp_path / "state", buckets=2) as engine:
        engine.table("r", "a INT, b INT, x DOUBLE, name STRING")
        engine.table("s", "b INT, c BIGINT, y DOUBLE")
        engine.table("t", "c BIGINT, z DECIMAL(8,2)")
        yield engine


def changes(seed: int, n: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    keys = {name: pa.array(rng.integers(0, 5, n), mask=rng.random(n) < 0.1) for name in "abc"}
    a, b = keys["a"].cast(pa.int32()), keys["b"].cast(pa.int32())
    x = pa.array(rng.normal(1e4, 1.0, n), mask=rng.random(n) < 0.1)
    names = pa.array([f"n{i % 3}" if i % 5 else None for i in range(n)], pa.string())
    z = pa.array([Decimal(int(i)) / 100 for i in rng.integers(0, 1000, n)], pa.decimal128(8, 2))
    return {
        "r": pa.table({"a": a, "b": b, "x": x, "name": names}),
        "s": pa.table({"b": b, "c": keys["c"], "y": rng.normal(100.0, 1.0, n)}),
        "t": pa.table({"c": keys["c"], "z": z}),
    }


def test_moments_equal_those_of_factorized_maintenance(joined: hr.Engine) -> None:
    first = changes(0, 20)
    joined.apply(first)
    for case, (over, features) in OVERS.items():
        for short, way in WAYS.items():
            joined.covariance(f"{case}_{short}", over, features, **way)
    _check_equal(joined)
    batch = {
        name: pa.concat_tables([came, first[name].slice(5)]).append_column("__diff", pa.array([2] * 20 + [-1] * 15))
        for name, came in changes(1, 20).items()
    }
    step = joined.apply({"r": batch["r"], "s": batch["s"]})
    assert step.views["path_fsql"] == step.views["path_flat"] == hr.ViewChange(updated=1)
    _check_equal(joined)


def _check_equal(engine: hr.Engine) -> None:
    for case in OVERS:
        kept, *others = (dict(_by_key(engine.views[f"{case}_{short}"])) for short in WAYS)
        assert kept
        for other in others:
            assert other.keys() == kept.keys(), case
            for key, moments in kept.items():
                assert other[key].count == moments.count
                np.testing.assert_allclose(other[key].sums, moments.sums, rtol=1e-12)
                np.testing.assert_allclose(other[key].cofactor, moments.cofactor, rtol=1e-12)
                np.testing.assert_allclose(other[key].centred(), moments.centred(), rtol=1e-7, atol=1e-7)


def _by_key(view: Any) -> Any:
    return ((str(key), moments) for key, moments in (view.by_group() if view.groups else [({}, view.moments())]))


def test_models_and_orders(joined: hr.Engine) -> None:
    model = hr.LinearRegression(label="y", features=["x", "z"])
    kept = joined.model("kept", model, PATH)
    fsql = joined.model("fsql", model, PATH, strategy="f-sql", order="c\n  b")
    assert fsql.count == 0
    joined.apply(changes(3, 30))
    np.testing.assert_allclose(fsql.coef_, kept.coef_, rtol=1e-6)
    assert "it was given" in str(fsql.explain())
    assert joined.step == 1


def test_what_is_refused(engine: hr.Engine) -> None:
    engine.table("stream", "x INT", keep_rows=False)
    for sql, why in {
        "SELECT rand() AS x FROM sales": "gives another value each time",
        "SELECT count(*) FROM sales WHERE current_date() > DATE'2020-01-01'": "changes with the clock",
        "SELECT count(*) FROM sales TABLESAMPLE (10 PERCENT)": "TABLESAMPLE",
        "SELECT * FROM (SELECT uuid() AS u FROM sales)": "another value",
        "SELECT count(*) FROM shops WHERE shop IN (SELECT shop FROM sales WHERE rand() > 0.5)": "another value",
        "SELECT 1 AS x": "a query without a table",
        "SELECT array(units) AS x FROM sales": "of type array<int>",
        "SELECT units, units FROM sales": "two columns have it",
        "DROP TABLE sales": "a command",
    }.items():
        with pytest.raises(UnsupportedSQLError, match=why):
            engine.view("v", sql, refresh="full")
    with pytest.raises(SchemaError, match="register the table first"):
        engine.view("v", "SELECT * FROM nowhere", refresh="full")
    with pytest.raises(SchemaError, match=r"table 'stream' are not kept.*\n.*keep_rows=True"):
        engine.view("v", "SELECT x FROM stream", refresh="full")
    with pytest.raises(SchemaError, match="this view is SQL already"):
        engine.view("v", "SELECT units FROM sales", strategy="f-sql")
    with pytest.raises(SchemaError, match="has no order, because Spark plans the query"):
        engine.covariance("v", "SELECT units FROM sales", refresh="full", order="shop")
    with pytest.raises(SchemaError, match="'first-order', 'f-sql'"):
        engine.covariance("v", "SELECT units FROM sales", strategy="fastest")
    with pytest.raises(UnsupportedSQLError, match=r"cannot be written as SQL.*\n.*refresh='full'"):
        engine.covariance("v", "SELECT units FROM sales WHERE is_valid_utf8(item)", strategy="f-sql")
    with pytest.raises(SchemaError, match=r"'recompute' is not known\n.*refresh='full'"):
        engine.view("v", "SELECT units FROM sales", strategy="recompute")
    assert engine.views == {}
