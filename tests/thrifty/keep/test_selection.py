"""The dynamic program chooses as well as trying everything, at any budget, and takes little time."""

from __future__ import annotations

import random
import time
from itertools import combinations, count, pairwise

import pytest
from tests.seeds import seeds

from headrace.plan.tree import JoinKind
from headrace.thrifty.keep.actions import Input, Leaf, Op, Request, State
from headrace.thrifty.keep.policies import by_benefit, by_program, everything, nothing
from headrace.thrifty.keep.selection import anew, cost_of, curve, select, states_of

_KINDS = (JoinKind.INNER, JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.FULL)


def random_plan(rng: random.Random, tables: int, view: str = "v") -> Op:
    """A join of some tables in a random order, with aggregates between, of which some tables change."""
    number = count()

    def made(tables: int) -> tuple[Op | Leaf, float, float]:
        if tables == 1:
            rows, delta = float(rng.randint(1, 10**6)), float(rng.choice([0, 0, rng.randint(1, 10_000)]))
            return Leaf(delta, 0.12 * rows), rows, delta
        split = rng.randint(1, tables - 1)
        sides = [made(split), made(tables - split)]
        rows = max(side[1] for side in sides)
        delta = sum(d * rows / r for _, r, d in sides)
        states = tuple(
            State((view, next(number)), int(rng.randint(1, 30) * r) + 1, r, side, rng.random() < 0.8)
            for side, (_, r, _) in enumerate(sides)
        )
        inputs = tuple(Input((node,), r, d) for node, r, d in sides)
        join = Op(rng.choice(_KINDS), inputs, states, rows, delta)
        if rng.random() > 0.3:
            return join, rows, delta
        groups = rows / 4 + 1
        state = State((view, next(number)), int(20 * groups) + 1, groups)
        given = min(2 * delta, 2 * groups)
        return Op(None, (Input((join,), rows, delta),), (state,), groups, given, delta / 9), groups, given

    below, rows, delta = made(tables)
    return Op(None, (Input((below,), rows, delta),), (), 10.0, 10.0, recomputable=rng.random() < 0.5)


def by_trial(plans: list[Op], budget: int) -> float:
    """The lowest cost of all choices that fit."""
    states = [state for plan in plans for _, state in states_of(plan)]
    return min(
        cost_of(plans, frozenset(state.key for state in kept))
        for size in range(len(states) + 1)
        for kept in combinations(states, size)
        if sum(state.bytes for state in kept) <= budget
    )


@seeds("state selection", 60, check=10)
def test_the_program_equals_trying_everything(seed: int) -> None:
    rng = random.Random(seed)
    plans = [random_plan(rng, rng.randint(2, 4), "v"), *([random_plan(rng, 2, "w")] if rng.random() < 0.5 else [])]
    states = [state for plan in plans for _, state in states_of(plan)]
    if len(states) > 9:
        plans = plans[1:] or [random_plan(rng, 3)]
        states = [state for plan in plans for _, state in states_of(plan)]
    for budget in (0, rng.randint(0, sum(state.bytes for state in states)), 10**12):
        found = select(plans, budget)
        assert found.cost == pytest.approx(by_trial(plans, budget))
        assert cost_of(plans, found.kept) == pytest.approx(found.cost)
        assert sum(state.bytes for state in states if state.key in found.kept) == found.bytes <= budget


@seeds("state curve", 20, check=5)
def test_more_memory_never_costs_more(seed: int) -> None:
    plan = random_plan(random.Random(seed), 6)
    points = curve([plan], 10**12)
    assert [point.bytes for point in points] == sorted({point.bytes for point in points})
    assert all(a.cost > b.cost for a, b in pairwise(points))
    for point in points[:: max(1, len(points) // 10)]:
        assert select([plan], point.bytes).cost == pytest.approx(point.cost)


@seeds("cached states", 20, check=5)
def test_no_other_choice_is_better(seed: int) -> None:
    rng = random.Random(seed)
    plans = [random_plan(rng, 5)]
    total = sum(state.bytes for _, state in states_of(plans[0]))
    for budget in (0, total // 10, total // 3, total):
        ours = cost_of(plans, by_program(plans, budget))
        cached = by_benefit(plans, budget)
        assert sum(state.bytes for _, state in states_of(plans[0]) if state.key in cached) <= budget
        assert ours <= cost_of(plans, cached) * (1 + 1e-9)
        assert ours <= cost_of(plans, nothing(plans, budget)) * (1 + 1e-9)
    assert everything(plans, 0) == {state.key for _, state in states_of(plans[0])}


def test_eight_tables_take_less_than_a_tenth_of_a_second() -> None:
    rng = random.Random(8)
    for _ in range(5):
        plan = random_plan(rng, 8)
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            curve([plan], 10**12)
            seconds.append(time.perf_counter() - start)
        assert min(seconds) < 0.1


def test_what_the_change_does_not_look_into_is_not_kept() -> None:
    left, right = State(("v", 0), 100, 1e6, 0), State(("v", 1), 100, 1e6, 1)
    facts, shops = Leaf(10.0, 1e6), Leaf(0.0, 1e6)
    join = Op(JoinKind.INNER, (Input((facts,), 1e6, 10.0), Input((shops,), 1e6, 0.0)), (left, right), 1e6, 10.0)
    root = Op(None, (Input((join,), 1e6, 10.0),), (), 10.0, 10.0)
    assert select([root], 1_000).kept == {right.key}
    assert select([root], 99).kept == frozenset()


def test_a_plan_is_computed_anew_if_nothing_helps() -> None:
    plan = random_plan(random.Random(1), 3)
    plan = Op(None, plan.inputs, (), 10.0, 10.0, recomputable=True)
    assert select([plan], 0).cost <= anew(plan)
    assert Request((True, True)) is Request.BOTH
