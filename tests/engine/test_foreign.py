"""Views over foreign-key joins through the front door: SQL, choices, readers, executors and restarts."""

import itertools
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import ArithmeticOverflowError, SchemaError, StepFailedError, UnsupportedSQLError
from headrace.testing.oracle import Oracle, assert_same

SQL = """
SELECT o.id AS id, c.name AS name, i.qty AS qty, i.qty * p.price AS cost
FROM item i JOIN orders o ON i.order_id = o.id JOIN customer c ON o.customer_id = c.id JOIN part p ON i.part_id = p.id
WHERE i.qty < p.stock
"""
BOARD = """
SELECT c.name AS name, COUNT(DISTINCT p.id) AS parts, MIN(i.qty * p.price) AS least, MAX(upper(p.label)) AS last,
       SUM(i.qty * p.price) AS total, AVG(i.qty) AS mean
FROM item i JOIN orders o ON i.order_id = o.id JOIN customer c ON o.customer_id = c.id JOIN part p ON i.part_id = p.id
GROUP BY c.name HAVING COUNT(*) > 1
"""


def _tables(engine: hr.Engine, **sizes: int) -> None:
    engine.table("customer", "id BIGINT, name STRING", key="id", expected_rows=sizes.get("customer"))
    engine.table(
        "part",
        "id INT, label STRING, price DECIMAL(10, 2), stock INT",
        key="id",
        expected_rows=sizes.get("part"),
    )
    engine.table(
        "orders",
        "id BIGINT, customer_id BIGINT",
        key="id",
        references={"customer_id": "customer"},
        expected_rows=sizes.get("orders"),
    )
    engine.table(
        "item",
        "order_id BIGINT, part_id BIGINT, qty INT",
        references={"order_id": "orders", "part_id": "part"},
        expected_rows=sizes.get("item"),
    )


class _World:
    """Rows of all tables as they are, and random changes of them; references dangle, and some are NULL."""

    schemas: ClassVar = {
        "customer": pa.schema({"id": pa.int64(), "name": pa.string()}),
        "part": pa.schema({"id": pa.int32(), "label": pa.string(), "price": pa.decimal128(10, 2), "stock": pa.int32()}),
        "orders": pa.schema({"id": pa.int64(), "customer_id": pa.int64()}),
        "item": pa.schema({"order_id": pa.int64(), "part_id": pa.int64(), "qty": pa.int32()}),
    }

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in self.schemas}

    def _new(self, table: str) -> tuple[object, ...]:
        draw = lambda high: int(self.random.integers(high))  # noqa: E731
        maybe = lambda value: None if draw(8) == 0 else value  # noqa: E731
        if table == "customer":
            return draw(9), maybe(f"name {draw(4)}")
        if table == "part":
            return draw(7), f"part {draw(5)}", maybe(Decimal(draw(1000)) / 100), maybe(draw(9))
        if table == "orders":
            return draw(20), maybe(draw(10))
        return maybe(draw(22)), maybe(draw(8)), maybe(draw(6))

    def changes(self, count: int) -> dict[str, pa.Table]:
        out = {}
        for table, rows in self.rows.items():
            changed: list[tuple[tuple[object, ...], int]] = []
            for _ in range(count):
                if rows and self.random.random() < 0.35:
                    changed.append((rows.pop(int(self.random.integers(len(rows)))), -1))
                row = self._new(table)
                for other in [r for r in rows if table != "item" and r[0] == row[0]]:
                    rows.remove(other)
                    changed.append((other, -1))
                rows.append(row)
                changed.append((row, 1))
            columns = list(zip(*(row for row, _ in changed), strict=True))
            batch = pa.table(dict(zip(self.schemas[table].names, columns, strict=True)), schema=self.schemas[table])
            out[table] = batch.append_column("__diff", pa.array([times for _, times in changed], pa.int64()))
        return out

    def now(self) -> dict[str, pa.Table]:
        return {
            name: pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in self.rows[name]], schema)
            for name, schema in self.schemas.items()
        }


def check_steps(engine: hr.Engine, oracle: Oracle, seed: int, steps: int, sizes: dict[str, int]) -> None:
    """After every step the views equal Spark's answer; in the end what was emitted adds up to what is there."""
    world = _World(seed)
    _tables(engine, **sizes)
    views = {sql: engine.view(name, sql, strategy="foreign-key") for name, sql in (("r", SQL), ("b", BOARD))}
    emitted: list[pa.Table] = []
    for _ in range(steps):
        engine.apply(world.changes(12))
        oracle.set_rows(world.now())
        for sql, view in views.items():
            assert_same(view.to_arrow(), oracle.answer(sql))
        emitted.append(views[SQL].changes())
    summed = pa.concat_tables(emitted).group_by(["id", "name", "qty", "cost"]).aggregate([("__diff", "sum")])
    left = [row for row in summed.to_pylist() if row.pop("__diff_sum")]
    there = list(views[SQL].enumerate())
    assert there
    assert {tuple(row.values()) for row in left} == {tuple(row.values()) for row in there}
    assert len(there) == views[SQL].to_arrow().num_rows == views[SQL].to_df().count()


@pytest.mark.parametrize(
    ("executor", "sizes"),
    [
        ("inline", {}),
        ("inline", {"customer": 10, "part": 10, "orders": 1_000, "item": 100_000}),
        ("spark", {"customer": 10, "part": 1_000, "orders": 1_000, "item": 2_000}),
    ],
)
def test_views_equal_spark_after_every_step(
    spark: SparkSession, tmp_path: Path, executor: str, sizes: dict[str, int]
) -> None:
    with hr.Engine(spark, tmp_path, executor=executor, buckets=3) as engine:
        check_steps(engine, Oracle(spark), len(sizes), steps=2 if executor == "spark" else 5, sizes=sizes)


def test_auto_chooses_it_where_it_fits_and_wins(spark: SparkSession, tmp_path: Path) -> None:
    join = "FROM item JOIN orders ON order_id = orders.id JOIN customer ON customer_id = customer.id"
    with hr.Engine(spark, tmp_path) as engine:
        _tables(engine)

        def chosen(sql: str) -> tuple[str, str]:
            name = f"v{len(engine.views)}"
            definition = engine.view(name, sql).planned.definition
            return definition.strategy, definition.why

        assert chosen(f"SELECT qty, name {join}") == (
            "foreign-key",
            "it follows foreign keys, and the joined rows themselves are wanted",
        )
        assert chosen(f"SELECT customer.id, SUM(qty) AS s {join} GROUP BY customer.id") == (
            "foreign-key",
            "it follows foreign keys, and its groups are as fine as the rows of customer",
        )
        strategy, why = chosen(f"SELECT name, MIN(qty) AS least {join} GROUP BY name")
        assert strategy == "foreign-key"
        assert "sums of products cannot keep it" in why
        assert "MIN" in why.upper()
        # Coarse groups are summed before they are joined.
        assert chosen(f"SELECT name, SUM(qty) AS s {join} GROUP BY name")[0] == "factorized"


def test_what_does_not_fit_says_why(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path) as engine:
        _tables(engine)
        engine.table("tag", "order_id BIGINT, word STRING")
        with pytest.raises(UnsupportedSQLError, match=r"no foreign-key join.*item has no key; tag has no key"):
            engine.view(
                "v", "SELECT qty, word FROM item JOIN tag ON item.order_id = tag.order_id", strategy="foreign-key"
            )
        with pytest.raises(UnsupportedSQLError, match="a query of one table"):
            engine.view("v", "SELECT qty FROM item", strategy="foreign-key")
        with pytest.raises(SchemaError, match="has no partition"):
            engine.view(
                "v",
                "SELECT qty FROM item JOIN orders ON order_id = orders.id",
                strategy="foreign-key",
                partition="order_id",
            )


def test_spark_evaluates_what_only_spark_can_on_joined_rows(spark: SparkSession, tmp_path: Path) -> None:
    world, oracle = _World(4), Oracle(spark)
    across = """SELECT qty, soundex(concat(label, CAST(qty AS STRING))) AS s FROM item JOIN part ON part_id = part.id
                WHERE levenshtein(label, CAST(qty AS STRING)) > 1"""
    with hr.Engine(spark, tmp_path, buckets=2) as engine:
        _tables(engine)
        view = engine.view("v", across, strategy="foreign-key")
        for _ in range(3):
            engine.apply(world.changes(20))
            oracle.set_rows(world.now())
            assert_same(view.to_arrow(), oracle.answer(across))


def test_an_overflow_on_a_joined_row_refuses_the_step(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path) as engine:
        engine.table("a", "id BIGINT, x BIGINT", key="id")
        engine.table("b", "a_id BIGINT, y BIGINT")
        view = engine.view("v", "SELECT x * y AS z FROM b JOIN a ON a_id = id", strategy="foreign-key")
        engine.apply({"a": pa.table({"id": [1], "x": [2**62]})})
        with pytest.raises(StepFailedError, match=r"(?s)ARITHMETIC_OVERFLOW.*x \* y"):
            engine.apply({"b": pa.table({"a_id": [1], "y": [4]})})
        assert engine.tables["b"].rows == 0
        engine.apply({"b": pa.table({"a_id": [1], "y": [1]})})
        assert view.to_arrow().column("z").to_pylist() == [2**62]


def test_what_no_sum_could_give_back_refuses_the_step(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path) as engine:
        engine.table("a", "id BIGINT, x DOUBLE", key="id")
        engine.table("b", "a_id BIGINT, y DOUBLE")
        view = engine.view("v", "SELECT SUM(x * y) AS z FROM b JOIN a ON a_id = id", strategy="foreign-key")
        engine.apply({"a": pa.table({"id": [1, 2], "x": [1e200, 2.0]}), "b": pa.table({"a_id": [2], "y": [3.0]})})
        with pytest.raises(ArithmeticOverflowError, match=r"(?i)sum\(x \* y\) would sum NaN"):
            engine.apply({"b": pa.table({"a_id": [1], "y": [1e200]})})
        with pytest.raises(ArithmeticOverflowError, match="would sum NaN"):
            engine.apply({"a": pa.table({"id": [2, 2], "x": [2.0, float("nan")], "__diff": [-1, 1]})})
        assert view.to_arrow().column("z").to_pylist() == [6.0]
        # A NaN that meets nothing harms nothing.
        engine.apply({"a": pa.table({"id": [3], "x": [float("nan")]})})
        assert view.to_arrow().column("z").to_pylist() == [6.0]


@pytest.mark.parametrize("sizes", [{}, {"customer": 10, "part": 10, "orders": 1_000, "item": 100_000}])
def test_it_opens_again_with_the_plan_it_had(spark: SparkSession, tmp_path: Path, sizes: dict[str, int]) -> None:
    world, oracle = _World(9), Oracle(spark)
    with hr.Engine(spark, tmp_path, buckets=2) as engine:
        _tables(engine, **sizes)
        before = engine.view("r", SQL, strategy="foreign-key").planned.kernel
        engine.apply(world.changes(20))
        engine.view("b", BOARD)
    with hr.Engine(spark, tmp_path) as engine:
        assert engine.views["r"].planned.kernel.alone == before.alone
        engine.apply(world.changes(20))
        oracle.set_rows(world.now())
        assert_same(engine.views["r"].to_arrow(), oracle.answer(SQL))
        assert_same(engine.views["b"].to_arrow(), oracle.answer(BOARD))
        engine.drop("r")
        engine.drop("b")


def test_enumeration_reads_only_what_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, buckets=2) as engine:
        engine.table("a", "id BIGINT, x BIGINT", key="id")
        engine.table("b", "a_id BIGINT, y BIGINT")
        view = engine.view("v", "SELECT x, y FROM b JOIN a ON a_id = id")
        assert list(view.enumerate()) == []
        engine.apply({"a": pa.table({"id": [1, 2], "x": [10, 20]})})
        engine.apply({"b": pa.table({"a_id": np.arange(30_000) % 3, "y": np.arange(30_000)})})
        rows = view.enumerate()
        some = list(itertools.islice(rows, 5))
        # Later steps do not change what an enumeration gives.
        engine.apply({"a": pa.table({"id": [1, 2], "x": [10, 20], "__diff": [-1, -1]})})
        all_of_them = some + list(rows)
        assert len(all_of_them) == 20_000
        assert {(row["x"], row["y"]) for row in all_of_them} == {(10 * (y % 3), y) for y in range(30_000) if y % 3}
        assert list(view.enumerate()) == []
        with pytest.raises(SchemaError, match="hold nothing"):
            view.batches(0)
        again = engine.view("w", "SELECT x, y FROM b JOIN a ON a_id = id", refresh="full")
        assert list(again.enumerate()) == []
