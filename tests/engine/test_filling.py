"""A view created late is filled from the rows that its tables have: equal to one that saw them come, and to Spark's."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine import filling, frames
from headrace.errors import BadRowsError, CorruptFileError, StepFailedError
from headrace.relation import runfile
from headrace.relation.schema import DIFF
from headrace.runtime import filling as map_side
from headrace.runtime import inline
from headrace.testing.oracle import Oracle, assert_same

SCHEMAS = {
    "shop": pa.schema({"id": pa.int64(), "city": pa.string(), "area": pa.float64()}),
    "sale": pa.schema(
        {
            "id": pa.int64(),
            "shop_id": pa.int64(),
            "price": pa.decimal128(10, 2),
            "qty": pa.int32(),
            "weight": pa.float64(),
            "note": pa.string(),
        }
    ),
    "visit": pa.schema({"shop_id": pa.int64(), "hour": pa.int32(), "guests": pa.int64()}),  # a bag
}
KEYED = ("shop", "sale")
JOIN = "FROM sale JOIN shop ON shop_id = shop.id"
VIEWS = {
    "groups": (
        "SELECT qty, SUM(price) AS total, AVG(weight) AS mean, MIN(note) AS first, MAX(price) AS most, "
        "COUNT(DISTINCT shop_id) AS shops FROM sale WHERE price > 1 GROUP BY qty",
        "auto",
    ),
    "number": ("SELECT COUNT(*) AS n FROM visit", "auto"),
    "rows": ("SELECT note, qty + 1 AS more FROM sale WHERE weight < 1000200", "auto"),
    "bag": ("SELECT shop_id, hour FROM visit", "auto"),
    "hours": ("SELECT hour, SUM(guests) AS guests, COUNT(*) AS n FROM visit GROUP BY hour", "auto"),
    "first": ("SELECT id, price FROM sale ORDER BY price DESC, id LIMIT 5", "auto"),
    "factorized": (f"SELECT city, SUM(price * qty) AS turnover, COUNT(*) AS n {JOIN} GROUP BY city", "factorized"),
    "crossed": (
        "SELECT city, SUM(qty * guests) AS s FROM sale JOIN visit USING (shop_id) JOIN shop ON shop.id = shop_id "
        "GROUP BY city",
        "factorized",
    ),
    "foreign": (f"SELECT city, SUM(price * qty) AS turnover, MAX(note) AS last {JOIN} GROUP BY city", "foreign-key"),
    "joined": (f"SELECT sale.id AS id, city, note {JOIN} WHERE qty > 1", "foreign-key"),
    "catalyst": ("SELECT soundex(note) AS code, SUM(qty) AS n FROM sale GROUP BY soundex(note)", "auto"),
    "half": (f"SELECT soundex(city) AS code, SUM(qty) AS n {JOIN} GROUP BY soundex(city)", "factorized"),
    "recomputed": ("SELECT hour, COUNT(DISTINCT guests) AS n FROM visit GROUP BY hour", "full"),
}
MOMENTS = f"SELECT price, weight, area {JOIN}"


def kept_by(how: str) -> dict[str, Any]:
    return {"refresh": "full"} if how == "full" else {"strategy": how}


class World:
    """Rows as they are, and changes to them: rows come, change and leave, and rows of the bag come several times."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMAS}
        self.next = 0

    def _new(self, table: str) -> tuple[Any, ...]:
        self.next += 1
        draw = lambda high: int(self.random.integers(high))  # noqa: E731
        maybe = lambda value: None if draw(9) == 0 else value  # noqa: E731
        if table == "shop":
            return self.next, maybe(f"city {draw(5)}"), draw(400) / 4
        if table == "sale":
            price, weight = Decimal(draw(10_000)) / 100, 1e6 + draw(4000) / 8  # far from zero, so that moments shift it
            return self.next, maybe(1 + draw(40)), maybe(price), maybe(draw(6)), weight, maybe(f"note {draw(30)}")
        return 1 + draw(40), draw(4), draw(3)

    def step(self, sizes: dict[str, int], leave: float = 0.3) -> dict[str, pa.Table]:
        out = {}
        for table, size in sizes.items():
            rows = self.rows[table]
            changed: list[tuple[tuple[Any, ...], int]] = []
            for at in sorted(self.random.choice(len(rows), int(leave * len(rows)), replace=False).tolist())[::-1]:
                changed.append((rows.pop(at), -1))
            for row, _ in list(changed):
                if table in KEYED and self.random.random() < 0.5:  # an update: the same key, other values
                    rows.append((row[0], *self._new(table)[1:]))
                    changed.append((rows[-1], 1))
            for _ in range(size):
                times = 1 if table in KEYED else int(self.random.integers(1, 4))
                row = self._new(table)
                rows += [row] * times
                changed.append((row, times))
            columns = [list(column) for column in zip(*(row for row, _ in changed), strict=True)]
            batch = pa.table(dict(zip(SCHEMAS[table].names, columns, strict=True)), schema=SCHEMAS[table])
            out[table] = batch.append_column(DIFF, pa.array([n for _, n in changed], pa.int64()))
        return out

    def now(self) -> dict[str, pa.Table]:
        return {
            name: pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in self.rows[name]], schema)
            for name, schema in SCHEMAS.items()
        }


def register(engine: hr.Engine) -> None:
    engine.table("shop", SCHEMAS["shop"], key="id")
    engine.table("sale", SCHEMAS["sale"], key="id", references={"shop_id": "shop"})
    engine.table("visit", SCHEMAS["visit"])


def load(engine: hr.Engine, world: World) -> None:
    """Several steps, so that buckets have several runs, and all but the first delete rows of earlier ones."""
    engine.apply(world.step({"shop": 40, "sale": 900, "visit": 300}))
    engine.apply(world.step({"sale": 30, "visit": 20}, leave=0.1))
    engine.apply(world.step({"shop": 3, "sale": 20}, leave=0.2))
    runs = engine._store.snapshot.arrangements["table/sale"]
    assert max(len(state.runs) for state in runs.values()) > 1


def assert_moments(moments: hr.Covariance, rows: pa.Table) -> None:
    x = rows.to_pandas().dropna().astype(float)[list(moments.features)].to_numpy()
    assert moments.count == len(x) > 100
    np.testing.assert_allclose(moments.sums, x.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.cofactor, x.T @ x, rtol=1e-12)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces a bucket, and threads, for tables that a test can afford."""
    monkeypatch.setattr(map_side, "PIECE_ROWS", 64)
    monkeypatch.setattr(inline, "PIECE_ROWS", 64)
    monkeypatch.setattr(inline, "WORTH_THREADS", 0)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"executor": "inline"}, tuple(VIEWS)),
        ({"executor": "spark"}, tuple(VIEWS)),
        ({"executor": "auto", "driver_rows": 1}, ("groups", "crossed", "catalyst", "half")),
    ],
    ids=["inline", "spark", "auto"],
)
def test_a_late_view_equals_an_early_one_and_spark_s_answer(
    spark: SparkSession, tmp_path: Path, small_pieces: None, options: dict[str, Any], names: tuple[str, ...]
) -> None:
    world, oracle = World(7), Oracle(spark)
    views = {name: VIEWS[name] for name in names}
    with hr.Engine(spark, tmp_path, buckets=3, **options) as engine:
        register(engine)
        early = {name: engine.view(name, sql, **kept_by(how)) for name, (sql, how) in views.items()}
        moments = engine.covariance("moments", MOMENTS)
        load(engine, world)
        late = {name: engine.view(f"late_{name}", sql, **kept_by(how)) for name, (sql, how) in views.items()}
        late_moments = engine.covariance("late_moments", MOMENTS)
        oracle.set_rows(world.now())
        for name, (sql, _) in views.items():
            expected = oracle.answer(sql)
            assert expected.num_rows
            assert_same(late[name].to_arrow(), expected)
        assert_moments(late_moments, oracle.answer(MOMENTS))
        # What filling left is state like any other.
        engine.apply(world.step({"shop": 2, "sale": 25, "visit": 10}))
        for name in views:
            assert_same(late[name].to_arrow(), early[name].to_arrow())
        np.testing.assert_allclose(late_moments.cofactor, moments.cofactor, rtol=1e-12)
        assert engine.verify() == []


def test_native_views_are_filled_without_rows_going_through_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("rows were brought to Spark, or to the driver")

    with hr.Engine(spark, tmp_path, executor="spark", buckets=3) as engine:
        register(engine)
        load(engine, World(8))
        monkeypatch.setattr(frames, "table_frame", refused)
        monkeypatch.setattr(frames, "table_bucket", refused)
        assert engine.view("factorized", *VIEWS["factorized"][:1]).rows > 1
        with pytest.raises(AssertionError, match="brought to Spark"):
            engine.view("catalyst", VIEWS["catalyst"][0])


def test_a_view_over_empty_tables_runs_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "_filled", None)
    with hr.Engine(spark, tmp_path, executor="spark", buckets=2) as engine:
        register(engine)
        engine.view("groups", VIEWS["groups"][0])
        assert engine.view("number", VIEWS["number"][0]).to_arrow().to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_row_that_is_gone_cannot_stop_a_view(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    """Its entries are still there, one that inserts it and one that deletes it; no expression may see them."""
    wrong = pa.table({"id": [1], "x": [float("inf")], "n": [0]})
    with hr.Engine(spark, tmp_path, executor=executor, buckets=1) as engine:
        engine.table("t", "id BIGINT, x DOUBLE, n INT", key="id")
        many = pa.table({"id": np.arange(2, 3000), "x": np.ones(2998), "n": pa.array(np.ones(2998), pa.int32())})
        engine.apply({"t": pa.concat_tables([many, wrong.cast(many.schema)])})
        engine.apply({"t": wrong.append_column(DIFF, pa.array([-1]))})
        assert sum(len(s.runs) for s in engine._store.snapshot.arrangements["table/t"].values()) == 2
        assert engine.view("sums", "SELECT SUM(x) AS s FROM t").to_arrow().to_pylist() == [{"s": 2998.0}]
        assert engine.view("shares", "SELECT SUM(1 / n) AS s FROM t").to_arrow().to_pylist() == [{"s": 2998.0}]


@pytest.mark.parametrize("executor", ["inline", "spark"])
@pytest.mark.parametrize("sql", ["SELECT SUM(x) AS s FROM t", "SELECT soundex(a) AS c, SUM(x) AS s FROM t GROUP BY 1"])
def test_rows_that_a_view_cannot_take_are_shown_whole(
    spark: SparkSession, tmp_path: Path, executor: str, sql: str
) -> None:
    with hr.Engine(spark, tmp_path, executor=executor, buckets=2) as engine:
        engine.table("t", "id BIGINT, a STRING, x DOUBLE, other STRING", key="id")
        engine.apply({"t": pa.table({"id": [1, 2], "a": ["p", "q"], "x": [1.0, np.nan], "other": ["here", "there"]})})
        with pytest.raises(BadRowsError, match="'v' cannot be filled: table 't': 1 bad row") as caught:
            engine.view("v", sql)
        assert "(id=2, a='q', x=nan, other='there')" in str(caught.value)
        assert engine.views == {}
        assert {path.name for path in (tmp_path / "runs").iterdir()} == engine._store.snapshot.files()


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_what_native_evaluation_leaves_to_spark_is_filled_by_spark(
    spark: SparkSession, tmp_path: Path, executor: str
) -> None:
    late = pa.array([3_000_000, 0], pa.int32()).cast(
        pa.date32()
    )  # a year that Arrow's sixteen bits are not trusted with
    with hr.Engine(spark, tmp_path, executor=executor, buckets=2) as engine:
        engine.table("t", "id BIGINT, day DATE, n BIGINT", key="id")
        engine.apply({"t": pa.table({"id": [1, 2], "day": late, "n": [2**62, 2**62]})})
        years = engine.view("years", "SELECT YEAR(day) AS y, COUNT(*) AS c FROM t GROUP BY YEAR(day)")
        assert sorted(row["y"] for row in years.to_arrow().to_pylist()) == [1970, 10183]
        with pytest.raises(StepFailedError, match="'over' cannot be filled"):
            engine.view("over", "SELECT SUM(n + n) AS s FROM t")


def test_only_the_columns_that_a_view_reads_are_read(spark: SparkSession, tmp_path: Path) -> None:
    rows = 20_000
    with hr.Engine(spark, tmp_path, executor="inline", buckets=1) as engine:
        engine.table("t", "id BIGINT, a BIGINT, b BIGINT, c STRING", key="id")
        engine.apply(
            {
                "t": pa.table(
                    {"id": np.arange(rows), "a": np.ones(rows, int), "b": np.ones(rows, int), "c": ["x"] * rows}
                )
            }
        )
        (name,) = engine._store.snapshot.files()
    path = tmp_path / "runs" / name
    run, data = runfile.read(path), bytearray(path.read_bytes())
    start, size = run.meta["spans"][2 + [column["name"] for column in run.meta["values"]].index("b")]
    data[len(data) - len(run.data) + start + size // 2] ^= 1
    path.write_bytes(data)
    with hr.Engine(spark, tmp_path, executor="inline") as engine:
        assert engine.view("v", "SELECT SUM(a) AS s, MAX(c) AS m FROM t").to_arrow().to_pylist() == [
            {"s": rows, "m": "x"}
        ]
        with pytest.raises(CorruptFileError, match=name):
            engine.view("w", "SELECT SUM(b) AS s FROM t")


def test_a_table_that_was_read_does_not_depend_on_its_files(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=1) as engine:
        engine.table("t", "id BIGINT, a STRING", key="id")
        engine.apply({"t": pa.table({"id": np.arange(50_000), "a": [f"text {i}" for i in range(50_000)]})})
        (name,) = engine._store.snapshot.files()
        read = engine.tables["t"].to_arrow()
        (tmp_path / "runs" / name).write_bytes(b"")  # a mapping of it would be of nothing now
        assert read["a"].to_pylist() == [f"text {i}" for i in read["id"].to_pylist()]
        read.validate(full=True)
