"""Views with goals: they wait, they are brought up to date by their triggers, and their readers see no mixture."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.seeds import seeds

import headrace as hr
from headrace.errors import BadRowsError, SchemaError, StepFailedError, StorageError
from headrace.runtime import stages
from headrace.runtime.jvm import java_cpu
from headrace.testing.oracle import assert_same

ORDERS = "id BIGINT, shop BIGINT, price DOUBLE, units BIGINT"
SHOPS = "shop BIGINT, city STRING"
BY_CITY = "SELECT city, COUNT(*) AS n, SUM(units) AS units, MIN(units) AS least FROM orders JOIN shops USING (shop) "
BY_CITY += "GROUP BY city"
NEVER = {"goal": hr.Manual()}


def orders(ids: list[int], sign: int = 1, **other: list[Any]) -> dict[str, pa.Table]:
    columns = {"id": ids, "shop": [i % 3 for i in ids], "price": [float(i) for i in ids], "units": [i % 5 for i in ids]}
    return {"orders": pa.table({**columns, **other, "__diff": [sign] * len(ids)})}


def changed(come: list[int], gone: list[int]) -> dict[str, pa.Table]:
    inserted, deleted = orders(come)["orders"], orders(gone, -1)["orders"]
    return {"orders": pa.concat_tables([inserted, deleted.cast(inserted.schema)])}


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Any:
    with opened(spark, tmp_path / "state") as found:
        yield found


def opened(spark: SparkSession, location: Path, **options: Any) -> hr.Engine:
    engine = hr.Engine(spark, location, **({"buckets": 3} if not location.exists() else {}), **options)
    if not engine.tables:
        engine.table("orders", ORDERS, key="id")
        engine.table("shops", SHOPS, key="shop")
        engine.apply({"shops": pa.table({"shop": [0, 1, 2], "city": ["Rome", "Oslo", "Rome"]})})
    return engine


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


# -- what readers see ---------------------------------------------------------------------------------------------


@pytest.mark.check
def test_a_view_waits_for_refresh_and_tells_what_it_changed(engine: hr.Engine) -> None:
    view, eager = engine.view("v", BY_CITY, **NEVER), engine.view("e", BY_CITY)
    engine.apply(orders([1, 2, 3]))
    engine.apply(orders([4, 5]))
    assert view.to_arrow().num_rows == 0
    assert view.changes().num_rows == 0
    assert view.lag > timedelta(0)
    assert (view.as_of, engine.step) == (1, 3)
    step = view.refresh()
    assert (step.number, step.rows) == (4, {})
    assert_same(view.to_arrow(), eager.to_arrow())
    assert view.changes().num_rows == 2
    assert (view.lag, view.as_of) == (timedelta(0), 4)
    engine.apply(orders([6]))
    assert view.changes().num_rows == 2, "they are those of the last trigger"
    engine.refresh()
    assert_same(view.to_arrow(), eager.to_arrow())
    assert_same(view.to_df().toArrow(), eager.to_df().toArrow())


def test_rows_that_come_and_leave_between_triggers_change_nothing(engine: hr.Engine) -> None:
    view = engine.view("v", BY_CITY, **NEVER)
    engine.apply(orders([1, 2]))
    view.refresh()
    engine.apply(orders([7, 8]))
    engine.apply(orders([7, 8], -1))
    view.refresh()
    assert view.changes().num_rows == 0


def test_a_least_value_follows_although_sums_stay(engine: hr.Engine) -> None:
    """The count and the sum of the group are what they were; only an entry that is zero says that it was touched."""
    view = engine.view("v", "SELECT shop, MIN(price) AS low FROM orders GROUP BY shop", **NEVER)
    engine.apply(orders([3], price=[7.0]))
    view.refresh()
    for i in range(20):  # enough of them to be merged while they wait
        engine.apply(orders([10 + i], shop=[0], price=[1.0 - i]))
        engine.apply(orders([3] if i == 0 else [9 + i], -1, shop=[0], price=[7.0 if i == 0 else 2.0 - i]))
    view.refresh()
    assert view.to_arrow().to_pylist() == [{"shop": 0, "low": -18.0}]


def test_answers_that_moved_ahead_are_not_seen_until_the_trigger(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "state") as engine:
        view = engine.view("v", BY_CITY, goal=hr.FinalWork(0.5), trigger=hr.OnRefresh(), strategy="operators")
        total = engine.view("t", "SELECT COUNT(*) AS n FROM orders", goal=hr.FinalWork(0.5), trigger=hr.OnRefresh())
        for name in ("v", "t"):
            paths = engine.views[name].planned.kernel.holds
            engine._maintenance.goals.set_paces(name, dict.fromkeys(paths, 10), 10)
        for i in range(6):
            engine.apply(orders([i]))
            assert view.to_arrow().num_rows == 0
            assert total.to_arrow().to_pylist() == [{"n": 0}]
            assert total.rows == 1
    with opened(spark, tmp_path / "state") as engine:
        view, total = engine.views["v"], engine.views["t"]
        assert view.to_arrow().num_rows == 0
        engine.refresh()
        assert total.to_arrow().to_pylist() == [{"n": 6}]
        assert total.changes().to_pylist() == [{"n": 0, "__diff": -1}, {"n": 6, "__diff": 1}]
        assert sum(view.to_pandas()["n"]) == 6
        assert not engine._store.snapshot.shown
        assert not engine._store.snapshot.unshown


def test_the_jvm_counts_where_spark_does_the_work(spark: SparkSession, engine: hr.Engine) -> None:
    view = engine.view("v", BY_CITY, refresh="full", goal=hr.Manual())
    before = java_cpu(spark)
    for i in range(4):
        engine.apply(orders([i]))
        view.refresh()
    took = java_cpu(spark) - before
    assert view.progress.cpu >= 0.5 * took > 0


def test_a_step_counts_what_readers_see(engine: hr.Engine) -> None:
    """Flushes before the trigger change nothing for readers; at the trigger, their net change is counted."""
    goal: dict[str, Any] = {"goal": hr.FinalWork(0.5), "trigger": hr.OnRefresh()}
    views = [
        engine.view("groups", "SELECT shop, COUNT(*) AS n, MIN(price) AS low FROM orders GROUP BY shop", **goal),
        engine.view("total", "SELECT COUNT(*) AS n FROM orders", **goal),
        engine.view("bag", "SELECT shop, price FROM orders", **goal),
    ]
    engine.apply(orders([1, 2], shop=[1, 1], price=[4.0, 6.0]))
    assert {name: str(change) for name, change in engine.refresh().views.items()} == {
        "groups": "+1 -0 ~0",
        "total": "+0 -0 ~1",
        "bag": "+2 -0 ~0",
    }
    for view in views:
        engine._maintenance.goals.set_paces(view.name, dict.fromkeys(view.planned.kernel.holds, 10), 10)
    steps = [
        engine.apply(orders([3], shop=[2], price=[5.0])),  # comes, and goes again
        engine.apply(orders([4], shop=[1], price=[3.0])),
        engine.apply(orders([3], -1, shop=[2], price=[5.0])),
        engine.apply(orders([5], shop=[3], price=[5.0])),
    ]
    assert all(step.views == {} for step in steps)
    assert all(engine._store.snapshot.unshown[view.name] for view in views)
    assert {name: str(change) for name, change in engine.refresh().views.items()} == {
        "groups": "+1 -0 ~1",
        "total": "+0 -0 ~1",
        "bag": "+2 -0 ~0",
    }


# -- every way to keep a view --------------------------------------------------------------------------------------

WAYS: dict[str, Callable[..., Any]] = {
    "operators": lambda e, n, **goal: e.view(n, BY_CITY, strategy="operators", **goal),
    "factorized": lambda e, n, **goal: e.view(
        n, BY_CITY.replace(", MIN(units) AS least", ""), strategy="factorized", **goal
    ),
    "foreign key": lambda e, n, **goal: e.view(
        n, "SELECT city, SUM(units) AS u FROM orders o JOIN shops s ON o.shop = s.shop GROUP BY city", **goal
    ),
    "one table": lambda e, n, **goal: e.view(n, "SELECT shop, AVG(price) AS p FROM orders GROUP BY shop", **goal),
    "recomputed": lambda e, n, **goal: e.view(n, BY_CITY, refresh="full", **goal),
    "covariance": lambda e, n, **goal: e.covariance(
        n, "SELECT price, units FROM orders JOIN shops USING (shop)", **goal
    ),
    "model": lambda e, n, **goal: e.model(
        n, hr.LinearRegression(label="units"), "SELECT price, units FROM orders", **goal
    ),
}


def answer(view: Any) -> pa.Table:
    if isinstance(view, hr.Model):
        return pa.table({"predicted": [round(float(p), 6) for p in view.predict(pa.table({"price": [0.0, 1.0, 9.0]}))]})
    return view.to_arrow()


@pytest.mark.parametrize("way", WAYS)
@seeds("goals by strategy", 2)
def test_every_strategy_waits_and_equals_an_eager_view(
    spark: SparkSession, tmp_path: Path, way: str, seed: int
) -> None:
    rng, there = random.Random(seed), list[int]()
    goals = [{"goal": hr.Manual()}, {"goal": hr.FinalWork(1.0), "trigger": hr.EveryRows(rng.randint(3, 30))}]
    with opened(spark, tmp_path / "state") as engine:
        WAYS[way](engine, "eager")
        WAYS[way](engine, "late", **rng.choice(goals))
    for _ in range(3):
        with opened(spark, tmp_path / "state") as engine:
            for _ in range(3):
                gone = rng.sample(there, rng.randint(0, len(there) // 2))
                come = [max(there, default=0) + 1 + i for i in range(rng.randint(1, 12))]
                there = [i for i in there if i not in gone] + come
                engine.apply(changed(come, gone))
            engine.refresh("late")
            one, other = answer(engine.views["late"]), answer(engine.views["eager"])
            assert_same(one, other)


@seeds("goals by jobs", 2)
def test_a_flush_by_tasks_equals_one_in_the_driver(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "TASK_ROWS", 1)
    rng = random.Random(seed)
    with opened(spark, tmp_path / "state", executor="spark") as engine:
        view = engine.view("v", BY_CITY, strategy="operators", goal=hr.FinalWork(0.5), trigger=hr.OnRefresh())
        eager = engine.view("e", BY_CITY)
        engine._maintenance.goals.set_paces("v", dict.fromkeys(view.planned.kernel.holds, 3), 30)
        for i in range(3):
            engine.apply(orders(list(range(10 * i, 10 * i + rng.randint(5, 10)))))
        view.refresh()
        assert_same(view.to_arrow(), eager.to_arrow())


def test_a_stream_whose_rows_are_not_kept_can_wait(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state") as engine:
        engine.table("t", "a BIGINT", keep_rows=False)
        view = engine.view("v", "SELECT a, COUNT(*) AS n FROM t GROUP BY a", **NEVER)
        engine.apply({"t": pa.table({"a": [1, 1, 2]})})
        view.refresh()
        assert sorted(row["n"] for row in view.to_arrow().to_pylist()) == [1, 2]


# -- triggers -----------------------------------------------------------------------------------------------------


def test_a_trigger_by_rows_fires_in_the_step_that_completes_its_data(engine: hr.Engine) -> None:
    view = engine.view("v", "SELECT COUNT(*) AS n FROM orders", goal=hr.FinalWork(1.0), trigger=hr.EveryRows(5))
    seen = []
    for ids in ([1, 2], [3, 4], [5, 6], [7], [8, 9, 10], [11]):
        engine.apply(orders(ids))
        seen.append(view.to_arrow().to_pylist()[0]["n"])
    assert seen == [0, 0, 6, 6, 6, 11]
    assert engine.status()["views"][0]["triggers"] == 2


@pytest.mark.check
def test_a_target_lag_is_kept_by_the_scheduler(engine: hr.Engine) -> None:
    view = engine.view("v", BY_CITY, goal=hr.TargetLag("300 ms"))
    engine.apply(orders([1, 2, 3]))
    assert view.to_arrow().num_rows == 0
    until(lambda: view.lag == timedelta(0))
    assert sum(view.to_pandas()["n"]) == 3
    (found,) = engine.status()["views"]
    assert found["goal"] == "TARGET LAG '300 milliseconds'"
    assert found["met"] + found["missed"] == found["triggers"] == 1


def test_a_period_fires_with_the_clock(engine: hr.Engine) -> None:
    view = engine.view("v", BY_CITY, goal=hr.TargetLag("1 s"), trigger=hr.Every("200 ms"))
    for i in range(3):
        engine.apply(orders([i]))
        until(lambda: view.lag == timedelta(0))
    assert sum(view.to_pandas()["n"]) == 3


def test_a_budget_is_spent_and_earned_again(engine: hr.Engine) -> None:
    view = engine.view("v", BY_CITY, goal=hr.Budget("1 cpu second per 2 seconds"))
    for i in range(3):
        engine.apply(orders([i]))
        until(lambda: view.lag == timedelta(0))
    assert sum(view.to_pandas()["n"]) == 3
    assert engine.status()["views"][0]["cpu_seconds"] > 0


def test_a_deadline_that_passed_while_nobody_was_there_fires_on_opening(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "state") as engine:
        engine.view("v", BY_CITY, goal=hr.TargetLag("2 s"))
        engine.apply(orders([1, 2]))
        assert engine.views["v"].lag > timedelta(0)
    time.sleep(2)
    with opened(spark, tmp_path / "state", read_only=True) as reader:
        assert reader.views["v"].to_arrow().num_rows == 0
    with opened(spark, tmp_path / "state") as engine:
        until(lambda: engine.views["v"].lag == timedelta(0))
        assert sum(engine.views["v"].to_pandas()["n"]) == 2
        assert engine.status()["views"][0]["missed"] == 1


def test_a_step_without_rows_leaves_the_changes_of_other_views(engine: hr.Engine) -> None:
    eager, late = engine.view("e", BY_CITY), engine.view("v", BY_CITY, **NEVER)
    engine.apply(orders([1, 2]))
    before = eager.changes()
    late.refresh()
    assert before.num_rows == 2
    assert_same(eager.changes(), before)
    late.refresh()
    assert late.changes().num_rows == 2, "nothing waited, so nothing was fired"
    assert late.progress.triggers == 1


def test_views_may_come_and_go_while_the_scheduler_looks(engine: hr.Engine) -> None:
    view = engine.view("v", BY_CITY, goal=hr.TargetLag("50 ms"))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for i in range(8):
            engine.apply(orders([i]))
            engine.view(f"other_{i}", "SELECT COUNT(*) AS n FROM orders", **NEVER)
            engine.drop(f"other_{i}")
    finally:
        sys.setswitchinterval(before)
    until(lambda: view.lag == timedelta(0))
    assert "scheduler" not in engine.status()


def test_the_scheduler_ends_with_its_engine(spark: SparkSession, tmp_path: Path) -> None:
    engine = opened(spark, tmp_path / "state")
    engine.view("v", BY_CITY, goal=hr.TargetLag("1 hour"))
    engine.apply(orders([1]))
    thread = engine._scheduler._thread
    assert thread is not None
    assert thread.is_alive()
    engine.close()
    assert not thread.is_alive()


def test_what_the_scheduler_meets_is_seen(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise StorageError("the disk is full", way_out="make room")

    view = engine.view("v", BY_CITY, goal=hr.TargetLag("100 ms"))
    with monkeypatch.context() as patch:
        patch.setattr(engine._maintenance, "fire", broken)
        engine.apply(orders([1]))
        until(lambda: "scheduler" in engine.status())
        with pytest.raises(StorageError, match="the disk is full"):
            engine.stop()
    until(lambda: view.lag == timedelta(0))
    assert "scheduler" not in engine.status()


def test_windows_of_time_close_at_their_triggers(spark: SparkSession, tmp_path: Path) -> None:
    start = datetime(2024, 5, 1, tzinfo=UTC)

    def rows(*minutes: int) -> dict[str, pa.Table]:
        return {
            "t": pa.table({"ts": pa.array([start + timedelta(minutes=m) for m in minutes], pa.timestamp("us", "UTC"))})
        }

    sql = "SELECT window(ts, '10 minutes').start AS start, COUNT(*) AS n FROM t GROUP BY window(ts, '10 minutes')"
    with hr.Engine(spark, tmp_path / "state") as engine:
        engine.table("t", "ts TIMESTAMP", watermark=("ts", "5 minutes"))
        view = engine.view("v", sql, final=True, goal=hr.FinalWork(1.0), trigger=hr.AtWindowEnd())
        open_ = engine.view("o", sql, goal=hr.TargetLag("1 s"), trigger=hr.AtWindowEnd())
        engine.apply(rows(6, 7))  # the first watermark: windows before it may be over
        engine.apply(rows(8, 14))  # the watermark is at minute 9
        assert [row["n"] for each in (view, open_) for row in each.to_arrow().to_pylist()] == [2, 2]
        step = engine.apply(rows(16))  # it is at minute 11: the first window is over
        assert step.closed == {"v": 1}
        assert [row["n"] for row in view.finals().to_arrow().to_pylist()] == [3]
        assert sorted(row["n"] for row in view.to_arrow().to_pylist()) == [2, 3]
        assert_same(view.to_arrow(), open_.to_arrow())


def test_available_now_completes_the_data(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    spark.createDataFrame([(1, 0, 1.0, 2), (2, 1, 1.0, 3)], ORDERS).write.parquet(str(folder))
    with opened(spark, tmp_path / "state") as engine:
        by_hand = engine.view("m", BY_CITY, **NEVER)
        by_rows = engine.view("r", BY_CITY, goal=hr.FinalWork(1.0), trigger=hr.EveryRows(1000))
        engine.stream("orders", spark.readStream.schema(ORDERS).parquet(str(folder)))
        engine.process_available()
        assert by_hand.to_arrow().num_rows == 0
        assert by_rows.to_arrow().num_rows == 2


# -- trouble ------------------------------------------------------------------------------------------------------


def test_a_view_that_fails_at_its_trigger_says_why_and_heals(engine: hr.Engine) -> None:
    sql = "SELECT id, (SELECT shop FROM shops WHERE city = 'Oslo') AS oslo FROM orders"
    view = engine.view("v", sql, goal=hr.FinalWork(1.0), trigger=hr.EveryRows(2))
    other = engine.view("o", "SELECT COUNT(*) AS n FROM orders", goal=hr.FinalWork(1.0), trigger=hr.EveryRows(2))
    engine.apply(orders([1, 2]))
    assert view.rows == 2
    extra = pa.table({"shop": [7], "city": ["Oslo"], "__diff": [1]})
    engine.apply({"shops": extra, **orders([3, 4])})
    assert "more than one row" in view.problem
    assert view.rows == 2, "the answer is that of the last trigger"
    assert other.to_arrow().to_pylist() == [{"n": 4}]
    assert "more than one row" in engine.status()["views"][0]["problem"]
    with pytest.raises(StepFailedError, match=r"could not be refreshed.*more than one row"):
        view.refresh()
    engine.apply({"shops": extra.set_column(2, "__diff", pa.array([-1])), **orders([5])})
    assert (view.problem, view.rows) == ("", 5)
    engine.sync()
    assert {path.name for path in (engine.location / "runs").iterdir()} == engine._store.snapshot.files()


def test_a_view_that_fails_by_the_clock_is_tried_less_and_less_often(engine: hr.Engine) -> None:
    sql = "SELECT id, (SELECT shop FROM shops WHERE city = 'Rome') AS rome FROM orders"
    with pytest.raises(StepFailedError):
        engine.view("v", sql, goal=hr.TargetLag("50 ms"))  # two shops are in Rome
    engine.apply({"shops": pa.table({"shop": [0], "city": ["Rome"], "__diff": [-1]})})
    view = engine.view("v", sql, goal=hr.TargetLag("50 ms"))
    engine.apply({"shops": pa.table({"shop": [0], "city": ["Rome"], "__diff": [1]}), **orders([1])})
    until(lambda: view.progress.failures == 2)
    assert "more than one row" in view.problem
    view.goal = hr.Manual()
    step = engine.step
    time.sleep(2.5)
    assert engine.step == step, "nobody tries any more"
    with pytest.raises(StepFailedError):
        view.goal = None
    assert str(view.goal) == "MANUAL ON REFRESH"


def test_a_flush_that_fails_on_the_way_is_tried_at_the_trigger(engine: hr.Engine) -> None:
    sql = "SELECT id, (SELECT shop FROM shops WHERE city = 'Oslo') AS oslo FROM orders"
    view = engine.view("v", sql, goal=hr.FinalWork(0.5), trigger=hr.OnRefresh())
    engine._maintenance.goals.set_paces("v", dict.fromkeys(view.planned.kernel.holds, 10), 10)
    extra = pa.table({"shop": [7], "city": ["Oslo"], "__diff": [1]})
    engine.apply({"shops": extra, **orders([1, 2])})
    assert view.problem == ""
    engine.apply({"shops": extra.set_column(2, "__diff", pa.array([-1])), **orders([3])})
    view.refresh()
    assert sorted(row["oslo"] for row in view.to_arrow().to_pylist()) == [1, 1, 1]


def test_rows_that_a_view_refuses_are_refused_when_they_come(engine: hr.Engine) -> None:
    view = engine.view("v", "SELECT SUM(price) AS p FROM orders", **NEVER)
    with pytest.raises(BadRowsError, match="view 'v'"):
        engine.apply(orders([1, 2], price=[1.0, float("nan")]))
    step = engine.apply(orders([1, 2], price=[1.0, float("nan")]), on_bad_rows="quarantine")
    assert step.quarantined == {"orders": 1}
    view.refresh()
    assert view.to_arrow().to_pylist() == [{"p": 1.0}]


# -- changing one's mind ------------------------------------------------------------------------------------------


def test_a_goal_can_be_changed_while_the_view_is_there(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "state") as engine:
        view = engine.view("v", BY_CITY)
        assert view.goal is None
        view.goal = hr.Manual()
        engine.apply(orders([1]))
        assert view.rows == 0
        view.goal = hr.Freshness(hr.FinalWork(1.0), hr.EveryRows(2))
        assert view.rows == 0, "what waits goes on waiting"
        engine.apply(orders([2]))
        assert sum(view.to_pandas()["n"]) == 2
        view.goal = hr.FinalWork(0.9)
        assert view.goal == hr.Freshness(hr.FinalWork(0.9), hr.EveryRows(2))
        engine.apply(orders([3]))
        assert sum(view.to_pandas()["n"]) == 2
    with opened(spark, tmp_path / "state") as engine:
        view = engine.views["v"]
        assert str(view.goal) == "FINAL WORK 0.9 EVERY 2 ROWS"
        view.goal = None
        engine.apply(orders([4]))
        assert sum(view.to_pandas()["n"]) == 4
        with pytest.raises(SchemaError, match="exists with no goal, not with the goal MANUAL"):
            engine.view("v", BY_CITY, **NEVER)
        assert engine.view("v", BY_CITY) is view


def test_dropping_a_view_drops_what_waits_for_it(engine: hr.Engine) -> None:
    engine.view("v", BY_CITY, **NEVER)
    engine.apply(orders([1, 2, 3]))
    engine.drop("v")
    assert not [name for name in engine._store.snapshot.arrangements if "/v/" in name]
    assert "v" not in engine._store.snapshot.goals
    engine.sync()
    assert {path.name for path in (engine.location / "runs").iterdir()} == engine._store.snapshot.files()
    again = engine.view("v", BY_CITY, **NEVER)
    assert sum(again.to_pandas()["n"]) == 3


def test_who_only_reads_sees_the_last_trigger_and_fires_none(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "state") as engine:
        view = engine.view("v", BY_CITY, **NEVER)
        engine.apply(orders([1]))
        view.refresh()
        engine.apply(orders([2]))
        with opened(spark, tmp_path / "state", read_only=True) as reader:
            assert sum(reader.views["v"].to_pandas()["n"]) == 1
            assert reader.views["v"].lag > timedelta(0)
            with pytest.raises(StorageError, match="reading only"):
                reader.views["v"].refresh()


def test_a_goal_that_a_view_cannot_have_is_refused(engine: hr.Engine) -> None:
    with pytest.raises(SchemaError, match="AT WINDOW END"):
        engine.view("v", BY_CITY, goal=hr.FinalWork(0.5), trigger=hr.AtWindowEnd())
    with pytest.raises(SchemaError, match="and no goal"):
        engine.view("v", BY_CITY, trigger=hr.EveryRows(5))
    with pytest.raises(SchemaError, match="there is no view 'w'"):
        engine.refresh("w")
    assert not engine.views
