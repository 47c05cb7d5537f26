"""A repair says what is gone: steps, tables, views, rows that were set aside, micro-batches."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.engine import durability
from headrace.engine.gone import Gone, gone
from headrace.engine.repair import repair
from headrace.runtime.location import Location
from headrace.runtime.log import CommitLog, Snapshot
from headrace.runtime.record import Record


@pytest.fixture
def location(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A location with a life of its own; commit 6 is step 2."""
    monkeypatch.setattr(durability, "SYNC_SECONDS", 3600.0)
    monkeypatch.setattr(durability, "MOST_SECONDS", 3600.0)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("t", "id BIGINT, x BIGINT", key="id")  # 1
        engine.view("total", "SELECT SUM(x) AS x FROM t")  # 2
        engine.view("other", "SELECT COUNT(*) AS n FROM t")  # 3
        engine.view("dropped", "SELECT MAX(x) AS x FROM t")  # 4
        engine.apply({"t": pa.table({"id": [1], "x": [1]})}, source=("feed", 4))  # 5
        engine.apply({"t": pa.table({"id": [2], "x": [1]})}, source=("feed", 5))  # 6
        bad = pa.table({"id": pa.array([None, None, 3], pa.int64()), "x": [1, 2, 3]})
        engine.apply({"t": bad}, on_bad_rows="quarantine", source=("feed", 6))
        engine.table("u", "id BIGINT", key="id")
        engine.view("of_u", "SELECT COUNT(*) AS n FROM u")
        engine.drop("dropped")
        engine.drop("other")
        engine.view("other", "SELECT MIN(x) AS low FROM t")
        engine.apply({"u": pa.table({"id": [1]})}, source=("feed", 7))
    for path in (tmp_path / "s" / "log").glob("*.synced"):
        path.unlink()
    return tmp_path / "s"


def damage(location: Path, commit: int) -> Path:
    path = location / "log" / f"{commit:012d}.commit"
    path.write_bytes(path.read_bytes()[:-9])
    return path


GONE = Gone(
    commits=7,
    unread=1,
    steps=(2, 4),
    tables=("u",),
    views=("of_u",),
    back=("dropped",),
    earlier=("other",),
    set_aside={"t": 2},
    sources={"feed": (5, 7)},
)


def test_a_repair_names_what_is_gone(spark: SparkSession, location: Path) -> None:
    damaged = damage(location, 6)
    newest = max(int(path.stem) for path in (location / "log").glob("*.commit"))
    done = repair(location)
    assert done.step == 1
    assert done.why is not None
    assert damaged.name in done.why
    assert done.gone == Gone(**{**GONE.__dict__, "commits": newest - 5})
    for word in ("steps 2 to 4", "table u", "view of_u", "2 rows of t that had been set aside", "micro-batches 5 to 7"):
        assert word in str(done)
    with hr.Engine(spark, location, calibrate=False) as engine:
        assert {*engine.tables, *engine.views} == {"t", "total", "other", "dropped"}
        assert engine.views["other"].to_pandas()["n"][0] == 1  # type: ignore[union-attr]
        assert engine.quarantine("t").num_rows == 0


def test_the_command_says_it_too(location: Path) -> None:
    damage(location, 6)
    done = CliRunner().invoke(app, ["repair", str(location), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["gone"]["steps"] == [2, 4]
    assert said["gone"]["set_aside"] == {"t": 2}
    assert said["commits"] == said["gone"]["commits"]


def test_a_later_checkpoint_tells_what_damaged_records_do_not(location: Path) -> None:
    log = CommitLog(Location(location))
    damage(location, 6)
    assert gone(log.location, Snapshot(), log.after(0)).unread == 1
    damaged = {path: path.read_bytes() for path in (location / "log").glob("*.commit")}
    snapshot = log.settled()[-1].snapshot
    for path in [path for path in damaged if int(path.stem) > 6]:
        snapshot = snapshot.after(Record.read(path))
    log.checkpoint(snapshot)  # which removes the records
    for path, data in damaged.items():
        path.write_bytes(data)
    found = gone(log.location, Snapshot(), log.after(0))
    assert (found.unread, found.steps, found.views) == (0, (1, 4), ("of_u", "other", "total"))
