"""Steps with bad rows that are set aside: what it costs, and what is left behind."""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine import quarantine
from headrace.engine.step_runner import StepRunner, translating_spark_errors
from headrace.errors import BadRowsError, CorruptFileError, StepFailedError, StorageError
from headrace.relation.given import SHOWN
from headrace.relation.schema import DIFF
from headrace.runtime import spark as spark_executor
from headrace.runtime.log import CommitLog
from headrace.runtime.program import BucketResult
from headrace.testing.oracle import assert_same, spark_ddl

HUGE = 1e200  # no view can sum its square


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_only_a_step_with_bad_rows_pays_for_them(
    spark: SparkSession, tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[bool] = []
    place = StepRunner._place

    def counted(self: StepRunner, program: Any, inputs: Any, views: Any) -> Any:
        runs.append(program.judge_only)
        return place(self, program, inputs, views)

    monkeypatch.setattr(StepRunner, "_place", counted)
    with hr.Engine(spark, tmp_path, executor=executor, on_bad_rows="quarantine", buckets=3) as engine:
        engine.table("t", "id BIGINT, v BIGINT", key="id")
        view = engine.view("sums", "SELECT v % 5 AS g, SUM(v) AS s FROM t GROUP BY v % 5")
        ids = list(range(1_000))
        engine.apply({"t": pa.table({"id": ids, "v": ids})})
        assert runs == [False]
        runs.clear()
        # Keys that are there, in some buckets, beside rows that are good.
        step = engine.apply({"t": pa.table({"id": [3, 5, 2_000], "v": [1, 2, 7]})})
        assert runs == [False, True, False]
        assert step.quarantined == {"t": 2}
        assert engine.quarantine("t").num_rows == 2
        found = {row["g"]: row["s"] for row in view.to_arrow().to_pylist()}
        assert found == {g: sum(i for i in [*ids, 7] if i % 5 == g) for g in range(5)}
        # What the first attempt wrote is gone.
        engine.sync()
        files = {path.name for path in (engine.location / "runs").iterdir()}
        assert files == engine._store.snapshot.files()


def test_workers_that_do_not_have_headrace_are_recognised() -> None:
    def fail() -> None:
        raise PySparkException("ModuleNotFoundError: No module named 'headrace'\nJVM stacktrace: long")

    with pytest.raises(StepFailedError, match="set PYSPARK_PYTHON before the session is made"):
        translating_spark_errors(fail)


def several_judges(engine: hr.Engine) -> hr.Engine:
    """Tables with rules, one of which keeps no rows, and views with rules; `a_y` judges before `b_x`."""
    engine.table("t", "id BIGINT, x DOUBLE, y DOUBLE, n BIGINT NOT NULL", key="id")
    engine.table("log", "n BIGINT NOT NULL, x DOUBLE", keep_rows=False)
    engine.view("b_x", "SELECT n % 3 AS g, VAR_POP(x) AS s FROM t GROUP BY n % 3")
    engine.view("a_y", "SELECT n % 3 AS g, VAR_POP(y) AS s FROM t GROUP BY n % 3")
    engine.view("of_log", "SELECT n, VAR_POP(x) AS s FROM log GROUP BY n")
    return engine


def rows_of_t(count: int) -> pa.Table:
    """Rows of which one kind is good; all others break a rule of the table, of a view, or of several."""
    rows: list[tuple[int, float, float, int | None, int]] = []
    for i in range(count):
        rows.append((i, HUGE, 1.0, 1, 1))  # one view refuses it
        rows.append((count + i, HUGE, HUGE, 1, 1))  # both views do
        rows += [(2 * count + i, HUGE, 1.0, None, 1)] * 2  # twice the same row, which the table and a view refuse
        rows.append((3 * count + i, 1.0, 1.0, 7, -1))  # the table does not have it
        rows += [(4 * count + i, 1.0, HUGE, 2, 1), (4 * count + i, 2.0, 1.0, 2, 1)]  # a key twice, one refused as well
        rows.append((5 * count + i, i / 2, 2.0, i, 1))
    types = [pa.int64(), pa.float64(), pa.float64(), pa.int64(), pa.int64()]
    columns = zip(*rows, strict=True)
    names = ["id", "x", "y", "n", DIFF]
    return pa.table({n: pa.array(list(c), t) for n, c, t in zip(names, columns, types, strict=True)})


def rows_of_log(count: int) -> pa.Table:
    return pa.table({"n": pa.array([None, 1, 2] * count, pa.int64()), "x": [HUGE, HUGE, 1.0] * count})


def bag(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[BucketResult]:
    """The results that tasks have sent to the driver."""
    results: list[BucketResult] = []
    combine = spark_executor.combine

    def noted(given: list[bytes]) -> BucketResult:
        results.extend(pickle.loads(bytes(one)) for one in given)
        return combine(given)

    monkeypatch.setattr(spark_executor, "combine", noted)
    return results


@pytest.mark.parametrize("as_frames", [False, True])
def test_tasks_set_the_same_rows_aside_as_the_driver(
    spark: SparkSession, tmp_path: Path, as_frames: bool, sent: list[BucketResult]
) -> None:
    count = 200
    changes = {"t": rows_of_t(count), "log": rows_of_log(count)}
    given = {n: spark.createDataFrame(rows, spark_ddl(rows.schema)) for n, rows in changes.items()}
    with (
        hr.Engine(spark, tmp_path / "driver", executor="inline", buckets=3) as driver,
        hr.Engine(spark, tmp_path / "job", executor="spark", buckets=3) as job,
    ):
        expected = several_judges(driver).apply(changes, on_bad_rows="quarantine")
        step = several_judges(job).apply(given if as_frames else changes, on_bad_rows="quarantine")
        assert (step.ran, expected.ran) == ("job", "driver")
        assert step.quarantined == expected.quarantined == {"t": 7 * count, "log": 2 * count}
        assert step.rows == expected.rows == {"t": count, "log": count}
        for table in changes:
            assert bag(job.quarantine(table)) == bag(driver.quarantine(table))
            assert job.quarantine(table).num_rows == step.quarantined[table]
        reasons = Counter(job.quarantine("t").column("__reason").to_pylist())
        assert {text[: len("view 'a_y'")]: number // count for text, number in reasons.items()} == {
            "view 'b_x'": 1,
            "view 'a_y'": 1,
            "NULL in NO": 2,
            "deletes a ": 1,
            "duplicate ": 2,
        }
        for view in job.views:
            assert_same(job.views[view].to_arrow(), driver.views[view].to_arrow())
        assert job.status()["quarantined"] == step.quarantined
        # Several tasks wrote files, and no task sent more rows than an error shows.
        assert len(job._store.snapshot.quarantine["t"]) > 1
        assert {path.name for path in (job.location / "quarantine").iterdir()} == job._store.snapshot.set_aside()
    assert any(result.found for result in sent)
    assert not any(result.bad for result in sent)
    assert max(len(found.first) for result in sent for found in result.found) == SHOWN


def test_an_error_counts_each_bad_row_once_and_shows_five(
    spark: SparkSession, tmp_path: Path, sent: list[BucketResult]
) -> None:
    with several_judges(hr.Engine(spark, tmp_path, executor="spark", buckets=3)) as engine:
        with pytest.raises(BadRowsError) as caught:
            engine.apply({"t": rows_of_t(100)})
        first, *shown, more, way_out = str(caught.value).splitlines()
        assert first == "table 't': 700 bad rows in the change batch; nothing was applied"
        assert all(line.startswith(("    +1 (id=", "    -1 (id=")) and "view" not in line for line in shown)
        assert (len(shown), more) == (5, "    ... and 695 more")
        assert way_out.strip().startswith("-> fix these rows")
        assert max(len(found.first) for result in sent for found in result.found) == SHOWN
        # Rows of several judges: those of the table come first, and then each view's that nobody has named.
        with pytest.raises(BadRowsError) as caught:
            engine.apply({"t": rows_of_t(1).filter(pc.field("id").isin([0, 1, 2, 5]))})
        first, *shown, _ = str(caught.value).splitlines()
        assert first == "table 't': 4 bad rows in the change batch; nothing was applied"
        squares = "NaN or infinity (or more than 1e135) in {}, whose squares the view sums"
        assert shown == [
            *["    +1 (id=2, x=1e+200, y=1.0, n=None): NULL in NOT NULL column 'n'"] * 2,
            f"    +1 (id=1, x=1e+200, y=1e+200, n=1): view 'a_y': {squares.format('y')}",
            f"    +1 (id=0, x=1e+200, y=1.0, n=1): view 'b_x': {squares.format('x')}",
        ]
        assert not list((engine.location / "quarantine").iterdir())


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_step_that_fails_leaves_no_rows_set_aside(
    spark: SparkSession, tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    with several_judges(hr.Engine(spark, tmp_path, executor=executor, buckets=3)) as engine:
        engine.apply({"t": rows_of_t(1)}, on_bad_rows="quarantine")
        before = engine._store.snapshot.set_aside()

        def fail(*_: object) -> None:
            written.append(len(list((engine.location / "quarantine").iterdir())))
            raise StorageError("no space", way_out="make some")

        with monkeypatch.context() as patched:
            patched.setattr(CommitLog, "append", fail)
            with pytest.raises(StorageError, match="no space"):
                engine.apply({"t": rows_of_t(50)}, on_bad_rows="quarantine")
        assert written[0] > len(before)
        assert {path.name for path in (engine.location / "quarantine").iterdir()} == before
        assert engine.quarantine("t").num_rows == 7


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_row_of_several_windows_is_named_once(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    times = pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 4, pa.timestamp("us", "UTC"))
    rows = pa.table({"g": [1, 1, 1, 2], "ts": times, "x": [HUGE, HUGE, 1.0, 1.0]})
    window = hr.sliding("t", "ts", "10 minutes", "5 minutes")
    with hr.Engine(spark, tmp_path, executor=executor, buckets=3) as engine:
        engine.table("t", "g BIGINT, ts TIMESTAMP, x DOUBLE")
        engine.view("v", f"SELECT {window.start} AS start, VAR_POP(x) AS s FROM t GROUP BY {window}")
        step = engine.apply({"t": rows}, on_bad_rows="quarantine")
        assert (step.rows, step.quarantined) == ({"t": 2}, {"t": 2})
        assert engine.quarantine("t").num_rows == 2  # the same row twice


def test_no_damage_of_a_file_of_bad_rows_is_an_error_of_arrow(spark: SparkSession, tmp_path: Path) -> None:
    """They are counted without being read, so a flipped bit may be met by Arrow before any checksum is."""
    with hr.Engine(spark, tmp_path / "s", executor="inline", calibrate=False) as engine:
        engine.table("t", "id BIGINT, x DOUBLE, name STRING", key="id")
        rows = pa.table({"id": pa.array([None, None], pa.int64()), "x": [1.0, 2.0], "name": ["a", None]})
        engine.apply({"t": rows}, on_bad_rows="quarantine")
        (path,) = (tmp_path / "s" / "quarantine").iterdir()
        data = path.read_bytes()
        for at in range(len(data)):
            flipped = bytearray(data)
            flipped[at] ^= 1 << at % 8
            path.write_bytes(flipped)
            with suppress(CorruptFileError):
                quarantine.count([path])
            with pytest.raises(CorruptFileError):
                engine.quarantine("t")
        path.write_bytes(data)
        assert (quarantine.count([path]), engine.quarantine("t").num_rows) == (2, 2)


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_null_where_none_may_be_is_what_is_wrong_with_a_row(
    spark: SparkSession, tmp_path: Path, executor: str
) -> None:
    """A join takes no values of a row that its table refuses: their product would overflow, and end the step."""
    with hr.Engine(spark, tmp_path, executor=executor, buckets=3) as engine:
        engine.table("sale", "id BIGINT NOT NULL, place BIGINT, pieces BIGINT NOT NULL", key="id")
        engine.table("shop", "id BIGINT NOT NULL, rent BIGINT NOT NULL", key="id")
        joined = "FROM sale JOIN shop ON sale.place = shop.id"
        views = [
            engine.view(name, f"SELECT SUM(pieces * rent) AS rent, MAX(pieces * rent) AS most {joined}", **options)
            for name, options in {"kept": {"strategy": "operators"}, "anew": {"refresh": "full"}}.items()
        ]
        engine.apply({"shop": pa.table({"id": [1, 2], "rent": [7, 9]})})
        rows = pa.table({"id": [1, 2, 3], "place": [1, 1, 2], "pieces": pa.array([4, None, 5])})
        with pytest.raises(BadRowsError, match="NULL in NOT NULL column 'pieces'"):
            engine.apply({"sale": rows})
        step = engine.apply({"sale": rows}, on_bad_rows="quarantine")
        assert step.quarantined == {"sale": 1}
        assert engine.quarantine("sale")["__reason"].to_pylist() == ["NULL in NOT NULL column 'pieces'"]
        for view in views:
            assert view.to_arrow().to_pylist() == [{"rent": 28 + 45, "most": 45}]
