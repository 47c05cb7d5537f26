"""Paces: what the simulation says of a choice, and that the search finds what trying everything finds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.seeds import seeds

from headrace.thrifty import cardinalities as c
from headrace.thrifty.incrementability import FULLY, incrementability, tradeoff
from headrace.thrifty.measured import Measured
from headrace.thrifty.observed import Flushed, OperatorFlow, next_trigger
from headrace.thrifty.paces import Search
from headrace.thrifty.simulate import FlatPlan, simulated
from headrace.thrifty.unit_costs import Passes, UnitCosts

ROWS = UnitCosts.alike(3, start=0.0, taken=1.0, given=0.0)
ASSUMED = UnitCosts.assumed([c.GROUP, c.INNER, c.GROUP])
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
    points = tradeoff(Search(above_average(), ASSUMED))
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
    search = Search(random_plan(rng), UnitCosts.alike(3, rng.choice([0.0, 50.0, 500.0]), 0.2, 0.12), most=8)
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
    search = Search(above_average(), ASSUMED)
    for share in (0.5, 0.2, 0.1, 0.05):
        for found in (search.best(share), search.by_source(share, (False, True, False)), search.hand_tuned(share)):
            average, customers, answer = found.paces
            assert answer <= min(average, customers)


def test_plans_survive_the_log() -> None:
    plan = next_trigger(above_average())
    again = FlatPlan.from_json(plan.to_json())
    assert simulated(again, (3, 4, 2), ASSUMED, 100) == simulated(plan, (3, 4, 2), ASSUMED, 100)


def test_unit_costs_are_fitted_to_flushes_of_different_sizes() -> None:
    """Operators, and small and large flushes, have costs of their own; noise does not make the estimates too low."""
    rng = np.random.default_rng(7)
    assumed = UnitCosts.assumed([c.INNER, c.GROUP, c.GROUP], Passes(1, 4, limit=20_000))
    true = np.array(
        [
            [(900.0, 0.5, 0.2), (200.0, 0.05, 0.4), (700.0, 0.1, 0.1), (3000.0, 0.3, 100.0)],
            [(4000.0, 1.0, 0.4), (900.0, 0.1, 0.8), (2500.0, 0.3, 0.1), (6000.0, 0.5, 400.0)],
        ]
    )

    def flush(rows: float) -> Flushed:
        flows, large = {}, int(3 * rows > 20_000)
        for n in range(3):
            given = rows * rng.random()
            cpu = true[large, n] @ [1.0, rows, given] * rng.uniform(0.7, 1.3)
            flows[n] = OperatorFlow(left=(rows, 0.0, 0.0), given=(given, 0.0, 0.0), cpu=1e-6 * cpu)
        rest = true[large, 3] @ [1.0, 3 * rows, 3.0] * rng.uniform(0.7, 1.3)
        return Flushed(flows, cpu=sum(flow.cpu for flow in flows.values()) + 1e-6 * rest)

    flushes = [flush(rows) for rows in (50, 500, 2_000, 6_000, 20_000, 100_000) * 100]
    fitted = Measured().after(flushes, assumed).units(assumed)
    for size, rows in ((0, 100.0), (0, 5_000.0), (1, 50_000.0)):
        for n in range(3):
            quantities = np.array([1.0, rows, rows / 2])
            assert fitted.table[size, n] @ quantities == pytest.approx(true[size, n] @ quantities, rel=0.1)
        flush_itself = np.array([1.0, 3 * rows, 3.0])
        assert fitted.table[size, 3] @ flush_itself == pytest.approx(true[size, 3] @ flush_itself, rel=0.1)


def test_without_flushes_the_assumed_costs_count() -> None:
    assert Measured().units(ASSUMED) is ASSUMED


def test_large_flushes_that_nobody_has_seen_are_as_much_dearer_as_assumed() -> None:
    assumed = UnitCosts.assumed([c.INNER], Passes(1, 4, limit=1_000))
    flow = OperatorFlow(left=(100.0, 0.0, 0.0), cpu=0.002)
    fitted = Measured().after([Flushed({0: flow}, cpu=0.004)] * 50, assumed).units(assumed)
    assert fitted.table[0, 0] @ [1.0, 100.0, 0.0] == pytest.approx(2_000, rel=0.05)
    assert fitted.table[1] / fitted.table[0] == pytest.approx(assumed.table[1] / assumed.table[0])
