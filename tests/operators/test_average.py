"""Averages of exact sums against Python's own integers, to the last digit, whichever way they are divided."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.operators.average import decimal_averages, double_averages
from headrace.rings import Integer, Payload


def payload_of(limbs: int, totals: list[int]) -> Payload:
    ring = Integer(limbs)
    parts = [[(total >> (64 * limb)) % 2**64 for total in totals] for limb in range(limbs)]
    return tuple(np.array(part, np.uint64).view(dtype) for part, dtype in zip(parts, ring.dtypes, strict=True))


def divided(limbs: int, totals: list[int], counts: list[int], shift: int, limit: int = 10**38) -> list[int] | None:
    halves = decimal_averages(Integer(limbs), payload_of(limbs, totals), np.array(counts, np.int64), shift, limit)
    if halves is None:
        return None
    return [int(low) + (int(high) << 64) for low, high in zip(halves[0], halves[1].view(np.int64), strict=True)]


def by_hand(total: int, count: int, shift: int) -> int:
    if not count:
        return 0
    rounded = (2 * abs(total) * shift + count) // (2 * count)
    return rounded if total >= 0 else -rounded


COUNTS = st.one_of(st.integers(0, 20), st.integers(1, 2**31 + 2), st.integers(2**31 - 2, 2**40))
SHIFTS = st.integers(0, 4).map(lambda digits: 10**digits)


def totals(bits: int) -> st.SearchStrategy[int]:
    edges = [s * (2**k + d) for k in (0, 31, 32, 63, 64, 96, bits - 1) for d in (-1, 0, 1) for s in (1, -1)]
    inside = [edge for edge in edges if -(2**bits) <= edge < 2**bits]
    return st.one_of(st.sampled_from(inside), st.integers(0, bits).flatmap(lambda k: st.integers(-(2**k), 2**k - 1)))


@pytest.mark.parametrize("limbs", [1, 2, 3])
@settings(max_examples=150, deadline=None)
@given(data=st.data(), shift=SHIFTS)
def test_quotients_are_those_of_python(limbs, data, shift):
    groups = data.draw(st.lists(st.tuples(totals(min(64 * limbs - 1, 140)), COUNTS), max_size=12))
    # What fits no decimal is an error, and has a test of its own.
    groups = [(total, n) for total, n in groups if abs(by_hand(total, n, shift)) < 10**38]
    expected = [by_hand(total, n, shift) for total, n in groups]
    assert divided(limbs, [t for t, _ in groups], [n for _, n in groups], shift) == expected


@pytest.mark.parametrize("count", [1, 3, 2**33])  # the last is divided by Python
@pytest.mark.parametrize("precision", [5, 19, 20, 38])
def test_the_first_value_that_does_not_fit_is_noticed(count, precision):
    limit = 10**precision
    assert divided(3, [(limit - 1) * count, (1 - limit) * count], [count] * 2, 1, limit) == [limit - 1, 1 - limit]
    for total in (limit * count, -limit * count, limit * count * 2):
        assert divided(3, [0, total], [1, count], 1, limit) is None
    assert divided(3, [limit * count], [0], 1, limit) == [0], "there is nothing to divide"


def test_halves_round_away_from_zero_at_any_width():
    for unit in (1, 2**40, 2**70, 2**100):
        assert divided(2, [5 * unit, -5 * unit, 3, -3], [2 * unit % 2**31 or 2] * 2 + [2, 2], 1) == [
            by_hand(5 * unit, 2 * unit % 2**31 or 2, 1),
            by_hand(-5 * unit, 2 * unit % 2**31 or 2, 1),
            2,
            -2,
        ]


@pytest.mark.parametrize("limbs", [1, 2, 3])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_averages_of_integers_round_the_exact_sum_once(limbs, data):
    groups = data.draw(st.lists(st.tuples(totals(min(64 * limbs - 1, 140)), st.integers(0, 2**40)), max_size=12))
    sums, counts = [t for t, _ in groups], [n for _, n in groups]
    averages = double_averages(Integer(limbs), payload_of(limbs, sums), np.array(counts, np.int64))
    assert averages.tolist() == [float(total) / n if n else 0.0 for total, n in groups]


@pytest.mark.serial
def test_many_groups_take_no_time():
    rng = np.random.default_rng(1)
    ring, counts = Integer(2), rng.integers(1, 10**6, 200_000)
    payload = ring.lift(rng.integers(-(2**60), 2**60, 200_000))
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        decimal_averages(ring, payload, counts, 10**4, 10**30)
        double_averages(ring, payload, counts)
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.05
