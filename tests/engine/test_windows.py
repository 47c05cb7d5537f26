"""Windows of time equal Spark's, and watermarks close them, whatever the disorder, the executor and the restarts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import BadRowsError, SchemaError, UnsupportedSQLError
from headrace.relation.schema import DIFF
from headrace.runtime.log import CommitLog
from headrace.testing.oracle import Oracle, assert_same, spark_ddl

DDL = "id BIGINT, ts TIMESTAMP, shop STRING, amount DECIMAL(8,2)"
NAMES = ["id", "ts", "shop", "amount"]
START = datetime(2024, 3, 10, 6, tzinfo=UTC)  # an hour before New York loses one
DELAY = timedelta(minutes=10)
W = hr.tumbling("t", "ts", "10 minutes")
SLIDING = hr.sliding("t", "ts", "10 minutes", "4 minutes", offset="1 minute")
AGGREGATES = (
    "COUNT(*) AS n, SUM(amount) AS total, MIN(amount) AS low, MAX(shop) AS last, COUNT(DISTINCT amount) AS d, "
    "MEDIAN(amount) AS mid, MAX_BY(shop, id) AS latest"
)
BY_WINDOW = f"SELECT {W.start} AS start, {W.end} AS end, {AGGREGATES} FROM t GROUP BY {W}"
BY_SHOP = f"SELECT {W.end} AS end, shop, {AGGREGATES} FROM t GROUP BY shop, {W} HAVING COUNT(*) > 1 ORDER BY end, shop"
BY_SLIDING = f"SELECT {SLIDING.start} AS start, {SLIDING.end} AS end, {AGGREGATES} FROM t GROUP BY {SLIDING}"

Row = tuple[Any, ...]


def table_of(rows: list[Row], ddl: str = DDL) -> pa.Table:
    """Rows, the last value of each being its multiplicity."""
    kind = pa.timestamp("us") if "TIMESTAMP_NTZ" in ddl else pa.timestamp("us", "UTC")
    types = [pa.int64(), kind, pa.large_string(), pa.decimal128(8, 2), pa.int64()]
    columns = zip(*rows, strict=True) if rows else ([] for _ in types)
    return pa.table({n: pa.array(list(c), t) for n, c, t in zip([*NAMES, DIFF], columns, types, strict=True)})


@dataclass
class Model:
    """What the rule of watermarks says of a stream, row by row."""

    keyed: bool
    rows: list[Row] = field(default_factory=list)  # without multiplicities
    watermark: datetime | None = None
    late: list[Row] = field(default_factory=list)

    def apply(self, batch: list[Row]) -> int:
        def is_late(row: Row) -> bool:
            return self.watermark is not None and row[1] is not None and row[1] < self.watermark

        keys = {row[0] for row in batch if is_late(row)} if self.keyed else set()
        late = [row for row in batch if is_late(row) or row[0] in keys]
        for row in batch:
            if row not in late:
                if row[-1] > 0:
                    self.rows.append(row[:-1])
                else:
                    self.rows.remove(row[:-1])
        times = [row[1] for row in batch if row not in late and row[-1] > 0 and row[1] is not None]
        if times:
            newest = max(times) - DELAY
            self.watermark = newest if self.watermark is None else max(newest, self.watermark)
        self.late += late
        return len(late)

    def to_arrow(self) -> pa.Table:
        return table_of([(*row, 1) for row in self.rows]).drop_columns([DIFF])


def batch_of(rng: random.Random, model: Model, step: int, next_id: int, size: int = 40) -> list[Row]:
    """Rows in disorder, some of them far too late, some without a time; and deletions and updates of older ones."""
    now = START + timedelta(minutes=6 * step)
    rows: list[Row] = []
    for i in range(size):
        behind = timedelta(minutes=rng.choice([rng.uniform(0, 9), rng.uniform(0, 40)]))
        time = None if rng.random() < 0.05 else now - behind
        rows.append((next_id + i, time, rng.choice("abc"), rng.randrange(5), 1))
    for row in rng.sample(model.rows, min(6, len(model.rows))):
        rows.append((*row, -1))
        if rng.random() < 0.5:  # an update, and perhaps of the time
            time = rng.choice([row[1], now - timedelta(minutes=rng.uniform(0, 30))])
            rows.append((row[0], time, row[2], row[3] + 1, 1))
    rng.shuffle(rows)
    return rows


def check(engine: hr.Engine, model: Model, oracle: Oracle, finals: dict[str, list[Row]]) -> None:
    """Table, views, final rows and late rows are what the model says; what was final is as it was."""
    assert engine.tables["t"].watermark == model.watermark
    assert_same(engine.tables["t"].to_arrow(), model.to_arrow())
    oracle.set_rows({"t": model.to_arrow()})
    for name, view in engine.views.items():
        assert isinstance(view, hr.View)
        expected = oracle.answer(view.sql)
        assert_same(view.to_arrow(), expected)
        assert view.rows == expected.num_rows
        found = view.finals().to_arrow()
        over = [row for row in expected.to_pylist() if model.watermark is not None and row["end"] <= model.watermark]
        assert_same(found.drop_columns(["__step"]), pa.Table.from_pylist(over, expected.schema))
        rows = [tuple(row.values()) for row in found.to_pylist()]
        assert set(map(str, finals.get(name, []))) <= set(map(str, rows)), "a final row has changed"
        finals[name] = rows
    aside = engine.late("t")
    assert sorted(map(str, aside.select([*NAMES, DIFF]).to_pylist())) == sorted(
        map(str, table_of(model.late).to_pylist())
    )


def run_stream(spark: SparkSession, location: Path, seed: int, *, keyed: bool, executor: str, frames: bool) -> None:
    rng, model, oracle, next_id = random.Random(seed), Model(keyed), Oracle(spark), 0
    finals: dict[str, list[Row]] = {}
    engine = hr.Engine(spark, location, buckets=3, executor=executor)
    engine.table("t", DDL, key="id" if keyed else None, watermark=("ts", "10 minutes"))
    engine.view("by_window", BY_WINDOW, final=True)
    engine.view("by_shop", BY_SHOP, final=True)
    for step in range(8):
        batch = batch_of(rng, model, step, next_id)
        next_id += len(batch)
        changes = table_of(batch)
        given = spark.createDataFrame(changes, spark_ddl(changes.schema)) if frames else changes
        done = engine.apply({"t": given})
        late = model.apply(batch)
        assert done.late == ({"t": late} if late else {})
        assert done.rows == {"t": len(batch) - late}
        if step == 2:  # a view that comes late is filled, and what is over is final at once
            engine.view("sliding", BY_SLIDING, final=True)
        if step == 4:
            engine.close()
            engine = hr.Engine(spark, location, executor=executor)
        if step in ((2, 7) if frames else (1, 2, 4, 5, 7)):
            check(engine, model, oracle, finals)
    assert model.late
    assert all(finals.values())
    assert not engine.verify()
    open_groups = engine._store.snapshot.arrangements["view/by_window/groups"].values()
    final_groups = engine._store.snapshot.arrangements["final/by_window"].values()
    assert 0 < sum(state.live for state in open_groups) < sum(state.live for state in final_groups)
    engine.close()


@pytest.mark.parametrize("keyed", [False, True])
def test_streams_in_disorder_inline(spark: SparkSession, tmp_path: Path, keyed: bool) -> None:
    run_stream(spark, tmp_path / "s", 1, keyed=keyed, executor="inline", frames=False)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("keyed", [False, True])
def test_streams_in_disorder_on_spark(spark: SparkSession, tmp_path: Path, keyed: bool) -> None:
    run_stream(spark, tmp_path / "batches", 7, keyed=keyed, executor="spark", frames=False)
    run_stream(spark, tmp_path / "frames", 8, keyed=keyed, executor="auto", frames=True)


QUERIES = {
    "tumbling": BY_WINDOW,
    "moved": "SELECT window.start, COUNT(*) AS n FROM t GROUP BY window(ts, '1 hour', '1 hour', '25 minutes')",
    "days": "SELECT window.start, window.end, COUNT(*) AS n FROM t GROUP BY window(ts, '1 day')",
    "sliding": BY_SLIDING,
    "overlapping": "SELECT window.end, shop, SUM(amount) AS s FROM t GROUP BY window(ts, '1 hour', '15 minutes'), shop",
    "rows": "SELECT window(ts, '10 minutes').start AS start, id FROM t WHERE shop <> 'a'",
    "last": "SELECT window_time(w) AS last, n FROM (SELECT window AS w, COUNT(*) AS n FROM t "
    "GROUP BY window(ts, '5 minutes')) WHERE n > 1",
    "hours": "SELECT window(w, '1 hour').start AS hour, MAX(n) AS most FROM (SELECT window AS w, COUNT(*) AS n FROM t "
    "GROUP BY window(ts, '5 minutes')) GROUP BY window(w, '1 hour')",
    "rollup": "SELECT window.start, shop, COUNT(*) AS n FROM t GROUP BY ROLLUP (window(ts, '30 minutes'), shop)",
    "meeting": "SELECT x.n, y.n AS m FROM (SELECT window, COUNT(*) AS n FROM t GROUP BY window(ts, '5 minutes')) x "
    "JOIN (SELECT window, SUM(id) AS n FROM t GROUP BY window(ts, '5 minutes', '5 minutes')) y ON x.window = y.window",
    "pairs": "SELECT COUNT(*) AS n FROM (SELECT window(ts, '5 minutes') AS w FROM t WHERE shop = 'a') x "
    "JOIN (SELECT window(ts, '5 minutes') AS w FROM t WHERE shop = 'b') y ON x.w = y.w",
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_windows_are_sparks(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Without watermarks: any change at any time. Windows are aligned to UTC whatever the zone and its clock do."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", zone)
    rng, model, oracle, next_id = random.Random(3), Model(keyed=True), Oracle(own), 0
    with hr.Engine(own, tmp_path / "s", buckets=3, executor="inline") as engine:
        engine.table("t", DDL, key="id")
        for name, sql in QUERIES.items():
            engine.view(name, sql)
        for step in range(4):
            batch = batch_of(rng, model, 8 * step, next_id)
            next_id += len(batch)
            engine.apply({"t": table_of(batch)})
            model.watermark = None
            assert model.apply(batch) == 0
            if step % 2:
                oracle.set_rows({"t": model.to_arrow()})
                for name, sql in QUERIES.items():
                    assert_same(engine.views[name].to_arrow(), oracle.answer(sql))  # type: ignore[union-attr]


def test_a_strategy_may_be_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", buckets=2, executor="inline") as engine:
        engine.table("t", DDL, watermark=("ts", "10 minutes"))
        view = engine.view("v", BY_WINDOW, strategy="operators", final=True)
        engine.apply({"t": table_of([(1, START, "a", 1, 1), (2, START + timedelta(hours=1), "b", 2, 1)])})
        assert [row["n"] for row in view.finals().to_arrow().to_pylist()] == [1]
        with pytest.raises(UnsupportedSQLError, match="slides"):
            engine.view("f", BY_SLIDING, strategy="factorized")


def one_engine(spark: SparkSession, location: Path, **options: Any) -> hr.Engine:
    engine = hr.Engine(spark, location, buckets=2, executor="inline")
    engine.table("t", options.pop("ddl", DDL), watermark=("ts", "10 minutes"), **options)
    engine.view("v", BY_WINDOW, final=True)
    return engine


def at(minutes: float, id: int = 1, shop: str = "a", diff: int = 1) -> Row:
    return (id, START + timedelta(minutes=minutes), shop, 1, diff)


def test_the_state_shrinks_when_windows_close(spark: SparkSession, tmp_path: Path) -> None:
    with one_engine(spark, tmp_path / "s", keep_rows=False) as engine:
        rows = [(i, START + timedelta(seconds=i % 7000), str(i), i % 100, 1) for i in range(20_000)]
        before = engine.apply({"t": table_of(rows)}).state_bytes
        assert before > 100_000  # every value that MAX and DISTINCT need
        step = engine.apply({"t": table_of([at(600)])})
        assert step.closed == {"v": 2}  # all others were over in the first step
        assert step.state_bytes < 10_000
        view = engine.views["v"]
        assert isinstance(view, hr.View)
        assert view.rows == 13
        assert sum(row["n"] for row in view.to_arrow().to_pylist()) == 20_001
        engine.sync()
        assert {path.name for path in (engine.location / "runs").iterdir()} == engine._store.snapshot.files()


def test_final_rows_come_once(spark: SparkSession, tmp_path: Path) -> None:
    with one_engine(spark, tmp_path / "s") as engine:
        view = engine.views["v"]
        assert isinstance(view, hr.View)
        seen, got = 0, []
        for minutes in (0, 5, 12, 24, 31, 31, 90):
            step = engine.apply({"t": table_of([at(minutes)])})
            new = view.finals(since=seen).to_arrow()
            assert set(new.column("__step").to_pylist()) <= {step.number}
            assert step.closed == ({"v": new.num_rows} if new.num_rows else {})
            seen = step.number
            got += new.to_pylist()
        assert sorted(map(str, got)) == sorted(map(str, view.finals().to_arrow().to_pylist()))
        assert sorted(map(str, got)) == sorted(map(str, view.finals().to_df().toArrow().to_pylist()))
        assert [row["n"] for row in sorted(got, key=lambda row: row["start"])] == [2, 1, 1, 2]
        assert len(list(view.enumerate())) == view.rows == view.to_df().count() == 5
        assert "leave the state, and 4 groups have" in str(view.explain())


def test_final_rows_are_put_together_in_few_files(spark: SparkSession, tmp_path: Path) -> None:
    with one_engine(spark, tmp_path / "s", keep_rows=False) as engine:
        for i in range(60):
            engine.apply({"t": table_of([at(10 * i, shop=str(i))])})
        final = engine._store.snapshot.arrangements["final/v"]
        assert sum(state.live for state in final.values()) == 58
        assert sum(len(state.runs) for state in final.values()) <= 20
        found = engine.views["v"].finals().to_arrow()  # type: ignore[union-attr]
        steps = {row["last"]: row["__step"] for row in found.to_pylist()}
        assert steps == {str(i): i + 3 for i in range(58)}


def test_a_failed_commit_changes_nothing(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location, oracle, model = tmp_path / "s", Oracle(spark), Model(keyed=False)
    batches = [[at(0), at(3)], [at(25), at(14)], [at(2), at(40), at(60, shop="b")]]
    engine = one_engine(spark, location)
    for batch in batches[:2]:
        engine.apply({"t": table_of(batch)})
        model.apply(batch)
    finals: dict[str, list[Row]] = {}
    check(engine, model, oracle, finals)

    class Killed(BaseException):
        """As if the process had died when all files were written."""

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "append", kill)
        patched.setattr(engine._store, "roll_back", lambda: None)  # which a dead process would not do
        with pytest.raises(Killed):
            engine.apply({"t": table_of(batches[2])})
    engine.close()
    with hr.Engine(spark, location, executor="inline") as engine:
        check(engine, model, oracle, finals)
        engine.sync()
        assert {path.name for path in (location / "runs").iterdir()} == engine._store.snapshot.files()
        assert engine.apply({"t": table_of(batches[2])}).late == {"t": 1}
        model.apply(batches[2])
        check(engine, model, oracle, finals)
        engine.sync()
        assert {path.name for path in (location / "runs").iterdir()} == engine._store.snapshot.files()


def test_times_without_a_zone(spark: SparkSession, tmp_path: Path) -> None:
    def naive(minutes: float, diff: int = 1) -> Row:
        return (1, (START + timedelta(minutes=minutes)).replace(tzinfo=None), "a", 1, diff)

    ddl = DDL.replace("TIMESTAMP", "TIMESTAMP_NTZ")
    with one_engine(spark, tmp_path / "s", ddl=ddl) as engine:
        engine.apply({"t": table_of([naive(0), (2, None, "a", 1, 1)], ddl)})
        engine.apply({"t": table_of([naive(30)], ddl)})
        late = table_of([naive(19), naive(20)], ddl)
        assert engine.apply({"t": late}).late == {"t": 1}
        assert engine.apply({"t": spark.createDataFrame(late, spark_ddl(late.schema))}).late == {"t": 1}
        assert engine.tables["t"].watermark == (START + timedelta(minutes=20)).replace(tzinfo=None)
        assert engine.tables["t"].rows == 5
        assert [row["n"] for row in engine.views["v"].finals().to_arrow().to_pylist()] == [1]  # type: ignore[union-attr]


def test_bad_rows_do_not_move_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    with one_engine(spark, tmp_path / "s", key="id") as engine:
        engine.apply({"t": table_of([at(0)])})
        wrong = table_of([at(500, id=1), at(5, id=2)])  # the first has a key that is taken
        with pytest.raises(BadRowsError):
            engine.apply({"t": wrong})
        assert engine.apply({"t": wrong}, on_bad_rows="quarantine").quarantined == {"t": 1}
        assert engine.tables["t"].watermark == START + timedelta(minutes=5) - DELAY


def test_half_an_update_that_is_late_takes_the_other_half_with_it(spark: SparkSession, tmp_path: Path) -> None:
    with one_engine(spark, tmp_path / "s", key="id") as engine:
        engine.apply({"t": table_of([at(0, id=1), at(30, id=2)])})
        assert engine.tables["t"].watermark == START + timedelta(minutes=20)
        update = [at(0, id=1, diff=-1), at(31, id=1), at(30, id=2, diff=-1), at(1, id=2), at(32, id=3)]
        assert engine.apply({"t": table_of(update)}).late == {"t": 4}
        assert sorted(engine.tables["t"].to_arrow().column("id").to_pylist()) == [1, 2, 3]
        reasons = engine.late("t").column("__reason").to_pylist()
        own, partner = (
            f"{text}'ts' is before the watermark, 2024-03-10 06:20:00"
            for text in ("", "another change of this key is late: ")
        )
        assert sorted(reasons) == sorted([own, own, partner, partner])
        assert set(engine.late("t").column("__step").to_pylist()) == {2}
        engine.discard_late("t")
        assert engine.late("t").num_rows == 0
        engine.sync()
        assert not list((engine.location / "quarantine").iterdir())


def test_status_tells_of_watermarks_and_late_rows(spark: SparkSession, tmp_path: Path) -> None:
    with one_engine(spark, tmp_path / "s") as engine:
        (table,) = engine.status()["tables"]
        assert table["watermark"] == {"column": "ts", "delay": "10 minutes", "at": None}
        engine.apply({"t": table_of([at(30)])})
        step = engine.apply({"t": table_of([at(0), at(31)])})
        assert "1 late row of t set aside" in str(step)
        status = engine.status()
        assert status["late"] == {"t": 1}
        assert status["tables"][0]["watermark"]["at"] == "2024-03-10T06:21:00+00:00"
        engine.drop("v")
        engine.drop("t")
        assert engine.status()["late"] == {}
        assert engine._store.snapshot.watermarks == {}
        assert not engine._store.snapshot.files()


def test_final_views_need_windows_of_a_watermark(spark: SparkSession, tmp_path: Path) -> None:
    with one_engine(spark, tmp_path / "s") as engine:
        engine.table("u", DDL)
        refused = {
            "SELECT shop, COUNT(*) AS n FROM t GROUP BY shop": "does not group by a window of 'ts'",
            "SELECT COUNT(*) AS n FROM t": "does not group by a window",
            "SELECT window(ts, '1 hour').end AS e FROM t": "does not group by a window",
            f"{BY_WINDOW} LIMIT 3": "LIMIT",
            BY_WINDOW.replace("FROM t", "FROM u").replace("`t`", "`u`"): "table 'u' has none",
            "SELECT window.end, COUNT(*) AS n FROM t GROUP BY window(ts + INTERVAL 1 HOUR, '1 hour')": "does not group",
            "SELECT window.end, COUNT(*) AS n FROM (SELECT t.ts FROM t JOIN u USING (id)) GROUP BY window(ts, '1 day')":
            "not a grouping of the rows of one table",
        }  # fmt: skip
        for sql, why in refused.items():
            with pytest.raises(SchemaError) as caught:
                engine.view("x", sql, final=True)
            assert why in caught.value.what
            assert caught.value.way_out
        plain = engine.view("plain", BY_WINDOW)
        with pytest.raises(SchemaError, match="closes no windows"):
            plain.finals()
        assert engine.view("v", BY_WINDOW, final=True) is engine.views["v"]
        with pytest.raises(SchemaError, match="another definition"):
            engine.view("v", BY_WINDOW)
        start = engine.view(
            "start", "SELECT window(ts, '1 hour').start AS s, COUNT(*) AS n FROM t GROUP BY s", final=True
        )
        engine.apply({"t": table_of([at(0), at(71)])})
        assert start.finals().to_arrow().to_pylist() == [{"s": START, "n": 1, "__step": 1}]
        assert plain.to_arrow().num_rows == 2


@pytest.mark.parametrize("watermark", ["ts", ("ts",), ("shop", "1 hour"), ("no", "1 hour"), ("ts", "1 month"), 5])
def test_watermarks_of_nonsense_are_refused(spark: SparkSession, tmp_path: Path, watermark: Any) -> None:
    with hr.Engine(spark, tmp_path / "s", buckets=1, executor="inline") as engine:
        with pytest.raises(SchemaError) as caught:
            engine.table("t", DDL, watermark=watermark)
        assert caught.value.way_out


@pytest.mark.parametrize("kept", [True, False])
def test_append_only_tables_take_no_deletions(spark: SparkSession, tmp_path: Path, kept: bool) -> None:
    location = tmp_path / "s"
    with hr.Engine(spark, location, buckets=2, executor="inline") as engine:
        engine.table("t", DDL, append_only=True, keep_rows=kept)
        view = engine.view("v", "SELECT shop, COUNT(*) AS n FROM t GROUP BY shop")
        engine.apply({"t": table_of([at(0), at(1)])})
        delete = table_of([at(0, diff=-1), at(2)])
        with pytest.raises(BadRowsError, match="append-only"):
            engine.apply({"t": delete})
        assert engine.apply({"t": delete}, on_bad_rows="quarantine").quarantined == {"t": 1}
        assert view.to_arrow().to_pylist() == [{"shop": "a", "n": 3}]
        with pytest.raises(SchemaError, match="another definition"):
            engine.table("t", DDL, keep_rows=kept)
    with hr.Engine(spark, location, executor="inline") as engine:
        assert engine.tables["t"].schema.append_only
