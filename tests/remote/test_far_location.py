"""A location that is elsewhere, behind a store that is a folder: one life of it, two writers, lost requests, copies."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.remote.folder_store import FolderStore
from tests.seeds import drawn

import headrace as hr
from headrace.engine.looking import Look
from headrace.engine.repair import problems, repair
from headrace.errors import CorruptFileError, HeadraceError, StorageError
from headrace.remote import mirror, room, store
from headrace.runtime.log import CHECKPOINT_EVERY
from headrace.runtime.openruns import OPEN


def seeded(suite: str) -> random.Random:
    return random.Random(drawn(suite, 1)[0])


URL = "folder://far/state"
SQL = "SELECT shop, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY shop"
Rows = dict[int, tuple[str, Decimal]]


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    """The one store behind the URL, and an empty folder for copies of it."""
    found = FolderStore(tmp_path / "far")
    monkeypatch.setitem(store.SCHEMES, "folder", lambda url, options: found)
    monkeypatch.setenv(room.FOLDER, str(tmp_path / "here"))
    monkeypatch.setattr(mirror, "RETRY_SECONDS", 0.5)
    return found


@pytest.fixture
def opened(spark: SparkSession, far: FolderStore) -> Iterator[Callable[..., hr.Engine]]:
    engines: list[hr.Engine] = []

    def opened(**options: Any) -> hr.Engine:
        engines.append(hr.Engine(spark, URL, executor="inline", **options))
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


def made(engine: hr.Engine) -> hr.Engine:
    engine.table("orders", "id BIGINT, shop STRING, amount DECIMAL(10,2)", key="id")
    engine.view("by_shop", SQL)
    return engine


def batch(changes: list[tuple[int, str, Decimal, int]]) -> pa.Table:
    names = ["id", "shop", "amount", "__diff"]
    columns = list(zip(*changes, strict=True)) or [()] * 4
    kinds = [pa.int64(), pa.string(), pa.decimal128(10, 2), pa.int64()]
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names)


def change(rows: Rows, chance: random.Random) -> tuple[pa.Table, Rows]:
    """Some rows that go and some that come, and all rows after that."""
    gone = chance.sample(sorted(rows), min(len(rows), chance.randrange(4)))
    first = max(rows, default=0) + 1
    come = {first + i: (f"s{chance.randrange(5)}", Decimal(chance.randrange(1000)) / 100) for i in range(5)}
    changes = [(i, *rows[i], -1) for i in gone] + [(i, *row, 1) for i, row in come.items()]
    return batch(changes), {i: row for i, row in rows.items() if i not in gone} | come


def answer(rows: Rows) -> dict[str, tuple[int, Decimal]]:
    """What the view says of rows, found without Headrace."""
    count: Counter[str] = Counter(shop for shop, _ in rows.values())
    return {shop: (n, sum(a for s, a in rows.values() if s == shop)) for shop, n in count.items()}  # type: ignore[misc]


def read(engine: Any) -> dict[str, tuple[int, Decimal]]:
    found = engine.views["by_shop"].to_arrow().to_pylist()
    return {row["shop"]: (row["n"], row["s"]) for row in found}


def test_a_life_on_two_machines(
    opened: Callable[..., hr.Engine], far: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, rows = seeded("far life"), dict[int, tuple[str, Decimal]]()
    engine = made(opened())
    for _ in range(CHECKPOINT_EVERY + 10):
        changes, rows = change(rows, chance)
        engine.apply({"orders": changes})
    assert read(engine) == answer(rows)
    assert engine.status()["location"] == engine.location == URL
    engine.compact()
    engine.close()
    assert len(far.names("log")) < CHECKPOINT_EVERY
    assert not far.names("batches")

    monkeypatch.setenv(room.FOLDER, str(tmp_path / "another machine"))
    assert problems(URL) == []
    with Look(URL) as look:
        assert read(look) == answer(rows)
    with opened() as again:
        assert read(again) == answer(rows)
        changes, rows = change(rows, chance)
        again.apply({"orders": changes})
        with opened(read_only=True) as reader:
            assert read(reader) == answer(rows)
            changes, rows = change(rows, chance)
            again.apply({"orders": changes})
            assert read(reader) == answer(rows)
        assert again.verify() == []
        again.drop("by_shop")
        assert again.compact() is None
    assert "0000000000" not in " ".join(far.names("quarantine"))


def test_a_small_step_is_three_requests(opened: Callable[..., hr.Engine], far: FolderStore) -> None:
    engine, rows, chance = made(opened()), dict[int, tuple[str, Decimal]](), seeded("far requests")
    asked = []
    for _ in range(3):
        changes, rows = change(rows, chance)
        before = Counter(far.asked)
        engine.apply({"orders": changes})
        asked.append(far.asked - before)
    print(f"requests of a small step: {[dict(one) for one in asked]}")
    # One file with the runs of tables, one with those of views, and the record. What was just written is not fetched.
    assert all(one["put"] == 2 and one["put_new"] == 1 and one.total() - one["delete"] == 3 for one in asked)


def test_the_engine_that_opened_last_writes(opened: Callable[..., hr.Engine], far: FolderStore) -> None:
    first, chance = made(opened()), seeded("far writers")
    changes, rows = change({}, chance)
    first.apply({"orders": changes})
    second = opened()
    ours, after = change(rows, chance)
    second.apply({"orders": ours})
    there = sorted(far.names(""))
    theirs, _ = change(rows, chance)
    for _ in range(2):
        with pytest.raises(StorageError, match="another engine has opened it"):
            first.apply({"orders": theirs})
    with pytest.raises(StorageError, match="another engine has opened it"):
        first.view("other", SQL)
    first.close()
    removed = {name for kind, names in far.log if kind == "delete" for name in names.split(",")}
    assert set(there) <= set(far.names(""))
    with pytest.raises(StorageError, match="is closed"):
        read(first)
    assert not removed & {path.name for path in (far.folder / "runs").iterdir()}
    assert read(second) == answer(after)
    assert second.verify() == []
    changes, after = change(after, chance)
    second.apply({"orders": changes})
    assert read(second) == answer(after)


def test_what_a_new_writer_removed_is_not_damaged(
    opened: Callable[..., hr.Engine], far: FolderStore, tmp_path: Path
) -> None:
    first, chance = made(opened()), seeded("far replaced")
    for _ in range(5):
        first.apply({"orders": change({}, chance)[0]})
        first.apply({"orders": batch([(i, *row, -1) for i, row in _rows_of(first).items()])})
    first.apply({"orders": change({}, chance)[0]})
    other = opened()
    for number in range(20):
        other.apply({"orders": batch([(100 + number, "z", Decimal(1), 1)])})
    other.compact()
    OPEN.forget_all(first._store.location.path)
    for path in copies(tmp_path):
        path.unlink()
    for fails in (lambda: first.apply({"orders": batch([(999, "z", Decimal(1), 1)])}), lambda: read(first)):
        with pytest.raises(StorageError, match="another engine has opened it") as caught:
            fails()
        assert not isinstance(caught.value, CorruptFileError)


def _rows_of(engine: hr.Engine) -> Rows:
    return {row["id"]: (row["shop"], row["amount"]) for row in engine.tables["orders"].to_arrow().to_pylist()}


def test_a_number_is_never_free_again(opened: Callable[..., hr.Engine], far: FolderStore) -> None:
    """A writer that slept through a checkpoint of the next one must not find its number free."""
    first, chance = made(opened()), seeded("far sleeper")
    second, rows = opened(), dict[int, tuple[str, Decimal]]()
    for _ in range(CHECKPOINT_EVERY + 5):
        changes, rows = change(rows, chance)
        second.apply({"orders": changes})
    assert any(name.endswith(".checkpoint") for name in far.names("log"))
    with pytest.raises(StorageError, match="another engine has opened it"):
        first.apply({"orders": change({}, chance)[0]})
    assert read(second) == answer(rows)


def test_writers_race(opened: Callable[..., hr.Engine], far: FolderStore) -> None:
    """Engines open the location while others write: each number has one writer, and what was acknowledged is there."""
    made(opened()).close()
    acknowledged: list[int] = []
    lock = threading.Lock()

    def write(number: int) -> None:
        for turn in range(3):
            try:
                engine = opened()
            except StorageError:
                continue
            for i in range(6):
                key = 1000 * number + 100 * turn + i
                try:
                    engine.apply({"orders": batch([(key, f"s{number}", Decimal("1.00"), 1)])})
                except HeadraceError:
                    break
                with lock:
                    acknowledged.append(key)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with opened() as last:
        found = last.tables["orders"].to_arrow().column("id").to_pylist()
        assert sorted(found) == sorted(acknowledged)
        assert len(found) == len(set(found))
        assert last.verify() == []
        print(f"{len(found)} steps acknowledged of {3 * 3 * 6}")
    assert problems(URL) == []


@pytest.mark.parametrize("after", [False, True], ids=["requests", "answers"])
def test_any_request_may_get_lost(after: bool, opened: Callable[..., hr.Engine], far: FolderStore) -> None:
    """One request of a step, or two in a row, fail: the step happens or not, and no acknowledged one is lost."""
    chance, engine, rows, failed = seeded(f"far faults {after}"), made(opened()), dict[int, tuple[str, Decimal]](), 0
    far.after = after
    for number in range(120):
        changes, new = change(rows, chance)
        at = far.asked.total() + number % 8
        far.fails = frozenset({at} if number % 3 else {at, at + 1})
        try:
            engine.apply({"orders": changes})
            rows = new
        except HeadraceError:
            failed += 1
        far.fails = frozenset()
        if engine._store._fenced is not None:
            engine = opened()
        assert read(engine) == answer(rows), number
    assert failed >= 5
    assert engine.verify() == []
    engine.close()
    assert problems(URL) == []
    with opened() as again:
        assert read(again) == answer(rows)
        needed = again._store.snapshot.files()
    assert set(far.names("runs")) == needed, "a failed step left files behind"


def test_a_commit_without_an_answer_happens_or_not(
    opened: Callable[..., hr.Engine], far: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "RETRY_SECONDS", 0.0)
    chance, engine = seeded("far silence"), made(opened())
    changes, rows = change({}, chance)
    engine.apply({"orders": changes})
    for happens in (False, True):
        far.after = happens
        changes, new = change(rows, chance)
        start = far.asked.total()
        far.fails = frozenset(range(start + 2, start + 100))  # its two files are put
        with pytest.raises(StorageError):
            engine.apply({"orders": changes})
        far.fails = frozenset()
        with pytest.raises(StorageError, match="got no answer"):
            engine.apply({"orders": changes})
        rows = new if happens else rows
        engine = opened()
        assert read(engine) == answer(rows)
        assert engine.verify() == []


def copies(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "here").rglob("*.run") if not path.name.startswith(".")]


def test_a_damaged_copy_is_fetched_again(
    opened: Callable[..., hr.Engine], far: FolderStore, tmp_path: Path, spark: SparkSession
) -> None:
    engine = made(opened())
    engine.apply({"orders": spark.range(60_000).selectExpr("id", "'a' shop", "CAST(id % 7 AS DECIMAL(10,2)) amount")})
    want = read(engine)
    sizes = {path.name: path.stat().st_size for path in copies(tmp_path)}
    assert max(sizes.values()) > 1 << 18 > min(sizes.values())  # one that is mapped, and one that is read
    engine.close()
    chance = seeded("far damage")
    for damage in ("flip", "cut", "empty", "remove"):
        for path in copies(tmp_path):
            data = bytearray(path.read_bytes())
            if damage == "flip":
                for _ in range(20):
                    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data if damage == "flip" else data[: len(data) // 2 if damage == "cut" else 0])
            if damage == "remove":
                path.unlink()
        with opened(read_only=True) as reader:
            assert read(reader) == want
            assert reader.tables["orders"].to_arrow().num_rows == 60_000
            assert reader.verify() == []
        fetched = {name for kind, name in far.log if kind == "get" and name.startswith("runs/")}
        assert fetched == {f"runs/{name}" for name in sizes}, damage
        far.log.clear()


def test_damage_in_the_store_is_damage(opened: Callable[..., hr.Engine], far: FolderStore, tmp_path: Path) -> None:
    engine = made(opened())
    engine.apply({"orders": batch([(1, "a", Decimal("1.00"), 1)])})
    engine.apply({"orders": batch([(2, "a", Decimal("1.00"), 1)])})
    newest = max(run.name for run in engine._store.snapshot.runs())
    engine.close()
    path = far.folder / "runs" / newest
    path.write_bytes(path.read_bytes()[:100])
    for copy in copies(tmp_path):
        copy.unlink()
    assert problems(URL)
    with opened(read_only=True) as reader, pytest.raises(CorruptFileError, match="runs/"):
        read(reader), reader.tables["orders"].to_arrow()
    repaired = repair(URL)
    assert (repaired.location, repaired.step) == (URL, 1)
    assert problems(URL) == []
    with opened() as again:
        assert read(again) == {"a": (1, Decimal("1.00"))}
        again.apply({"orders": batch([(2, "a", Decimal("1.00"), 1)])})
        assert read(again) == {"a": (2, Decimal("2.00"))}


def test_a_repair_ends_the_writer_before_it(opened: Callable[..., hr.Engine], far: FolderStore) -> None:
    engine = made(opened())
    engine.apply({"orders": batch([(1, "a", Decimal("1.00"), 1)])})
    record = max((far.folder / "log").iterdir())
    record.write_bytes(b"damaged")
    assert repair(URL).gone.commits == 1
    with pytest.raises(StorageError, match="another engine has opened it"):
        engine.apply({"orders": batch([(2, "a", Decimal("1.00"), 1)])})
    with opened() as again:
        assert read(again) == {}
        assert again.verify() == []


def test_a_number_that_a_checkpoint_has_freed_is_not_claimed(
    opened: Callable[..., hr.Engine], far: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look at the log and the claim of its next number, another engine may have used that number and more."""
    first = made(opened())
    steps, put_new = 0, far.put_new

    def apply() -> None:
        nonlocal steps
        steps += 1
        first.apply({"orders": batch([(steps, "a", Decimal("1.00"), 1)])})

    while (first._store.snapshot.version + 2) % CHECKPOINT_EVERY:
        apply()

    def late(name: str, content: bytes) -> None:
        monkeypatch.setattr(far, "put_new", put_new)
        for _ in range(4):
            apply()
        assert name not in (f"log/{path}" for path in far.names("log")), "the number was never freed"
        put_new(name, content)

    monkeypatch.setattr(far, "put_new", late)
    second = opened()
    assert far.put_new == put_new
    assert second.step == steps
    assert read(second) == {"a": (steps, Decimal(steps))}
    with pytest.raises(StorageError, match="another engine has opened it"):
        apply()
    second.apply({"orders": batch([(0, "a", Decimal("1.00"), 1)])})
    assert read(second) == {"a": (steps, Decimal(steps))}
    assert second.verify() == []


def test_a_repair_beside_an_engine_that_writes_takes_nothing_back(
    opened: Callable[..., hr.Engine], far: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = made(opened())
    engine.apply({"orders": batch([(1, "a", Decimal("1.00"), 1)])})
    get, names = far.get, iter(range(2, 5))

    def slow(name: str, into: Any) -> None:
        if name.startswith("runs/") and (number := next(names, None)) is not None:
            engine.apply({"orders": batch([(number, "a", Decimal("1.00"), 1)])})
        get(name, into)

    monkeypatch.setattr(far, "get", slow)
    assert repair(URL).why is None
    assert engine.step > 1
    engine.apply({"orders": batch([(9, "a", Decimal("1.00"), 1)])})
    assert read(engine)["a"][0] == engine.step


def test_a_request_that_fails_is_no_damage(
    opened: Callable[..., hr.Engine], far: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = made(opened())
    for number in range(3):
        engine.apply({"orders": batch([(number, "a", Decimal("1.00"), 1)])})
    engine.close()
    get = far.get

    def lost(name: str, into: Any) -> None:
        if name.startswith("runs/"):
            raise store.FailedRequestError("the connection was reset")
        get(name, into)

    monkeypatch.setattr(far, "get", lost)
    for ask in (repair, problems):
        with pytest.raises(StorageError, match="the connection was reset"):
            ask(URL)
    monkeypatch.setattr(far, "get", get)
    assert (repair(URL).step, problems(URL)) == (3, [])


def test_what_is_gone_from_the_store_is_damage_where_copies_are(
    opened: Callable[..., hr.Engine], far: FolderStore
) -> None:
    engine = made(opened())
    engine.apply({"orders": batch([(1, "a", Decimal("1.00"), 1)])})
    engine.close()
    for path in (far.folder / "runs").iterdir():
        path.unlink()
    assert problems(URL)


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_settings_are_made_again_from_the_log(opened: Callable[..., hr.Engine], far: FolderStore, how: str) -> None:
    opened(buckets=3).close()
    settings = far.folder / "headrace.json"
    if how == "damaged":
        settings.write_bytes(b"{")
    else:
        settings.unlink()
    assert repair(URL).settings
    with opened() as again:
        assert again.status()["buckets"] == 3


def test_a_repair_that_cannot_be_finished_changes_nothing(
    opened: Callable[..., hr.Engine], far: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = made(opened())
    for number in range(3):
        engine.apply({"orders": batch([(number, "a", Decimal("1.00"), 1)])})
    engine.close()
    path = max((far.folder / "runs").iterdir())
    data = path.read_bytes()
    path.write_bytes(b"damaged")
    put = far.put

    def full(name: str, content: Any) -> None:
        if name.endswith(".checkpoint"):
            raise store.FailedRequestError("no room")
        put(name, content)

    monkeypatch.setattr(far, "put", full)
    with pytest.raises(StorageError, match="no room"):
        repair(URL)
    path.write_bytes(data)
    monkeypatch.setattr(far, "put", put)
    with opened(read_only=True) as reader:
        assert (reader.step, read(reader)) == (3, {"a": (3, Decimal("3.00"))})


def test_the_mirror_is_smaller_than_the_state(
    opened: Callable[..., hr.Engine], far: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(room.LIMIT, "6000")
    chance, rows, engine = seeded("far small mirror"), dict[int, tuple[str, Decimal]](), made(opened())
    for _ in range(60):
        changes, rows = change(rows, chance)
        engine.apply({"orders": changes})
        assert read(engine) == answer(rows)
        assert sum(path.stat().st_size for path in copies(tmp_path)) < 2 * 6000
    assert engine._store.snapshot.bytes() > 2 * 6000
    engine.close()
    with opened() as again:
        assert read(again) == answer(rows)
        assert again.verify() == []


def test_a_prefix_with_other_files_is_left_alone(opened: Callable[..., hr.Engine], far: FolderStore) -> None:
    far.folder.mkdir()
    (far.folder / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="not a Headrace location"):
        opened()
    assert far.names("") == ["notes.txt"]


def test_a_store_that_cannot_be_reached_is_no_damage(opened: Callable[..., hr.Engine], far: FolderStore) -> None:
    made(opened()).close()
    for number in range(4):
        far.fails = frozenset({far.asked.total() + number})
        with pytest.raises(StorageError) as caught:
            opened(read_only=True)
        assert not isinstance(caught.value, CorruptFileError)
        assert "was lost" in caught.value.what
