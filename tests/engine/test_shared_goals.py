"""Views with goals that share subplans: at each trigger their answers are those of views that share nothing."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import BOARD, JOIN, THREE, Changing, always, answer, opened, random_query
from tests.residences import misplaced
from tests.seeds import drawn, seeds

import headrace as hr
from headrace.engine.handles import View
from headrace.engine.pacing import passes_of
from headrace.engine.pacing_together import learnt_below
from headrace.engine.sharing import Sharing
from headrace.runtime.program import pending_arrangement
from headrace.testing.oracle import Oracle
from headrace.thrifty.share.apart import Apart
from headrace.thrifty.share.split import LocalProblem

ABOVE = [
    f"SELECT o.id, s.city, i.what FROM {JOIN} LEFT JOIN items i ON i.order_id = o.id AND i.units > 1",
    f"SELECT s.city, COUNT(*) AS n FROM {JOIN} WHERE o.id NOT IN (SELECT order_id FROM items WHERE units = 3) "
    "GROUP BY s.city",
    f"SELECT city, SUM(n) AS n FROM (SELECT s.city, COUNT(*) AS n FROM {JOIN} GROUP BY s.city, o.day) GROUP BY city",
    f"SELECT o.id, o.price FROM {JOIN} ORDER BY o.price DESC, o.id LIMIT 3",
    f"SELECT s.city, o.day FROM {JOIN} UNION ALL SELECT i.what AS city, i.units AS day FROM items i",
]


def random_goal(rng: random.Random) -> hr.Freshness | None:
    rows = rng.choice([1, 20, 60, 150])
    return rng.choice(
        [
            None,
            hr.Freshness(hr.Manual()),
            hr.Freshness(hr.FinalWork(1.0), hr.EveryRows(rows)),
            hr.Freshness(hr.FinalWork(0.3), hr.EveryRows(rows)),
            hr.Freshness(hr.FinalWork(0.5), hr.OnRefresh()),
            hr.Freshness(hr.TargetLag("1 hour")),  # longer than the test, so that both engines take the same steps
            hr.Freshness(hr.TargetLag("10 minutes"), hr.EveryRows(rows)),
            hr.Freshness(hr.Budget("1 cpu second per minute"), hr.EveryRows(rows)),
        ]
    )


_SUITE = "shared subplans of views with goals"
_BY_SPARK = drawn(_SUITE, 3)[0]  # the seed whose last answers Spark computes, too


class Twins:
    """Two engines that are asked for the same: one shares subplans, one shares nothing."""

    def __init__(self, spark: SparkSession, folder: Path, executor: str) -> None:
        self.spark, self.folder, self.executor = spark, folder, executor
        self.engines = [self._opened(mode) for mode in ("auto", "off")]

    def _opened(self, mode: str) -> hr.Engine:
        return opened(self.spark, self.folder / mode, executor=self.executor, sharing=mode)

    def reopen(self) -> None:
        self.close()
        self.engines = [self._opened(mode) for mode in ("auto", "off")]

    def close(self) -> None:
        for engine in self.engines:
            engine.close()

    def pace(self, name: str, rng: random.Random) -> None:
        for engine in self.engines:
            paces = {path: rng.randint(1, 9) for path in engine.views[name].planned.kernel.holds}
            with engine._lock:  # merges beside the steps commit, too
                engine._maintenance.goals.set_paces(name, paces, rng.choice([10, 100]))


def take_apart(engine: hr.Engine, rng: random.Random) -> None:
    """Take a shared subplan apart at random: some of its views by themselves, or their last joins only."""
    able = [one for one in engine._catalogue.shared.values() if len(one.views) > 1]
    if not able:
        return
    one = rng.choice(able)
    parts: dict[int, list[tuple[str, int]]] = {}
    where = {view: rng.randrange(2) for view in one.views}
    for member in one.members:
        parts.setdefault(where[member.view], []).append((member.view, member.number))
    own = [(member.view, member.number) for member in one.members if rng.random() < 0.3]
    found = Apart(
        tuple(map(tuple, parts.values())), tuple(own), one.kernel.tree.tables, 2.0, 1.0, 7, one.views[0], where
    )
    with engine._lock:
        engine._sharing.update(fresh=(), apart=(*engine._sharing.apart, found))
    for name, other in engine._catalogue.shared.items():
        given = {(member.view, member.number) for member in other.members}
        assert sum(bool(given & {*part}) for part in parts.values()) < 2, (name, parts)
        assert not given & {*own}, (name, own)


@pytest.mark.parametrize("executor", ["inline", "auto"])
@seeds(_SUITE, 3, check=1, kept=[281439945])  # flushed in the step that made its state again
def test_any_goals_equal_views_that_share_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str, seed: int
) -> None:
    rng = random.Random(seed)
    if forced := rng.random() < 0.8:
        always(monkeypatch)
    changing, queries, shared = Changing(rng), dict[str, str](), 0
    shown: dict[str, tuple[int, Counter[str]]] = {}  # of each view with a goal: its last trigger, and the answer
    twins = Twins(spark, tmp_path, executor)
    try:
        for step in range(12):
            for _ in range(rng.choice([0, 1, 2])):
                name = f"v{len(queries)}"
                queries[name] = rng.choice([random_query(rng), random_query(rng), rng.choice(ABOVE)])
                goal, strategy = random_goal(rng), rng.choice(["operators", "operators", "auto"])
                for engine in twins.engines:
                    engine.view(name, queries[name], strategy=strategy, goal=goal)
            names = list(twins.engines[0].views)
            if rng.random() < 0.15 and names:
                gone = names.pop(rng.randrange(len(names)))
                for engine in twins.engines:
                    engine.drop(gone)
            if rng.random() < 0.4 and names:
                goal, name = random_goal(rng), rng.choice(names)
                for engine in twins.engines:
                    engine.views[name].goal = goal
                shown.pop(name, None)
            for name in names:
                if rng.random() < 0.3 and twins.engines[0].views[name].goal is not None:
                    twins.pace(name, rng)
            if rng.random() < 0.2:
                twins.reopen()
            if rng.random() < 0.2:  # what is shared changes while changes wait
                sharing = twins.engines[0]._sharing
                sharing.mode = rng.choice(["off", "exact", "auto"])
                with twins.engines[0]._lock:
                    sharing.update()
                sharing.mode = "auto"
            if rng.random() < 0.3:
                take_apart(twins.engines[0], rng)
            if rng.random() < 0.2 and names:  # what an idle view has let go of is made again when rows come
                name, wait = rng.choice(names), rng.choice([None, "1 ms"])
                for engine in twins.engines:
                    view = engine.views[name]
                    assert isinstance(view, View)
                    view.idle_after = wait
            if rng.random() < 0.3:
                twins.engines[0].memory_budget = rng.choice([None, 0, 3_000, 20_000])
            changes = changing.change()
            for engine in twins.engines:
                engine.apply(changes)
            asked = rng.sample(names, rng.randint(0, len(names))) if rng.random() < 0.4 else []
            for engine in twins.engines:
                if asked:
                    engine.refresh(*asked)
            shared += sum(one.views != () for one in twins.engines[0]._catalogue.shared.values())
            one, other = twins.engines
            for name in names:
                view, alone = one.views[name], other.views[name]
                assert isinstance(view, View)
                assert isinstance(alone, View)
                said = (step, name, queries[name], str(view.goal))
                assert view.as_of == alone.as_of, said
                found = answer(view)
                assert found == answer(alone), said
                if view.as_of == one.step:
                    assert found == changing.answer(queries[name]), said
                if view.goal is not None and name in shown:
                    before, was = shown[name]
                    if before == view.as_of:
                        assert found == was, said
                    assert changed(view) == changed(alone), said
                shown[name] = view.as_of, found
            assert not misplaced(one)
        for engine in twins.engines:
            engine.refresh()
        for name in names:
            assert answer(twins.engines[0].views[name]) == changing.answer(queries[name]), (name, queries[name])
        if seed == _BY_SPARK:
            expected = changing.answers_of_spark(Oracle(spark), [queries[name] for name in names])
            assert {name: answer(one.views[name]) for name in names} == dict(zip(names, expected, strict=True))
    finally:
        twins.close()
    assert shared or not forced or len(queries) < 3  # by its own estimates the engine may find nothing worth sharing


def changed(view: View) -> Counter[str]:
    out: Counter[str] = Counter()
    for row in view.changes().to_pylist():
        out[repr({key: value for key, value in row.items() if key != "__diff"})] += row["__diff"]
    return Counter({row: count for row, count in out.items() if count})


def waiting(engine: hr.Engine, name: str) -> int:
    """Entries that wait at the inlets of a view, or of a shared subplan."""
    arrangements = engine._store.snapshot.arrangements
    found = [states for part, states in arrangements.items() if part.startswith(pending_arrangement(name, ""))]
    return sum(ref.rows for states in found for state in states.values() for ref in state.runs)


def rows_of(engine: hr.Engine, name: str) -> int:
    """Rows that the operators of a view, or of a shared subplan, took in the last step."""
    operators: dict[str, Any] = engine._store.snapshot.summary.get("operators", {})
    return sum(sum(numbers[:3]) for numbers in operators.get(name, {}).values())


@pytest.mark.check
def test_a_subplan_waits_until_one_of_its_readers_is_due(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(random.Random(1))
    with opened(spark, tmp_path / "state") as engine:
        for _ in range(4):
            engine.apply(changing.change())
        for name in ("by_city", "by_day", "rows"):
            engine.view(name, BOARD[name], strategy="operators", goal=hr.Manual())
        (subplan,) = engine._catalogue.shared
        old = {name: answer(engine.views[name]) for name in BOARD}
        for _ in range(4):
            engine.apply(changing.change())
            assert rows_of(engine, subplan) == 0
        assert waiting(engine, subplan) > 0
        assert waiting(engine, "by_day") == 0
        engine.refresh("by_day")
        assert rows_of(engine, subplan) > 0
        assert waiting(engine, subplan) == 0, "it was brought up to date once, for all"
        assert waiting(engine, "by_day") == 0
        assert waiting(engine, "by_city") > 0
        assert answer(engine.views["by_day"]) == changing.answer(BOARD["by_day"])
        assert answer(engine.views["by_city"]) == old["by_city"]
        engine.refresh("by_city")
        assert rows_of(engine, subplan) == 0
        assert answer(engine.views["by_city"]) == changing.answer(BOARD["by_city"])
        assert answer(engine.views["rows"]) == old["rows"]


def test_a_reader_without_a_goal_makes_the_subplan_follow_every_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(monkeypatch)
    changing = Changing(random.Random(2))
    with opened(spark, tmp_path / "state") as engine:
        board = engine.view("by_city", BOARD["by_city"], strategy="operators", goal=hr.Manual())
        live = engine.view("by_day", BOARD["by_day"], strategy="operators")
        (subplan,) = engine._catalogue.shared
        for _ in range(4):
            engine.apply(changing.change())
            assert answer(live) == changing.answer(BOARD["by_day"])
            assert not answer(board)
        assert waiting(engine, subplan) == 0
        assert waiting(engine, "by_city") > 0
        board.refresh()
        assert answer(board) == changing.answer(BOARD["by_city"])
        live.goal = hr.Manual()
        engine.apply(changing.change())
        assert waiting(engine, subplan) > 0, "from now on nobody needs it in every step"
        live.goal = None
        assert waiting(engine, subplan) == 0
        assert answer(live) == changing.answer(BOARD["by_day"])
        engine.apply(changing.change())
        assert answer(live) == changing.answer(BOARD["by_day"])
        engine.refresh()
        assert answer(board) == changing.answer(BOARD["by_city"])


def test_views_join_and_leave_while_changes_wait(spark: SparkSession, tmp_path: Path) -> None:
    """A view with waiting changes joins a subplan, which another one then extends, and is left alone in the end."""
    changing = Changing(random.Random(3))
    three = f"SELECT i.what, COUNT(*) AS n FROM {THREE} GROUP BY i.what"
    queries = {"one": BOARD["by_city"], "deep": three, "two": BOARD["by_day"], "wide": BOARD["rows"], "more": three}
    location = tmp_path / "state"
    with opened(spark, location) as engine:
        for name, sql in queries.items():
            engine.view(name, sql, strategy="operators", goal=hr.Manual())
            engine.apply(changing.change())
            engine.apply(changing.change())
        assert {view for one in engine._catalogue.shared.values() for view in one.views} == {*queries}
    with opened(spark, location) as engine:
        engine.refresh("deep", "two")
        for name in ("deep", "two"):
            assert answer(engine.views[name]) == changing.answer(queries[name])
        engine.apply(changing.change())
        engine.drop("two")
        engine.apply(changing.change())
    with opened(spark, location, sharing="off") as engine:
        assert not engine._catalogue.shared
        engine.apply(changing.change())
        engine.refresh()
        for name, view in engine.views.items():
            assert answer(view) == changing.answer(queries[name]), name


def test_a_crash_while_sharing_changes_loses_nothing_that_waits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing, location = Changing(random.Random(4)), tmp_path / "state"
    with opened(spark, location) as engine:
        for name in ("by_city", "by_day"):
            engine.view(name, BOARD[name], strategy="operators", goal=hr.Manual())
            engine.apply(changing.change())
            engine.apply(changing.change())

        def killed(*given: Any) -> Any:
            raise KeyboardInterrupt

        old = {name: answer(view) for name, view in engine.views.items()}
        monkeypatch.setattr(engine._maintenance.states, "fill_parts", killed)
        with pytest.raises(KeyboardInterrupt):
            engine.view("rows", BOARD["rows"], strategy="operators", goal=hr.Manual())
    monkeypatch.undo()
    with opened(spark, location) as engine:
        assert {name: answer(engine.views[name]) for name in old} == old
        engine.apply(changing.change())
        engine.refresh()
        for name, sql in BOARD.items():
            assert answer(engine.views[name]) == changing.answer(sql), name


def test_a_view_that_may_fail_on_the_way_shares_only_without_a_goal(spark: SparkSession, tmp_path: Path) -> None:
    """Its error belongs to its own trigger, so nothing may be evaluated for it in the steps of others."""
    product = f"SELECT s.size * o.day AS area, COUNT(*) AS n FROM {JOIN} GROUP BY s.size * o.day"
    with opened(spark, tmp_path / "state") as engine:
        engine.view("by_city", BOARD["by_city"], strategy="operators")
        view = engine.view("product", product, strategy="operators")
        assert len(engine._catalogue.shared_by("product")) == 1
        view.goal = hr.Manual()
        assert not engine._catalogue.shared_by("product")
        view.goal = None
        assert len(engine._catalogue.shared_by("product")) == 1


def test_a_lazy_view_leaves_an_eager_one_where_steps_are_small(spark: SparkSession, tmp_path: Path) -> None:
    """To hand a few rows to the lazy view in every step costs more than to join them once, at its trigger."""
    changing = Changing(random.Random(7))
    with opened(spark, tmp_path / "state") as engine:
        board = engine.view("by_city", BOARD["by_city"], strategy="operators")
        live = engine.view("by_day", BOARD["by_day"], strategy="operators")
        assert len(engine._catalogue.shared) == 1
        for _ in range(6):
            engine.apply(changing.change())
        board.goal = hr.Freshness(hr.FinalWork(1.0), hr.EveryRows(100_000))
        assert not engine._catalogue.shared
        said = " ".join(str(engine.explain()).split())
        assert "it has operators in common with by_day: to share them would be more work, as estimated" in said
        engine.apply(changing.change())
        assert answer(live) == changing.answer(BOARD["by_day"])
        board.goal = None
        assert len(engine._catalogue.shared) == 1
        for name in ("by_city", "by_day"):
            assert answer(engine.views[name]) == changing.answer(BOARD[name])


def test_jobs_of_spark_flush_shared_subplans(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(random.Random(5))
    with opened(spark, tmp_path / "state", executor="spark") as engine:
        for name, sql in BOARD.items():
            engine.view(name, sql, strategy="operators", goal=hr.Manual())
        for _ in range(2):
            engine.apply(changing.change())
        engine.refresh("rows")
        assert answer(engine.views["rows"]) == changing.answer(BOARD["rows"])
        engine.apply(changing.change())
        engine.refresh()
        for name, sql in BOARD.items():
            assert answer(engine.views[name]) == changing.answer(sql)
        assert not misplaced(engine)


def test_a_subplan_gets_a_pace_with_the_views_that_read_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both triggers fire together, so one search chooses all paces: that of the subplan is the highest.

    How high it is depends on measured times, and so does whether it would be taken apart.
    """
    monkeypatch.setattr(Sharing, "better_apart", lambda self: None)
    n = 3_000
    rng = random.Random(6)
    changing = Changing(rng)
    changing.rows["shops"] = [(i, rng.choice(["Rome", "Oslo"]), i % 5) for i in range(9)]
    with opened(spark, tmp_path / "state") as engine:
        engine.apply({"shops": changing.table("shops", changing.rows["shops"])})
        for name, share in (("by_city", 0.1), ("by_day", 0.9)):
            fresh = hr.Freshness(hr.FinalWork(share), hr.EveryRows(n))
            engine.view(name, BOARD[name], strategy="operators", goal=fresh)
        (subplan,) = engine._catalogue.shared
        for _ in range(3):
            for _ in range(30):
                rows = [changing.row("orders") for _ in range(n // 30)]
                changing.rows["orders"] += rows
                engine.apply({"orders": changing.table("orders", rows)})
            for name in ("by_city", "by_day"):
                assert answer(engine.views[name]) == changing.answer(BOARD[name])
        paces = {name: engine._maintenance.goals.progress(name).paces for name in ("by_city", "by_day")}
        assert paces["by_city"][subplan] == paces["by_day"][subplan] >= 1
        for own in paces.values():
            assert max(own.values()) == own[subplan]
        assert f"before shared subplan {subplan}" in str(engine.views["by_city"].explain())
        known = engine._maintenance.goals.learnt("by_city")
        assert known is not None
        assert known.estimated > known.below_final > 0
        # Once views share other operators, another subplan may have the same name: nothing is known of it.
        kernel, seen = engine._catalogue.shared_kernel(subplan), engine._maintenance.goals.pacing.last["by_city"]
        learn = partial(learnt_below, kernel, passes_of(kernel, 1), seen.below[subplan])
        said = known.below[subplan]
        anew, of_another = (
            learn(None)[1],
            learn({**said, "of": [["0.left", "other"]], "measured": {"squares": [1.0]}})[1],
        )
        assert of_another == anew != learn(said)[1]


@pytest.mark.check
@pytest.mark.parametrize("late", [hr.FinalWork(0.9), hr.FinalWork(1.0)], ids=["a choice", "no choice"])
def test_goals_that_differ_take_a_subplan_apart_and_it_stays_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: hr.FinalWork
) -> None:
    """A view that wants few rows early drags along one that wants all of them late, until the first trigger."""
    always(monkeypatch)
    monkeypatch.setattr("headrace.thrifty.share.unshare._CLEARLY", 100.0)  # the times of so few rows are no measure
    monkeypatch.setattr(LocalProblem, "clustered", lambda self: [self.part([view]) for view in self._readers.views])
    rng, location, n = random.Random(9), tmp_path / "state", 1_000
    changing = Changing(rng)
    changing.rows["shops"] = [(i, rng.choice(["Rome", "Oslo"]), i % 5) for i in range(9)]
    queries = {"few": f"SELECT o.day, MAX(o.price) AS most FROM {JOIN} WHERE o.day = 1 GROUP BY o.day"}
    queries["all"] = BOARD["by_city"]

    def step(engine: hr.Engine) -> None:
        gone = rng.sample(changing.rows["orders"], min(len(changing.rows["orders"]), n // 50))
        for row in gone:
            changing.rows["orders"].remove(row)
        rows = [changing.row("orders") for _ in range(n // 10 - len(gone))]
        changing.rows["orders"] += rows
        diffs = [[1] * len(rows) + [-1] * len(gone)]
        engine.apply({"orders": changing.table("orders", [*rows, *gone]).append_column("__diff", diffs)})

    def check(engine: hr.Engine) -> None:
        for name, sql in queries.items():
            assert answer(engine.views[name]) == changing.answer(sql), name

    with opened(spark, location) as engine:
        engine.apply({"shops": changing.table("shops", changing.rows["shops"])})
        for name, goal in (("few", hr.FinalWork(0.1)), ("all", late)):
            fresh = hr.Freshness(goal, hr.EveryRows(n))
            engine.view(name, queries[name], strategy="operators", goal=fresh)
        for _ in range(10):
            assert len(engine._catalogue.shared) == 1, "it is not taken apart before a trigger"
            step(engine)
        assert not engine._catalogue.shared
        check(engine)
        paces = engine._maintenance.goals.progress("few").paces
        assert paces.keys() == engine.views["few"].planned.kernel.holds.keys()
        (apart,) = engine._sharing.apart
        assert apart.views == ("few", "all")
        assert apart.strictest == "few"
        report = engine.explain()
        said = " ".join(str(report).split())
        assert "taken apart: orders and shops for few and all" in said
        often = f"the goal of {apart.strictest} brought it up to date {apart.pace} times until a trigger"
        assert ("few had to wait for the rows of all of them" if apart.reached else often) in said
        assert report.to_dict()["values"]["apart"][0]["before"] == apart.before
        assert "taken apart" in report.to_svg()
    with opened(spark, location) as engine:
        engine.view("more", BOARD["rows"], strategy="operators", goal=hr.Manual())
        shared = [one.views for one in engine._catalogue.shared.values()]
        assert not any({"few", "all"} <= {*views} for views in shared), "they are kept apart, whoever comes"
        for _ in range(10):
            step(engine)
        check(engine)
        engine.views["few"].goal = hr.Freshness(hr.FinalWork(0.9), hr.EveryRows(n))
        assert not engine._sharing.apart, "with another goal, all is compared anew"
        assert {"few", "all"} <= {view for one in engine._catalogue.shared.values() for view in one.views}
        step(engine)
        engine.refresh()
        check(engine)


def test_a_view_that_fails_at_its_trigger_keeps_nobody_from_the_subplan(spark: SparkSession, tmp_path: Path) -> None:
    """What the subplan gave it goes on waiting, and comes into its answer once the view has healed."""
    single = f"SELECT o.id, (SELECT units FROM items WHERE what = 'bolt') AS units FROM {JOIN}"
    changing = Changing(random.Random(8))

    def change(name: str, rows: list[tuple[Any, ...]], sign: int = 1) -> dict[str, Any]:
        for row in rows:
            (changing.rows[name].append if sign > 0 else changing.rows[name].remove)(row)
        return {name: changing.table(name, rows).append_column("__diff", [[sign] * len(rows)])}

    with opened(spark, tmp_path / "state") as engine:
        engine.apply(change("shops", [(1, "Rome", 1)]))
        engine.apply(change("items", [(1, "bolt", 1)]))
        failing = engine.view("failing", single, strategy="operators", goal=hr.Manual())
        engine.view("by_city", BOARD["by_city"], strategy="operators", goal=hr.Manual())
        assert engine._catalogue.shared_by("failing") == engine._catalogue.shared_by("by_city") != []
        engine.apply(change("orders", [(1, 1, 1, 5, "a"), (2, 1, 2, 0, "a")]))
        engine.apply(change("items", [(2, "bolt", 3)]))
        with pytest.raises(hr.StepFailedError, match="more than one row"):
            engine.refresh()
        assert failing.problem
        assert answer(engine.views["by_city"]) == changing.answer(BOARD["by_city"])
        engine.apply(change("orders", [(3, 1, 1, 7, "b")]))
        engine.refresh("by_city")
        engine.apply(change("items", [(2, "bolt", 3)], -1))
        engine.refresh()
        assert not failing.problem
        for name, query in (("failing", single), ("by_city", BOARD["by_city"])):
            assert answer(engine.views[name]) == changing.answer(query), name


def test_what_waits_goes_on_when_a_view_gets_its_operators_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a subplan wait before a join; rows of the view's own operators do not, and there they would be lost."""
    always(monkeypatch)
    changing = Changing(random.Random(12))
    with opened(spark, tmp_path / "state") as engine:
        left = engine.view("left", ABOVE[0], strategy="operators", goal=hr.Manual())
        engine.view("rows", BOARD["rows"], strategy="operators")
        (shared,) = engine._catalogue.shared.values()
        assert shared.views == ("left", "rows")
        for _ in range(4):
            engine.apply(changing.change())
        assert engine._store.snapshot.waiting()
        engine._sharing.mode = "off"
        with engine._lock:
            engine._sharing.update()
        assert not engine._catalogue.shared
        for _ in range(2):
            engine.apply(changing.change())
            engine.refresh()
            assert answer(left) == changing.answer(ABOVE[0])
