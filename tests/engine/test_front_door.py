"""The public API: definitions, steps, reads, bad input, restarts, and errors that say what to do."""

from __future__ import annotations

import datetime
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import (
    ArithmeticOverflowError,
    BadRowsError,
    SchemaError,
    StepFailedError,
    StorageError,
    UnsupportedSQLError,
)
from headrace.runtime.location import write_once

pytestmark = pytest.mark.check

DDL = "id BIGINT, shop STRING, qty INT, price DECIMAL(10,2), rating DOUBLE"


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Any:
    with hr.Engine(spark, tmp_path / "state", buckets=3) as engine:
        engine.table("sales", DDL, key="id")
        yield engine


def sales(*rows: tuple[Any, ...], diff: list[int] | None = None) -> pa.Table:
    ids, shops, quantities, prices, ratings = zip(*rows, strict=True)
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "shop": pa.array(shops, pa.string()),
            "qty": pa.array(quantities, pa.int32()),
            "price": pa.array([None if p is None else Decimal(p) for p in prices], pa.decimal128(10, 2)),
            "rating": pa.array(ratings, pa.float64()),
        }
    )
    return table if diff is None else table.append_column("__diff", pa.array(diff))


A, B, C = (1, "a", 1, "1.50", 1.0), (2, "b", 2, "2.00", None), (3, "a", None, "3.25", 5.0)


def test_a_step_tells_what_it_did(engine: hr.Engine) -> None:
    engine.view("by_shop", "SELECT shop, SUM(price) AS p FROM sales GROUP BY shop")
    step = engine.apply({"sales": sales(A, B, C)})
    assert (step.number, step.rows, step.ran) == (1, {"sales": 3}, "driver")
    assert step.views == {"by_shop": hr.ViewChange(inserted=2)}
    assert step.seconds > 0
    engine.sync()
    assert step.state_bytes == sum(p.stat().st_size for p in (engine.location / "runs").iterdir()) - _changes_bytes(
        engine
    )
    step = engine.apply({"sales": sales(A, (1, "b", 1, "9.00", 1.0), B, diff=[-1, 1, -1])})
    assert step.views == {"by_shop": hr.ViewChange(updated=2)}
    assert "step 2" in str(step)
    assert engine.step == 2


def _changes_bytes(engine: hr.Engine) -> int:
    return sum(run.bytes for runs in engine._store.snapshot.changes.values() for run in runs)


def test_changes_hold_one_deletion_and_one_insertion_a_changed_group(engine: hr.Engine) -> None:
    view = engine.view("v", "SELECT shop, MAX(price) AS p FROM sales GROUP BY shop")
    engine.apply({"sales": sales(A, B, C)})
    engine.apply({"sales": sales((4, "a", 1, "9.00", 1.0), (5, "b", 1, "0.10", 1.0))})
    assert sorted(map(str, view.changes().to_pylist())) == sorted(
        map(
            str,
            [
                {"shop": "a", "p": Decimal("3.25"), "__diff": -1},
                {"shop": "a", "p": Decimal("9.00"), "__diff": 1},
            ],  # the maximum of b did not change, so nothing is said about b
        )
    )
    engine.apply({"sales": sales((6, "b", 1, "0.20", 1.0))})
    assert view.changes().num_rows == 0


def test_sums_of_nulls_and_of_nothing(engine: hr.Engine) -> None:
    view = engine.view(
        "v", "SELECT COUNT(*) AS n, COUNT(qty) AS c, SUM(qty) AS s, AVG(rating) AS r, MIN(shop) AS m FROM sales"
    )
    assert view.to_arrow().to_pylist() == [{"n": 0, "c": 0, "s": None, "r": None, "m": None}]
    engine.apply({"sales": sales(C)})
    assert view.to_arrow().to_pylist() == [{"n": 1, "c": 0, "s": None, "r": 5.0, "m": "a"}]
    assert view.changes().column("__diff").to_pylist() == [-1, 1]
    engine.apply({"sales": sales(C, diff=[-1])})
    assert view.to_arrow().to_pylist() == [{"n": 0, "c": 0, "s": None, "r": None, "m": None}]


def test_doubles_do_not_drift(engine: hr.Engine) -> None:
    view = engine.view("v", "SELECT shop, SUM(rating) AS r FROM sales GROUP BY shop")
    engine.apply({"sales": sales((0, "a", 1, "1.00", 0.1))})
    rng = np.random.default_rng(1)
    for i in range(1, 30):
        row = (i, "a", 1, "1.00", float(rng.normal() * 10.0 ** rng.integers(-3, 12)))
        engine.apply({"sales": sales(row)})
        engine.apply({"sales": sales(row, diff=[-1])})
    assert view.to_pandas()["r"][0] == pytest.approx(0.1, rel=2.3e-16)


def test_pandas_and_spark_frames_are_changes_too(engine: hr.Engine) -> None:
    frame = pd.DataFrame(
        {"id": [1, 2], "shop": ["a", None], "qty": [1.0, np.nan], "price": [1, 2], "rating": [0.5, np.nan]}
    )
    engine.apply({"sales": frame})
    engine.apply({"sales": engine.spark.createDataFrame(sales(C))})
    rows = sorted(engine.tables["sales"].to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows[1] == {"id": 2, "shop": None, "qty": None, "price": Decimal("2.00"), "rating": None}
    assert len(rows) == 3


def test_two_tables_change_in_one_step_or_not_at_all(engine: hr.Engine) -> None:
    engine.table("shops", "shop STRING, city STRING", key="shop", references=None)
    shops = engine.view("cities", "SELECT city, COUNT(*) AS n FROM shops GROUP BY city")
    total = engine.view("total", "SELECT COUNT(*) AS n FROM sales")
    engine.apply({"sales": sales(A), "shops": pa.table({"shop": ["a"], "city": ["Oslo"]})})
    with pytest.raises(BadRowsError, match="'shops'"):
        engine.apply({"sales": sales(B), "shops": pa.table({"shop": ["a"], "city": ["Rome"]})})
    assert total.to_pandas()["n"][0] == 1
    assert shops.to_arrow().to_pylist() == [{"city": "Oslo", "n": 1}]
    assert engine.step == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (pa.table({"id": [1]}), "missing: 'shop', 'qty', 'price', 'rating'"),
        (sales(A).append_column("colour", pa.array(["red"])), "not in the table: 'colour'"),
        (sales(A).set_column(0, "id", pa.array(["one"])), "column 'id': string given, BIGINT wanted"),
        (sales(A).set_column(2, "qty", pa.array([2**40])), "do not fit INT: 1099511627776"),
        (sales(A).set_column(3, "price", pa.array([Decimal("1.234")])), "do not fit DECIMAL"),
        (sales(A, diff=[1]).set_column(5, "__diff", pa.array([0.5])), "__diff"),
        ([1], "changes are a list with a int, 1"),
        ([{"id": 1}], "missing: 'shop', 'qty', 'price', 'rating'"),
        (sales((None, "a", 1, "1.00", 1.0)), "NULL in key column 'id'"),
        (sales(B, diff=[-1]), "deletes a row that is not there"),
        (sales((9, "a", 1, "1.00", 1.0), diff=[-1]), "the row with this key has other values"),
        (sales((9, "z", 1, "1.00", 1.0)), "duplicate key: a row with this key is there already"),
        (sales((7, "a", 1, "1.00", 1.0), (7, "b", 1, "1.00", 1.0)), "the batch inserts several rows"),
        (sales((8, "a", 1, "1.00", float("nan"))), "NaN or infinity (or more than 1e288) in rating"),
    ],
)
@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_bad_input_is_refused_before_anything_is_written(
    engine: hr.Engine, changes: Any, says: str, executor: str
) -> None:
    engine._maintenance._step_runner.executor = executor
    view = engine.view("v", "SELECT shop, SUM(rating) AS r FROM sales GROUP BY shop")
    engine.apply({"sales": sales((9, "a", 2, "2.00", 4.0))})
    before, files = view.to_arrow(), {p.name for p in (engine.location / "runs").iterdir()}
    with pytest.raises(BadRowsError) as caught:
        engine.apply({"sales": changes})
    assert says in str(caught.value)
    assert "'sales'" in caught.value.what
    assert caught.value.way_out
    assert view.to_arrow() == before
    assert {p.name for p in (engine.location / "runs").iterdir()} == files


def test_an_error_shows_five_bad_rows_at_most(engine: hr.Engine) -> None:
    with pytest.raises(BadRowsError) as caught:
        engine.apply({"sales": sales(*[(None, "a", i, "1.00", 1.0) for i in range(8)])})
    assert caught.value.what.count("NULL in key") == 5
    assert "and 3 more" in caught.value.what


@pytest.mark.parametrize("executor", ["inline", "spark"])
@pytest.mark.parametrize("as_frame", [False, True])
def test_quarantine_keeps_bad_rows_and_lets_good_ones_go_on(engine: hr.Engine, executor: str, as_frame: bool) -> None:
    engine._maintenance._step_runner.executor = executor
    view = engine.view("v", "SELECT shop, COUNT(*) AS n, SUM(rating) AS r FROM sales GROUP BY shop")
    engine.apply({"sales": sales(A)})
    batch = sales(
        B,
        A,
        (None, "x", 1, "1.00", 1.0),
        (7, "y", 1, "1.00", float("inf")),
        (8, "z", 1, "1.00", 1.0),
        diff=[1, 1, 1, 1, -1],
    )
    given = engine.spark.createDataFrame(batch) if as_frame else batch
    step = engine.apply({"sales": given}, on_bad_rows="quarantine")
    assert step.quarantined == {"sales": 4}
    assert step.rows == {"sales": 1}
    assert engine.tables["sales"].rows == 2
    assert sorted(view.to_pandas()["shop"]) == ["a", "b"]
    aside = engine.quarantine("sales")
    assert aside.num_rows == 4
    assert {row["__reason"].split(":")[0] for row in aside.to_pylist()} == {
        "duplicate key",
        "NULL in key column 'id'",
        "view 'v'",
        "deletes a row that is not there",
    }
    assert set(aside.column("__step").to_pylist()) == {2}
    fixed = [row for row in aside.to_pylist() if row["id"] == 7]
    engine.apply({"sales": sales((7, "y", 1, "1.00", 3.0))})
    assert fixed[0]["shop"] == "y"
    engine.discard_quarantine("sales")
    assert engine.quarantine("sales").num_rows == 0
    engine.sync()
    assert not list((engine.location / "quarantine").iterdir())


def test_reopening_restores_everything(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", buckets=3) as engine:
        engine.table("sales", DDL, key="id")
        engine.view("v", "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop")
        engine.apply({"sales": sales(A, B, C)})
        changes = engine.views["v"].changes()
    with hr.Engine(spark, tmp_path / "s") as engine:
        assert engine.buckets == 3
        assert engine.tables["sales"].schema.key == ("id",)
        assert sorted(engine.views["v"].to_pandas()["n"]) == [1, 2]
        assert engine.views["v"].changes() == changes
        engine.apply({"sales": sales(A, diff=[-1])})
        assert sorted(engine.views["v"].to_pandas()["n"]) == [1, 1]
        engine.drop("v")
    with hr.Engine(spark, tmp_path / "s") as engine:
        assert engine.views == {}
        with pytest.raises(SchemaError, match="3 buckets, not 5"):
            hr.Engine(spark, tmp_path / "s", buckets=5, read_only=True)


def test_a_view_created_late_is_filled_from_the_table(engine: hr.Engine) -> None:
    engine.apply({"sales": sales(A, B, C)})
    engine.apply({"sales": sales(B, diff=[-1])})
    late = engine.view("late", "SELECT upper(shop) AS s, SUM(price) AS p FROM sales GROUP BY upper(shop)")
    assert late.to_arrow().to_pylist() == [{"s": "A", "p": Decimal("4.75")}]
    assert late.changes().num_rows == 0


def test_definitions_are_idempotent_and_checked(engine: hr.Engine) -> None:
    assert engine.table("sales", DDL, key="id") is engine.tables["sales"]
    view = engine.view("v", "SELECT COUNT(*) AS n FROM sales")
    assert engine.view("v", "SELECT COUNT(*) AS n FROM sales") is view
    for wrong, says in [
        (lambda: engine.table("sales", DDL), "another definition"),
        (lambda: engine.view("v", "SELECT 1 AS n FROM sales"), "another definition"),
        (lambda: engine.table("SALES", DDL), "taken"),
        (lambda: engine.view("sales", "SELECT COUNT(*) AS n FROM sales"), "taken"),
        (lambda: engine.table("bad name", "id BIGINT"), "plain identifier"),
        (lambda: engine.table("t", "id BIGINT, ID INT"), "twice"),
        (lambda: engine.table("t", "id BIGINT", key="nope"), "not one of its columns"),
        (lambda: engine.table("t", "id ARRAY<INT>"), "not supported"),
        (lambda: engine.table("t", "id BIGINT,,"), "not Spark DDL"),
        (lambda: engine.apply({"nope": sales(A)}), "no table 'nope'"),
        (lambda: engine.drop("nope"), "no table or view"),
        (lambda: engine.drop("sales"), "used by v"),
        (lambda: engine.apply({"sales": sales(A)}, on_bad_rows="ignore"), "'ignore' is not known"),
    ]:
        with pytest.raises(SchemaError, match=says):
            wrong()


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT explode(sequence(1, qty)) AS x FROM sales", "EXPLODE"),
        ("SELECT COLLECT_LIST(qty) AS n FROM sales", "array"),
        ("SELECT CORR(DISTINCT qty, id) AS n FROM sales", "DISTINCT"),
        ("SELECT shop, STDDEV(qty) OVER (ORDER BY id) AS r FROM sales", "OVER"),
        ("SELECT rand() AS r FROM sales", "rand()"),
        ("SELECT current_timestamp() AS t FROM sales", "current_timestamp"),
    ],
)
def test_sql_that_cannot_be_maintained_is_refused_when_the_view_is_created(
    engine: hr.Engine, sql: str, names: str
) -> None:
    with pytest.raises(UnsupportedSQLError) as caught:
        engine.view("v", sql)
    assert names.lower() in caught.value.what.lower()
    assert "'v'" in caught.value.what
    assert engine.views == {}


def test_an_expression_that_fails_refuses_the_step(engine: hr.Engine) -> None:
    engine.view("v", "SELECT shop, SUM(100 / qty) AS x FROM sales GROUP BY shop")
    engine.apply({"sales": sales(A)})
    with pytest.raises(StepFailedError, match="DIVIDE_BY_ZERO"):
        engine.apply({"sales": sales((5, "a", 0, "1.00", 1.0))})
    assert engine.tables["sales"].rows == 1


def test_integer_overflow_in_an_expression_is_spark_s_error(engine: hr.Engine) -> None:
    view = engine.view("v", "SELECT SUM(qty + 1) AS x FROM sales")
    with pytest.raises(StepFailedError, match="ARITHMETIC_OVERFLOW"):
        engine.apply({"sales": sales((5, "a", 2**31 - 1, "1.00", 1.0))})
    engine.apply({"sales": sales((5, "a", 2**31 - 2, "1.00", 1.0))})
    assert view.to_pandas()["x"][0] == 2**31 - 1


def test_a_sum_that_leaves_its_type_is_an_error_and_comes_back(engine: hr.Engine) -> None:
    engine.table("big", "id BIGINT, x BIGINT", key="id")
    view = engine.view("v", "SELECT SUM(x) AS x FROM big")
    engine.apply({"big": pa.table({"id": [1, 2], "x": [2**62, 2**62]})})
    with pytest.raises(ArithmeticOverflowError, match=r"SUM\(x\) no longer fits BIGINT"):
        view.to_arrow()
    engine.apply({"big": pa.table({"id": [3], "x": [-5]})})
    assert view.to_pandas()["x"][0] == 2**63 - 5


def test_a_frame_read_later_shows_the_step_it_was_made_at(engine: hr.Engine) -> None:
    view = engine.view("v", "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop")
    engine.apply({"sales": sales(A)})
    frame = view.to_df()
    for i in range(10, 40):  # enough steps to merge its runs away
        engine.apply({"sales": sales((i, "a", 1, "1.00", 1.0))})
    assert frame.collect()[0]["n"] == 1
    assert view.to_df().collect()[0]["n"] == 31


def test_reads_are_consistent_while_steps_write(engine: hr.Engine) -> None:
    view = engine.view("v", "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop")
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            counts = set(view.to_arrow().column("n").to_pylist())
            if len(counts) > 1:  # every step adds one row to each shop
                wrong.append(counts)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for i in range(60):
            engine.apply({"sales": sales(*[(10 * i + j, f"s{j}", 1, "1.00", 1.0) for j in range(7)])})
    finally:
        done.set()
        thread.join()
    assert not wrong


@pytest.mark.whole
def test_state_stays_within_a_constant_of_the_live_data(engine: hr.Engine) -> None:
    engine.view("v", "SELECT shop, COUNT(*) AS n, MIN(price) AS low FROM sales GROUP BY shop")
    fresh_bytes = 0
    for i in range(1000):  # a window of 200 rows slides over 2,000: everything else must leave the state
        rows = [(2 * i + j, f"s{(2 * i + j) % 40}", i, "1.00", 1.0) for j in range(2)]
        old = (
            [(2 * (i - 100) + j, f"s{(2 * (i - 100) + j) % 40}", i - 100, "1.00", 1.0) for j in range(2)]
            if i >= 100
            else []
        )
        step = engine.apply({"sales": sales(*rows, *old, diff=[1] * 2 + [-1] * len(old))})
        if i == 99:
            fresh_bytes = step.state_bytes
    assert engine.tables["sales"].rows == 200
    assert step.state_bytes < 8 * fresh_bytes
    engine.sync()
    on_disk = sum(path.stat().st_size for path in engine.location.rglob("*") if path.is_file())
    assert on_disk < 40 * fresh_bytes
    assert len(list((engine.location / "log").iterdir())) <= 67


def test_the_types_of_sql_survive(spark: SparkSession, tmp_path: Path) -> None:
    ddl = "k INT, a TINYINT, b SMALLINT, c BIGINT, d FLOAT, e DECIMAL(38,10), f DATE, g TIMESTAMP"
    ddl += ", h TIMESTAMP_NTZ, i BOOLEAN, j STRING"
    moment = datetime.datetime(1960, 2, 29, 23, 59, 59, 999999)
    row = {
        "k": 1, "a": -128, "b": 32767, "c": -(2**63), "d": 0.5,
        "e": Decimal("-1234567890123456789012345678.0123456789"), "f": datetime.date(1, 1, 1),
        "g": moment.replace(tzinfo=datetime.UTC), "h": moment, "i": True, "j": "\u00e9\x00",
    }  # fmt: skip
    empty = {**dict.fromkeys(row), "k": 2}
    with hr.Engine(spark, tmp_path / "s") as engine:
        table = engine.table("t", ddl, key="k")
        view = engine.view("v", "SELECT * FROM t")
        low = engine.view("low", f"SELECT {', '.join(f'MIN({c}) AS {c}' for c in row)} FROM t")
        batch = pa.Table.from_pylist([row, empty], schema=table.schema.arrow)
        engine.apply({"t": batch})
        assert sorted(view.to_arrow().to_pylist(), key=lambda r: r["k"]) == [row, empty]
        assert low.to_arrow().to_pylist() == [row]
        assert next(r.asDict() for r in low.to_df().collect())["e"] == row["e"]


def test_explain_says_how_and_why(engine: hr.Engine) -> None:
    view = engine.view(
        "v", "SELECT shop, SUM(price) AS p, MAX(rating) AS r FROM sales WHERE qty > 1 GROUP BY shop HAVING COUNT(*) > 1"
    )
    engine.apply({"sales": sales(A, B, C)})
    text, data = str(view.explain()), view.explain().to_dict()
    for piece in ("(qty > 1)", "COUNT(*) > 1", "exact 128-bit sum", "rating (ordered)", "in the driver: "):
        assert piece in text, piece
    assert data["values"]["evaluated_by"] == "the kernels on columns"
    other = engine.view(
        "w", "SELECT date_format(DATE'2024-01-01', 'yyyy') AS y, regexp_replace(shop, 'a', 'b') AS s FROM sales"
    )
    assert "RegExpReplace" in str(other.explain())


# What trying it as a new user found.


def test_a_closed_engine_neither_writes_nor_reads(spark: SparkSession, tmp_path: Path) -> None:
    engine = hr.Engine(spark, tmp_path / "s")
    engine.table("t", "id BIGINT", key="id")
    view = engine.view("v", "SELECT COUNT(*) AS n FROM t")
    engine.close()
    for late in (lambda: engine.apply({"t": pa.table({"id": [1]})}), view.to_arrow, engine.verify):
        with pytest.raises(StorageError, match="is closed"):
            late()
    with hr.Engine(spark, tmp_path / "s") as again:
        assert again.step == 0


def test_a_commit_never_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "1.commit"
    write_once(path, b"first", fsync=False)
    with pytest.raises(StorageError):
        write_once(path, b"second", fsync=False)
    assert path.read_bytes() == b"first"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_reader_follows_a_writer(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2) as writer:
        writer.table("t", "id BIGINT, g INT", key="id")
        writer.view("v", "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
        with hr.Engine(spark, tmp_path / "s", read_only=True) as reader:
            for i in range(70):  # past merges and a checkpoint
                writer.apply({"t": pa.table({"id": [i], "g": pa.array([0], pa.int32())})})
                assert reader.views["v"].to_arrow().column("n").to_pylist() == [i + 1]
            assert reader.status()["step"] == 70
            assert reader.tables["t"].to_arrow().num_rows == 70


def test_quarantine_takes_rows_that_are_bad_for_several_reasons_once(spark: SparkSession, tmp_path: Path) -> None:
    nan = float("nan")
    with hr.Engine(spark, tmp_path / "s") as engine:
        engine.table("t", "id BIGINT, a DOUBLE, b DOUBLE", key="id")
        engine.view("v", "SELECT SUM(a) AS a, SUM(b) AS b FROM t")
        engine.view("w", "SELECT SUM(a) AS a FROM t")
        batch = pa.table({"id": [1, 2, 3, 4], "a": [nan, 1.0, nan, 1.0], "b": [1.0, nan, nan, 1.0]})
        step = engine.apply({"t": batch}, on_bad_rows="quarantine")
        assert (step.rows, step.quarantined) == ({"t": 1}, {"t": 3})
        assert engine.quarantine("t").num_rows == 3
        assert engine.tables["t"].rows == 1


def test_an_overflowed_view_does_not_hide_the_rest(engine: hr.Engine) -> None:
    engine.table("big", "id BIGINT, x BIGINT", key="id")
    engine.view("over", "SELECT SUM(x) AS x FROM big HAVING COUNT(*) > 0")
    engine.view("fine", "SELECT COUNT(*) AS n FROM big")
    engine.apply({"big": pa.table({"id": [1, 2], "x": [2**62, 2**62]})})
    views = {view["name"]: view for view in engine.status()["views"]}
    assert views["over"]["rows"] is None
    assert "no longer fits" in views["over"]["problem"]
    assert views["fine"]["rows"] == 1


def test_a_dropped_view_says_so(engine: hr.Engine) -> None:
    view = engine.view("v", "SELECT COUNT(*) AS n FROM sales")
    engine.drop("v")
    for late in (view.to_arrow, view.to_df, view.changes, view.explain):
        with pytest.raises(SchemaError, match="dropped"):
            late()


def test_a_folder_of_something_else_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="not a Headrace location"):
        hr.Engine(spark, tmp_path)
    with pytest.raises(StorageError, match="is a file"):
        hr.Engine(spark, tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_view_that_cannot_be_filled_is_not_created(engine: hr.Engine) -> None:
    engine.apply({"sales": sales((1, "a", 0, "1.00", float("inf")))})
    with pytest.raises(BadRowsError, match="'v' cannot be filled") as caught:
        engine.view("v", "SELECT SUM(rating) AS r FROM sales")
    assert "WHERE" in caught.value.way_out
    with pytest.raises(StepFailedError, match="'v' cannot be filled"):
        engine.view("v", "SELECT SUM(1 / qty) AS r FROM sales")
    assert engine.views == {}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda engine: engine.table("y", None), "the schema is a NoneType"),
        (lambda engine: engine.table("y", {"id": "BIGINT"}), "the schema is a dict"),
        (lambda engine: engine.apply(pd.DataFrame({"id": [1]})), "pass {table: changes}"),
        (lambda engine: engine.view("y", "INSERT INTO sales VALUES (1)"), "SELECT"),
        (lambda engine: engine.view("y", "DROP TABLE sales"), "SELECT"),
        (lambda engine: engine.view("y", ""), "SELECT"),
    ],
)
def test_wrong_calls_get_an_answer(engine: hr.Engine, wrong: Any, says: str) -> None:
    with pytest.raises(hr.HeadraceError, match=says):
        wrong(engine)
