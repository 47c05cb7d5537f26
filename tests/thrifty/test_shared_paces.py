"""Paces of shared plans: the search finds what trying everything finds, and each part is simulated once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.seeds import seeds

from headrace.thrifty import cardinalities as c
from headrace.thrifty.schedule import LEARNING
from headrace.thrifty.share.dag import Costs, Part, Private, SharedPlan, alone
from headrace.thrifty.share.paces import Search, chosen, exhaustive, uniform
from headrace.thrifty.simulate import FlatPlan, simulated
from headrace.thrifty.unit_costs import UnitCosts


def join(rows: float, other: float, pairs: float, kappa: float = 0.5) -> FlatPlan:
    """A subplan: one inner join of two tables."""
    parameters = np.zeros((1, c.PARAMETERS))
    parameters[0, [c.LEFT_ROWS, c.RIGHT_ROWS, c.PAIRS, c.PARTNERS, c.SCALE, c.KAPPA]] = rows, other, pairs, 1, 1, kappa
    arriving = np.zeros((1, 2, 3))
    arriving[0, 0, 0], arriving[0, 1, 0] = rows, other
    none = np.zeros((0, 3), np.int64), np.zeros((0, 3, 3))
    return FlatPlan(np.array([c.INNER]), parameters, np.array([[0, 1]]), arriving, *none, ("0.left", "0.right"), ())


def aggregates(rows: float, *groups: float) -> FlatPlan:
    """What a view does by itself: an aggregate of the rows of a subplan, and aggregates of that; each has a path."""
    n = len(groups)
    parameters, arriving = np.zeros((n, c.PARAMETERS)), np.zeros((n, 2, 3))
    arriving[0, 0, 0] = rows
    for i, count in enumerate(groups):
        parameters[i, [c.GROUPS, c.ROWS, c.NEW, c.SHOWN, c.SCALE]] = (
            count,
            rows if i == 0 else groups[i - 1],
            count,
            1,
            1,
        )
    feeds = np.array([[i, i + 1, 0] for i in range(n - 1)], np.int64).reshape(-1, 3)
    passing = np.stack([np.eye(3)] * (n - 1)) if n > 1 else np.zeros((0, 3, 3))
    path_of = np.array([[i, -1] for i in range(n)])
    paths, children = tuple(str(i + 1) for i in range(n)), tuple((i, i + 1) for i in range(n - 1))
    return FlatPlan(np.full(n, c.GROUP), parameters, path_of, arriving, feeds, passing, paths, children)


def part(plan: FlatPlan, *reads: str) -> Part:
    return Part(plan, UnitCosts.assumed(plan.kinds.tolist()), {(0, i): name for i, name in enumerate(reads)})


def random_plan(rng: random.Random, views: int, most: int, depth: int = 1) -> SharedPlan:
    subplans, own, wanted = {}, {}, {}
    for i in range(views):
        name = f"~{rng.randint(1, max(1, views // 2))}"
        rows = 10.0 ** rng.uniform(3, 5)
        if name not in subplans:
            subplans[name] = part(join(rows, rows * rng.uniform(0.01, 1), rows * rng.uniform(0.2, 2), rng.random()))
        given = simulated(subplans[name].plan, (1, 1), subplans[name].units, 1).given[-1][0]
        groups = [max(1.0, given * rng.uniform(0.001, 1)) for _ in range(rng.randint(1, depth))]
        own[f"v{i}"] = part(aggregates(given * rng.uniform(0.1, 1), *groups), name)
        whole = alone(own[f"v{i}"], subplans, {})[1]
        wanted[f"v{i}"] = rng.choice([1.0, 0.5, 0.2, 0.1]) * whole
    return SharedPlan(subplans, own, wanted, most=most)


@pytest.mark.check
@seeds("paces of shared plans", 12, check=4)
def test_the_search_comes_near_to_trying_everything(seed: int) -> None:
    plan = random_plan(random.Random(seed), views=3, most=6)
    found, best = chosen(plan), exhaustive(plan)
    assert found.missed == best.missed
    assert found.total <= 1.03 * best.total
    for component in plan.components():
        search = Search(component)
        one = search.best()
        for view, most in search.wanted.items():
            assert one.finals[view] <= most * (1 + 1e-9)
    assert found.total <= uniform(plan).total * (1 + 1e-9)


class GivenCosts:
    """Costs by hand: per pace of the one subplan, its work, and what each view has left at its trigger."""

    def __init__(self, total: dict[int, float], finals: dict[str, dict[int, float]]) -> None:
        self._total, self._finals = total, finals

    def part(self, name: str, paces: tuple[int, ...]) -> Private:
        return Private(self._total[paces[0]] if name == "~1" else 0.0, 0.0, ())

    def final(self, view: str, paces: tuple[int, ...]) -> float:
        return self._finals[view][paces[0]]


def test_no_view_counts_for_more_than_it_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eq. 4.1 by hand: of 80 that are saved, `a` misses 50; `b` has what it wants; `c` misses more than it gets."""
    views = {name: part(aggregates(1_000, 10), "~1") for name in ("a", "b", "c", "free")}
    plan = SharedPlan({"~1": part(join(1_000, 100, 1_000))}, views, {"a": 50.0, "b": 95.0, "c": 10.0}, most=5)
    search = Search(plan)
    search.wanted = dict(plan.wanted)
    finals = {"a": {1: 100.0, 2: 20.0}, "b": {1: 90.0, 2: 70.0}, "c": {1: 60.0, 2: 55.0}, "free": {1: 99.0, 2: 1.0}}
    monkeypatch.setattr(search, "costs", GivenCosts({1: 200.0, 2: 211.0}, finals))
    batch = (1,) * len(plan.places)
    benefit, price = search._step(batch, (2, *batch[1:]))
    assert benefit == 50.0 + 0.0 + 5.0
    assert price == 11.0, "and the step is worth 55 / 11 (Eq. 4.2)"


@seeds("order downwards", 4)
def test_downwards_the_flush_goes_first_that_saves_most_for_the_final_work_it_adds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = random_plan(random.Random(seed), views=4, most=20, depth=2)
    loose = replace(plan, wanted=dict.fromkeys(plan.wanted, 1e9))  # so any flush may be given up
    search, costs = Search(loose), Costs(loose)
    start = (9,) * len(plan.places)

    def value(after: tuple[int, ...]) -> float:
        """What a step saves for each microsecond of final work that it adds, by the costs of the whole plan."""
        added = sum(max(0.0, costs.final(view, after) - costs.final(view, start)) for view in plan.views)
        return (costs.total(start) - costs.total(after)) / (1.0 + added)

    values = [value(after) for i in range(len(start)) for after in search._lower(start, i)]
    seen: list[tuple[int, ...]] = []
    lower = search._lower

    def lowering(now: tuple[int, ...], i: int) -> Iterator[tuple[int, ...]]:
        if now not in seen:
            seen.append(now)
        return lower(now, i)

    monkeypatch.setattr(search, "_lower", lowering)
    found = search.downwards(start)
    assert seen[0] == start
    assert value(seen[1]) == pytest.approx(max(values))
    assert found.total < costs.total(start)
    totals = [costs.total(paces) for paces in seen]
    assert totals == sorted(totals, reverse=True)


def test_remembered_costs_are_those_of_a_simulation_from_scratch() -> None:
    rng = random.Random(1)
    plan = random_plan(rng, views=4, most=20, depth=3)
    costs = Costs(plan)
    for _ in range(200):
        paces = tuple(rng.randint(1, 20) for _ in plan.places)
        total, finals = 0.0, dict.fromkeys(plan.views, 0.0)
        for name, one in plan.subplans.items():
            pace = paces[plan.span[name].start]
            work = simulated(one.plan, (pace, pace), one.units, 20)
            total += work.total
            for view in plan.readers[name]:
                finals[view] += work.final
        for name, one in plan.views.items():
            work = simulated(one.plan, paces[plan.span[name]], one.units, 20)
            total, finals[name] = total + work.total, finals[name] + work.final
        assert costs.total(paces) == pytest.approx(total)
        assert {view: costs.final(view, paces) for view in plan.views} == pytest.approx(finals)
    simulated_before = costs.simulations
    costs.total(paces)
    assert costs.simulations == simulated_before


def test_a_join_takes_what_is_left_of_groups_that_changed_in_every_flush() -> None:
    """Groups that change in each of ten flushes give ten rows each; a join that runs once takes the last of them."""
    parameters, arriving = np.zeros((1, c.PARAMETERS)), np.zeros((1, 2, 3))
    parameters[0, [c.GROUPS, c.ROWS, c.SHOWN, c.SCALE]] = 100, 100_000, 1, 1
    arriving[0, 0, 0] = 100_000
    none = np.zeros((0, 3), np.int64), np.zeros((0, 3, 3))
    groups = FlatPlan(np.array([c.GROUP]), parameters, np.array([[0, -1]]), arriving, *none, ("0",), ())
    units = UnitCosts.alike(1, 0.0, 1.0, 0.0)
    given = {pace: simulated(groups, (pace,), units, 100).given[0] for pace in (1, LEARNING, 10)}
    assert given[10][1] == pytest.approx(10 * given[1][1])
    assert given[LEARNING][1] == pytest.approx(11 * given[1][1], rel=0.01), "ten flushes, and that of the trigger"
    reader = join(1_000, 0, 1_000)
    reader.arriving[0, 1] = given[LEARNING]  # as it was counted when both learnt
    view = Part(reader, units, {(0, 1): "~1"}, fed={(0, 1): given[LEARNING]})
    costs = Costs(SharedPlan({"~1": Part(groups, units)}, {"v": view}, {}, most=100))
    rows = {(below, own): costs.view("v", (below, own, own)).total for below, own in ((1, 1), (10, 1), (10, 10))}
    assert rows[10, 1] == rows[1, 1] == pytest.approx(1_000 + 2 * given[1][1])
    assert rows[10, 10] == pytest.approx(1_000 + 2 * given[10][1])
    assert alone(view, {"~1": Part(groups, units)}, {})[0] == pytest.approx(rows[1, 1])


def test_a_goal_of_all_the_work_is_met_by_one_flush() -> None:
    """What waits before an aggregate grows with the parts in which it comes, in the goal as in the estimate."""
    view = part(aggregates(100_000, 5_000))
    whole = alone(view, {}, {}, parts=50)[1]
    assert whole > 1.1 * alone(view, {}, {}, parts=1)[1]
    found = chosen(SharedPlan({}, {"v": view}, {"v": whole}, most=50))
    assert found.views["v"] == {"1": 1}
    assert not found.missed


def test_no_reader_is_faster_than_its_subplan() -> None:
    for seed in range(5):
        plan = random_plan(random.Random(seed), views=6, most=30, depth=2)
        found = chosen(plan)
        for name, view in plan.views.items():
            (subplan,) = view.below
            assert found.views[name]["1"] <= found.subplans[subplan]
            paces = list(found.views[name].values())
            assert paces == sorted(paces, reverse=True)


def test_a_lazy_view_is_not_dragged_along_by_an_eager_one() -> None:
    """The subplan is fast for the eager view; the lazy one takes what the subplan gives at its own pace."""
    subplan = part(join(50_000, 5_000, 50_000))
    # Few groups that change in every flush, read by an aggregate that would have to take them again and again.
    eager, lazy = part(aggregates(50_000, 10), "~1"), part(aggregates(50_000, 20_000, 20_000), "~1")
    plan = SharedPlan({"~1": subplan}, {"eager": eager, "lazy": lazy}, {}, most=50)
    whole = {name: alone(view, plan.subplans, {})[1] for name, view in plan.views.items()}
    plan = SharedPlan(plan.subplans, plan.views, {"eager": 0.2 * whole["eager"], "lazy": whole["lazy"]}, most=50)
    found = chosen(plan)
    assert found.subplans["~1"] > 1
    assert set(found.views["lazy"].values()) == {1}
    assert found.total < uniform(plan).total


def test_a_subplan_that_follows_every_step_keeps_its_pace() -> None:
    plan = random_plan(random.Random(3), views=4, most=20)
    fixed = SharedPlan(plan.subplans, plan.views, plan.wanted, dict.fromkeys(plan.subplans, 20), most=20)
    assert set(chosen(fixed).subplans.values()) == {20}


def test_many_views_are_planned_in_seconds() -> None:
    """As many as TPC-H has queries, with four paths each, at paces up to 100 (the target is 10 seconds)."""
    plan = random_plan(random.Random(7), views=22, most=100, depth=4)
    chosen(random_plan(random.Random(1), views=2, most=5))  # compiled before time is taken
    start = time.perf_counter()
    found = chosen(plan)
    assert time.perf_counter() - start < 10
    assert len(found.views) == 22


def two_joins(rows: float, first: float, second: float) -> FlatPlan:
    """A subplan of two joins, of which the second one takes the pairs of the first."""
    parameters, arriving = np.zeros((2, c.PARAMETERS)), np.zeros((2, 2, 3))
    arriving[0, 0, 0], arriving[0, 1, 0], arriving[1, 1, 0] = rows, rows / 10, rows / 10
    names = [c.LEFT_ROWS, c.RIGHT_ROWS, c.PAIRS, c.PARTNERS, c.SCALE, c.KAPPA]
    parameters[0, names] = rows, rows / 10, first, 1, 1, 0.5
    parameters[1, names] = first, rows / 10, second, 1, 1, 0.5
    feeds, passing = np.array([[0, 1, 0]]), np.eye(3).reshape(1, 3, 3)
    paths = ("0.left", "0.right", "1.right")
    return FlatPlan(np.full(2, c.INNER), parameters, np.array([[0, 1], [-1, 2]]), arriving, feeds, passing, paths, ())


def test_a_view_takes_what_its_own_end_of_the_subplan_gives() -> None:
    """The pairs of the first join come evenly and are the same at any pace; the second join is another matter."""
    subplan = part(two_joins(10_000, 10_000, 2_000))
    flat = aggregates(10_000, 100)
    units = UnitCosts.assumed(flat.kinds.tolist())
    views = {f"end {end}": Part(flat, units, {(0, 0): "~1"}, ends={(0, 0): end}) for end in (0, 1)}
    costs = Costs(SharedPlan({"~1": subplan}, views, {}, most=10))
    given = costs.subplan("~1", 10).given
    assert len(given) == 2
    assert given[0][0] == pytest.approx(10_000)
    assert given[1][0] == pytest.approx(2_000)
    lossy = part(two_joins(10_000, 10_000, 2_000))
    lossy.plan.parameters[1, c.SCALE] = 0.0  # the last join gives nothing, but the first one does
    fed = Costs(SharedPlan({"~1": lossy}, views, {}, most=10))
    assert fed.view("end 0", (10, 1, 1)).total == pytest.approx(costs.view("end 0", (10, 1, 1)).total)
