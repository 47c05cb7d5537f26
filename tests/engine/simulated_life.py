"""The life of an engine on a simulated disk, with the answers after each step: what tests cut short, anywhere.

Steps change rows, and some are set aside. Tables and views come and go all the time, runs are merged, changes wait for
a budget of memory, and checkpoints are frequent. DuckDB says what every answer is after every step.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.simulated_disk import Recording

import headrace as hr
from headrace.engine import durability, stored_plans
from headrace.engine.looking import Look
from headrace.engine.spark_needed import SparkNeeded
from headrace.engine.store import Store
from headrace.engine.stored_definitions import view_of
from headrace.relation import disk, runfile
from headrace.runtime import runwriter
from headrace.runtime.location import Location
from headrace.runtime.log import Snapshot

PLACE = "made/for/state"  # of the location on the disk: the folders above it are new, too
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
    notes: dict[str, Rows] = field(default_factory=dict)  # of each table of notes that ever was
    answers: dict[int, dict[str, Rows]] = field(default_factory=dict)

    def note(self, step: int) -> None:
        """Write down what all answers are now."""
        with duckdb.connect() as db:
            db.execute("CREATE TABLE orders (id BIGINT, shop BIGINT, day BIGINT, price BIGINT)")
            db.execute("CREATE TABLE shops (shop BIGINT, city VARCHAR)")
            for name, rows in (("orders", self.orders), ("shops", self.shops)):
                if rows:
                    marks = ", ".join("?" * len(next(iter(rows.values()))))
                    db.executemany(f"INSERT INTO {name} VALUES ({marks})", list(rows.values()))
            asked = VIEWS | {"orders": "SELECT * FROM orders", "shops": "SELECT * FROM shops"}
            said = {name: in_order(db.execute(sql).fetchall()) for name, sql in asked.items()}
        said |= {name: in_order(rows) for name, rows in self.notes.items()}
        self.answers[step] = said | {f"of_{name}": [(len(rows),)] for name, rows in self.notes.items()}


@dataclass
class Played:
    """What was done to the disk, and what is true.

    Parameters
    ----------
    names : the tables and views that there are at some versions.
    steps : the last step at the same versions.
    plans : the plans that each view ever had: copies that do not have to survive, to read answers without Spark.
    """

    done: Recording
    truth: Truth
    names: dict[int, set[str]]
    steps: dict[int, int]
    plans: dict[str, set[bytes]]


@dataclass
class Life:
    """An engine whose every moment is written down."""

    engine: hr.Engine
    played: Played
    level: str
    rng: random.Random
    numbers: Iterator[int] = field(default_factory=count)
    generations: Iterator[int] = field(default_factory=count)

    def happened(self, what: str = "returned", snapshot: Snapshot | None = None) -> None:
        """Note that all up to a snapshot, by default the newest, has happened, as far as the engine's user can tell."""
        snapshot = snapshot or self.engine._store.snapshot
        self.played.names[snapshot.version] = {*snapshot.tables, *snapshot.views}
        self.played.steps[snapshot.version] = snapshot.step
        self.played.done.note(what, snapshot.version)
        for path in (self.engine.location / "plans").glob("*.json"):
            self.played.plans.setdefault(path.stem, set()).add(path.read_bytes())

    def define(self) -> None:
        """Have a view or a table come or go."""
        truth, engine, step = self.played.truth, self.engine, self.engine.step
        notes = [name for name in engine.tables if name.startswith("notes")]
        if notes and self.rng.random() < 0.3:
            engine.drop(f"of_{notes[0]}")
            self.happened()
            engine.drop(notes[0])
        elif not notes and self.rng.random() < 0.3:
            name = f"notes{next(self.generations)}"
            truth.notes[name] = []
            truth.answers[step] |= {name: [], f"of_{name}": [(0,)]}
            engine.table(name, "id BIGINT, text STRING")
            self.happened()
            engine.view(f"of_{name}", f"SELECT COUNT(*) AS n FROM {name}")
        else:
            name = self.rng.choice(list(VIEWS))
            if name in engine.views:
                engine.drop(name)
            else:
                engine.view(name, VIEWS[name])
        self.happened()

    def step(self) -> None:
        """Take a step, whose answers are written down before: a power cut may come right after the commit."""
        number = self.engine.step + 1
        changes, has_bad = self.changes(number, [name for name in self.engine.tables if name.startswith("notes")])
        assert self.engine.apply(changes, on_bad_rows="quarantine").number == number
        self.happened()
        if has_bad and self.rng.random() < 0.5:
            self.engine.discard_quarantine("orders")
            self.happened()

    def changes(self, number: int, notes: Iterable[str]) -> tuple[dict[str, pa.Table], bool]:
        """Make up the changes of a step, and whether some of the rows are bad, and note the answers after it."""
        truth, rng = self.played.truth, self.rng
        gone = rng.sample(sorted(truth.orders), min(len(truth.orders), rng.randrange(6)))
        new = [(next(self.numbers), rng.randrange(5), rng.randrange(30), rng.randrange(100)) for _ in range(12)]
        bad = [(None, 1, 1, 1)] if rng.random() < 0.2 else []
        rows = [truth.orders.pop(key) for key in gone]
        columns = [list(column) for column in zip(*rows, *new, *bad, strict=True)]
        diff = [-1] * len(rows) + [1] * (len(new) + len(bad))
        names = ["id", "shop", "day", "price", "__diff"]
        changes = {"orders": pa.table([pa.array(c, pa.int64()) for c in (*columns, diff)], names=names)}
        truth.orders |= {row[0]: row for row in new}
        if rng.random() < 0.4 and len(truth.shops) < 5:
            shop = (len(truth.shops), rng.choice(["Bergen", "Cork"]))
            truth.shops[shop[0]] = shop
            changes["shops"] = pa.table({"shop": [shop[0]], "city": [shop[1]]})
        for name in notes:
            truth.notes[name].append((number, "x" * rng.randrange(100)))
            changes[name] = pa.table({"id": [number], "text": [truth.notes[name][-1][1]]})
        truth.note(number)
        return changes, bool(bad)


def play(spark: SparkSession, folder: Path, level: str, seed: int, steps: int, *, often: float = 0.5) -> Played:
    """Let an engine live on a new disk; `often` says how often tables and views come and go."""
    rng = random.Random(f"{seed} {level}")
    folder.mkdir()
    disk.DISK = done = Recording(folder)
    made = hr.Engine(spark, folder / PLACE, executor="inline", buckets=2, durability=level, calibrate=False)
    with made as engine:
        life = Life(engine, Played(done, Truth(), {}, {}, {}), level, rng)
        engine.table("orders", "id BIGINT, shop BIGINT, day BIGINT, price BIGINT", key="id")
        engine.table("shops", "shop BIGINT, city STRING", key="shop")
        life.played.truth.note(0)
        life.happened()
        for step in range(1, steps + 1):
            if rng.random() < often:
                life.define()
            if step % 11 == 0:
                engine.compact()
            if step % 6 == 0:
                engine.memory_budget = rng.choice([None, 0, 2_000])
            life.step()
            if level == "process" and rng.random() < 0.15:
                committed = engine._store.snapshot  # a merge may commit during the sync, which does not wait for that
                engine.sync()
                life.happened("safe", committed)
    life.happened("closed")
    return life.played


@contextmanager
def lived(monkeypatch: pytest.MonkeyPatch, small: int | None = None) -> Iterator[None]:
    """Sync only where the test says so, write checkpoints often, and let runs above `small` bytes be large ones."""
    with monkeypatch.context() as patched:
        patched.setattr(disk, "DISK", disk.DISK)
        patched.setattr(durability, "SYNC_SECONDS", 3600.0)
        patched.setattr(durability, "MOST_SECONDS", 3600.0)
        patched.setattr(durability, "CHECKPOINT_EVERY", 4)
        if small is not None:
            patched.setattr(runfile, "SMALL", small)
            patched.setattr(runwriter, "_PIECE_BYTES", small)
            patched.setattr(runwriter, "_LEAST_ROWS", 4)
        yield


def opened(root: Path) -> Store:
    """Open a location as an engine that writes does, without Spark."""
    store = Store(Location(root))
    store.open(None, 2, {})
    return store


def check(root: Path, played: Played) -> tuple[int, int]:
    """Open what is left, twice, and compare all that it says; returns the version and the step that it has come to."""
    store = opened(root)
    assert {path.name for path in (root / "runs").iterdir()} == store.snapshot.files()
    assert {path.name for path in (root / "quarantine").iterdir()} == store.snapshot.set_aside()
    assert not list((root / "log").glob(".*"))
    assert not list(root.glob(".*"))
    step, version = store.snapshot.step, store.snapshot.version
    assert played.names.get(version) in (None, {*store.snapshot.tables, *store.snapshot.views})
    _put_plans(store, played.plans)
    store.close()
    with Look(root) as look:
        assert look._store.snapshot.version == version
        assert look.verify() == []
        handles: dict[str, Any] = {**look.views, **look._access.catalogue.table_handles}
        for name, handle in handles.items():
            found = in_order(tuple(row.values()) for row in handle.to_arrow().to_pylist())
            assert found == played.truth.answers[step][name], f"{name} after step {step}"
    again = opened(root)
    assert (again.snapshot.version, again.lost) == (version, None)
    again.close()
    return version, step


def _put_plans(store: Store, plans: dict[str, set[bytes]]) -> None:
    """Have the plan of each view where it is looked for."""
    folder = store.location.root / "plans"
    folder.mkdir(exist_ok=True)
    for name, said in store.snapshot.views.items():
        for plan in plans[name]:
            (folder / f"{name}.json").write_bytes(plan)
            with suppress(SparkNeeded):
                stored_plans.read(store, name, view_of(name, said))
                break


def in_order(rows: Any) -> Rows:
    """Rows of an answer in an order of their own."""
    return sorted((tuple(row) for row in rows), key=repr)
