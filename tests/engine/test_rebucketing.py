"""Another number of buckets: no answer changes, entries lie where steps look for them, and a crash changes nothing."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_join_oracle import Stream
from tests.engine.test_sharing import Changing, always, answer, opened, random_query
from tests.residences import misplaced
from tests.seeds import drawn, seeds, share
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.engine.looking import Look
from headrace.engine.repair import problems, repair
from headrace.errors import BadRowsError, SchemaError, StorageError
from headrace.factorized.join_view import JoinView
from headrace.operators.tree_view import TreeView
from headrace.relation import runfile
from headrace.runtime import rebucketing
from headrace.runtime.location import Location
from headrace.runtime.log import CommitLog
from headrace.runtime.record import RECENT, Record
from headrace.testing.oracle import Oracle, assert_same
from headrace.testing.subjects import Subject, subjects

NUMBERS = (1, 2, 3, 4, 8, 16)
FIXED = {  # kinds of operators that random queries have not, or not always
    "first": "SELECT id, price FROM orders ORDER BY price DESC, id LIMIT 5",
    "kinds": "SELECT DISTINCT day, note FROM orders",
    "extremes": "SELECT shop, MIN(price) AS low, COUNT(DISTINCT day) AS days FROM orders GROUP BY shop",
    "without": "SELECT id FROM orders WHERE shop NOT IN (SELECT size FROM shops WHERE size IS NOT NULL)",
    "total": "SELECT COUNT(*) AS n, SUM(price) AS p FROM orders",
    "alone": "SELECT o.id, i.what FROM orders o LEFT JOIN items i ON i.order_id = o.id",
}
FIXED_JOIN = (
    "SELECT s.city, COUNT(*) AS n, SUM(o.price) AS p FROM orders o JOIN shops s ON o.shop = s.id GROUP BY s.city"
)


def any_sizes(rng: random.Random, monkeypatch: pytest.MonkeyPatch, executor: str = "inline") -> None:
    """Arrangements of tests are small: let them move as large ones do, or as very large ones."""
    way = rng.choice(["at once", "apart", "in streams"])
    if way != "at once":
        monkeypatch.setattr(rebucketing, "TOGETHER", 0)
    if way == "in streams":
        monkeypatch.setattr(rebucketing, "_HELD_BYTES", 1)
        monkeypatch.setattr(rebucketing, "_STREAMS", 2)
        if executor == "inline":  # it says which runs share a file, in the workers of Spark as well
            monkeypatch.setattr(runfile, "SMALL", 512)


def check(engine: hr.Engine, changing: Changing, queries: dict[str, str]) -> None:
    for name, sql in queries.items():
        assert answer(engine.views[name]) == changing.answer(sql), (engine.buckets, name, sql)
    assert not misplaced(engine)


@seeds("buckets", 2)
def test_any_views_answer_alike_in_any_number_of_buckets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    check_any_views(spark, tmp_path, monkeypatch, "inline", random.Random(seed))


@seeds("buckets by jobs", 1, check=0, kept=(1502310626,))
def test_jobs_of_spark_move_entries_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    check_any_views(spark, tmp_path, monkeypatch, "spark", random.Random(seed))


def check_any_views(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str, rng: random.Random
) -> None:
    """Views of all kinds, that share subplans, wait, and let go of state; with engines that follow, and restarts."""
    any_sizes(rng, monkeypatch, executor)
    if rng.random() < 0.7:
        always(monkeypatch)
    changing, oracle, location = Changing(rng), Oracle(spark), tmp_path / "state"
    options = {"executor": executor, "memory_budget": rng.choice([None, "1 KB", "100 KB"])}
    queries = {f"v{i}": random_query(rng) for i in range(3)}
    queries |= {name: FIXED[name] for name in rng.sample(sorted(FIXED), 3)}
    engine, steps = opened(spark, location, **options), 4 if executor == "inline" else 2
    try:
        engine.apply(changing.change())
        for name, sql in queries.items():
            engine.view(name, sql, goal=hr.Manual() if rng.random() < 0.3 else None)
        if executor == "spark":
            queries["anew"] = queries["v0"]
            engine.view("anew", queries["anew"], refresh="full")
        with hr.Engine(spark, location, read_only=True, calibrate=False) as follower:
            for _ in range(steps):
                before = {name: answer(view) for name, view in engine.views.items()}
                engine.apply(changing.change())
                if rng.random() < 0.3:
                    engine.settle()
                waiting = {name for name, view in engine.views.items() if view.goal is not None}
                done = engine.rebucket(rng.choice(NUMBERS))
                assert engine.buckets == done.after
                for name in waiting - {*done.filled}:
                    assert answer(engine.views[name]) == before[name], "what waits went on waiting"
                engine.refresh()
                check(engine, changing, queries)
                check_follower(follower, engine)
                if rng.random() < 0.3:
                    engine.close()
                    engine = opened(spark, location, **options)
                    assert engine.buckets == done.after
        asked = list(queries.values())
        assert [answer(engine.views[name]) for name in queries] == changing.answers_of_spark(oracle, asked)
        assert not engine.verify()
    finally:
        engine.close()


def check_follower(follower: hr.Engine, engine: hr.Engine) -> None:
    assert follower.step == engine.step
    assert follower.buckets == engine.buckets
    for name, view in engine.views.items():
        assert answer(follower.views[name]) == answer(view)


@seeds("buckets of joins", 2)
def test_joins_by_any_strategy_and_order(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Orders and partitions that nobody would choose, by which views keep sums that do not tell their bucket."""
    rng, stream = random.Random(seed), Stream(spark, seed)
    any_sizes(rng, monkeypatch)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=4, calibrate=False) as engine:
        stream.register(engine)
        for i in range(3):
            stream.view(engine, f"v{i}", stream.query())
        for _ in range(3):
            engine.apply(stream.change(25))
            stream.check(engine)
            unclear = [
                name
                for name, view in engine._catalogue.kernels.items()
                if isinstance(view, JoinView) and view.in_one_pass is None
            ]
            old = engine.buckets
            done = engine.rebucket(rng.choice(NUMBERS))
            assert done.filled == (tuple(unclear) if old % done.after else ())
            stream.check(engine, changes=False)
            assert not misplaced(engine)


SUBJECTS = list(subjects())
CHOSEN = share("buckets of subjects", [str(one) for one in SUBJECTS if "recompute" not in one.name], 5)
WINDOWS = [str(subject) for subject in SUBJECTS if subject.name.startswith("window")]


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if str(s) in {*CHOSEN, WINDOWS[0]}], ids=str)
def test_whatever_is_kept_answers_as_with_its_first_buckets(
    spark: SparkSession, tmp_path: Path, subject: Subject
) -> None:
    steps = subject.steps(drawn("buckets of a subject", 1)[0], 4)
    with made(spark, tmp_path / "still", subject) as still, made(spark, tmp_path / "moved", subject) as moved:
        for step, buckets in zip(steps, (8, 3, 1, 2), strict=True):
            still.apply(step)
            moved.apply(step)
            moved.rebucket(buckets)
            (expected,), (found,) = still.views.values(), moved.views.values()
            assert_same(subject.answer(found), subject.answer(expected), relative=1e-9)


@contextmanager
def made(spark: SparkSession, location: Path, subject: Subject) -> Iterator[hr.Engine]:
    with hr.Engine(spark, location, buckets=4, calibrate=False) as engine:
        subject.tables(engine)
        subject.make(engine)
        yield engine


WINDOW_JOIN: dict[str, Any] = {"on": "k", "time": "at", "arrival": "came", "window": "10 s", "horizon": "40 s"}


@pytest.mark.parametrize("within", [None, "3 s"])
@seeds("buckets of window joins", 1)
def test_all_that_window_joins_keep_moves(spark: SparkSession, tmp_path: Path, within: str | None, seed: int) -> None:
    """Answers per key, late rows and what is kept of both sides: as in a join that stays where it is."""
    engines = []
    for name in ("still", "moved"):
        engine = hr.Engine(spark, tmp_path / name, buckets=4, calibrate=False, executor="inline")
        for side in ("a", "b"):
            engine.table(side, "k STRING, n INT, v DOUBLE, at TIMESTAMP, came TIMESTAMP", append_only=True)
        options = WINDOW_JOIN | {"on": ["k", "n"], "within": within, "by_key": True, "revisions": "all"}
        engines.append((engine, engine.window_join("w", "a", "b", agg="sum(v)", **options)))
    (still, expected), (moved, found) = engines
    rng = random.Random(seed)
    with still, moved:
        for step in range(6):
            batch = {side: window_rows(rng, step) for side in ("a", "b")}
            still.apply(batch)
            moved.apply(batch)
            moved.rebucket(rng.choice([n for n in NUMBERS if n != moved.buckets]))
            for read in ("to_arrow", "by_key", "late"):
                assert_same(getattr(found, read)(), getattr(expected, read)(), relative=1e-9)
        assert expected.late().num_rows, "nothing came too late"
        assert expected.by_key().num_rows


def window_rows(rng: random.Random, step: int) -> pa.Table:
    """Rows that arrive in ten seconds, some of them after the horizon."""
    rows = []
    for _ in range(60):
        came = rng.randrange(10_000 * step, 10_000 * (step + 1))
        late = rng.choice([rng.randrange(0, 20_000), rng.randrange(0, 60_000)])
        rows.append((rng.choice("abcdefgh"), rng.randrange(3), rng.random(), max(0, came - late) * 1000, came * 1000))
    kinds = (pa.string(), pa.int32(), pa.float64(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"))
    return pa.table(
        [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)], ["k", "n", "v", "at", "came"]
    )


def test_windows_that_are_final_stay_so(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", buckets=2, calibrate=False) as engine:
        engine.table("t", "ts TIMESTAMP NOT NULL, v INT", watermark=("ts", "5 seconds"))
        by = "window(ts, '10 seconds'), v % 3"
        sql = f"SELECT window.start, v % 3 AS k, COUNT(*) AS n FROM t GROUP BY {by}"
        view, seen = engine.view("v", sql, final=True), 0
        for step in range(4):
            times = pa.array([1_000_000 * (12 * step + i) for i in range(12)], pa.timestamp("us", "UTC"))
            engine.apply({"t": pa.table({"ts": times, "v": pa.array(range(12), pa.int32())})})
            before, finals = view.to_arrow(), view.finals().to_arrow()
            engine.rebucket(3 + step)
            assert_same(view.to_arrow(), before)
            assert_same(view.finals().to_arrow(), finals)
            seen = max(seen, finals.num_rows)
        assert seen


# -- one commit --------------------------------------------------------------------------------------------------------


def some(spark: SparkSession, location: Path, buckets: int = 4) -> hr.Engine:
    engine = hr.Engine(spark, location, buckets=buckets, calibrate=False, executor="inline")
    engine.table("t", "id BIGINT, shop INT, x INT", key="id", fds={"id": ["shop"]})
    engine.view("v", "SELECT shop, SUM(x) AS x, MIN(id) AS first FROM t GROUP BY shop")
    engine.apply({"t": rows(0, 300)})
    return engine


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    shops, amounts = ([number(i) for i in ids] for number in (lambda i: i % 17, int))
    return pa.table({"id": list(ids), "shop": pa.array(shops, pa.int32()), "x": pa.array(amounts, pa.int32())})


def runs(location: Path) -> set[str]:
    return {path.name for path in (location / "runs").iterdir()}


def test_a_crash_just_before_the_commit_leaves_the_old_buckets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, crashed = tmp_path / "s", tmp_path / "crashed"
    append = CommitLog.append

    def crash(log: CommitLog, record: Record) -> None:
        if record.settings is not None and record.version > 1:
            shutil.copytree(location, crashed)
            raise OSError("no space left on device")
        append(log, record)

    with some(spark, location) as engine:
        expected, there = engine.views["v"].to_arrow(), runs(location)
        monkeypatch.setattr(CommitLog, "append", crash)
        with pytest.raises(OSError, match="no space"):
            engine.rebucket(16)
        monkeypatch.setattr(CommitLog, "append", append)
        assert runs(crashed) > there, "nothing was written before the commit"
        assert runs(location) == there
        assert engine.buckets == 4
        engine.apply({"t": rows(300, 10)})
        assert engine.rebucket(2).after == 2
    (crashed / "lock").unlink()
    with hr.Engine(spark, crashed, calibrate=False) as engine:
        assert engine.buckets == 4
        assert_same(engine.views["v"].to_arrow(), expected)
        assert runs(crashed) == there
        assert not misplaced(engine)


def test_an_interrupt_just_after_the_commit_leaves_the_new_buckets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = CommitLog.append

    def interrupted(log: CommitLog, record: Record) -> None:
        append(log, record)
        if record.settings is not None and record.version > 1:
            raise KeyboardInterrupt

    with some(spark, tmp_path / "s") as engine:
        expected = engine.views["v"].to_arrow()
        monkeypatch.setattr(CommitLog, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.rebucket(16)
        monkeypatch.setattr(CommitLog, "append", append)
        assert engine.buckets == 16
        assert_same(engine.views["v"].to_arrow(), expected)
        assert not engine._store.latest.damage()
        engine.apply({"t": rows(300, 10)})
        assert not misplaced(engine)
        assert engine.tables["t"].rows == 310


def test_a_reader_of_an_older_snapshot_reads_its_own_buckets(spark: SparkSession, tmp_path: Path) -> None:
    with some(spark, tmp_path / "s", buckets=8) as engine:
        view, table = engine.views["v"], engine.tables["t"]
        frame, stored = view.to_df(), table.to_df()
        expected, count = view.to_arrow(), table.rows
        with engine._store.reader() as reader:
            engine.rebucket(2)
            engine.apply({"t": rows(300, 50)})
            engine.compact()
            assert (reader.buckets, engine.buckets) == (8, 2)
            assert not reader.damage()
        assert_same(frame.toArrow(), expected)
        assert stored.count() == count


def test_steps_in_one_pass_and_merges_go_on(spark: SparkSession, tmp_path: Path) -> None:
    """What small steps wrote moves into the buckets, and later small steps write by the new number."""
    with some(spark, tmp_path / "s") as engine:
        state = engine._store.snapshot.arrangements
        assert any(RECENT in states and states[RECENT].runs for states in state.values())
        engine.rebucket(3)
        state = engine._store.snapshot.arrangements
        assert state
        assert not any(states.keys() - range(3) for states in state.values())
        for start in range(300, 400, 10):
            engine.apply({"t": rows(start, 10)})
        engine.compact()
        assert engine.tables["t"].rows == 400
        assert not misplaced(engine)
        with pytest.raises(BadRowsError):  # the guard of the dependency has moved too
            engine.apply({"t": rows(5, 1).set_column(1, "shop", pa.array([99], pa.int32()))})


def test_operators_stay_where_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """What was small enough to be copied to 3 buckets would not be to 16, but its state is there already."""
    changing = Changing(random.Random(1))
    with opened(spark, tmp_path / "s") as engine:
        engine.apply({name: changing.table(name, changing.come(name, n)) for name, n in (("shops", 9), ("orders", 60))})
        view = engine.view("v", FIXED_JOIN, strategy="operators")
        before = kernel_of(view).placement
        engine.rebucket(16)
        kernel = kernel_of(view)
        assert kernel.placement == before
        assert replace(kernel, placed_for=0).placement != before, "it would be placed alike"
        assert "so 3 copies" in str(view.explain())
    with opened(spark, tmp_path / "s") as engine:
        view = engine.views["v"]
        assert kernel_of(view) == kernel, "a restart finds another plan"
        for _ in range(3):
            engine.apply(changing.change())
            engine.rebucket(engine.buckets - 3)
            check(engine, changing, {"v": FIXED_JOIN})
        assert kernel_of(view).placement == before


def kernel_of(view: Any) -> TreeView:
    kernel = view.planned.kernel
    assert isinstance(kernel, TreeView)
    return kernel


def test_as_many_buckets_as_before_is_no_commit(spark: SparkSession, tmp_path: Path) -> None:
    with some(spark, tmp_path / "s") as engine:
        version = engine._store.snapshot.version
        assert engine.rebucket(4).filled == ()
        assert engine._store.snapshot.version == version


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_done_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with some(spark, tmp_path / "s") as engine:
        for number in (0, 5000):
            with pytest.raises(SchemaError, match="out of range"):
                engine.rebucket(number)
        with (
            hr.Engine(spark, tmp_path / "s", read_only=True) as reader,
            pytest.raises(StorageError, match="reading only"),
        ):
            reader.rebucket(2)
        with pytest.raises(SchemaError, match="has 4 buckets, not 8"):
            hr.Engine(spark, tmp_path / "s", buckets=8, read_only=True)
        engine._failed.add("strange", {}, StorageError("its ring is not registered", way_out="register it"))
        with pytest.raises(SchemaError, match="'strange' could not be opened"):
            engine.rebucket(8)
        engine._failed.remove("strange")
        engine.rebucket(8)
        hr.Engine(spark, tmp_path / "s", buckets=8, read_only=True).close()


PATH = "SELECT COUNT(*) AS n, SUM(c.z) AS z FROM a JOIN b ON a.k = b.k JOIN c ON b.m = c.m"


def path(spark: SparkSession, location: Path, **tables: bool) -> hr.Engine:
    """A view that keeps sums by m in the buckets of k, which these sums do not tell."""
    engine = hr.Engine(spark, location, buckets=6, calibrate=False, executor="inline")
    for name, schema in {"a": "k INT, x INT", "b": "k INT, m INT", "c": "m INT, z INT"}.items():
        engine.table(name, schema, **tables)
    engine.view("v", PATH, order="m\n  k", partition="k")
    engine.apply(path_rows(1))
    return engine


def path_rows(seed: int) -> dict[str, pa.Table]:
    rng, columns = random.Random(seed), {"a": "kx", "b": "km", "c": "mz"}
    return {
        name: pa.table({one: pa.array([rng.randrange(9) for _ in range(40)], pa.int32()) for one in own})
        for name, own in columns.items()
    }


def test_sums_that_do_not_tell_their_bucket(spark: SparkSession, tmp_path: Path) -> None:
    """They stay together where buckets are united, and are filled again from their tables otherwise."""
    with path(spark, tmp_path / "kept") as kept, path(spark, tmp_path / "passed", keep_rows=False) as passed:
        views = (kept.views["v"], passed.views["v"])
        for seed, (buckets, filled) in enumerate({3: (), 4: ("v",), 2: (), 16: ("v",)}.items()):
            assert kept.rebucket(buckets).filled == filled
            if filled and passed.buckets % buckets:
                with pytest.raises(SchemaError, match=r"'a' keeps no rows") as refused:
                    passed.rebucket(buckets)
                assert f"divides {passed.buckets}" in str(refused.value)
            elif not filled:
                passed.rebucket(3 if passed.buckets == 6 else 1)
            for engine in (kept, passed):
                engine.apply(path_rows(seed))
            assert_same(views[0].to_arrow(), views[1].to_arrow())
            # A table that keeps no rows still knows how many it has had.
            assert {n: table.rows for n, table in kept.tables.items()} == {
                n: table.rows for n, table in passed.tables.items()
            }
        assert all(table.rows for table in passed.tables.values())
        kept.views["v"].goal = hr.Manual()
        kept.apply(path_rows(7))
        passed.apply(path_rows(7))
        assert kept.rebucket(5).filled == ("v",), "what waited went on first"
        assert_same(views[0].to_arrow(), views[1].to_arrow())


def test_settings_that_are_lost_are_made_again_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    location = tmp_path / "s"
    with some(spark, location) as engine:
        expected = engine.views["v"].to_arrow()
        settings = json.loads((location / "headrace.json").read_text())
        engine.rebucket(5)
    for damage in ("lost", "damaged", "lost with the first records"):
        if damage == "damaged":
            (location / "headrace.json").write_text("{}")
        else:
            (location / "headrace.json").unlink()
        if damage == "lost with the first records":
            log = CommitLog(Location(location))
            log.checkpoint(log.load())
        assert len(problems(location)) == 1 if damage == "damaged" else True
        done = repair(location)
        assert done.settings
        assert "headrace.json was made again" in str(done)
        found = json.loads((location / "headrace.json").read_text())
        assert (found["seed"], found["sql"], found["buckets"]) == (settings["seed"], settings["sql"], found["buckets"])
        assert not problems(location)
        with hr.Engine(spark, location, calibrate=False) as engine:
            assert engine.buckets == 5
            assert_same(engine.views["v"].to_arrow(), expected)
            assert not misplaced(engine)


def test_the_command_and_what_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    location = tmp_path / "s"
    some(spark, location).close()
    runner = CliRunner()
    done = runner.invoke(app, ["rebucket", str(location), "--buckets", "16", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["before"], said["after"], said["filled"]) == (4, 16, [])
    with Look(location) as look:  # without Spark: the stored plans are those of the new buckets
        assert look.status()["buckets"] == 16
        assert "16 buckets" in str(look.views["v"].explain())
        assert look.views["v"].rows == 17
    missing = runner.invoke(app, ["rebucket", str(tmp_path / "none"), "--buckets", "16"])
    assert missing.exit_code != 0
    assert not (tmp_path / "none").exists()
