"""Whatever a power cut leaves of what was not synced: a committed prefix, whole, and nothing that was promised is lost.

One engine runs on a simulated disk, and every operation is written down. Then the power is cut after random operations,
thousands of times: each time some state that the disk may be in is put into a folder and opened, without Spark.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.simulated_disk import Content, PowerCut, Recording, Unsynced, put_there
from tests.seeds import seeds
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.engine import durability
from headrace.engine.looking import Look
from headrace.engine.repair import problems, repair
from headrace.engine.store import Store
from headrace.errors import CorruptFileError, StorageError
from headrace.relation import disk
from headrace.runtime.location import Location

CUTS = 500  # per seed and level
STEPS = 40
VIEWS = {
    "by_shop": "SELECT shop, COUNT(*) AS n, SUM(price) AS total, MAX(price) AS dearest FROM orders GROUP BY shop",
    "by_city": "SELECT city, SUM(price) AS total FROM orders JOIN shops USING (shop) GROUP BY city",
    "dear": "SELECT id, city FROM orders JOIN shops USING (shop) WHERE price > 50",
    "days": "SELECT COUNT(DISTINCT day) AS days FROM orders",
}
Rows = list[tuple[Any, ...]]


@dataclass
class Truth:
    """The answers after each step, as DuckDB computes them from the rows."""

    orders: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    shops: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    answers: dict[int, dict[str, Rows]] = field(default_factory=dict)

    def note(self, step: int) -> None:
        db = duckdb.connect()
        db.execute("CREATE TABLE orders (id BIGINT, shop BIGINT, day BIGINT, price BIGINT)")
        db.execute("CREATE TABLE shops (shop BIGINT, city VARCHAR)")
        for name, rows in (("orders", self.orders), ("shops", self.shops)):
            if rows:
                marks = ", ".join("?" * len(next(iter(rows.values()))))
                db.executemany(f"INSERT INTO {name} VALUES ({marks})", list(rows.values()))
        asked = VIEWS | {"orders": "SELECT * FROM orders", "shops": "SELECT * FROM shops"}
        self.answers[step] = {name: _sorted(db.execute(sql).fetchall()) for name, sql in asked.items()}


@dataclass
class Played:
    """What was done to the disk, and the answers."""

    done: Recording
    truth: Truth
    plans: Content  # copies that may be lost: they do not have to survive, and let answers be read without Spark


def play(spark: SparkSession, folder: Path, level: str, seed: int) -> Played:
    """Let an engine live for some steps: views come and go, rows change and are set aside, runs are merged."""
    rng, truth, numbers, plans = random.Random(seed), Truth(), count(), Content()
    disk.DISK = done = Recording(folder)
    made = hr.Engine(spark, folder, executor="inline", buckets=2, durability=level, calibrate=False)
    with made as engine:
        engine.table("orders", "id BIGINT, shop BIGINT, day BIGINT, price BIGINT", key="id")
        engine.table("shops", "shop BIGINT, city STRING", key="shop")
        truth.note(0)
        for step in range(1, STEPS + 1):
            if step in (2, 5, 9, 14):
                name = list(VIEWS)[(2, 5, 9, 14).index(step)]
                engine.view(name, VIEWS[name])
                plans |= {f"plans/{path.name}": path.read_bytes() for path in (folder / "plans").iterdir()}
            if step == 25:
                engine.drop("dear")
            if step % 11 == 0:
                engine.compact()
            if step % 6 == 0:
                engine.memory_budget = rng.choice([None, 0, 2_000])
            changes: dict[str, pa.Table] = {}
            gone = rng.sample(sorted(truth.orders), min(len(truth.orders), rng.randrange(6)))
            new = [(next(numbers), rng.randrange(5), rng.randrange(30), rng.randrange(100)) for _ in range(12)]
            bad = [(None, 1, 1, 1)] if rng.random() < 0.2 else []
            rows = [truth.orders.pop(key) for key in gone]
            columns = [list(column) for column in zip(*rows, *new, *bad, strict=True)]
            diff = [-1] * len(rows) + [1] * (len(new) + len(bad))
            names = ["id", "shop", "day", "price", "__diff"]
            changes["orders"] = pa.table([pa.array(c, pa.int64()) for c in (*columns, diff)], names=names)
            truth.orders |= {row[0]: row for row in new}
            if rng.random() < 0.4 and len(truth.shops) < 5:
                shop = (len(truth.shops), rng.choice(["Bergen", "Cork"]))
                truth.shops[shop[0]] = shop
                changes["shops"] = pa.table({"shop": [shop[0]], "city": [shop[1]]})
            truth.note(step)  # before it is done: a power cut may come right after the commit
            assert engine.apply(changes, on_bad_rows="quarantine").number == step
            done.note("returned", step)
            if bad and rng.random() < 0.5:
                engine.discard_quarantine("orders")
            if level == "process" and rng.random() < 0.15:
                engine.sync()
                done.note("safe", step)
    done.note("closed", STEPS)
    return Played(done, truth, plans)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sync only where the test says so, and write checkpoints often."""
    monkeypatch.setattr(disk, "DISK", disk.DISK)
    monkeypatch.setattr(durability, "SYNC_SECONDS", 3600.0)
    monkeypatch.setattr(durability, "MOST_SECONDS", 3600.0)
    monkeypatch.setattr(durability, "CHECKPOINT_EVERY", 9)
    return


@pytest.mark.parametrize("level", ["process", "disk"])
@seeds("power cuts", 2)
def test_a_power_cut_leaves_a_committed_prefix(
    spark: SparkSession, tmp_path: Path, level: str, seed: int, simulated: None
) -> None:
    played = play(spark, tmp_path / "state", level, seed)
    disk.DISK = Unsynced()
    rng = random.Random(f"{seed} {level}")
    start = next(i for i, one in enumerate(played.done.done) if "headrace.json" in (one.path, one.other))
    moments = sorted(rng.randrange(start + 2, len(played.done.done) + 1) for _ in range(CUTS))
    cut, at, returned, safe, lost = PowerCut(), 0, 0, 0, 0
    for number, moment in enumerate(moments):
        for one in played.done.done[at:moment]:
            if one.what == "returned":
                returned = one.said
                safe = one.said if level == "disk" else safe
            elif one.what in ("safe", "closed"):
                safe = one.said
            else:
                cut.follow(one)
        at = moment
        folder = tmp_path / f"cut {number}"
        killed = rng.random() < 0.1  # only the process died: nothing that returned is lost
        put_there((cut.everything() if killed else cut.survivors(rng)) | played.plans, folder)
        step = check(folder, played.truth)
        assert (returned if killed else safe) <= step <= returned + 1, f"operation {moment} of seed {seed}"
        lost += step < returned
        shutil.rmtree(folder)
    # Otherwise the test would say nothing of commits that are not whole.
    assert level == "disk" or lost > CUTS // 10


def check(folder: Path, truth: Truth) -> int:
    """Open what is left, twice; returns the step that it has come to."""
    store = Store(Location(folder))
    store.open(None, 2, {})
    assert {path.name for path in (folder / "runs").iterdir()} == store.snapshot.files()
    assert {path.name for path in (folder / "quarantine").iterdir()} == store.snapshot.set_aside()
    assert not list((folder / "log").glob(".*"))
    step, version = store.snapshot.step, store.snapshot.version
    store.close()
    with Look(folder) as look:
        assert look._store.snapshot.version == version
        assert look.verify() == []
        expected = truth.answers[step]
        for name, view in look.views.items():
            assert _sorted(tuple(row.values()) for row in view.to_arrow().to_pylist()) == expected[name]
        for name, table in look._access.catalogue.table_handles.items():
            assert _sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()) == expected[name]
    again = Store(Location(folder))
    again.open(None, 2, {})
    assert (again.snapshot.version, again.lost) == (version, None)
    again.close()
    return step


def _sorted(rows: Any) -> Rows:
    return sorted((tuple(row) for row in rows), key=repr)


# -- torn tails, damage in the middle, and what to do about it ---------------------------------------------------------


def made(spark: SparkSession, folder: Path, steps: int = 5) -> None:
    """A location with some steps, of which the first two are known to be on the disk."""
    with hr.Engine(spark, folder, executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("t", "id BIGINT, x BIGINT", key="id")
        engine.view("total", "SELECT SUM(x) AS x FROM t")
        for step in range(steps):
            engine.apply({"t": pa.table({"id": [step], "x": [1]})})
            if step == 1:
                engine.sync()
                content = {path: path.read_bytes() for path in (folder / "log").glob("*.synced")}
    for path in (folder / "log").glob("*.synced"):
        path.unlink()
    for path, data in content.items():
        path.write_bytes(data)


def records(folder: Path) -> list[Path]:
    return sorted((folder / "log").glob("*.commit"))


@pytest.fixture
def slow_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is synced unless the test asks for it, so files that were replaced stay."""
    monkeypatch.setattr(durability, "SYNC_SECONDS", 3600.0)
    monkeypatch.setattr(durability, "MOST_SECONDS", 3600.0)


def test_a_torn_tail_is_cut_back_and_said(
    spark: SparkSession, tmp_path: Path, slow_syncs: None, caplog: pytest.LogCaptureFixture
) -> None:
    made(spark, tmp_path / "s")
    torn = records(tmp_path / "s")[-1]
    torn.write_bytes(torn.read_bytes()[:-20])
    with hr.Engine(spark, tmp_path / "s", calibrate=False) as engine:
        assert engine.step == 4
        assert torn.name in engine.status()["lost"]
        assert torn.name in caplog.text
        assert engine.views["total"].to_pandas()["x"][0] == 4
        engine.apply({"t": pa.table({"id": [9], "x": [1]})})
        assert engine.views["total"].to_pandas()["x"][0] == 5
    with hr.Engine(spark, tmp_path / "s", calibrate=False) as engine:
        assert "lost" not in engine.status()
        assert engine.step == 5


def test_a_run_that_is_not_whole_takes_its_commit_with_it(
    spark: SparkSession, tmp_path: Path, slow_syncs: None
) -> None:
    made(spark, tmp_path / "s")
    newest = max((tmp_path / "s" / "runs").iterdir())
    newest.write_bytes(bytes(newest.stat().st_size))
    with hr.Engine(spark, tmp_path / "s", calibrate=False) as engine:
        assert engine.step == 4
        assert newest.name in engine.status()["lost"]
        assert engine.verify() == []


def test_damage_of_what_was_on_the_disk_is_an_error_that_names_it(
    spark: SparkSession, tmp_path: Path, slow_syncs: None
) -> None:
    made(spark, tmp_path / "s")
    damaged = records(tmp_path / "s")[2]
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(CorruptFileError, match=damaged.name) as caught:
        hr.Engine(spark, tmp_path / "s")
    assert "headrace repair" in caught.value.way_out
    (problem,) = problems(tmp_path / "s")
    assert damaged.name in problem
    done = repair(tmp_path / "s")
    assert done.why is not None
    assert damaged.name in done.why
    assert done.step == 0
    assert done.commits == 5
    assert problems(tmp_path / "s") == []
    with hr.Engine(spark, tmp_path / "s", calibrate=False) as engine:
        assert engine.step == 0
        engine.apply({"t": pa.table({"id": [9], "x": [1]})})
        assert engine.views["total"].to_pandas()["x"][0] == 1


def test_a_repair_without_damage_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path / "s")
    before = sorted(path.name for path in (tmp_path / "s" / "log").iterdir())
    done = repair(tmp_path / "s")
    assert (done.step, done.commits, done.why) == (5, 0, None)
    assert sorted(path.name for path in (tmp_path / "s" / "log").iterdir()) == before


def test_a_location_without_a_whole_state_says_what_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path / "s")
    for path in (tmp_path / "s" / "runs").iterdir():
        path.unlink()
    for path in records(tmp_path / "s")[:2]:
        path.unlink()
    with pytest.raises(CorruptFileError, match="no state that is whole"):
        repair(tmp_path / "s")


def test_settings_have_a_checksum_and_set_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path / "s")
    path = tmp_path / "s" / "headrace.json"
    path.write_text(path.read_text().replace('"buckets": 2', '"buckets": 3'))
    with pytest.raises(CorruptFileError, match="checksum"):
        hr.Engine(spark, tmp_path / "s")
    assert "checksum" in problems(tmp_path / "s")[0]


def test_a_sync_that_fails_refuses_further_steps(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_syncs: None
) -> None:
    class Failing(Unsynced):
        def sync(self, path: Path) -> None:
            raise OSError(5, "Input/output error", str(path))

    engine = hr.Engine(spark, tmp_path / "s", executor="inline", calibrate=False)
    engine.table("t", "id BIGINT", key="id")
    engine.apply({"t": pa.table({"id": [1]})})
    monkeypatch.setattr(disk, "DISK", Failing())
    with pytest.raises(StorageError, match="could not be synced"):
        engine.sync()
    with pytest.raises(StorageError, match="could not be synced"):
        engine.apply({"t": pa.table({"id": [2]})})
    monkeypatch.undo()
    with pytest.raises(StorageError, match="could not be synced"):
        engine.close()
    with hr.Engine(spark, tmp_path / "s", calibrate=False) as again:
        assert again.tables["t"].rows == 1


def test_steps_are_synced_beside_them(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability, "SYNC_SECONDS", 0.05)
    with hr.Engine(spark, tmp_path / "s", executor="inline", calibrate=False) as engine:
        engine.table("t", "id BIGINT", key="id")
        for step in range(3):  # the second and the third come when the thread has nothing to do
            engine.apply({"t": pa.table({"id": [step]})})
            deadline = time.monotonic() + 60
            while engine._store._log.synced < engine._store.snapshot.version and time.monotonic() < deadline:
                time.sleep(0.01)
            assert engine._store._log.synced == engine._store.snapshot.version


def test_a_step_waits_for_a_disk_that_is_too_slow(
    spark: SparkSession, tmp_path: Path, slow_syncs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", calibrate=False) as engine:
        engine.table("t", "id BIGINT", key="id")
        assert engine._store._log.synced == 0
        monkeypatch.setattr(durability, "MOST_SECONDS", 0.0)
        engine.apply({"t": pa.table({"id": [1]})})
        assert engine._store._log.synced == engine._store.snapshot.version


def test_verify_and_repair_are_commands(spark: SparkSession, tmp_path: Path, slow_syncs: None) -> None:
    made(spark, tmp_path / "s")
    asked = CliRunner()
    assert asked.invoke(app, ["verify", str(tmp_path / "s")]).exit_code == 0
    damaged = records(tmp_path / "s")[2]
    damaged.write_bytes(b"")
    found = asked.invoke(app, ["verify", str(tmp_path / "s"), "--json"])
    assert found.exit_code == 1
    assert damaged.name in json.loads(found.stdout)["problems"][0]
    done = asked.invoke(app, ["repair", str(tmp_path / "s"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["commits"] == 5
    assert asked.invoke(app, ["verify", str(tmp_path / "s")]).exit_code == 0
