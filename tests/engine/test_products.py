"""Products of parts through the engine: the answers are Spark's over the rows, and the rows are never made."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import product as combinations
from math import prod
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.seeds import seeds

import headrace as hr
from headrace.factorized import distribution
from headrace.testing.oracle import Oracle, arrow_type, assert_same

SCHEMAS = {
    "r": {"a": "int", "x": "decimal(8,2)"},
    "s": {"a": "int", "c": "int", "e": "int", "g": "string", "w": "double"},
    "t": {"c": "int", "y": "bigint"},
}
JOIN = "FROM r JOIN s USING (a) JOIN t USING (c)"
VIEWS = {
    "total": f"SELECT COUNT(*) AS n, SUM(r.x * s.e * t.y) AS v, SUM(s.w) AS w, AVG(s.e) AS e {JOIN}",
    "by_text": f"SELECT g, COUNT(*) AS n, SUM(e) AS e, SUM(w * y) AS wy {JOIN} GROUP BY g",
    "by_two_parts": f"SELECT a, c, COUNT(*) AS n, SUM(e * x) AS ex {JOIN} GROUP BY a, c",
    "conditions": f"SELECT a, SUM(e + y) AS ey {JOIN} WHERE e > 0 AND g <> 'u' AND a + c < 5 GROUP BY a",
    "expressions": f"SELECT g, SUM(s.e * s.c) AS ec, SUM(s.e - s.c) AS less {JOIN} GROUP BY g",
    "itself": "SELECT l.c, COUNT(*) AS n, SUM(l.e * m.e) AS ee FROM s AS l JOIN s AS m ON l.a = m.a GROUP BY l.c",
}
ROWS = f"SELECT g, a, x, y {JOIN}"
Row = tuple[Any, ...]
Part = tuple[tuple[str, ...], Counter[Row]]


def value(rng: random.Random, kind: str) -> Any:
    if rng.random() < 0.08:
        return None
    number = rng.randrange(4)
    if kind == "string":
        return "stuv"[number]
    return Decimal(number) / 4 if kind.startswith("decimal") else number / 4 if kind == "double" else number


def table(rows: Counter[Row], columns: dict[str, str], *, diff: bool = True) -> pa.Table:
    every = list(rows.items()) if diff else [(row, 1) for row in rows.elements()]
    made = {
        name: pa.array([row[i] for row, _ in every], arrow_type(kind)) for i, (name, kind) in enumerate(columns.items())
    }
    return pa.table({**made, "__diff": pa.array([n for _, n in every], pa.int64())} if diff else made)


class Stream:
    """Random steps: ordinary rows of `r` and `t`, and for `s` sums of products, some with less than they had."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.bags: dict[str, Counter[Row]] = {name: Counter() for name in SCHEMAS}
        self.terms: list[list[Part]] = []

    def step(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name in ("r", "t"):
            if self.rng.random() < 0.8:
                new = Counter(tuple(value(self.rng, kind) for kind in SCHEMAS[name].values()) for _ in range(5))
                there = sorted(self.bags[name].elements(), key=repr)
                gone = Counter(self.rng.sample(there, min(2, len(there))))
                self.bags[name] += new
                self.bags[name] -= gone
                new.subtract(gone)
                out[name] = table(new, SCHEMAS[name])
        out["s"] = self.product()
        return out

    def product(self) -> hr.Product:
        added = [self.term() for _ in range(self.rng.randint(1, 2))]
        change = made(added[0])
        for term in added[1:]:
            change = change + made(term)
        taken = []
        if self.rng.random() < 0.6:  # too much at first, less a part of it
            taken.append([(names, Counter(dict.fromkeys(self.some(rows), 1))) for names, rows in added[0]])
        elif self.terms and self.rng.random() < 0.6:
            taken.append(self.terms.pop(self.rng.randrange(len(self.terms))))
        for term in taken:
            change = change - made(term)
        for term, sign in [*((term, 1) for term in added), *((term, -1) for term in taken)]:
            self.bags["s"].update({row: sign * n for row, n in multiplied(term).items()})
        if not taken:
            self.terms += added
        assert min(self.bags["s"].values()) >= 0
        return change

    def term(self) -> list[Part]:
        names, parts = list(SCHEMAS["s"]), []
        self.rng.shuffle(names)
        while names:
            own = tuple(names.pop() for _ in range(self.rng.randint(1, min(3, len(names)))))
            rows = Counter(tuple(value(self.rng, SCHEMAS["s"][name]) for name in own) for _ in range(3))
            parts.append((own, rows))
        return parts

    def some(self, rows: Counter[Row]) -> list[Row]:
        return self.rng.sample(sorted(rows, key=repr), self.rng.randint(1, len(rows)))

    def rows(self) -> dict[str, pa.Table]:
        return {name: table(bag, SCHEMAS[name], diff=False) for name, bag in self.bags.items()}


def made(term: list[Part]) -> hr.Product:
    return hr.product(*(table(rows, {name: SCHEMAS["s"][name] for name in names}) for names, rows in term))


def multiplied(term: list[Part]) -> Counter[Row]:
    out: Counter[Row] = Counter()
    for chosen in combinations(*(rows.items() for _, rows in term)):
        named = {
            name: v for (own, _), (row, _) in zip(term, chosen, strict=True) for name, v in zip(own, row, strict=True)
        }
        out[tuple(named[name] for name in SCHEMAS["s"])] += prod(n for _, n in chosen)
    return out


def ddl(name: str) -> str:
    return ", ".join(f"{column} {kind}" for column, kind in SCHEMAS[name].items())


@contextmanager
def opened(spark: SparkSession, location: Path, strategy: str = "factorized", **options: Any) -> Iterator[hr.Engine]:
    with hr.Engine(spark, location, buckets=3, **options) as engine:
        for name in SCHEMAS:
            engine.table(name, ddl(name), keep_rows=name != "s")
        for name, sql in VIEWS.items():
            engine.view(name, sql, strategy=strategy)
        if strategy == "factorized":  # whose levels are views with keys of several parts
            engine.view("rows", ROWS, representation="factorized")
        engine.covariance("moments", f"SELECT r.x, s.e, s.w, s.c, t.y {JOIN}", strategy=strategy)
        yield engine


def check(engine: hr.Engine, stream: Stream, oracle: Oracle) -> None:
    oracle.set_rows(stream.rows())
    for (name, sql), wanted in zip(VIEWS.items(), oracle.answers(list(VIEWS.values())), strict=True):
        try:
            assert_same(engine.views[name].to_arrow(), wanted, relative=1e-9)
        except AssertionError as error:
            raise AssertionError(f"{name}: {sql}\n{engine.views[name].explain()}") from error
    rows = oracle.answer(f"SELECT r.x, s.e, s.w, s.c, t.y {JOIN}").to_pylist()
    full = np.array([[float(v) for v in row.values()] for row in rows if None not in row.values()]).reshape(-1, 5)
    if "rows" in engine.views:
        assert_same(engine.views["rows"].to_arrow(), oracle.answer(ROWS))
    moments = engine.views["moments"]
    assert isinstance(moments, hr.Covariance)
    assert moments.count == len(full)
    if len(full):
        np.testing.assert_allclose(moments.sums, full.sum(axis=0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("executor", ["auto", "inline", "spark"])
@seeds("products of parts", 4)
def test_products_give_what_spark_gives_over_their_rows(
    spark: SparkSession, tmp_path: Path, seed: int, executor: str
) -> None:
    stream, oracle = Stream(random.Random(seed)), Oracle(spark)
    for _ in range(2):  # and again after a restart
        with opened(spark, tmp_path / "state", executor=executor) as engine:
            for _ in range(2):
                changes = stream.step()
                step = engine.apply(changes)
                assert step.ran == "driver"
                assert step.rows["s"] == changes["s"].part_rows
                assert step.stands_for == {"s": changes["s"].rows}
                check(engine, stream, oracle)
            assert engine.tables["s"].rows == stream.bags["s"].total()


@seeds("products of parts in stages", 3)
def test_products_go_through_several_stages(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(distribution, "STAGE_ROWS", 0)
    stream, oracle = Stream(random.Random(seed)), Oracle(spark)
    with opened(spark, tmp_path / "state") as engine:
        assert any(engine.views[name].planned.kernel.plan.levels > 1 for name in VIEWS)
        for _ in range(3):
            engine.apply(stream.step())
        check(engine, stream, oracle)


@pytest.mark.parametrize("strategy", ["recursive", "first-order"])
@seeds("products of parts in other plans", 2)
def test_products_in_the_plans_that_exist_for_comparison(
    spark: SparkSession, tmp_path: Path, seed: int, strategy: str
) -> None:
    stream, oracle = Stream(random.Random(seed)), Oracle(spark)
    with opened(spark, tmp_path / "state", strategy) as engine:
        for _ in range(3):
            engine.apply(stream.step())
        check(engine, stream, oracle)


@seeds("products of parts or their rows", 3)
def test_a_product_is_worth_its_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The same stream, once in parts and once multiplied out by whoever applies it, gives the same answers."""
    stream = Stream(random.Random(seed))
    with opened(spark, tmp_path / "parts") as parts, opened(spark, tmp_path / "rows") as rows:
        for _ in range(3):
            changes = stream.step()
            parts.apply(changes)
            step = rows.apply({**changes, "s": changes["s"].to_arrow()})
            assert step.stands_for == {}
        for name in VIEWS:
            assert_same(parts.views[name].to_arrow(), rows.views[name].to_arrow(), relative=1e-9)
        assert parts.tables["s"].rows == rows.tables["s"].rows


@contextmanager
def example_9(spark: SparkSession, location: Path, s: str = "a INT, c INT, e INT", **given: Any) -> Iterator[hr.Engine]:
    """The tables of the paper's example, R and T static."""
    with hr.Engine(spark, location) as engine:
        engine.table("r", "a INT, b INT", static=True)
        engine.table("t", "c INT, d INT", static=True)
        engine.table("s", s, **({"keep_rows": False} | given))
        n = np.arange(1000, dtype=np.int32)
        engine.apply({"r": pa.table({"a": n, "b": n % 7}), "t": pa.table({"c": n, "d": n % 5})})
        yield engine


NATURAL = "FROM r NATURAL JOIN s NATURAL JOIN t"
CUBE = (
    {"a": np.arange(1000, dtype=np.int32)},
    {"c": np.arange(1000, dtype=np.int32)},
    {"e": np.arange(1000, dtype=np.int32)},
)


def test_a_billion_rows_in_parts(spark: SparkSession, tmp_path: Path) -> None:
    """DuckDB says what the product is worth: sums over the parts, as nobody makes the rows."""
    with example_9(spark, tmp_path / "state") as engine:
        view = engine.view("v", f"SELECT SUM(b * d * e) AS bde, COUNT(*) AS n {NATURAL}", strategy="factorized")
        grouped = engine.view("g", f"SELECT a, SUM(d * e) AS de {NATURAL} GROUP BY a", strategy="factorized")
        change = hr.product(*CUBE) - hr.product({"a": [3, 5]}, {"c": [1], "e": [7]})
        assert change.rows == 10**9 + 2
        step = engine.apply({"s": change})
        assert step.rows == {"s": 3003}
        assert step.stands_for == {"s": 10**9 + 2}
        assert "3,003 rows of s (for 1,000,000,002)" in str(step)
        assert engine.tables["s"].rows == 10**9 - 2
        n = np.arange(1000)
        db = duckdb.connect()
        for name, column in (("r", n % 7), ("t", n % 5)):
            rows = pa.table({"k": n, "v": column})
            db.register(name, rows)
        b, d, e = (
            int(db.execute(sql).fetchone()[0])  # type: ignore[index]
            for sql in ("SELECT SUM(v) FROM r", "SELECT SUM(v) FROM t", "SELECT SUM(range) FROM range(1000)")
        )
        less = (3 % 7 + 5 % 7) * (1 % 5) * 7
        assert view.to_arrow().to_pylist() == [{"bde": b * d * e - less, "n": 10**9 - 2}]
        found = {row["a"]: row["de"] for row in grouped.to_arrow().to_pylist()}
        assert found == {a: d * e - (7 if a in (3, 5) else 0) for a in range(1000)}
        # Nothing but the two answers was made of the products.
        assert set(step.multiplied_out) <= {"v", "g"}
        assert all(sum(made.values()) <= 1100 for made in step.multiplied_out.values())


def test_explain_says_where_a_product_was_multiplied_out(spark: SparkSession, tmp_path: Path) -> None:
    with example_9(spark, tmp_path / "state") as engine:
        view = engine.view("v", f"SELECT a, c, SUM(e) AS e {NATURAL} GROUP BY a, c", strategy="factorized")
        few = ({"a": [1, 2, 3]}, {"c": [1, 2, 3]}, {"e": list(range(50))})
        step = engine.apply({"s": hr.product(*few)})
        assert sum(step.multiplied_out["v"].values()) == 9
        assert "multiplied out" in str(view.explain())
        assert view.explain().last_step["multiplied_out"] == step.multiplied_out
        engine.apply(
            {"s": pa.table({"a": [1], "c": [1], "e": [1]}, schema=pa.schema([(n, pa.int32()) for n in "ace"]))}
        )
        assert "multiplied out" not in str(view.explain())


def test_parts_that_one_expression_reads_are_multiplied_out_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    with example_9(spark, tmp_path / "state") as engine:
        view = engine.view("v", f"SELECT SUM(s.c * s.e) AS ce {NATURAL}", strategy="factorized")
        step = engine.apply({"s": hr.product(CUBE[0], {"c": [1, 2, 3]}, {"e": [5, 7]})})
        assert step.multiplied_out["v"]["rows of s(c, e)"] == 6
        assert view.to_arrow().to_pylist() == [{"ce": 1000 * 6 * 12}]


def test_a_micro_batch_of_products_is_applied_once(spark: SparkSession, tmp_path: Path) -> None:
    change = hr.product({"a": [1, 2]}, {"c": [1, 2]}, {"e": [1, 2, 3]})
    with example_9(spark, tmp_path / "state") as engine:
        view = engine.view("v", f"SELECT COUNT(*) AS n {NATURAL}", strategy="factorized")
        assert not engine.apply({"s": change}, source=("products", 1)).skipped
        assert engine.apply({"s": change}, source=("products", 1)).skipped
        assert view.to_arrow().to_pylist() == [{"n": 12}]
        assert view.changes().column("__diff").to_pylist() == [-1, 1]
    with hr.Engine(spark, tmp_path / "state") as engine:
        assert engine.apply({"s": change}, source=("products", 1)).skipped
        engine.apply({"s": -change}, source=("products", 2))
        assert engine.views["v"].to_arrow().to_pylist() == [{"n": 0}]
        assert engine.tables["s"].rows == 0


def test_regression_over_a_product(spark: SparkSession, tmp_path: Path) -> None:
    with example_9(spark, tmp_path / "state", "a INT, c INT, e DOUBLE") as engine:
        model = engine.model("m", hr.LinearRegression(label="b"), f"SELECT b, d, e {NATURAL}", strategy="factorized")
        parts = ({"a": [1, 2, 9]}, {"c": [4, 7, 8]}, {"e": [0.5, 2.5, 3.0], "__diff": [2, 1, 1]})
        engine.apply({"s": hr.product(*parts) + hr.product({"a": [5], "c": [6], "e": [1.0]})})
        rows = [(a % 7, c % 5, e) for a in (1, 2, 9) for c in (4, 7, 8) for e in (0.5, 0.5, 2.5, 3.0)] + [(5, 1, 1.0)]
        data = np.array(rows, float)
        design = np.column_stack([np.ones(len(data)), data[:, 1:]])
        wanted = np.linalg.lstsq(design, data[:, 0], rcond=None)[0]
        assert model.count == len(data)
        np.testing.assert_allclose([model.intercept_, *model.coef_], wanted, rtol=1e-8, atol=1e-10)


# -- refusals ---------------------------------------------------------------------------------------------------------

SMALL = ({"a": [1, 2]}, {"c": [1, 2]}, {"e": [1, 2]})


@pytest.mark.parametrize(
    ("given", "sql", "options", "why"),
    [
        ({"keep_rows": True}, f"SELECT COUNT(*) AS n {NATURAL}", {"strategy": "factorized"}, "it keeps its rows"),
        ({}, "SELECT a, SUM(e) AS e FROM s GROUP BY a", {}, "view 'v' takes rows: it is kept by rows"),
        ({}, f"SELECT a, MIN(e) AS e {NATURAL} GROUP BY a", {}, "view 'v' takes rows: it is kept by rows"),
        ({}, f"SELECT COUNT(*) AS n {NATURAL}", {"strategy": "operators"}, "view 'v' takes rows: it is kept by rows"),
        (
            {},
            f"SELECT COUNT(*) AS n {NATURAL}",
            {"strategy": "factorized", "goal": hr.Manual()},
            "view 'v' takes rows: it has a goal",
        ),
        (
            {},
            f"SELECT soundex(CAST(e AS STRING)) AS g, COUNT(*) AS n {NATURAL} GROUP BY soundex(CAST(e AS STRING))",
            {"strategy": "factorized"},
            "view 'v' takes rows: Catalyst evaluates",
        ),
    ],
    ids=["kept rows", "one table", "MIN", "operators", "goal", "Catalyst"],
)
def test_a_view_that_cannot_take_products_is_named(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any], sql: str, options: dict[str, Any], why: str
) -> None:
    with example_9(spark, tmp_path / "state", **given) as engine:
        engine.view("v", sql, **options)
        before = engine.step
        change = hr.product(*SMALL)
        with pytest.raises(hr.BadRowsError, match=f"(?s){why}.*change.to_arrow\\(\\)"):
            engine.apply({"s": change})
        assert engine.step == before
        engine.apply({"s": change.to_arrow()})  # the way out
        assert engine.step == before + 1
        if "goal" in options:
            engine.refresh()
        assert engine.views["v"].rows > 0


def test_a_table_without_views_counts_a_product(spark: SparkSession, tmp_path: Path) -> None:
    with example_9(spark, tmp_path / "state") as engine:
        engine.apply({"s": hr.product(*SMALL)})
        assert engine.tables["s"].rows == 8


def test_a_model_with_categories_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with example_9(spark, tmp_path / "state") as engine:
        engine.covariance("m", f"SELECT b, e {NATURAL}", categorical=["b"], strategy="factorized")
        with pytest.raises(hr.BadRowsError, match="view 'm' takes rows: it has categories"):
            engine.apply({"s": hr.product(*SMALL)})


def test_a_watermark_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state") as engine:
        engine.table("w", "ts TIMESTAMP, x INT", keep_rows=False, watermark=("ts", "1 hour"))
        times = pa.array([0], pa.timestamp("us", tz="UTC"))
        with pytest.raises(hr.BadRowsError, match="it has a watermark"):
            engine.apply({"w": hr.product(pa.table({"ts": times}), {"x": [1]})})


@pytest.mark.parametrize("mode", ["fail", "quarantine"])
def test_bad_rows_of_a_part_are_shown_and_nothing_is_applied(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    with example_9(spark, tmp_path / "state", "a INT NOT NULL, c INT, e DOUBLE", append_only=True) as engine:
        view = engine.view("v", f"SELECT COUNT(*) AS n, SUM(e) AS e {NATURAL}", strategy="factorized")
        bad: dict[str, hr.Product] = {
            r"in the part \(a\).*a=None.*NULL in NOT NULL column 'a'": hr.product({"a": [1, None]}, *SMALL[1:]),
            r"in the part \(e\).*e=nan.*NaN or infinity": hr.product(*SMALL[:2], {"e": [1.0, float("nan")]}),
            r"in the part \(a\).*append-only": -hr.product(*SMALL),
        }
        for why, change in bad.items():
            before = engine.step
            with pytest.raises(hr.BadRowsError, match=f"(?s){why}.*none is set aside"):
                engine.apply({"s": change}, on_bad_rows=mode)
            assert engine.step == before
        assert view.to_arrow().to_pylist() == [{"n": 0, "e": None}]
        # NULL in a column that is joined on takes no part, as in rows.
        engine.apply({"s": hr.product({"a": [1]}, {"c": [1, None]}, {"e": [1.0, None]})}, on_bad_rows=mode)
        assert view.to_arrow().to_pylist() == [{"n": 2, "e": 1.0}]


def test_bad_ordinary_rows_are_set_aside_beside_a_product(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state", on_bad_rows="quarantine") as engine:
        engine.table("r", "a INT NOT NULL, b INT")
        engine.table("s", "a INT, c INT, e INT", keep_rows=False)
        view = engine.view("v", "SELECT SUM(b * e) AS be FROM r JOIN s USING (a)", strategy="factorized")
        step = engine.apply({"r": pa.table({"a": [1, None], "b": [10, 20]}), "s": hr.product(*SMALL)})
        assert step.quarantined == {"r": 1}
        assert view.to_arrow().to_pylist() == [{"be": 10 * 2 * 3}]
        assert engine.tables["s"].rows == 8


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: hr.product(), "needs a part"),
        (lambda: hr.product({"a": [1]}, {"a": [2], "c": [1]}), "several parts of a product have 'a'"),
        (lambda: hr.product({"a": [1], "__diff": [0.5]}), "'__diff' is double"),
        (lambda: hr.product({"__diff": [1]}), "has the columns '__diff'"),
        (lambda: hr.product({"a": [1, 2], "c": [1]}), "part 1 of a product is no table"),
        (lambda: hr.product([1, 2]), "part 1 of a product is a list"),
        (lambda: hr.product({"a": [1]}) + hr.product({"c": [1]}), "products of different columns"),
    ],
)
def test_what_is_no_product(make: Any, why: str) -> None:
    with pytest.raises(hr.BadRowsError, match=why):
        make()


def test_products_that_do_not_fit_their_table(spark: SparkSession, tmp_path: Path) -> None:
    with example_9(spark, tmp_path / "state") as engine:
        engine.view("v", f"SELECT COUNT(*) AS n {NATURAL}", strategy="factorized")
        many = pa.table({"e": [1], "__diff": [2**31]})
        for change, why in (
            (hr.product({"a": [1]}, {"c": [1]}), "missing: 'e'"),
            (hr.product(*SMALL, {"z": [1]}), "not in the table: 'z'"),
            (hr.product(*SMALL[:2], {"e": [0.5]}), "values do not fit INT"),
            (hr.product({"a": [1], "__diff": [2**31]}, {"c": [1]}, many), "counts are 64-bit integers"),
        ):
            with pytest.raises(hr.BadRowsError, match=why):
                engine.apply({"s": change})
        frame = spark.createDataFrame([(1, 1)], "a INT, b INT")
        engine.table("u", "a INT, b INT")
        with hr.Engine(spark, tmp_path / "other", executor="spark") as other:
            other.table("u", "a INT, b INT")
            other.table("s", "a INT, c INT, e INT", keep_rows=False)
            with pytest.raises(hr.BadRowsError, match="runs in the driver"):
                other.apply({"s": hr.product(*SMALL), "u": frame})
        assert engine.apply({"s": hr.product(*SMALL), "u": frame}).ran == "driver"
