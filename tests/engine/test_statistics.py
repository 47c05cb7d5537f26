"""STDDEV, VARIANCE and what Catalyst turns into other aggregates, through the front door: random streams, restarts."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import ArithmeticOverflowError, BadRowsError, UnsupportedSQLError
from headrace.relation.schema import DIFF, TableSchema
from headrace.testing.changes import TableModel
from headrace.testing.oracle import Oracle, assert_same
from headrace.testing.queries import random_schema

SPREADS = ("STDDEV", "STD", "STDDEV_SAMP", "STDDEV_POP", "VARIANCE", "VAR_SAMP", "VAR_POP")


def statistics_query(rng: random.Random, schema: TableSchema) -> str:
    """Several spreads, some with a FILTER, beside sums of the same columns; with or without groups."""
    numeric = [column.name for column in schema.columns if column.type.is_numeric]
    items = [f"{rng.choice(SPREADS)}({rng.choice(numeric)})" for _ in range(rng.randint(1, 3))]
    items += [f"VAR_POP({rng.choice(numeric)}) FILTER (WHERE {rng.choice(schema.names)} IS NOT NULL)"]
    items += [f"AVG({rng.choice(numeric)})", f"STDDEV_POP(CAST({numeric[0]} AS DOUBLE) * 0.1D)", "COUNT(*)"]
    items += [f"COUNT_IF({numeric[0]} > 0)", f"BOOL_AND({numeric[0]} > 0)", f"SOME({numeric[-1]} > 1)"]
    items = rng.sample(items, rng.randint(2, len(items)))
    key = rng.choice([None, rng.choice(schema.names)])
    select = ", ".join(f"{item} AS o{i}" for i, item in enumerate([*([key] if key else []), *items]))
    having = f" HAVING VAR_POP({numeric[0]}) >= 0" if rng.random() < 0.3 else ""
    return f"SELECT {select} FROM {schema.name}{f' GROUP BY {key}' if key else ''}{having}"


def numeric_schema(rng: random.Random) -> TableSchema:
    while True:
        schema = random_schema(rng)
        if any(column.type.is_numeric for column in schema.columns):
            return schema


@pytest.mark.parametrize(("executor", "seed"), [*(("inline", seed) for seed in range(5)), ("spark", 5)])
def test_a_random_stream_gives_what_spark_recomputes(
    spark: SparkSession, tmp_path: Path, executor: str, seed: int
) -> None:
    rng = random.Random(seed)
    schema = numeric_schema(rng)
    model, oracle = TableModel(schema, rng), Oracle(spark)
    with hr.Engine(spark, tmp_path / "s", executor=executor, buckets=2) as engine:
        columns = pa.schema([pa.field(c.name, c.type.arrow, c.nullable) for c in schema.columns])
        engine.table("t", columns, key=schema.key)
        views = [engine.view(f"v{i}", statistics_query(rng, schema)) for i in range(3)]
        for _ in range(4):
            engine.apply({"t": model.change(rng.randint(1, 30))})
            oracle.set_rows({"t": model.to_arrow()})
            for view in views:
                assert_same(view.to_arrow(), oracle.answer(view.sql), relative=1e-9)


SQL = "SELECT g, STDDEV(x) AS s, VAR_POP(x) AS v, AVG(x) AS m, COUNT(x) AS n FROM t GROUP BY g"
SCHEMA = pa.schema([("g", pa.string()), ("x", pa.float64()), (DIFF, pa.int64())])


def test_one_batch_is_its_rows_one_by_one_and_a_restart_keeps_the_squares(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [{"g": rng.choice("ab"), "x": rng.choice([None, rng.gauss(1e9, 1), 0.1])} for _ in range(30)]
    changes = [{**row, DIFF: 1} for row in rows] + [{**row, DIFF: -1} for row in rows[:20]]
    oracle = Oracle(spark)
    oracle.set_rows({"t": pa.Table.from_pylist([*rows[20:29], rows[29], rows[29]], SCHEMA.remove(2))})
    for size, name in ((len(changes), "whole"), (1, "single")):
        with hr.Engine(spark, tmp_path / name, executor="inline", buckets=2) as engine:
            engine.table("t", "g STRING, x DOUBLE")
            engine.view("v", SQL)
            for start in range(0, len(changes), size):
                engine.apply({"t": pa.Table.from_pylist(changes[start : start + size], SCHEMA)})
        with hr.Engine(spark, tmp_path / name, executor="inline") as engine:
            engine.apply({"t": pa.Table.from_pylist([{**rows[29], DIFF: 1}], SCHEMA)})
            assert_same(engine.views["v"].to_arrow(), oracle.answer(SQL), relative=1e-9)


def test_values_come_and_go_down_to_one_row_and_to_none(spark: SparkSession, tmp_path: Path) -> None:
    values = (1e12 + np.random.default_rng(1).normal(size=200)).tolist()
    with hr.Engine(spark, tmp_path / "s", executor="inline") as engine:
        engine.table("t", "g STRING, x DOUBLE")
        view = engine.view("v", "SELECT STDDEV(x) AS s, STDDEV_POP(x) AS p, VAR_SAMP(x) AS v FROM t")
        batch = lambda xs, diff: pa.table({"g": ["a"] * len(xs), "x": xs, DIFF: [diff] * len(xs)})  # noqa: E731
        nothing = {"s": None, "p": None, "v": None}
        assert view.to_arrow().to_pylist() == [nothing]
        engine.apply({"t": batch([*values, 5e14], 1)})
        engine.apply({"t": batch([5e14], -1)})
        [row] = view.to_arrow().to_pylist()
        centred = np.array(values) - 1e12  # exact, so that NumPy loses nothing either
        assert row["s"] == pytest.approx(np.std(centred, ddof=1), rel=1e-9)
        assert row["v"] == pytest.approx(np.var(centred, ddof=1), rel=1e-9)
        engine.apply({"t": batch(values[1:], -1)})
        assert view.to_arrow().to_pylist() == [{"s": None, "p": 0.0, "v": None}]
        engine.apply({"t": batch(values[:1], -1)})
        assert view.to_arrow().to_pylist() == [nothing]
        assert view.changes().to_pylist() == [{"s": None, "p": 0.0, "v": None, DIFF: -1}, {**nothing, DIFF: 1}]


def test_rows_whose_squares_are_no_numbers_are_bad_rows(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline") as engine:
        engine.table("t", "x DOUBLE")
        view = engine.view("v", "SELECT VAR_POP(x) AS v FROM t")
        for wrong in (1e200, float("nan"), float("-inf")):
            with pytest.raises(BadRowsError, match="whose squares the view sums"):
                engine.apply({"t": pa.table({"x": [1.0, wrong]})})
        assert view.to_arrow().to_pylist() == [{"v": None}]


def test_over_foreign_keys_they_are_kept_and_over_other_joins_refused(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        "SELECT kind, STDDEV(units * price) AS s, SUM(DISTINCT units) AS d, AVG(DISTINCT price) AS a, "
        "COUNT(DISTINCT units, price) FILTER (WHERE units > 0) AS n, BOOL_OR(units > price) AS b, "
        "CORR(units, price) AS c, MEDIAN(units * price) AS m, BIT_XOR(units) AS x, MAX_BY(price, units * price) AS y "
        "FROM sale JOIN item ON item_id = id GROUP BY kind"
    )
    rng, oracle = np.random.default_rng(5), Oracle(spark)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        engine.table("item", "id INT, kind STRING, price DOUBLE", key="id")
        engine.table("sale", "item_id INT, units INT", references={"item_id": "item"})
        view = engine.view("v", sql)
        assert "foreign keys" in str(view.explain())
        items = pa.table({"id": pa.array(range(9), pa.int32()), "kind": list("aaabbbccc"), "price": rng.normal(size=9)})
        sales = pa.table(
            {
                "item_id": pa.array(rng.integers(0, 10, 60), pa.int32()),
                "units": pa.array([None, *rng.integers(-2, 5, 59)], pa.int32()),
            }
        )
        for kept in (60, 25, 1):
            before = engine.tables["sale"].to_arrow()
            gone = before.append_column(DIFF, pa.array([-1] * before.num_rows, pa.int64()))
            now = sales.slice(60 - kept)
            there = now.append_column(DIFF, pa.array([1] * now.num_rows, pa.int64()))
            changes = {"sale": pa.concat_tables([gone.select(there.column_names).cast(there.schema), there])}
            engine.apply(changes | ({"item": items} if kept == 60 else {}))
            oracle.set_rows({"item": items, "sale": now})
            assert_same(view.to_arrow(), oracle.answer(sql), relative=1e-9)
        nine = pa.array([9], pa.int32())
        with pytest.raises(ArithmeticOverflowError, match="whose squares the view sums"):
            engine.apply(
                {
                    "item": pa.table({"id": nine, "kind": ["z"], "price": [1e200]}),
                    "sale": pa.table({"item_id": nine, "units": nine}),
                }
            )
        engine.table("other", "units INT, y DOUBLE")
        others = ("CORR(y, item_id)", "MEDIAN(y)", "MODE(y)", "MAX_BY(y, item_id)", "BIT_XOR(item_id)")
        for call in ("STDDEV(y)", "SUM(DISTINCT y)", "AVG(DISTINCT y)", "COUNT(DISTINCT y, item_id)", *others):
            with pytest.raises(UnsupportedSQLError, match="over joins by sums") as refusal:
                engine.view("w", f"SELECT {call} AS c FROM sale JOIN other USING (units)", strategy="factorized")
            assert "foreign-key" in refusal.value.way_out


def test_a_setting_of_old_times_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline") as engine:
        engine.table("t", "x DOUBLE")
        engine._sql.spark.conf.set("spark.sql.legacy.statisticalAggregate", "true")
        with pytest.raises(UnsupportedSQLError, match=r"VAR_SAMP\(x\) cannot .*legacy.statisticalAggregate"):
            engine.view("v", "SELECT VAR_SAMP(x) AS v FROM t")
        engine.view("p", "SELECT VAR_POP(x) AS v FROM t")


def test_what_spark_leaves_to_chance_is_defined_and_the_same_however_rows_come(
    spark: SparkSession, tmp_path: Path
) -> None:
    sql = (
        "SELECT FIRST(x) AS f, ANY_VALUE(x) AS a, LAST(x) AS l, MODE(x) AS m, MAX_BY(x, y) AS b, MIN_BY(x, y) AS c, "
        "LISTAGG(s) AS t, LISTAGG(s, '-') WITHIN GROUP (ORDER BY y) AS u, "
        "APPROX_COUNT_DISTINCT(x, 0.3) AS d, PERCENTILE_APPROX(x, 0.5, 100) AS p FROM t"
    )
    rows = [(x, x % 2, f"{x % 7}") for x in range(60)] + [(None, 1, None), (None, 0, None)]
    expected = {"f": 0, "a": 0, "l": 59, "m": 0, "b": 59, "c": None, "d": 60, "p": 29}
    expected["t"] = "".join(sorted(s for *_, s in rows if s))
    expected["u"] = "-".join(s for _, s in sorted((y, s) for _, y, s in rows if s))
    for number in range(2):
        random.Random(number).shuffle(rows)
        with hr.Engine(spark, tmp_path / f"s{number}", executor="inline", buckets=2) as engine:
            engine.table("t", "x INT, y INT, s STRING")
            view = engine.view("v", sql)
            for at in range(0, len(rows), 20):
                columns = zip(*rows[at : at + 20], strict=True)
                named = {name: list(column) for name, column in zip("xys", columns, strict=True)}
                engine.apply({"t": pa.table(named)})
            assert view.to_arrow().to_pylist() == [expected]
