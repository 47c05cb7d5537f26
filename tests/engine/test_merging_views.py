"""Views that are merged with others in the background: state is taken over, steps go on, and nothing is lost."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import BOARD, JOIN, THREE, Changing, always, always_later, answer, opened
from tests.forks import ROOT, Forks
from tests.residences import misplaced

import headrace as hr
from headrace.engine import merging_views
from headrace.engine.sharing import Sharing
from headrace.engine.state_maker import StateMaker
from headrace.runtime import filling
from headrace.runtime.log import Snapshot
from headrace.runtime.record import BucketState, RunRef

LOWEST = f"SELECT s.city, MIN(o.price) AS least FROM {JOIN} GROUP BY s.city"

KNOWN = Sharing._known  # tests let all tables be known


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is merged before somebody asks for it."""
    always(monkeypatch)
    always_later(monkeypatch)
    monkeypatch.setattr(merging_views, "QUIET", 1e9)


class Reads:
    """Counts how often each table is read to fill something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tables: Counter[str] = Counter()
        read = filling.stored_rows

        def counting(program: Any, task: Any, *given: Any) -> Any:
            self.tables[task.name] += 1
            return read(program, task, *given)

        monkeypatch.setattr(filling, "stored_rows", counting)


class Gate:
    """Lets the thread that merges views wait, once it has filled something, until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        fill = StateMaker.fill_parts

        def waiting(states: StateMaker, *given: Any) -> Any:
            filled = fill(states, *given)
            if threading.current_thread().name == "headrace-merging":
                self.reached.set()
                assert self.open.wait(60)
            return filled

        monkeypatch.setattr(StateMaker, "fill_parts", waiting)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    always(monkeypatch)
    always_later(monkeypatch)
    found = Gate(monkeypatch)
    yield found
    found.open.set()


def merging(engine: hr.Engine) -> tuple[list[str], dict[str, Any]]:
    """The views that have still to be merged, and what goes on."""
    status = engine.status()
    return status["unmerged"], status.get("merging", {})


def checked(engine: hr.Engine, changing: Changing, queries: dict[str, str]) -> None:
    """Compare all answers with recomputed ones, and look at every file."""
    for name, sql in queries.items():
        assert answer(engine.views[name]) == changing.answer(sql), name
    assert not engine.verify()
    assert not misplaced(engine)
    assert engine._store.snapshot.files() <= {path.name for path in engine._store.location.runs.iterdir()}


def state_of(engine: hr.Engine, holder: str) -> set[str]:
    """The files with the state of a view or a shared subplan."""
    found = engine._store.snapshot.arrangements
    states = (s for name, own in found.items() if name.startswith(f"view/{holder}/") for s in own.values())
    return {run.name for state in states for run in state.runs}


def test_a_view_that_brings_all_it_needs_is_merged_without_reading(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_hand: None
) -> None:
    changing, queries = Changing(random.Random(1)), {"by_city": BOARD["by_city"], "lowest": LOWEST}
    with opened(spark, tmp_path / "state") as engine:
        for _ in range(4):
            engine.apply(changing.change())
        for name, sql in queries.items():
            engine.view(name, sql, strategy="operators")
        assert not engine._catalogue.shared
        assert merging(engine) == (["lowest"], {})
        assert "is merged in the background" in " ".join(str(engine.explain()).split())
        had, reads = state_of(engine, "by_city") | state_of(engine, "lowest"), Reads(monkeypatch)
        engine.settle()
        (subplan,) = engine._catalogue.shared
        assert not reads.tables
        assert state_of(engine, subplan) <= had
        assert merging(engine) == ([], {})
        checked(engine, changing, queries)
        queries["by_day"] = BOARD["by_day"]  # it reads one more column of orders
        engine.view("by_day", BOARD["by_day"], strategy="operators")
        shops = engine._store.snapshot.arrangements[f"view/{subplan}/0.right"]
        reads.tables.clear()
        engine.settle()
        assert set(reads.tables) == {"orders"}
        (subplan,) = engine._catalogue.shared
        assert engine._store.snapshot.arrangements[f"view/{subplan}/0.right"] == shops
        engine.apply(changing.change())
        checked(engine, changing, queries)


def test_state_goes_back_from_a_subplan_to_its_view(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing, queries = Changing(random.Random(2)), {"by_city": BOARD["by_city"], "lowest": LOWEST}
    with opened(spark, tmp_path / "state") as engine:
        for _ in range(4):
            engine.apply(changing.change())
        for name, sql in queries.items():
            engine.view(name, sql, strategy="operators")
        assert engine._catalogue.shared
    reads = Reads(monkeypatch)
    with opened(spark, tmp_path / "state", sharing="off") as engine:
        assert not engine._catalogue.shared
        assert not reads.tables
        shared = state_of(engine, "by_city") & state_of(engine, "lowest")
        assert shared, "both views refer to the runs that the subplan had"
        assert engine._store.remove_orphans() == 0
        for _ in range(6):
            engine.apply(changing.change())
        engine.compact()
        checked(engine, changing, queries)
        engine.drop("lowest")
        checked(engine, changing, {"by_city": BOARD["by_city"]})


def test_steps_go_on_while_views_are_merged(spark: SparkSession, tmp_path: Path, gate: Gate) -> None:
    changing = Changing(random.Random(3))
    queries = BOARD | {"three": f"SELECT i.what, COUNT(*) AS n FROM {THREE} GROUP BY i.what"}
    with opened(spark, tmp_path / "state") as engine:
        for _ in range(4):
            engine.apply(changing.change())
        with engine._merging.making():
            for name, sql in queries.items():
                engine.view(name, sql, strategy="operators")
        assert gate.reached.wait(60)
        assert merging(engine) == (list(queries)[1:], {"under_way": True})
        for number in range(6):
            engine.apply(changing.change())
            if number == 3:
                engine._upkeep.finish()  # runs that the filling has read are merged away
            checked(engine, changing, queries)
        assert not engine._catalogue.shared
        gate.open.set()
        engine.settle()
        assert {view for one in engine._catalogue.shared.values() for view in one.views} == {*queries}
        checked(engine, changing, queries)
        for _ in range(3):
            engine.apply(changing.change())
        checked(engine, changing, queries)


def test_views_that_come_and_go_meanwhile_are_merged_as_well(spark: SparkSession, tmp_path: Path, gate: Gate) -> None:
    changing = Changing(random.Random(4))
    with opened(spark, tmp_path / "state") as engine:
        for _ in range(4):
            engine.apply(changing.change())
        with engine._merging.making():
            for name in ("by_city", "by_day"):
                engine.view(name, BOARD[name], strategy="operators")
        assert gate.reached.wait(60)
        engine.drop("by_day")
        engine.view("rows", BOARD["rows"], strategy="operators")
        engine.apply(changing.change())
        gate.open.set()
        engine.settle()
        (shared,) = engine._catalogue.shared.values()
        assert set(shared.views) == {"by_city", "rows"}
        engine.apply(changing.change())
        checked(engine, changing, {name: BOARD[name] for name in ("by_city", "rows")})


def test_after_some_attempts_steps_wait(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_hand: None
) -> None:
    """Each attempt finds that too many rows have come meanwhile."""
    monkeypatch.setattr(merging_views, "_MOST", -1)
    changing = Changing(random.Random(5))
    with opened(spark, tmp_path / "state") as engine:
        for _ in range(4):
            engine.apply(changing.change())
        for name, sql in BOARD.items():
            engine.view(name, sql, strategy="operators")
        engine.settle()
        assert len(engine._catalogue.shared) == 1
        checked(engine, changing, BOARD)


def test_an_error_hurts_no_step_and_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_hand: None
) -> None:
    changing = Changing(random.Random(6))

    def full(*given: Any) -> Any:
        raise OSError("the disk is full")

    with opened(spark, tmp_path / "state") as engine:
        for _ in range(4):
            engine.apply(changing.change())
        for name, sql in BOARD.items():
            engine.view(name, sql, strategy="operators")
        with monkeypatch.context() as patched:
            patched.setattr(StateMaker, "fill_parts", full)
            with pytest.raises(hr.StepFailedError, match="the disk is full"):
                engine.settle()
            assert merging(engine)[0] == list(BOARD)[1:]
            engine.apply(changing.change())
            checked(engine, changing, BOARD)
        engine.settle()
        assert len(engine._catalogue.shared) == 1
        checked(engine, changing, BOARD)


def test_an_engine_that_is_closed_leaves_the_merge_to_the_next(spark: SparkSession, tmp_path: Path, gate: Gate) -> None:
    changing = Changing(random.Random(7))
    engine = opened(spark, tmp_path / "state")
    for _ in range(4):
        engine.apply(changing.change())
    with engine._merging.making():
        for name, sql in BOARD.items():
            engine.view(name, sql, strategy="operators")
    assert gate.reached.wait(60)
    threading.Timer(0.2, gate.open.set).start()
    engine.close()
    with opened(spark, tmp_path / "state") as engine:
        assert not state_of(engine, "~1")
        engine.settle()
        assert len(engine._catalogue.shared) == 1
        engine.apply(changing.change())
        checked(engine, changing, BOARD)


def test_changes_that_wait_for_goals_survive_a_merge_beside_steps(
    spark: SparkSession, tmp_path: Path, gate: Gate
) -> None:
    changing = Changing(random.Random(8))
    with opened(spark, tmp_path / "state") as engine:
        for _ in range(3):
            engine.apply(changing.change())
        with engine._merging.making():
            for name, sql in BOARD.items():
                goal = hr.Manual() if name != "rows" else None
                engine.view(name, sql, strategy="operators", goal=goal)
            engine.apply(changing.change())
        assert gate.reached.wait(60)
        old = answer(engine.views["by_city"])
        for _ in range(3):
            engine.apply(changing.change())
        gate.open.set()
        engine.settle()
        assert len(engine._catalogue.shared) == 1
        assert answer(engine.views["by_city"]) == old
        engine.apply(changing.change())
        engine.refresh()
        checked(engine, changing, BOARD)


KILLED = """
import random, sys, os, signal
from pathlib import Path
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import BOARD, Changing, always, always_later, opened
from headrace.engine.state_maker import StateMaker
from headrace.engine.sharing import Sharing
from headrace.engine.store import Store

patch = pytest.MonkeyPatch()
always(patch)
always_later(patch)
changing = Changing(random.Random(9))
engine = opened(SparkSession.builder.getOrCreate(), Path(sys.argv[1]))
for _ in range(4):
    engine.apply(changing.change())
die, owner, name = lambda: os.kill(os.getpid(), signal.SIGKILL), *{
    "filling": (StateMaker, "fill_parts"), "catching up": (StateMaker, "catch_up"), "committing": (Store, "commit")
}[sys.argv[2]]
kept = getattr(owner, name)

def deadly(self, *given):
    found = kept(self, *given)
    if owner is not Store or given[0].shared:
        die()
    return found

patch.setattr(owner, name, deadly)
for name, sql in BOARD.items():
    engine.view(name, sql, strategy="operators")
engine.settle()
"""


@pytest.mark.parametrize("when", ["filling", "catching up", "committing"])
def test_a_kill_in_the_middle_of_a_merge_loses_nothing(
    spark: SparkSession, tmp_path: Path, forks: Forks, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    always(monkeypatch)
    location, changing = tmp_path / "state", Changing(random.Random(9))
    child = forks.start("-c", KILLED, str(location), when, cwd=ROOT)
    assert child.wait() == -signal.SIGKILL, child.stderr.read_text()
    for _ in range(4):
        changing.change()
    with opened(spark, location) as engine:
        for name, sql in BOARD.items():
            engine.view(name, sql, strategy="operators")
        checked(engine, changing, BOARD)
        engine.settle()
        assert len(engine._catalogue.shared) == 1
        engine.apply(changing.change())
        checked(engine, changing, BOARD)


def test_a_run_that_two_arrangements_refer_to_counts_once() -> None:
    state = {0: BucketState((RunRef("a.run", 3, 100),), 3)}
    assert Snapshot(arrangements={"view/a/0.left": state, "view/b/0.left": state}).bytes() == 100


def test_views_are_compared_again_when_tables_have_grown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over empty tables, nobody knows what different conditions have in common."""
    always(monkeypatch)
    monkeypatch.setattr(Sharing, "_known", KNOWN)
    monkeypatch.setattr(merging_views, "ENOUGH", 60)
    changing = Changing(random.Random(11))
    queries = {
        name: f"SELECT s.city, MIN(o.price) AS least FROM {JOIN} WHERE {where} GROUP BY s.city"
        for name, where in (("early", "o.day < 3"), ("cheap", "o.price < 5"))
    }
    with opened(spark, tmp_path / "state") as engine:
        for name, sql in queries.items():
            engine.view(name, sql, strategy="operators")
        engine.apply({"shops": changing.table("shops", changing.come("shops", 9))})
        engine.settle()
        assert not engine._catalogue.shared
        engine.apply({"orders": changing.table("orders", changing.come("orders", 70))})
        engine.settle()
        (shared,) = engine._catalogue.shared.values()
        assert shared.views == ("early", "cheap")
        engine.apply(changing.change())
        checked(engine, changing, queries)
