"""Paces: what the simulation says of a choice, and that the search finds what trying everything finds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.seeds import seeds

from headrace.thrifty import cardinalities as c
from headrace.thrifty.incrementability import FULLY, incrementability, tradeoff
from headrace.thrifty.observed import Flushed, Measured, OperatorFlow, next_trigger
from headrace.thrifty.paces import Search
from headrace.thrifty.simulate import UNIT_COSTS, FlatPlan, UnitCosts, simulated

ROWS = UnitCosts(start=0.0, taken=1.0, given=0.0)
N = 10_000.0


def above_average() -> FlatPlan:
    """Customers above the average balance: path "0" is the average on its way to the join, "1.left" the customers.

    All customers are summed into the average as they come. Half of them are above it.
    """
    parameters = np.zeros((3, c.PARAMETERS))
    parameters[0, [c.GROUPS, c.ROWS, c.NEW, c.SHOWN]] = 1, N, 1, 1
    join = {c.LEFT_ROWS: N, c.RIGHT_ROWS: 1, c.PAIRS: N / 2, c.PARTNERS: 1, c.SCALE: 1, c.RIGHT_CHURN: N / 2}
    for at, value in join.items():
        parameters[1, at] = value
    parameters[2, [c.GROUPS, c.ROWS, c.NEW, c.SHOWN, c.KAPPA]] = N / 2, N / 2, N / 2, 1, 1  # each row is its own group
    arriving = np.zeros((3, 2, 3))
    arriving[0, 0, 0] = arriving[1, 0, 0] = N
    feeds = np.array([[0, 1, 1], [1, 2, 0]])
    kinds, path_of = np.array([c.GROUP, c.INNER, c.GROUP]), np.array([[0, -1], [1, -1], [2, -1]])
    passing = np.stack([np.eye(3)] * 2)
    return FlatPlan(kinds, parameters, path_of, arriving, feeds, passing, ("0", "1.left", "2"), ((0, 2), (1, 2)))


def test_a_batch_does_everything_at_the_trigger() -> None:
    work = simulated(above_average(), (1, 1, 1), ROWS, 100)
    assert work.total == work.final
    assert work.total_rows == work.final_rows
    # The average is one group; the join takes all customers and one average; the answer takes half of the customers.
    assert work.rows == pytest.approx({0: 1, 1: N + 1, 2: N / 2})


def test_customers_early_beat_the_average_early() -> None:
    """The example of InQP: of (average, customers, answer), is (1, 2, 1) better than (2, 1, 1)?"""
    search = Search(above_average(), ROWS, most=100)
    batch, customers, average = (search.cost(paces) for paces in ((1, 1, 1), (1, 2, 1), (2, 1, 1)))
    assert batch.final_rows - customers.final_rows == pytest.approx(N / 2), "half of them are in the join already"
    assert customers.total_rows == pytest.approx(batch.total_rows), "and nothing is done twice"
    assert average.final_rows >= batch.final_rows - 1, "an average alone saves nothing"
    assert average.total_rows > batch.total_rows
    assert search.best(0.7).paces[1] > 1


def test_an_average_that_follows_its_rows_takes_back_what_it_gave() -> None:
    search = Search(above_average(), ROWS, most=100)
    lazy, eager = search.cost((1, 10, 1)), search.cost((10, 10, 10))
    assert eager.total_rows > 2 * lazy.total_rows
    found = {one.path: one for one in incrementability(above_average(), {"1.left": 10, "0": 1, "2": 1})}
    assert found["1.left"].kind == FULLY
    assert found["1.left"].operator is None
    assert found["2"].kind != FULLY
    assert found["2"].operator == 2, "the answer takes the same customers again and again"


def test_a_tradeoff_gets_dearer_towards_fresh() -> None:
    points = tradeoff(Search(above_average(), UNIT_COSTS))
    assert points[0].additional == pytest.approx(0.0)
    reached = [point for point in points if point.feasible]
    assert [point.additional for point in reached] == sorted(point.additional for point in reached)
    assert all(point.final <= point.share for point in reached)


def random_plan(rng: random.Random) -> FlatPlan:
    """A join of two sources, or of a source and an aggregate, under an aggregate."""
    plan = above_average()
    parameters, arriving = plan.parameters.copy(), plan.arriving.copy()
    parameters[0, c.GROUPS] = rng.choice([1, 10, 1000, 5000])
    parameters[0, c.NEW] = parameters[0, c.GROUPS] * rng.random()
    parameters[:, c.KAPPA] = [rng.random() for _ in range(3)]
    parameters[1, c.RIGHT_ROWS] = max(1.0, parameters[0, c.NEW])
    parameters[1, c.RIGHT_CHURN] = rng.choice([0.0, 1.0, 20.0])
    parameters[1, c.LEFT_BASE] = rng.choice([0.0, N])
    parameters[2, c.GROUPS] = rng.choice([1.0, 100.0, N / 2])
    arriving[0, 0, 0] = parameters[0, c.ROWS] = rng.choice([100.0, N])
    return FlatPlan(plan.kinds, parameters, plan.path_of, arriving, plan.feeds, plan.passing, plan.paths, plan.children)


@seeds("paces", 30, check=10, kept=(2999732054, 3383080240))
def test_the_search_is_near_the_best_of_all_paces(seed: int) -> None:
    rng = random.Random(seed)
    search = Search(random_plan(rng), UnitCosts(start=rng.choice([0.0, 50.0, 500.0])), most=8)
    share = rng.choice([0.9, 0.5, 0.3, 0.2])
    best, found = search.exhaustive(share), search.best(share)
    assert found.feasible == best.feasible
    if best.feasible:
        assert found.work.final <= search.final_work(share)
        assert found.work.total <= 1.5 * best.work.total
        assert found.work.total <= search.uniform(share).work.total
        sampled = search.sampled(share, 20, rng)
        assert not sampled.feasible or found.work.total <= 1.5 * sampled.work.total


def test_no_parent_is_faster_than_its_child() -> None:
    search = Search(above_average(), UNIT_COSTS)
    for share in (0.5, 0.2, 0.1, 0.05):
        for found in (search.best(share), search.by_source(share, (False, True, False)), search.hand_tuned(share)):
            average, customers, answer = found.paces
            assert answer <= min(average, customers)


def test_plans_survive_the_log() -> None:
    plan = next_trigger(above_average())
    again = FlatPlan.from_json(plan.to_json())
    assert simulated(again, (3, 4, 2), UNIT_COSTS, 100) == simulated(plan, (3, 4, 2), UNIT_COSTS, 100)


def test_unit_costs_are_fitted_to_flushes_of_different_sizes() -> None:
    start, row = 900.0, 0.5

    def flush(rows: float, operators: int) -> Flushed:
        flows = {n: OperatorFlow(left=(rows, 0.0, 0.0)) for n in range(operators)}
        return Flushed(flows, cpu=1e-6 * operators * (start + row * rows))

    flushes = [flush(rows, operators) for rows in (100, 1_000, 30_000, 200_000) for operators in (3, 8)]
    fitted = Measured().after(flushes * 40).units
    assert fitted.start == pytest.approx(start, rel=0.1)
    assert fitted.taken == pytest.approx(row, rel=0.1)
    assert Measured().units.start == pytest.approx(UNIT_COSTS.start)
