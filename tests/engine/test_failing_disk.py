"""An operation of the disk fails, each in turn: a step has happened or has not, and the error says which.

An engine without Spark takes some steps over a location that was made before, once per operation and kind of failure.
What is found afterwards, on a disk that works again, is what its errors said.
"""

from __future__ import annotations

import errno
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.crash_counts import COUNTED, CRASHES
from tests.engine.failing_disk import Failing
from tests.engine.simulated_disk import Recording, Unsynced
from tests.engine.simulated_life import PLACE, VIEWS, Life, Played, Truth, check, lived
from tests.seeds import seeds

import headrace as hr
from headrace.engine import stored_plans
from headrace.engine.access import Access
from headrace.engine.catalogue import Catalogue
from headrace.engine.durability import Durability
from headrace.engine.handles import Table
from headrace.engine.kinds import handle_class
from headrace.engine.maintenance import Maintenance
from headrace.engine.products import inputs_of
from headrace.engine.step_runner import StepRunner
from headrace.engine.store import Store
from headrace.engine.stored_definitions import table_of, view_of
from headrace.engine.upkeep import Upkeep
from headrace.errors import HeadraceError, StorageError
from headrace.relation import disk
from headrace.runtime.location import Location

STEPS = 3
CODES = (errno.ENOSPC, errno.EIO, errno.EROFS)


class Sparkless:
    """What an engine does in a step, over a location whose views Spark has planned before."""

    def __init__(self, root: Path, level: str) -> None:
        self.store = Store(Location(root), durability=level)
        self.store.open(None, 2, {})
        self.catalogue = Catalogue(self.store.settings.seed)
        access = Access(self.catalogue, self.store)
        for name, said in self.store.snapshot.tables.items():
            self.catalogue.add_table(table_of(name, said), lambda layout: Table(access, layout))
        for name, said in self.store.snapshot.views.items():
            definition = view_of(name, said)
            planned = stored_plans.read(self.store, name, definition)
            kind = handle_class(definition.kind)
            self.catalogue.add_view(name, planned, lambda entry, kind=kind: kind(access, entry))  # type: ignore[misc]
        context = SimpleNamespace(master="local[2]", defaultParallelism=1)
        runner = StepRunner(cast(Any, SimpleNamespace(sparkContext=context)), "inline", None)
        self.maintenance = Maintenance(self.catalogue, self.store, runner, cast(Any, None))
        self.lock = threading.RLock()
        self.upkeep = Upkeep(self.store, lambda name: self.catalogue.kind_of(name, 2), self.lock)
        self.upkeep.start()

    def apply(self, changes: dict[str, pa.Table]) -> int:
        with self.lock:
            schemas = {name: self.catalogue.table(name).schema for name in changes}
            return self.maintenance.step(inputs_of(schemas, changes), "quarantine", None, 0.0).number

    def compact(self) -> None:
        with self.lock:
            self.upkeep.finish()

    def discard(self) -> None:
        with self.lock:
            self.store.commit(self.store.next_record(quarantine={"orders": []}))

    def close(self) -> None:
        self.upkeep.stop()
        self.store.close()


@dataclass
class Base:
    """A location that has been made, what is done to it next, and the answers."""

    root: Path
    changes: list[dict[str, pa.Table]]
    played: Played
    work: list[tuple[str, Callable[[Sparkless], object]]] = field(default_factory=list)


@pytest.fixture(scope="module")
def base(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Base:
    folder = tmp_path_factory.mktemp("failing")
    root = folder / PLACE
    played = Played(Recording(folder), Truth(), {}, {}, {})
    with (
        pytest.MonkeyPatch.context() as patched,
        lived(patched, 400),
        hr.Engine(spark, root, executor="inline", buckets=2, calibrate=False) as engine,
    ):
        life = Life(engine, played, "process", random.Random(5))
        engine.table("orders", "id BIGINT, shop BIGINT, day BIGINT, price BIGINT", key="id")
        engine.table("shops", "shop BIGINT, city STRING", key="shop")
        for name, sql in VIEWS.items():
            engine.view(name, sql)
        played.truth.note(0)
        for _ in range(3):
            life.step()
    changes = [life.changes(number, [])[0] for number in range(4, 4 + STEPS)]
    played.names.clear()
    return Base(root, changes, played)


@dataclass
class Run:
    """One run over a copy of the base: what its errors said."""

    base: Base
    root: Path
    level: str
    errors: list[HeadraceError] = field(default_factory=list)
    happened: int = 3  # the last step that has happened, as far as the user was told

    def all(self) -> None:
        """Open, take steps and everything else, close. What fails is tried once more; a step that happened is not."""
        engine = self._tried(lambda: Sparkless(self.root, self.level))
        if engine is None:
            return
        for number, changes in enumerate(self.base.changes, 4):
            if self.happened == number - 1:
                self._tried(lambda: self._step(engine, changes))  # noqa: B023
            if number == 5:
                self._tried(engine.discard)
            if number % 3 == 0:
                self._tried(engine.compact)
            if number % 2 == 0:
                self._tried(engine.store.sync)
        self._tried(engine.close, again=False)
        engine.store.close()  # that this does nothing more is all that is asked

    def _step(self, engine: Sparkless, changes: dict[str, pa.Table]) -> None:
        if self.happened < 3 + STEPS:
            try:
                self.happened = engine.apply(changes)
            except StorageError as error:
                if f"step {self.happened + 1} has happened" in error.what:
                    self.happened += 1
                raise

    def _tried(self, work: Callable[[], Any], *, again: bool = True) -> Any:
        try:
            return work()
        except HeadraceError as error:
            self.errors.append(error)
            return self._tried(work, again=False) if again and "has happened" not in error.what else None


@seeds("failing disks", 1)
@pytest.mark.parametrize("level", ["process", "disk"])
def test_whatever_fails_is_said_and_breaks_nothing(
    base: Base, tmp_path: Path, level: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{seed} {level}")
    for who in (Upkeep, Durability):  # all in one thread, so that operations have the same numbers in each run
        monkeypatch.setattr(who, "_run", lambda self: None)
    with lived(monkeypatch, 400):
        disk.DISK = healthy = Failing(None)
        run = Run(base, _copy(base, tmp_path / "healthy"), level)
        run.all()
        assert (run.errors, run.happened) == ([], 3 + STEPS)
        refused = 0
        for at in range(healthy.count):
            for forever in (False, True) if CRASHES > 2000 else (rng.random() < 0.5,):
                code = rng.choice(CODES)
                disk.DISK = failing = Failing(at, code, forever=forever, late=rng.random() < 0.3)
                run = Run(base, _copy(base, tmp_path / "copy"), level)
                try:
                    run.all()
                    disk.DISK = Unsynced()
                    _, step = check(run.root, base.played)
                    assert step == run.happened
                    assert all(str(run.root) in error.what and error.way_out for error in run.errors)
                except BaseException as error:
                    error.add_note(f"operation {at} of {level}: {failing.failed[:3]}; errors: {run.errors[:3]}")
                    raise
                assert failing.failed
                refused += bool(run.errors)
                COUNTED["failing operations"] += 1
                COUNTED["of these, reported by an error"] += bool(run.errors)
                shutil.rmtree(tmp_path / "copy")
        # An operation that fails may be one that nothing depends on, as the removal of a file; most are not.
        assert refused > healthy.count // 2


def _copy(base: Base, folder: Path) -> Path:
    shutil.copytree(base.root, folder / PLACE)
    return folder / PLACE
