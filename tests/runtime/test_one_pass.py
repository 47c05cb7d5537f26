"""Steps in one pass, and what happens to their runs when a step goes from bucket to bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.residences import misplaced

import headrace as hr
from headrace.runtime import merges, one_pass
from headrace.runtime.log import CommitLog
from headrace.runtime.record import RECENT

SQL = "SELECT shop, COUNT(*) AS n, SUM(x) AS x, MAX(x) AS most FROM t GROUP BY shop"


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hr.Engine]:
    monkeypatch.setattr(one_pass, "MOST_ROWS", 38)  # shared by two cores
    monkeypatch.setattr(one_pass, "MOST_ROWS_PER_BUCKET", 0)
    with hr.Engine(spark, tmp_path / "state", executor="inline", buckets=4) as engine:
        engine.table("t", "id BIGINT, shop STRING, x INT", key="id")
        engine.view("v", SQL)
        yield engine


def rows(start: int, count: int) -> pa.Table:
    number = np.arange(start, start + count)
    return pa.table(
        {"id": number, "shop": [f"shop {i % 7}" for i in number.tolist()], "x": pa.array(number % 11, pa.int32())}
    )


def recent(engine: hr.Engine) -> dict[str, int]:
    """How many runs each arrangement has that hold entries of all buckets."""
    states = engine._store.snapshot.arrangements
    return {name: len(buckets[RECENT].runs) for name, buckets in states.items() if RECENT in buckets}


def files(engine: hr.Engine) -> set[str]:
    engine.sync()  # until then, files that were replaced stay
    return {path.name for path in (engine.location / "runs").iterdir()}


def expected(count: int) -> dict[str, tuple[int, int, int]]:
    out: dict[str, tuple[int, int, int]] = {}
    for i in range(count):
        n, x, most = out.get(f"shop {i % 7}", (0, 0, -1))
        out[f"shop {i % 7}"] = (n + 1, x + i % 11, max(most, i % 11))
    return out


def answer(engine: hr.Engine) -> dict[str, tuple[int, int, int]]:
    return {row["shop"]: (row["n"], row["x"], row["most"]) for row in engine.views["v"].to_arrow().to_pylist()}


def test_a_small_step_adds_one_run_per_arrangement(engine: hr.Engine) -> None:
    engine.apply({"t": rows(0, 15)})
    assert recent(engine) == {"table/t": 1, "view/v/groups": 1, "view/v/ordered0": 1}
    assert len(files(engine)) == 2, "one file for the table, one for the view"
    assert answer(engine) == expected(15)
    assert misplaced(engine) == []


def test_a_large_step_moves_recent_runs_into_the_buckets_and_leaves_no_file_behind(engine: hr.Engine) -> None:
    at = 0
    for size in (15, 30, 5, 5, 200, 19, 19, 19, 500, 1):
        engine.apply({"t": rows(at, size)})
        at += size
        assert answer(engine) == expected(at)
        assert engine.tables["t"].to_arrow().num_rows == at
        assert files(engine) == engine._store.snapshot.files()
        assert misplaced(engine) == []
        if size >= 20:
            assert not any(recent(engine).values())
    assert engine.verify() == []


def test_a_large_step_that_fails_leaves_the_recent_runs(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(0, 60, 15):
        engine.apply({"t": rows(at, 15)})
    before, there = recent(engine), files(engine)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "append", fail)
        patched.setattr(engine._store, "roll_back", lambda: None)  # so that nothing is repaired
        with pytest.raises(OSError, match="no space"):
            engine.apply({"t": rows(60, 300)})
    assert there <= files(engine), "what the log names is there"
    assert recent(engine) == before
    assert answer(engine) == expected(60)
    assert engine.verify() == []


def test_recent_runs_move_when_they_are_many(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "RECENT_ENTRIES", 40)
    monkeypatch.setattr(merges, "RECENT_ENTRIES_PER_BUCKET", 0)
    moved = 0
    for at in range(0, 300, 10):
        engine.apply({"t": rows(at, 10)})
        engine.compact()
        table = engine._store.snapshot.arrangements["table/t"]
        moved += not recent(engine)["table/t"]
        assert sum(ref.rows for ref in table[RECENT].runs) <= 50
        assert answer(engine) == expected(at + 10)
    assert moved > 2
    assert misplaced(engine) == []
    assert files(engine) == engine._store.snapshot.files()


def test_a_view_that_is_kept_bucket_by_bucket_leaves_the_others_in_one_pass(engine: hr.Engine) -> None:
    engine.table("s", "shop STRING, area DOUBLE")
    engine.table("w", "area DOUBLE, rent DOUBLE")
    shops = pa.table({"shop": [f"shop {i}" for i in range(7)], "area": [float(i % 2) for i in range(7)]})
    engine.apply({"s": shops, "w": pa.table({"area": [0.0, 1.0], "rent": [3.0, 4.0]})})
    sql = "SELECT x, rent FROM t JOIN s ON t.shop = s.shop JOIN w ON s.area = w.area"
    joined = engine.covariance("j", sql, strategy="recursive")
    kernel = engine._catalogue.views["j"].kernel
    assert kernel.in_one_pass is None, "sums per bucket do not say in which bucket they are"
    engine.apply({"t": rows(0, 15)})
    assert recent(engine)["view/v/groups"] == 1
    assert not any(name.startswith("view/j/") for name in recent(engine))
    engine.apply({"t": rows(15, 4)})
    assert joined.count == 19
    assert answer(engine) == expected(19)


def test_rows_that_do_not_tell_their_bucket_are_exchanged(engine: hr.Engine) -> None:
    engine.table("s", "shop STRING, town STRING")
    towns = {f"shop {i}": f"town {i % 2}" for i in range(7)}
    engine.apply({"s": pa.table({"shop": list(towns), "town": list(towns.values())})})
    joined = engine.view("j", "SELECT x, town FROM t JOIN s ON t.shop = s.shop", strategy="operators")
    kernel = engine._catalogue.views["j"].kernel
    assert kernel.in_one_pass is not None
    assert "their own columns decide" in str(joined.explain())
    for start, count in ((0, 15), (15, 60), (75, 4)):  # in one pass, from bucket to bucket, and in one pass again
        engine.apply({"t": rows(start, count)})
        found = sorted((row["x"], row["town"]) for row in joined.to_arrow().to_pylist())
        assert found == sorted((i % 11, towns[f"shop {i % 7}"]) for i in range(start + count))
        assert not list(misplaced(engine))


def test_one_bucket_needs_no_passes(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state", executor="inline", buckets=1) as engine:
        engine.table("t", "id BIGINT, shop STRING, x INT", key="id")
        engine.view("v", SQL)
        engine.apply({"t": rows(0, 15)})
        assert recent(engine) == {}


@pytest.mark.parametrize("strategy", ["factorized", "recursive", "first-order"])
def test_views_over_joins_in_one_pass(engine: hr.Engine, strategy: str) -> None:
    engine.table("s", "shop STRING, area DOUBLE")
    engine.table("w", "area DOUBLE, rent DOUBLE")
    sql = "SELECT x, rent FROM t JOIN s ON t.shop = s.shop JOIN w ON s.area = w.area"
    moments = engine.covariance("m", sql, strategy=strategy)
    grouped = f"SELECT t.shop, SUM(x * rent) AS xr {sql[sql.index('FROM') :]} GROUP BY t.shop"
    groups = engine.view("g", grouped, strategy=strategy)
    # Recursive views have sums per bucket whose keys do not say which bucket, so they are kept bucket by bucket.
    is_one_pass = engine._catalogue.views["m"].kernel.in_one_pass is not None
    assert is_one_pass == (strategy != "recursive")
    shops = [f"shop {i % 7}" for i in range(9)]
    for at in range(0, 90, 15):
        number = at // 15
        engine.apply(
            {
                "t": rows(at, 15),
                "s": pa.table({"shop": [shops[number]], "area": [float(number % 3)]}),
                "w": pa.table({"area": [float(number % 3)], "rent": [1.0 + number]}),
            }
        )
    assert ("view/m/moments" in recent(engine)) == is_one_pass
    assert misplaced(engine) == []
    joined = [
        (int(n % 11), 1.0 + k, f"shop {n % 7}")
        for n in range(90)
        for i in range(6)
        if shops[i] == f"shop {n % 7}"
        for k in range(6)
        if k % 3 == i % 3
    ]
    assert moments.count == len(joined)
    values = np.array([row[:2] for row in joined], float)
    assert moments.sums == pytest.approx(values.sum(axis=0))
    assert moments.cofactor == pytest.approx(values.T @ values)
    expected_groups: dict[str, float] = {}
    for value, price, shop in joined:
        expected_groups[shop] = expected_groups.get(shop, 0.0) + value * price
    assert {row["shop"]: row["xr"] for row in groups.to_arrow().to_pylist()} == pytest.approx(expected_groups)
    engine.apply({"t": rows(90, 300)})  # goes from bucket to bucket, after the recent runs have moved there
    assert not any(runs for name, runs in recent(engine).items() if name.startswith("view/"))
    assert misplaced(engine) == []
