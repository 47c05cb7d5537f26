"""Whatever a power cut leaves of what was not synced: a committed prefix, whole, and nothing that was promised is lost.

One engine lives on a simulated disk, and every operation is written down. Then the power is cut after random ones,
thousands of times: each time some state that the disk may be in is put into a folder and opened, without Spark. The
power may fail again while that goes on, or while a location is repaired. `make crashes N=20000` does more of it.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.crash_counts import COUNTED, CRASHES
from tests.engine.simulated_disk import Content, PowerCut, Recording, Unsynced, put_there
from tests.engine.simulated_life import PLACE, Played, check, lived, opened, play
from tests.seeds import seeds
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.engine import durability
from headrace.engine.looking import Look
from headrace.engine.repair import problems, repair, verified
from headrace.errors import CorruptFileError, StorageError
from headrace.relation import disk

STEPS = 40


@dataclass
class Cutting:
    """Cuts the power of one life at any of its moments, and looks at what is left."""

    played: Played
    level: str
    folder: Path
    rng: random.Random
    cut: PowerCut = field(default_factory=PowerCut)
    at: int = 0
    returned: int = 0  # the newest version that the user knows of
    safe: int = 0  # the newest version that the user knows to be safe
    numbers: count[int] = field(default_factory=count)

    def go_to(self, moment: int) -> None:
        """Go on to a later moment, as a number of operations."""
        for one in self.played.done.done[self.at : moment]:
            if one.what == "returned":
                self.returned = one.said
                self.safe = one.said if self.level == "disk" else self.safe
            elif one.what in ("safe", "closed"):
                self.safe = self.returned = one.said
            else:
                self.cut.follow(one)
        self.at = moment

    def left(self, *, killed: bool = False) -> Content:
        """What is left now if the power fails, or if only the process dies."""
        return self.cut.everything() if killed else self.cut.survivors(self.rng)

    def crash(self, during: str, *, killed: bool = False) -> None:
        """Cut the power, open what is left, and compare."""
        version, step = self.look(self.left(killed=killed), self.returned if killed else self.safe)
        COUNTED["processes killed" if killed else f"power cuts {during}"] += 1
        lost = self.played.steps.get(self.returned, 0) - step
        COUNTED[f'steps lost with durability="{self.level}"'] += max(0, lost)
        COUNTED["power cuts that lost commits"] += version < self.returned

    def crash_twice(self) -> None:
        """Cut the power again while what a power cut left is being opened: what was found then is what is found."""
        version, left = self._cut_again(self.left(), lambda root: _version(root))
        assert version is not None
        assert self.look(left, self.safe)[0] == version
        COUNTED["power cuts during recovery"] += 1

    def crash_in_repair(self) -> None:
        """Damage a file and cut the power while the location is repaired; to repair it again comes to the same."""
        left = self.left(killed=self.rng.random() < 0.5)
        files = [path for path, data in left.items() if data and "plans/" not in path and "/batches/" not in path]
        if not files:
            return
        path = self.rng.choice(files)
        data = left[path]
        assert data is not None
        at = self.rng.randrange(len(data))
        left[path] = self.rng.choice((b"", data[:at], data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]))
        version, left = self._cut_again(left, _repaired)
        COUNTED["power cuts during repair"] += 1
        root = self._put(left)
        again = _repaired(root)
        assert version == again, f"{path} was damaged"
        if version is not None:
            assert check(root, self.played)[0] == version
        else:
            COUNTED["locations refused"] += 1
        self._forget(root)

    def look(self, left: Content, at_least: int) -> tuple[int, int]:
        """Open what is left; returns the version and the step."""
        root = self._put(left)
        version, step = check(root, self.played)
        where = f"after operation {self.at} of {self.folder}"
        assert at_least <= version, where
        assert step <= self.played.steps.get(self.returned, 0) + 1, where
        self._forget(root)
        COUNTED["states opened"] += 1
        return version, step

    def _cut_again(self, left: Content, work: Callable[[Path], int | None]) -> tuple[int | None, Content]:
        root = self._put(left)
        disk.DISK = again = Recording(self._top(root))
        found = work(root)
        disk.DISK = Unsynced()
        self._forget(root)
        second = PowerCut.after(left)
        for one in again.done[: self.rng.randrange(len(again.done) + 1)]:
            second.follow(one)
        return found, second.survivors(self.rng)

    def _put(self, left: Content) -> Path:
        top = self.folder / f"cut {next(self.numbers)}"
        put_there(left, top)
        return top / PLACE

    @staticmethod
    def _top(root: Path) -> Path:
        return root.parents[len(Path(PLACE).parts) - 1]

    def _forget(self, root: Path) -> None:
        shutil.rmtree(self._top(root))


def _version(root: Path) -> int:
    store = opened(root)
    store.close()
    return store.snapshot.version


def _repaired(root: Path) -> int | None:
    """The version that a repair comes to; None if it refuses."""
    try:
        repair(root)
        return _version(root)
    except (CorruptFileError, StorageError):
        return None


@pytest.mark.parametrize("small", [None, 400], ids=["", "large-runs"])
@pytest.mark.parametrize("level", ["process", "disk"])
@seeds("power cuts", 1)
def test_a_power_cut_leaves_a_committed_prefix(
    spark: SparkSession, tmp_path: Path, level: str, small: int | None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lived(monkeypatch, small):
        played = play(spark, tmp_path / "disk", level, seed, STEPS)
        disk.DISK = Unsynced()
        cutting = Cutting(played, level, tmp_path, random.Random(f"{seed} {level}"))
        rng, end = cutting.rng, len(played.done.done)
        made = next(i for i, one in enumerate(played.done.done) if one.what == "returned")
        before = COUNTED["power cuts that lost commits"]
        for moment in sorted(rng.randrange(made if number % 10 == 0 else end + 1) for number in range(CRASHES // 4)):
            cutting.go_to(moment)
            how = rng.random()
            if how < 0.2:
                cutting.crash_twice()
            elif how < 0.3:
                cutting.crash_in_repair()
            else:
                cutting.crash("while a location is made" if moment < made else "while it is used", killed=how < 0.4)
    # Otherwise the test would say nothing of commits that are not whole.
    assert level == "disk" or COUNTED["power cuts that lost commits"] - before > CRASHES // 80
    assert COUNTED['steps lost with durability="disk"'] == 0


@pytest.mark.parametrize("level", ["process", "disk"])
def test_the_power_is_cut_after_each_operation_of_a_short_life(
    spark: SparkSession, tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lived(monkeypatch, 400):
        played = play(spark, tmp_path / "disk", level, 1, 5, often=1.0)
        disk.DISK = Unsynced()
        cutting = Cutting(played, level, tmp_path, random.Random(level))
        for moment in range(len(played.done.done) + 1):
            cutting.go_to(moment)
            cutting.crash("after each operation of a short life")


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


def test_a_repair_that_a_power_cut_has_stopped_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    """The newest commits were gone, but not yet the note that they had been safe: nothing could be opened then."""
    made(spark, tmp_path / "s")
    *_, damaged, last = records(tmp_path / "s")
    last.unlink()
    damaged.write_bytes(b"")
    last.with_suffix(".synced").write_bytes(b"")
    step = repair(tmp_path / "s").step
    assert verified(tmp_path / "s").problems == []
    with hr.Engine(spark, tmp_path / "s", calibrate=False) as engine:
        assert engine.step == step


def test_a_checkpoint_that_is_being_written_is_no_orphan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread writes it, and rows that are set aside have the engine look for orphans: commits were refused then."""

    class Interrupted(disk.Disk):
        def wrote(self, path: Path) -> None:
            if "checkpoint" in path.name and looked:
                engine._store.remove_orphans()
                looked.append(path)

    looked: list[Path] = []
    monkeypatch.setattr(durability, "CHECKPOINT_EVERY", 1)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("t", "id BIGINT, x BIGINT", key="id")
        engine.sync()
        monkeypatch.setattr(disk, "DISK", Interrupted())
        looked.append(tmp_path)
        engine.apply({"t": pa.table({"id": [1], "x": [1]})})
        engine.sync()
        engine.apply({"t": pa.table({"id": [2], "x": [1]})})
        assert len(looked) > 1


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


def test_a_torn_tail_is_no_damage_for_those_who_only_look(
    spark: SparkSession, tmp_path: Path, slow_syncs: None
) -> None:
    with hr.Engine(spark, tmp_path / "alive", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("t", "id BIGINT, x BIGINT", key="id")
        engine.view("total", "SELECT SUM(x) AS x FROM t")
        for step in range(5):
            engine.apply({"t": pa.table({"id": [step], "x": [1]})})
        shutil.copytree(tmp_path / "alive", tmp_path / "s")  # as it is if the process is killed
    torn = records(tmp_path / "s")[-2]
    torn.write_bytes(torn.read_bytes()[:-20])
    files = {path: path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file()}
    found = verified(tmp_path / "s")
    assert found.problems == []
    assert found.unsafe is not None
    assert "the last 2 commits were never whole" in found.unsafe
    assert "step 3 is the last one" in found.unsafe
    asked = CliRunner().invoke(app, ["verify", str(tmp_path / "s")])
    assert asked.exit_code == 0
    assert "cut back when an engine that writes opens" in asked.stdout
    with Look(tmp_path / "s") as look:
        assert look.status()["lost"] == found.unsafe
        assert look.verify() == []
    with hr.Engine(spark, tmp_path / "s", read_only=True) as reader:
        assert (reader.step, reader.views["total"].to_pandas()["x"][0]) == (3, 3)
        assert reader.status()["lost"] == found.unsafe
        assert {path: path.read_bytes() for path in files} == files, "somebody who only looks has changed a file"
        with hr.Engine(spark, tmp_path / "s", executor="inline", calibrate=False) as engine:
            engine.apply({"t": pa.table({"id": [7, 8], "x": [10, 10]})})
            assert (reader.step, reader.views["total"].to_pandas()["x"][0]) == (4, 23)
            assert "lost" not in reader.status()


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
    assert done.gone.commits == 5
    assert done.gone.steps == (1, 5)
    assert problems(tmp_path / "s") == []
    with hr.Engine(spark, tmp_path / "s", calibrate=False) as engine:
        assert engine.step == 0
        engine.apply({"t": pa.table({"id": [9], "x": [1]})})
        assert engine.views["total"].to_pandas()["x"][0] == 1


def test_folders_that_are_missing_are_made_but_not_a_log(spark: SparkSession, tmp_path: Path) -> None:
    """Ways of copying may leave out empty folders. Without its log, a location is no new one."""
    made(spark, tmp_path / "s")
    for folder in ("batches", "quarantine", "checkpoints"):
        (tmp_path / "s" / folder).rmdir()
    with hr.Engine(spark, tmp_path / "s", executor="inline", calibrate=False) as engine:
        engine.apply({"t": pa.table({"id": [None, 9], "x": [1, 1]})}, on_bad_rows="quarantine")
        assert engine.quarantine("t").num_rows == 1
    runs = sorted((tmp_path / "s" / "runs").iterdir())
    (tmp_path / "s" / "log").rename(tmp_path / "log")
    with pytest.raises(CorruptFileError, match="log is missing"):
        hr.Engine(spark, tmp_path / "s")
    assert sorted((tmp_path / "s" / "runs").iterdir()) == runs


def test_a_repair_without_damage_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path / "s")
    before = sorted(path.name for path in (tmp_path / "s" / "log").iterdir())
    done = repair(tmp_path / "s")
    assert (done.step, done.gone.commits, done.why) == (5, 0, None)
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


def test_a_step_that_cannot_be_synced_says_that_it_has_happened(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Unsynced):
        def sync(self, path: Path) -> None:
            if path.suffix == ".commit":
                raise OSError(5, "Input/output error", str(path))

    engine = hr.Engine(spark, tmp_path / "s", executor="inline", durability="disk", calibrate=False)
    table = engine.table("t", "id BIGINT, x DOUBLE", key="id")
    moments = engine.covariance("c", "SELECT id, x FROM t")
    monkeypatch.setattr(disk, "DISK", Failing())
    with pytest.raises(StorageError, match=r"step 1 has happened.*\.commit could not be synced") as caught:
        engine.apply({"t": pa.table({"id": [1], "x": [5.0]})})
    assert "do not apply it again" in caught.value.way_out
    # What is planned in this engine may be that of before the step, and the state is that of after it.
    for ask in (table.to_arrow, moments.moments, lambda: engine.apply({"t": pa.table({"id": [2], "x": [1.0]})})):
        with pytest.raises(StorageError, match="has stopped: step 1 has happened"):
            ask()  # type: ignore[operator]
    with pytest.raises(StorageError, match="could not be synced"):
        engine.close()
    monkeypatch.undo()
    with hr.Engine(spark, tmp_path / "s", executor="inline", calibrate=False) as again:
        assert (again.step, again.tables["t"].rows) == (1, 1)
        assert again.views["c"].moments().mean.tolist() == [1.0, 5.0]  # type: ignore[union-attr]


def test_without_room_for_a_checkpoint_the_log_goes_on(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slow_syncs: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full(Unsynced):
        def write(self, path: Path, data: bytes | bytearray | memoryview, *, sync: bool = False) -> None:
            if ".checkpoint." in path.name:
                raise OSError(28, "No space left on device", str(path))
            super().write(path, data)

    monkeypatch.setattr(durability, "CHECKPOINT_EVERY", 4)
    with hr.Engine(spark, tmp_path / "s", executor="inline", calibrate=False) as engine:
        engine.table("t", "id BIGINT", key="id")
        log = engine._store._log
        with monkeypatch.context() as patched:
            patched.setattr(disk, "DISK", Full())
            for step in range(1, 9):
                engine.apply({"t": pa.table({"id": [step]})})
                engine.sync()
            assert (log.checkpointed, log.synced) == (0, engine._store.snapshot.version)
            assert "No space left on device" in caplog.text
        engine.apply({"t": pa.table({"id": [9]})})
        engine.sync()
        assert log.checkpointed == engine._store.snapshot.version


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
