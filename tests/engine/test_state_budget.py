"""A memory budget drops state and makes it again: an answer never depends on what is kept."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import THREE, Changing, _text, answer, opened, random_query
from tests.residences import misplaced
from tests.seeds import seeds
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.engine import idleness
from headrace.engine.looking import Look
from headrace.engine.state_budget import StateBudget
from headrace.errors import BadRowsError, SchemaError
from headrace.relation.duration import Duration
from headrace.thrifty.keep.sizes import size_text
from headrace.thrifty.schedule import now

QUERIES = {
    "three": f"SELECT s.city, SUM(o.price) AS p, COUNT(*) AS n FROM {THREE} GROUP BY s.city",
    "extremes": f"SELECT i.what, MIN(o.price) AS low, COUNT(DISTINCT s.city) AS cities FROM {THREE} GROUP BY i.what",
    "outer": "SELECT o.day, COUNT(s.id) AS n, COUNT(*) AS m FROM orders o LEFT JOIN shops s ON o.shop = s.id "
    "GROUP BY o.day",
    "full": "SELECT o.day, s.city, COUNT(*) AS m FROM orders o FULL JOIN shops s ON o.shop = s.id GROUP BY 1, 2",
    "semi": "SELECT o.day, COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id) "
    "GROUP BY o.day",
    "anti": "SELECT o.day, COUNT(*) AS n FROM orders o LEFT ANTI JOIN items i ON i.order_id = o.id GROUP BY o.day",
    "nested": "SELECT n, COUNT(*) AS shops FROM (SELECT o.shop, COUNT(*) AS n FROM orders o JOIN items i "
    "ON i.order_id = o.id GROUP BY o.shop) GROUP BY n",
    "joined_sums": "SELECT s.city, SUM(t.n) AS n FROM shops s JOIN (SELECT shop, COUNT(*) AS n FROM orders "
    "GROUP BY shop) t ON t.shop = s.id GROUP BY s.city",
    "inner_distinct": "SELECT s.city, SUM(t.n) AS n, MAX(t.low) AS low FROM shops s JOIN (SELECT shop, "
    "COUNT(DISTINCT day) AS n, MIN(price) AS low FROM orders GROUP BY shop) t ON t.shop = s.id GROUP BY s.city",
    "inner_places": "SELECT s.city, SUM(t.m) AS m, MAX(t.d) AS d, MAX(t.c) AS c FROM shops s JOIN (SELECT shop, "
    "MEDIAN(day) AS m, MEDIAN(DISTINCT day) AS d, MODE(shop) AS c FROM orders GROUP BY shop) t ON t.shop = s.id "
    "GROUP BY s.city",
    "doubles": "SELECT o.day, AVG(CAST(o.price AS DOUBLE) * i.units) AS a, STDDEV(i.units) AS d, "
    "COUNT(DISTINCT i.what) AS w FROM orders o JOIN items i ON i.order_id = o.id GROUP BY o.day",
    "total": "SELECT COUNT(*) AS n FROM orders o JOIN shops s ON o.shop = s.id "
    "WHERE o.price > (SELECT AVG(units) FROM items)",
    "first": "SELECT price, COUNT(*) AS n FROM (SELECT o.id, o.price FROM orders o JOIN shops s ON o.shop = s.id "
    "ORDER BY o.price DESC, o.id LIMIT 5) GROUP BY price",
    "catalyst": f"SELECT levenshtein(s.city, i.what) AS d, COUNT(*) AS n FROM {THREE} "
    "WHERE levenshtein(i.what, 'nuts') < 9 GROUP BY 1",
    "not_in": "SELECT o.id FROM orders o WHERE o.shop NOT IN (SELECT order_id FROM items)",
}


def oracle(sql: str) -> str:
    return sql.replace("LEFT ANTI JOIN", "ANTI JOIN")


def kept_bytes(engine: hr.Engine) -> int:
    found = engine.status()["memory"]
    assert isinstance(found["kept_bytes"], int)
    return found["kept_bytes"]


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[hr.Engine]:
    with opened(spark, tmp_path / "state", sharing="off") as found:
        yield found


def never_anew(budget: StateBudget, read: Any, came: Any) -> frozenset[str]:
    return frozenset()


def always_anew(budget: StateBudget, read: Any, came: Any) -> frozenset[str]:
    return budget._recomputable(budget.idleness.after(came)).intersection(read)


@pytest.mark.parametrize("way", [never_anew, always_anew])
@pytest.mark.parametrize("name", QUERIES)
def test_any_budget_gives_the_answer(engine: hr.Engine, name: str, way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateBudget, "anew", way)
    rng = random.Random(name)
    data = Changing(rng)
    view = engine.view(name, QUERIES[name], strategy="operators")
    for step in range(10):
        engine.memory_budget = rng.choice([0, 0, 1_000, 3_000, 10_000, None])
        before = answer(view)
        engine.apply(data.change())
        assert answer(view) == data.answer(oracle(QUERIES[name])), step
        assert changed(view, before) == answer(view)
        assert not misplaced(engine)
    assert engine.verify() == []


def test_tasks_make_state_again(spark: SparkSession, tmp_path: Path) -> None:
    data = Changing(random.Random(2))
    with opened(spark, tmp_path / "state", sharing="off", executor="spark", memory_budget=0) as engine:
        view = engine.view("v", QUERIES["three"], strategy="operators")
        for _ in range(3):
            engine.apply(data.change())
            assert answer(view) == data.answer(QUERIES["three"])
            assert kept_bytes(engine) == 0


def changed(view: hr.View, before: Counter[str]) -> Counter[str]:
    """What an answer becomes by the changes that the view tells of."""
    after = Counter(before)
    for row in view.changes().to_pylist():
        diff = row.pop("__diff")
        after[_text(tuple(row.values()))] += diff
    return +after


def test_the_budget_holds_at_every_commit_and_is_reported(engine: hr.Engine) -> None:
    data = Changing(random.Random(3))
    engine.view("v", QUERIES["three"], strategy="operators")
    for _ in range(6):
        engine.apply(data.change())
    everything = kept_bytes(engine)
    for budget in (everything, everything // 2, everything // 4, 0):
        engine.memory_budget = budget
        assert kept_bytes(engine) <= budget
        engine.apply(data.change())
        assert kept_bytes(engine) <= budget
    memory = engine.status()["memory"]
    assert memory["budget"] == 0
    assert memory["kept_bytes"] == 0
    assert {one["what"] for one in memory["dropped"]} == {"left rows", "right rows"}
    assert memory["next_step_seconds"] > 0
    assert memory["prediction_error"] >= 0
    text = str(engine.views["v"].explain())
    assert "dropped" in text
    assert "made again from the tables" in text
    engine.memory_budget = None
    engine.apply(data.change())
    assert engine.status()["memory"]["budget"] is None


def test_a_failed_step_changes_nothing(engine: hr.Engine) -> None:
    data = Changing(random.Random(5))
    engine.memory_budget = 0
    view = engine.view("v", QUERIES["three"], strategy="operators")
    for _ in range(4):
        engine.apply(data.change())
    there = next(row for row in data.rows["shops"])
    with pytest.raises(BadRowsError):
        engine.apply({"shops": data.table("shops", [there])})
    engine.apply(data.change())
    assert answer(view) == data.answer(QUERIES["three"])


def test_files_of_dropped_state_are_removed(engine: hr.Engine) -> None:
    data = Changing(random.Random(6))
    engine.view("v", QUERIES["three"], strategy="operators")
    for budget in (None, 0, 0, 5_000, 0):
        engine.memory_budget = budget
        engine.apply(data.change())
    engine.compact()
    engine.sync()
    named = engine._store.snapshot.files()
    assert {path.name for path in (engine.location / "runs").iterdir()} == named


def test_a_view_that_gets_a_goal_has_its_state_made_again(engine: hr.Engine) -> None:
    data = Changing(random.Random(8))
    engine.memory_budget = 0
    view = engine.view("v", QUERIES["three"], strategy="operators")
    for _ in range(4):
        engine.apply(data.change())
    view.goal = hr.Manual()
    assert engine.status()["memory"]["dropped"] == []
    engine.apply(data.change())
    engine.apply(data.change())
    engine.refresh()
    assert answer(view) == data.answer(QUERIES["three"])
    assert "rows of its tables" in str(view.explain())
    view.goal = None
    engine.apply(data.change())
    assert answer(view) == data.answer(QUERIES["three"])
    assert kept_bytes(engine) == 0


def test_what_the_user_expects_is_built_ahead(engine: hr.Engine) -> None:
    data = Changing(random.Random(9))
    view = engine.view("v", QUERIES["three"], strategy="operators")
    for _ in range(6):
        engine.apply(data.change())
    engine.memory_budget = 0
    engine.memory_budget = "1 GB"
    engine.expect({"items": 10})
    kept = {(one["operator"], one["what"]) for one in engine.status()["memory"]["dropped"]}
    engine.expect({"shops": (5, 5)})
    assert {(one["operator"], one["what"]) for one in engine.status()["memory"]["dropped"]} != kept
    assert engine.status()["memory"]["expected"] == {"shops": [5.0, 5.0]}
    assert engine.status()["memory"]["expected_by"] == "user"
    engine.apply(data.change())
    engine.expect(None)
    engine.apply(data.change())
    assert answer(view) == data.answer(QUERIES["three"])


@pytest.mark.parametrize("wrong", ["2 apples", -1, 1.5, True])
def test_a_budget_must_be_a_size(engine: hr.Engine, wrong: Any) -> None:
    with pytest.raises(SchemaError, match="is not a size"):
        engine.memory_budget = wrong
    with pytest.raises(SchemaError, match="there is no table"):
        engine.expect({"nothing": 3})


def test_status_shows_the_budget(spark: SparkSession, tmp_path: Path) -> None:
    data = Changing(random.Random(4))
    with opened(spark, tmp_path / "state", sharing="off", memory_budget="1 KB") as engine:
        engine.view("v", QUERIES["three"], strategy="operators")
        for _ in range(4):
            engine.apply(data.change())
        said = engine.status()["memory"]
    found = CliRunner().invoke(app, ["status", str(tmp_path / "state")])
    assert "of a budget of 0.0 MB" in found.output
    assert "right rows" in found.output
    with Look(tmp_path / "state") as look:
        assert look.status()["memory"] == said


def test_what_keeps_everything_beyond_the_budget_is_named(spark: SparkSession, tmp_path: Path) -> None:
    data = Changing(random.Random(7))
    with opened(spark, tmp_path / "state", sharing="off", memory_budget=0) as engine:
        engine.view("free", QUERIES["outer"], strategy="operators")
        engine.view("waits", QUERIES["three"], strategy="operators", goal=hr.Manual())
        assert engine.status()["memory"]["over_bytes"] == 0, "there is no state yet"
        for _ in range(6):
            engine.apply(data.change())
        engine.refresh()
        memory = engine.status()["memory"]
        assert memory["over_bytes"] == memory["kept_bytes"] > 0
        (one,) = memory["over_because"]
        assert (one["view"], one["bytes"]) == ("waits", memory["over_bytes"])
        assert "it has a goal" in one["why"]
        engine.memory_budget = "1 GB"
        assert (engine.status()["memory"]["over_bytes"], engine.status()["memory"]["over_because"]) == (0, [])
        engine.memory_budget = 0
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "state")]).output
    size = size_text(memory["over_bytes"])
    assert f"memory: over the budget by {size}, because waits keeps all of its {size}: it has a goal" in shown
    with opened(spark, tmp_path / "state", sharing="off", memory_budget=0) as engine:
        engine.views["waits"].goal = None
        assert engine.status()["memory"]["over_bytes"] == 0


def test_what_a_step_adds_to_state_that_must_stay_counts_at_its_commit(engine: hr.Engine) -> None:
    engine.table("passing", "id BIGINT, shop BIGINT", keep_rows=False)
    engine.view("stays", "SELECT p.id, s.city FROM passing p JOIN shops s ON p.shop = s.id", strategy="operators")
    engine.view("goes", QUERIES["three"], strategy="operators")
    data = Changing(random.Random(12))
    for _ in range(6):
        engine.apply(data.change())
    budget = kept_bytes(engine) + 2_000
    engine.memory_budget = budget
    for start in range(0, 400, 100):
        rows = pa.table({"id": range(start, start + 100), "shop": [one % 9 for one in range(100)]})
        engine.apply({"passing": rows, "items": data.table("items", data.come("items", 5))})
        memory = engine.status()["memory"]
        fixed = [one["bytes"] for one in memory["over_because"] if one["view"] == "stays"]
        assert kept_bytes(engine) <= max([budget, *fixed])
    assert answer(engine.views["goes"]) == data.answer(QUERIES["three"])


@dataclass
class Clock:
    """A clock for idle views that moves when a test says so."""

    time: int = field(default_factory=now)

    def __call__(self) -> int:
        return self.time

    def wait(self, minutes: float) -> None:
        self.time += round(60_000_000 * minutes)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(idleness, "now", found)
    return found


def dropped(engine: hr.Engine) -> dict[str, set[tuple[int, str]]]:
    """What is dropped, by view."""
    found: dict[str, set[tuple[int, str]]] = {}
    for one in engine.status()["memory"]["dropped"]:
        found.setdefault(one["view"], set()).add((one["operator"], one["what"]))
    return found


def test_an_idle_view_keeps_what_the_expected_change_needs(engine: hr.Engine, clock: Clock) -> None:
    data = Changing(random.Random(10))
    view = engine.view("v", QUERIES["three"], strategy="operators", idle_after="10 minutes")
    engine.view("awake", QUERIES["three"], strategy="operators")
    engine.table("lonely", "id BIGINT", key="id")
    for _ in range(5):
        engine.apply(data.change())
    clock.wait(9)
    engine.apply({"lonely": pa.table({"id": [1]})})
    assert dropped(engine) == {}
    assert "10 minutes without rows: then" in str(view.explain())
    clock.wait(2)
    engine.expect({"items": 10})
    needed = dropped(engine)
    assert needed.keys() == {"v"}
    assert engine.status()["memory"]["idle"] == ["v"]
    engine.expect({"lonely": 10})
    assert needed["v"] < dropped(engine)["v"]
    assert "it is idle now" in str(view.explain())
    engine.apply(data.change())
    assert answer(view) == data.answer(QUERIES["three"])
    assert engine.status()["memory"]["idle"] == []
    view.idle_after = None
    engine.expect(None)
    engine.apply(data.change())
    assert answer(view) == data.answer(QUERIES["three"])
    assert dropped(engine) == {}


def test_a_view_gets_idle_by_the_clock_and_across_a_restart(spark: SparkSession, tmp_path: Path, clock: Clock) -> None:
    data = Changing(random.Random(11))
    with opened(spark, tmp_path / "state", sharing="off") as engine:
        engine.view("v", QUERIES["three"], strategy="operators", idle_after="1 hour")
        engine.apply(data.change())
        engine.expect({})
        clock.wait(59)
    with opened(spark, tmp_path / "state", sharing="off") as engine:
        view = engine.views["v"]
        assert isinstance(view, hr.View)
        assert view.idle_after == Duration.parse("60 minutes")
        assert dropped(engine) == {}
        clock.wait(1)
        engine._fire_due()
        assert kept_bytes(engine) == 0
        version = engine.status()["version"]
        engine._fire_due()
        assert engine.status()["version"] == version, "an idle view is released once"
        engine.apply(data.change())
        assert answer(view) == data.answer(QUERIES["three"])
        with pytest.raises(SchemaError, match="exists with idle_after='1 hour', not None"):
            engine.view("v", QUERIES["three"], strategy="operators")
    found = CliRunner().invoke(app, ["status", str(tmp_path / "state"), "--json"])
    assert '"idle_after": "1 hour"' in found.output


def test_the_scheduler_releases_a_view(engine: hr.Engine) -> None:
    data = Changing(random.Random(12))
    engine.view("v", QUERIES["three"], strategy="operators", idle_after="200 milliseconds")
    engine.apply(data.change())
    engine.expect({})
    until = time.monotonic() + 20
    while kept_bytes(engine) and time.monotonic() < until:
        time.sleep(0.02)
    assert kept_bytes(engine) == 0


def test_a_view_with_a_goal_drops_state_while_nothing_waits(engine: hr.Engine, clock: Clock) -> None:
    data = Changing(random.Random(13))
    view = engine.view("v", QUERIES["three"], strategy="operators", goal=hr.Manual(), idle_after="1 minute")
    engine.expect({})
    for _ in range(3):
        engine.apply(data.change())
    clock.wait(2)
    engine._fire_due()
    assert dropped(engine) == {}, "rows wait"
    engine.refresh()
    engine._fire_due()
    assert kept_bytes(engine) == 0
    for _ in range(3):
        engine.apply(data.change())
        assert dropped(engine) == {}
    engine.refresh()
    assert answer(view) == data.answer(QUERIES["three"])


@seeds("state budget", 3, kept=[2552179051])
@pytest.mark.parametrize("sharing", ["off", "auto"])
def test_random_views_budgets_and_restarts(
    spark: SparkSession, tmp_path: Path, sharing: str, seed: int, clock: Clock
) -> None:
    rng = random.Random(seed)
    data = Changing(rng)
    location = tmp_path / "state"
    engine = opened(spark, location, sharing=sharing, memory_budget=0)
    queries: dict[str, str] = {}
    for step in range(16):
        if rng.random() < 0.4:
            name = f"v{step}"
            queries[name] = random_query(rng)
            idle_after = rng.choice([None, "0 seconds", "1 minute"])
            goal = rng.choice([None, None, hr.Manual()])
            engine.view(name, queries[name], strategy="operators", idle_after=idle_after, goal=goal)
        if queries and rng.random() < 0.15:
            name = rng.choice(list(queries))
            del queries[name]
            engine.drop(name)
        if rng.random() < 0.3:
            engine.close()
            engine = opened(
                spark, location, sharing=sharing, memory_budget=rng.choice([0, "5 KB", "20 KB", "1 GB", None])
            )
        if rng.random() < 0.3:
            clock.wait(rng.choice([0.5, 2]))
            engine._fire_due()
        if rng.random() < 0.2:
            engine.expect(rng.choice([None, {}, {"items": 5}, {"shops": (1, 1)}]))
        engine.apply(data.change())
        if rng.random() < 0.6:
            engine.refresh()
        for name, sql in queries.items():
            view = engine.views[name]
            assert isinstance(view, hr.View)
            if view.as_of < engine.step:
                continue  # its rows wait
            assert answer(view) == data.answer(sql), (step, name, sql)
        budget = engine.memory_budget
        if all(view.goal is None for view in engine.views.values()):
            assert budget is None or kept_bytes(engine) <= budget
    engine.close()


@pytest.mark.parametrize("query", list(QUERIES))
def test_a_view_that_is_flushed_by_the_step_that_ends_its_rest(engine: hr.Engine, query: str) -> None:
    """Its state is made again for the rows that come, and has to be there for the flush in the same step."""
    rng = random.Random(query)
    changing = Changing(rng)
    goal = hr.Freshness(hr.FinalWork(1.0), hr.EveryRows(1))
    view = engine.view("v", QUERIES[query], strategy="operators", goal=goal, idle_after="0 seconds")
    engine.expect({})
    for _ in range(8):
        engine.apply(changing.change())
        assert answer(view) == changing.answer(oracle(QUERIES[query]))
    assert engine._catalogue.unkept.get("v"), "it has let go of its state after each step"
