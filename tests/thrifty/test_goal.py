"""Goals and triggers: which go together, how they are written, and when they are due."""

from __future__ import annotations

from datetime import timedelta

import pytest

import headrace as hr
from headrace.errors import PipelineError, SchemaError
from headrace.sql.pipeline import ViewStatement, parse_pipeline
from headrace.thrifty.goal import Freshness, changed_goal
from headrace.thrifty.schedule import Progress, credit, goal_met, is_due, paths_due, wakes_at

SECOND = 1_000_000
GOALS = [hr.TargetLag("5 s"), hr.FinalWork(0.2), hr.Budget("10 cpu seconds per minute"), hr.Manual()]
TRIGGERS = [None, hr.EveryRows(100), hr.Every("1 minute"), hr.AtWindowEnd(), hr.OnRefresh()]
REFUSED = {("manual", "every rows"), ("manual", "every"), ("manual", "at window end"), ("final work", None)}


@pytest.mark.parametrize("goal", GOALS, ids=str)
@pytest.mark.parametrize("trigger", TRIGGERS, ids=str)
def test_every_combination_means_something_or_is_refused_with_the_reason(goal, trigger) -> None:
    if (goal.kind, trigger and trigger.kind) in REFUSED:
        with pytest.raises(SchemaError, match=r"MANUAL waits|there is no trigger") as error:
            Freshness(goal, trigger)
        assert error.value.way_out
        return
    fresh = Freshness(goal, trigger)
    assert Freshness.from_json(fresh.to_json()) == fresh
    (statement,) = parse_pipeline(f"CREATE MATERIALIZED VIEW v {fresh} AS SELECT 1")
    assert isinstance(statement, ViewStatement)
    assert statement.goal == fresh
    assert statement.sql == "SELECT 1"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hr.FinalWork(0), "not a share"),
        (lambda: hr.FinalWork(1.5), "not a share"),
        (lambda: hr.FinalWork(True), "not a share"),
        (lambda: hr.TargetLag("soon"), "no duration"),
        (lambda: hr.TargetLag("0 s"), "cannot be met"),
        (lambda: hr.Every("1 month"), "not all equally long"),
        (lambda: hr.EveryRows(0), "never fires"),
        (lambda: hr.EveryRows(2.5), "never fires"),
        (lambda: hr.Budget("10 bananas per minute"), "no budget"),
        (lambda: hr.Budget("0 cpu seconds per minute"), "no budget"),
        (lambda: hr.Budget("much"), "no budget"),
        (lambda: Freshness("eager"), "no goal"),
        (lambda: Freshness(hr.Manual(), "noon"), "no trigger"),
        (lambda: Freshness(hr.Manual(), infeasible="maybe"), "infeasible"),
    ],
)
def test_what_means_nothing_is_refused(make, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        make()


@pytest.mark.parametrize(
    ("clause", "says"),
    [
        ("TARGET LAG 5", "expected a time"),
        ("TARGET '5 s'", "expected LAG"),
        ("TARGET LAG '5 lightyears'", "unknown unit"),
        ("FINAL WORK '0.2'", "expected a share"),
        ("FINAL WORK 7 ON REFRESH", "not a share"),
        ("FINAL WORK 0.2", "there is no trigger"),
        ("MANUAL EVERY 100 ROWS", "MANUAL waits"),
        ("EVERY '1 minute'", "no goal before it"),
        ("MANUAL EVERY 100", "expected ROWS"),
        ("BUDGET '10 apples'", "no budget"),
        ("TARGET LAG '5 s' AT NOON", "expected WINDOW"),
        ("FRESH", "expected AS SELECT"),
        ("IDLE AFTER 5", "expected a time"),
        ("MANUAL IDLE AFTER '5 apples'", "unknown unit"),
    ],
)
def test_a_pipeline_says_where_its_goal_is_wrong(clause: str, says: str) -> None:
    with pytest.raises(PipelineError, match=says) as error:
        parse_pipeline(f"CREATE MATERIALIZED VIEW v\n  {clause} AS SELECT 1", "p.sql")
    assert "p.sql, line 2" in str(error.value)


def test_a_pipeline_says_when_a_view_is_idle() -> None:
    text = "CREATE MATERIALIZED VIEW v MANUAL IDLE AFTER '90 minutes' AS SELECT 1"
    (view,) = parse_pipeline(text, "p.sql")
    assert isinstance(view, ViewStatement)
    assert str(view.goal) == "MANUAL ON REFRESH"
    assert str(view.idle_after) == "1 hour 30 minutes"


def test_a_new_goal_keeps_a_trigger_that_goes_with_it() -> None:
    before = Freshness(hr.FinalWork(0.2), hr.EveryRows(10))
    assert changed_goal(before, hr.FinalWork(0.5)) == Freshness(hr.FinalWork(0.5), hr.EveryRows(10))
    assert changed_goal(before, hr.Manual()) == Freshness(hr.Manual())
    assert changed_goal(before, None) is None
    assert changed_goal(None, hr.TargetLag(timedelta(seconds=1))) == Freshness(hr.TargetLag("1 s"))


def test_a_target_lag_counts_from_the_first_row_that_is_not_shown() -> None:
    fresh = Freshness(hr.TargetLag("10 s"))
    assert wakes_at(fresh, Progress()) is None
    quick, slow = Progress().came(3, 20 * SECOND).came(1, 25 * SECOND), Progress(first=20 * SECOND, seconds=100.0)
    assert wakes_at(fresh, quick) == 30 * SECOND - 50_000
    assert wakes_at(fresh, slow) == 25 * SECOND  # half of the lag at most is kept for the work
    assert goal_met(fresh, quick, 0, 30 * SECOND, 0.0)
    assert not goal_met(fresh, quick, 0, 30 * SECOND + 1, 0.0)


def test_a_period_ends_with_the_clock() -> None:
    fresh = Freshness(hr.TargetLag("1 s"), hr.Every("1 minute"))
    progress = Progress().came(1, 61 * SECOND)
    assert wakes_at(fresh, progress) == 120 * SECOND
    assert not is_due(fresh, progress, 119 * SECOND, window_ended=False)
    assert is_due(fresh, progress, 120 * SECOND, window_ended=False)
    assert goal_met(fresh, progress, 0, 121 * SECOND, 0.0)
    assert not goal_met(fresh, progress, 0, 121 * SECOND + 1, 0.0)


def test_a_budget_lets_a_view_wait_until_its_cost_is_earned() -> None:
    goal = hr.Budget("6 cpu seconds per minute")
    fresh = Freshness(goal)
    first = Progress(fired=100 * SECOND, cost=2.0, credit=-1.0).came(1, 101 * SECOND)
    assert wakes_at(fresh, first) == 130 * SECOND  # three seconds at a tenth of a second each
    assert credit(goal, first, 130 * SECOND, 2.0) == pytest.approx(0.0)
    assert credit(goal, first, 10_000 * SECOND, 2.0) == pytest.approx(4.0)  # at most one period is saved up
    dear = Progress(fired=100 * SECOND, cost=50.0, credit=6.0).came(1, 101 * SECOND)
    assert wakes_at(fresh, dear) == 101 * SECOND  # it would never earn more than this


def test_paths_are_due_by_rows_in_integers() -> None:
    progress, flushes = Progress(paces={"fast": 10, "slow": 3, "last": 1}), {"fast": 0, "slow": 0, "last": 0}
    for _ in range(100):
        progress = progress.came(1, 0)
        due = paths_due(progress, 100)
        for path in due:
            flushes[path] += 1
        progress = progress.flush(due, 0.0)
    # The trigger itself is the last flush of each.
    assert flushes == {"fast": 9, "slow": 2, "last": 0}
    assert paths_due(Progress(rows=10**9, paces={"a": 5}), 10) == {"a": 4}
    assert paths_due(Progress(rows=10**9, paces={"a": 5}), 0) == {}


def test_a_trigger_that_failed_is_not_tried_again_at_once() -> None:
    fresh = Freshness(hr.TargetLag("1 ms"))
    failed = Progress().came(1, 0).fail("two rows", 5 * SECOND)
    assert wakes_at(fresh, failed) == 6 * SECOND
    assert Progress.from_json(failed.to_json()) == failed
    assert not failed.trigger(7 * SECOND, 3, 0.1, 0.2, True, 0.0).failed
