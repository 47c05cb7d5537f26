"""Upserts, deletions by key, operations and whole tables through the front door, against a dictionary."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.seeds import seeds

import headrace as hr
from headrace.engine.step_runner import StepRunner
from headrace.errors import BadRowsError, SchemaError, StepFailedError
from headrace.relation.by_key import FROZEN, NO_DELETE, NO_UPDATE, SEVERAL, TIED, UNORDERED
from headrace.testing.oracle import spark_ddl

Rows = dict[int, tuple[str, int | None]]
DDL = "id BIGINT, name STRING NOT NULL, n BIGINT"
TYPES = {"id": pa.int64(), "name": pa.string(), "n": pa.int64(), "op": pa.string(), "at": pa.int64()}


def frame(rows: list[dict[str, Any]], *names: str) -> pa.Table:
    return pa.table({name: pa.array([row.get(name) for row in rows], TYPES[name]) for name in names})


def views(engine: hr.Engine) -> None:
    """A sum, a join with itself by way of another table, and the rows in an order."""
    engine.table("names", "name STRING, kind STRING", key="name")
    engine.view("sums", "SELECT name, COUNT(*) AS c, SUM(n) AS s, MIN(n) AS least FROM t GROUP BY name")
    engine.view("kinds", "SELECT t.id, t.n, names.kind FROM t JOIN names ON t.name = names.name")
    engine.view("first", "SELECT id, n FROM t ORDER BY n DESC NULLS LAST, id LIMIT 3")


def check(engine: hr.Engine, rows: Rows, kinds: dict[str, str]) -> None:
    answers = {
        name: [tuple(row.values()) for row in engine.views[name].to_arrow().to_pylist()]
        for name in ("sums", "kinds", "first")
    }
    table = {row["id"]: (row["name"], row["n"]) for row in engine.tables["t"].to_arrow().to_pylist()}
    assert table == rows
    sums = {}
    for name in {name for name, _ in rows.values()}:
        numbers = [n for own, n in rows.values() if own == name]
        there = [n for n in numbers if n is not None]
        sums[name] = (name, len(numbers), sum(there) if there else None, min(there, default=None))
    assert Counter(answers["sums"]) == Counter(sums.values())
    assert Counter(answers["kinds"]) == Counter((i, n, kinds[name]) for i, (name, n) in rows.items() if name in kinds)
    ordered = sorted(rows.items(), key=lambda row: (row[1][1] is None, -(row[1][1] or 0), row[0]))
    assert answers["first"] == [(i, n) for i, (_, n) in ordered[:3]]


class Replica:
    """The rows that the table should have, and what a step is given to bring it there."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: Rows = {}
        self.kinds: dict[str, str] = {}

    def row(self, key: int | None = None) -> dict[str, Any]:
        return {
            "id": self.rng.randrange(40) if key is None else key,
            "name": self.rng.choice(["a", "b", "c", ""]),
            "n": self.rng.choice([None, *range(20)]),
        }

    def step(self) -> tuple[dict[str, pa.Table], dict[str, Any]]:
        kind = self.rng.choice(["upsert", "upsert", "delete", "ignore", "ops", "lax ops", "ordered", "sync", "plain"])
        some = self.rng.sample(range(40), self.rng.choice([0, 1, 4, 25]))
        there = [key for key in some if key in self.rows]
        if kind == "upsert":
            rows = [self.row(key) for key in some]
            rows += [
                self._known(key) for key in self.rng.sample(sorted(self.rows), len(self.rows) // 3) if key not in some
            ]
            self._put(rows)
            return {"t": frame(rows, "n", "id", "name")}, {"mode": "upsert"}
        if kind == "delete":
            self._drop(there)
            return {"t": frame([{"id": key} for key in there], "id")}, {"mode": {"t": "delete"}}
        if kind == "ignore":
            self._drop(there)
            return {"t": frame([self.row(key) for key in some], "id", "name", "n")}, {
                "mode": "delete",
                "missing": "ignore",
            }
        if kind in ("ops", "lax ops", "ordered"):
            return {"t": self._operations(kind, some)}, self._how(kind)
        if kind == "sync":
            self._drop(there)
            self._put([self.row(key) for key in self.rng.sample(range(40), self.rng.choice([0, 2, 10]))])
            return {"t": frame([self._known(key) for key in self.rows], "id", "name", "n")}, {"mode": "sync"}
        new = [self.row(key) for key in some if key not in self.rows]
        self._put(new)
        kind_rows = [{"name": name, "kind": self.rng.choice("xyz")} for name in self.rng.sample("abc", 2)]
        self.kinds |= {row["name"]: row["kind"] for row in kind_rows}
        kinds = pa.table({k: [row[k] for row in kind_rows] for k in ("kind", "name")})
        return {"t": frame(new, "id", "name", "n"), "names": kinds}, {"mode": {"names": "upsert"}}

    def _how(self, kind: str) -> dict[str, Any]:
        if kind == "ordered":
            return {"op_column": {"t": "op"}, "order_by": "at", "mode": "upsert", "missing": "ignore"}
        return {"op_column": "op"} | ({"mode": "upsert", "missing": "ignore"} if kind == "lax ops" else {})

    def _operations(self, kind: str, keys: list[int]) -> pa.Table:
        if kind == "ordered":
            keys = keys + [self.rng.choice(keys) for _ in keys]
        times = self.rng.sample(range(1000), len(keys))
        rows = []
        for key in keys:
            is_there = key in self.rows
            strict = ["U", "update", "D", "Delete"] if is_there else ["i", "INSERT"]
            word = self.rng.choice(strict if kind == "ops" else ["I", "u", "d"])
            rows.append({**self.row(key), "op": word})
        for time, row in zip(sorted(times), rows, strict=True):
            row["at"] = time
            if row["op"].lower().startswith("d"):
                self.rows.pop(row["id"], None)
                row["name"] = None  # of a deletion only the key counts
            else:
                self._put([row])
        self.rng.shuffle(rows)
        return frame(rows, "op", "id", "name", "n", *(["at"] if kind == "ordered" else []))

    def _known(self, key: int) -> dict[str, Any]:
        name, n = self.rows[key]
        return {"id": key, "name": name, "n": n}

    def _put(self, rows: list[dict[str, Any]]) -> None:
        self.rows |= {row["id"]: (row["name"], row["n"]) for row in rows}

    def _drop(self, keys: list[int]) -> None:
        for key in keys:
            self.rows.pop(key, None)


@seeds("changes by key in an engine", 4, check=1)
def test_tables_and_views_follow_random_changes_by_key(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    replica = Replica(rng)
    engine = hr.Engine(spark, tmp_path, executor="inline", buckets=rng.choice([1, 3]))
    engine.table("t", DDL, key="id")
    views(engine)
    for number in range(25):
        before = dict(replica.rows)
        changes, how = replica.step()
        step = engine.apply(changes, **how)
        changed = {key for key in {*before, *replica.rows} if before.get(key) != replica.rows.get(key)}
        assert step.rows["t"] == sum((key in before) + (key in replica.rows) for key in changed)
        check(engine, replica.rows, replica.kinds)
        if number % 9 == 8:
            engine.close()
            engine = hr.Engine(spark, tmp_path, executor="inline")
    assert not engine.verify()
    engine.close()


START = frame([{"id": i, "name": "a", "n": i} for i in range(6)], "id", "name", "n")
EXECUTORS = [("inline", False), ("spark", True), ("auto", True)]
SOME = [("inline", False), ("spark", True)]


def opened(spark: SparkSession, location: Path, executor: str) -> hr.Engine:
    engine = hr.Engine(spark, location, executor=executor, buckets=3)
    engine.table("t", DDL, key="id")
    engine.view("sums", "SELECT name, COUNT(*) AS c, SUM(n) AS s FROM t GROUP BY name")
    engine.apply({"t": START})
    return engine


def as_given(spark: SparkSession, rows: pa.Table, is_frame: bool) -> Any:
    return spark.createDataFrame(rows, spark_ddl(rows.schema)).repartition(2) if is_frame else rows


def rows_of(engine: hr.Engine) -> Rows:
    return {row["id"]: (row["name"], row["n"]) for row in engine.tables["t"].to_arrow().to_pylist()}


@pytest.mark.parametrize(("executor", "is_frame"), EXECUTORS)
def test_executors_resolve_alike(spark: SparkSession, tmp_path: Path, executor: str, is_frame: bool) -> None:
    with opened(spark, tmp_path, executor) as engine:
        new = frame([{"id": 1, "name": "b", "n": 7}, {"id": 2, "name": "a", "n": 2}, {"id": 9, "name": "b"}], *TYPES)
        step = engine.apply({"t": as_given(spark, new.select(["n", "id", "name"]), is_frame)}, mode="upsert")
        assert step.rows == {"t": 3}
        assert step.ran == ("job" if executor == "spark" else "driver")
        keys = frame([{"id": 0}, {"id": 9}, {"id": 77}], "id")
        step = engine.apply({"t": as_given(spark, keys, is_frame)}, mode="delete", missing="ignore")
        assert step.rows == {"t": 2}
        assert rows_of(engine) == {1: ("b", 7), 2: ("a", 2), 3: ("a", 3), 4: ("a", 4), 5: ("a", 5)}
        ops = frame(
            [
                {"id": 1, "name": "c", "n": 1, "op": "u", "at": 4},
                {"id": 1, "op": "D", "at": 5},
                {"id": 0, "name": "c", "n": 2, "op": "insert", "at": 4},
            ],
            *TYPES,
        )
        step = engine.apply({"t": as_given(spark, ops, is_frame)}, op_column="op", order_by={"t": "at"})
        assert step.rows == {"t": 2}
        whole = frame([{"id": 0, "name": "c", "n": 2}, {"id": 2, "name": "d", "n": 2}], "id", "name", "n")
        step = engine.apply({"t": as_given(spark, whole, is_frame)}, mode="sync")
        assert step.rows == {"t": 5}
        assert rows_of(engine) == {0: ("c", 2), 2: ("d", 2)}
        same = engine.apply({"t": as_given(spark, whole, is_frame)}, mode="upsert")
        assert same.rows == {"t": 0}
        assert not engine.views["sums"].changes().num_rows
        nothing = frame([], "id", "name", "n")
        assert engine.apply({"t": as_given(spark, nothing, is_frame)}, mode="sync").rows == {"t": 2}
        assert not rows_of(engine)
        assert not engine.views["sums"].to_arrow().num_rows
        assert not engine.verify()
        engine.sync()
        assert not list((engine.location / "batches").iterdir())


def test_tasks_resolve_a_large_batch_of_the_driver_from_a_file(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path, "spark") as engine:
        new = frame([{"id": 1, "name": "b", "n": 7}, {"id": 9, "name": "b"}], "id", "name", "n")
        step = engine.apply({"t": new}, mode="upsert")
        assert (step.ran, step.rows) == ("job", {"t": 3})
        assert rows_of(engine) == {i: ("a", i) for i in range(6)} | {1: ("b", 7), 9: ("b", None)}


BAD = [
    {"id": 1, "name": "b", "n": 1, "op": "I"},  # is there
    {"id": 2, "name": None, "n": 1, "op": "U"},  # NULL where none may be
    {"id": 3, "name": "b", "n": 8, "op": "X"},
    {"id": 70, "op": "D"},
    {"id": 71, "name": "b", "n": 1, "op": "U"},
    {"id": None, "op": "D"},
    {"id": 4, "name": "b", "n": 8, "op": "U"},  # twice
    {"id": 4, "op": "D"},
    {"id": 5, "name": "b", "n": 50, "op": "U"},  # good
    {"id": 60, "name": "b", "n": 60, "op": "i"},  # good
]


@pytest.mark.parametrize(("executor", "is_frame"), SOME)
def test_bad_rows_end_the_step_or_are_set_aside(
    spark: SparkSession, tmp_path: Path, executor: str, is_frame: bool
) -> None:
    with opened(spark, tmp_path, executor) as engine:
        given = as_given(spark, frame(BAD, "id", "name", "n", "op"), is_frame)
        before = engine.step
        with pytest.raises(BadRowsError, match=r"table 't': 8 bad rows in the change batch; nothing was applied"):
            engine.apply({"t": given}, op_column="op")
        assert engine.step == before
        step = engine.apply({"t": given}, op_column="op", on_bad_rows="quarantine")
        assert (step.quarantined, step.rows) == ({"t": 8}, {"t": 3})
        expected = {i: ("a", i) for i in range(5)} | {5: ("b", 50), 60: ("b", 60)}
        assert rows_of(engine) == expected
        aside = engine.quarantine("t").to_pylist()
        assert Counter((row["id"], row["__diff"]) for row in aside) == Counter(
            [(1, 1), (2, 1), (3, 1), (70, -1), (71, 1), (None, -1), (4, 1), (4, -1)]
        )
        assert {row["__reason"].partition(":")[0] for row in aside} == {
            "duplicate key",
            "NULL in NOT NULL column 'name'",
            "NULL in key column 'id'",
            "its operation 'X' is not known",
            NO_DELETE.partition(":")[0],
            NO_UPDATE.partition(":")[0],
            SEVERAL,
        }


@pytest.mark.parametrize(("executor", "is_frame", "mode"), [("spark", True, "upsert"), ("inline", False, "sync")])
def test_a_row_that_a_view_refuses_leaves_the_one_that_it_would_replace(
    spark: SparkSession, tmp_path: Path, executor: str, is_frame: bool, mode: str
) -> None:
    with hr.Engine(spark, tmp_path, executor=executor, buckets=3, on_bad_rows="quarantine") as engine:
        engine.table("t", "id BIGINT, name STRING, x DOUBLE", key="id")
        view = engine.view("v", "SELECT name, SUM(x) AS s FROM t GROUP BY name")
        engine.apply({"t": pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]})})
        new = pa.table({"id": [1, 2, 3], "name": ["d", "e", "c"], "x": [float("inf"), 5.0, 3.0]})
        step = engine.apply({"t": as_given(spark, new, is_frame)}, mode=mode)
        assert (step.quarantined, step.rows) == ({"t": 1}, {"t": 2})
        assert engine.quarantine("t").column("id").to_pylist() == [1]
        assert {tuple(row.values()) for row in view.to_arrow().to_pylist()} == {("a", 1.0), ("e", 5.0), ("c", 3.0)}
        assert {row["id"]: row["name"] for row in engine.tables["t"].to_arrow().to_pylist()} == {1: "a", 2: "e", 3: "c"}


def test_a_table_without_a_key_can_be_synced_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=3) as engine:
        engine.table("bag", "x BIGINT, y STRING")
        engine.table("log", "x BIGINT", keep_rows=False)
        engine.apply({"bag": pa.table({"x": [1, 1, 2], "y": ["a", "a", None]})})
        step = engine.apply({"bag": pa.table({"x": [1, 2, 2, 3], "y": ["a", None, None, "b"]})}, mode="sync")
        assert step.rows == {"bag": 3}
        rows = Counter(map(str, engine.tables["bag"].to_arrow().to_pylist()))
        assert rows == Counter(["{'x': 1, 'y': 'a'}", *["{'x': 2, 'y': None}"] * 2, "{'x': 3, 'y': 'b'}"])
        for how in ({"mode": "upsert"}, {"mode": "delete"}, {"op_column": "y"}):
            with pytest.raises(SchemaError, match=r"table 'bag' has no key, and .*\n  -> make the table with key="):
                engine.apply({"bag": pa.table({"x": [1], "y": ["a"]})}, **how)
        with pytest.raises(SchemaError, match=r"table 'log' keeps no rows, so mode='sync' finds none"):
            engine.apply({"log": pa.table({"x": [1]})}, mode="sync")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"mode": "merge"}, r"table 't': mode='merge' is not known\n  -> use one of 'changes', 'upsert'"),
        ({"mode": {"u": "upsert"}}, r"mode names 'u', and the step changes t"),
        ({"mode": 1}, r"mode=1 is neither a text nor"),
        ({"mode": "delete", "missing": "skip"}, r"missing='skip' is not known"),
        ({"mode": "sync", "op_column": "op"}, r"mode='sync' says what all rows are, and op_column='op'"),
        ({"mode": "delete", "order_by": "op"}, r"order_by='op' orders several changes of one key"),
        ({"op_column": "kind"}, r"op_column='kind' is not among the columns 'id', 'name', 'n', 'op'"),
        ({"mode": "upsert"}, r"not in the table: 'op'"),
        ({}, r"not in the table: 'op'"),
    ],
)
@pytest.mark.parametrize("is_frame", [False, True])
def test_what_a_mode_cannot_be_is_refused(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any], message: str, is_frame: bool
) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=1) as engine:
        engine.table("t", DDL, key="id")
        given = as_given(spark, frame(BAD[:1], "id", "name", "n", "op"), is_frame)
        with pytest.raises((SchemaError, BadRowsError), match=message):
            engine.apply({"t": given}, **how)
        given = as_given(spark, frame(BAD[:1], "id", "name", "n"), is_frame)
        with pytest.raises(BadRowsError, match=r"op_column='n' is (int64|bigint)\n  -> give texts: I, U and D"):
            engine.apply({"t": given}, op_column="n")
        with pytest.raises(BadRowsError, match=r"with mode='upsert' there is no column '__diff'"):
            engine.apply({"t": pa.table({"id": [1], "__diff": [1]})}, mode="upsert")


def test_several_changes_of_a_key_need_an_order_that_tells_the_last(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path, "inline") as engine:
        twice = frame([{"id": 1, "name": "b", "at": 3}, {"id": 1, "name": "c", "at": 2}], "id", "name", "n", "at")
        with pytest.raises(BadRowsError, match=SEVERAL):
            engine.apply({"t": twice.drop_columns(["at"])}, mode="upsert")
        assert engine.apply({"t": twice}, mode="upsert", order_by="at").rows == {"t": 2}
        assert rows_of(engine)[1] == ("b", None)
        tied = frame([{"id": 1, "name": "b", "at": 3}, {"id": 1, "name": "c", "at": 3}], "id", "name", "n", "at")
        with pytest.raises(BadRowsError, match=TIED):
            engine.apply({"t": tied}, mode="upsert", order_by="at")


@pytest.mark.parametrize(
    ("places", "first"),
    [
        (pa.array(["b", "a"]), "b"),
        (pa.array(["b", "a"]).dictionary_encode(), "b"),
        (pa.array([date(2024, 1, 1), date(2024, 1, 2)]), "c"),
        (pa.array([Decimal("0.5"), Decimal("-7.5")]), "b"),
        (pa.array([-0.5, 2.0]), "c"),
        (pa.nulls(2), None),
    ],
)
def test_any_type_orders_changes(spark: SparkSession, tmp_path: Path, places: pa.Array, first: str | None) -> None:
    with opened(spark, tmp_path, "inline") as engine:
        given = frame([{"id": 1, "name": "b"}, {"id": 1, "name": "c"}], "id", "name", "n").append_column("at", places)
        step = engine.apply({"t": given}, mode="upsert", order_by="AT", on_bad_rows="quarantine")
        assert rows_of(engine)[1] == (first or "a", None if first else 1)
        assert step.quarantined == ({} if first else {"t": 2})
        if first is None:
            assert set(engine.quarantine("t").column("__reason").to_pylist()) == {UNORDERED}
        listed = given.set_column(3, "at", pa.array([[1], [2]]))
        with pytest.raises(BadRowsError, match=r"order_by='at' is list<item: int64>, which has no order here"):
            engine.apply({"t": listed}, mode="upsert", order_by="at")


def test_a_row_that_breaks_a_dependency_leaves_the_one_that_it_would_replace(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=3, on_bad_rows="quarantine") as engine:
        engine.table("t", "id BIGINT, zip BIGINT, city STRING", key="id", fds={"zip": ["city"]})
        engine.apply({"t": pa.table({"id": [1, 2, 3], "zip": [7, 7, 8], "city": ["a", "a", "b"]})})
        new = pa.table({"id": [1, 3], "zip": [7, 9], "city": ["c", "d"]})
        step = engine.apply({"t": new}, mode="upsert")
        assert (step.quarantined, step.rows) == ({"t": 1}, {"t": 2})
        rows = {row["id"]: (row["zip"], row["city"]) for row in engine.tables["t"].to_arrow().to_pylist()}
        assert rows == {1: (7, "a"), 2: (7, "a"), 3: (9, "d")}


def test_an_upsert_of_a_late_row_is_late_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    times = pa.array([0, 3600, 7200], pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC"))
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        engine.table("t", "id BIGINT, ts TIMESTAMP", key="id", watermark=("ts", "1 minute"))
        engine.apply({"t": pa.table({"id": [1, 2, 3], "ts": times})})
        step = engine.apply({"t": pa.table({"id": [1, 3], "ts": times.take([2, 2])})}, mode="upsert")
        assert (step.late, step.rows) == ({"t": 2}, {"t": 0})
        assert engine.tables["t"].to_arrow().num_rows == 3


def test_an_append_only_table_takes_new_keys(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=2) as engine:
        engine.table("t", DDL, key="id", append_only=True)
        engine.apply({"t": START}, mode="upsert")
        assert engine.apply({"t": START}, mode="upsert").rows == {"t": 0}
        with pytest.raises(BadRowsError, match=FROZEN):
            engine.apply({"t": frame([{"id": 1, "name": "z"}], "id", "name", "n")}, mode="upsert")


def test_only_the_keys_are_looked_for_in_the_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.relation import table

    found: list[int] = []
    live = table.live_rows

    def counted(*given: Any) -> Any:
        rows = live(*given)
        found.append(len(rows._entries))
        return rows

    with hr.Engine(spark, tmp_path, executor="inline", buckets=3) as engine:
        engine.table("t", DDL, key="id")
        many = 50_000
        engine.apply({"t": pa.table({"id": range(many), "name": ["a"] * many, "n": range(many)})})
        monkeypatch.setattr("headrace.relation.by_key.live_rows", counted)
        engine.apply({"t": frame([{"id": i, "name": "b"} for i in (3, many, 777)], "id", "name", "n")}, mode="upsert")
    assert sum(found) == 2


def test_a_step_that_fails_after_resolving_leaves_no_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(spark, tmp_path, "spark") as engine:
        new = as_given(spark, frame([{"id": 1, "name": "b"}], "id", "name", "n"), True)

        def fail(*_: Any) -> None:
            raise OSError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(StepRunner, "run", fail)
            with pytest.raises(OSError, match="the disk is gone"):
                engine.apply({"t": new}, mode="upsert")
        assert not list((engine.location / "batches").iterdir())
        assert rows_of(engine)[1] == ("a", 1)
        assert engine.apply({"t": new}, mode="upsert").rows == {"t": 2}


def test_a_spark_frame_is_taken_where_no_value_changes(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path, executor="inline", buckets=1) as engine:
        engine.table("t", "id INT, day DATE, n BIGINT, x FLOAT", key="id")
        good = "SELECT 1.0D AS ID, TIMESTAMP'2024-05-01 00:00:00' AS Day, 7.00BD AS n, 0.5D AS x, 1.0D AS __diff"
        engine.apply({"t": spark.sql(good)})
        changed = spark.sql("SELECT 1L AS ID, NULL AS n, TIMESTAMP_NTZ'2024-05-02 00:00:00' AS day, DOUBLE('NaN') AS x")
        engine.apply({"t": changed}, mode="upsert")
        assert str(engine.tables["t"].to_arrow().to_pylist()) == str(
            [{"id": 1, "day": date(2024, 5, 2), "n": None, "x": float("nan")}]
        )
        for values, message in (
            (
                "1.5D AS id, DATE'2024-05-01' AS day, 1 AS n",
                r"column 'id': the value 1.5 does not fit INT \(from double",
            ),
            (
                "3000000000 AS id, DATE'2024-05-01' AS day, 1 AS n",
                r"'id': the value 3000000000 does not fit INT \(from b",
            ),
            (
                "1 AS id, TIMESTAMP'2024-05-01 00:00:01' AS day, 1 AS n",
                r"'day': the value 2024-05-01 00:00:01 does not",
            ),
            (
                "1 AS id, NULL AS day, 1.5BD AS n",
                r"column 'n': the value 1.5 does not fit BIGINT \(from decimal\(2,1\)",
            ),
            ("1 AS id, NULL AS day, 1 AS n, 2.5D AS __diff", r"column '__diff': the value 2.5 does not fit BIGINT"),
        ):
            with pytest.raises(StepFailedError, match=message):
                engine.apply({"t": spark.sql(f"SELECT {values}, 0.1F AS x")})
        with pytest.raises(
            StepFailedError, match=r"column 'x': the value 0.1 does not fit FLOAT \(from double to FLOAT"
        ):
            engine.apply({"t": spark.sql("SELECT 5 AS id, NULL AS day, 1 AS n, 0.1D AS x")})
