"""Paces of shared plans: the search finds what trying everything finds, and each part is simulated once."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from tests.seeds import seeds

from headrace.thrifty import cardinalities as c
from headrace.thrifty.share.dag import Costs, Part, SharedPlan, alone
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
        given = simulated(subplans[name].plan, (1, 1), subplans[name].units, 1).given[0]
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
