"""Compensated sums against exact arithmetic with fractions, and against math.fsum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.rings import Compensated

RING = Compensated()
THREE = Compensated(3)


def exactly(payload) -> list[Fraction]:
    return [sum(map(Fraction, limbs), Fraction(0)) for limbs in zip(*payload, strict=True)]


def doubles(low: int, high: int) -> st.SearchStrategy[float]:
    return st.builds(
        lambda m, e, s: s * m * 10.0**e, st.floats(1, 10), st.integers(low, high), st.sampled_from([1, -1])
    )


def lift(*values: float):
    return RING.lift(np.array(values))


@settings(max_examples=200, deadline=None)
@given(before=doubles(-150, 150), other=doubles(-150, 150))
def test_insert_then_delete_gives_the_value_before_to_one_ulp(before, other):
    payload = RING.add(RING.add(lift(before), lift(other)), RING.negate(lift(other)))
    assert abs(RING.values(payload)[0] - before) <= math.ulp(before)


@settings(max_examples=60, deadline=None)
@given(st.lists(doubles(-6, 6), min_size=1, max_size=60), st.lists(doubles(-6, 6), max_size=60), st.randoms())
def test_a_stream_of_inserts_and_deletes_leaves_the_sum_of_what_is_there(kept, passing, random):
    # Values within twelve orders of magnitude of one another need fewer bits than a pair of doubles has.
    events = [(x, 1) for x in kept + passing]
    random.shuffle(events)
    deletions = [(x, -1) for x in passing]
    random.shuffle(deletions)
    payload = RING.zeros(1)
    for x, sign in events + deletions:
        payload = RING.add(payload, RING.scale(lift(x), np.array([sign])))
    expected = math.fsum(kept)
    assert abs(RING.values(payload)[0] - expected) <= math.ulp(expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(doubles(-100, 100), st.integers(0, 3)), min_size=1, max_size=80))
def test_grouped_sums_lose_no_more_than_a_hundredth_bit_of_the_largest(rows):
    values, groups = np.array([x for x, _ in rows]), np.array([g for _, g in rows])
    sums = exactly(RING.sum_by(RING.lift(values), groups, 4))
    for group in range(4):
        mine = [Fraction(x) for x, g in rows if g == group]
        assert abs(sums[group] - sum(mine)) <= sum(map(abs, mine), Fraction(0)) / 2**100


@settings(max_examples=200, deadline=None)
@given(doubles(-30, 0), doubles(-30, 0), doubles(0, 3), doubles(-30, 0), doubles(-30, 0), doubles(-30, -10))
def test_adding_pairs_that_nearly_cancel_keeps_a_hundred_bits_of_what_is_left(a, b, large, c, d, tiny):
    left = RING.add(RING.add(lift(large), lift(a)), lift(b))
    right = RING.add(RING.add(lift(-large * (1 + tiny)), lift(c)), lift(d))
    (x,), (y,), (total,) = exactly(left), exactly(right), exactly(RING.add(left, right))
    assert abs(total - (x + y)) <= abs(x + y) / 2**104


@settings(max_examples=100, deadline=None)
@given(doubles(-70, 70), doubles(-70, 70), doubles(-70, 70), doubles(-70, 70))
def test_products_of_pairs_are_right_to_a_hundred_bits(a, b, c, d):
    left, right = RING.add(lift(a), lift(b)), RING.add(lift(c), lift(d))
    (x,), (y,), (product,) = exactly(left), exactly(right), exactly(RING.multiply(left, right))
    assert abs(product - x * y) <= abs(x * y) / 2**100


@settings(max_examples=60, deadline=None)
@given(doubles(-100, 100), st.integers(-(2**40), 2**40))
def test_scaling_a_double_is_exact(x, times):
    assert exactly(RING.scale(lift(x, 1.0), np.array([times, 1]))) == [Fraction(x) * times, 1]


@pytest.mark.parametrize("x", [1.5e300, -1.7e308, 5e-324, -2.2250738585072014e-308, 0.1])
def test_a_minus_a_is_zero_even_at_the_edges_of_the_range(x):
    assert RING.is_zero(RING.add(lift(x), RING.negate(lift(x)))).all()
    assert RING.values(RING.multiply(lift(x), RING.ones(1)))[0] == x


def test_a_large_value_passing_through_leaves_no_residue():
    payload = lift(0.1)
    for x in (1e300, -1e300):
        payload = RING.add(payload, lift(x))
    assert RING.values(payload)[0] == 0.1


def test_no_elements_are_fine():
    none = RING.zeros(0)
    assert len(RING.values(RING.add(none, RING.negate(RING.multiply(none, none))))) == 0
    assert list(RING.values(RING.sum_by(none, np.zeros(0, np.int64), 2))) == [0.0, 0.0]


@pytest.mark.parametrize(("magnitude", "off_by"), [(1e26, 1e-4), (1e30, 1.0)])
def test_what_the_docs_say_of_large_numbers_that_came_and_went(magnitude: float, off_by: float) -> None:
    # docs/how-it-works.md: 32 digits lie between the largest sum a group ever had and the last digit that is right.
    rng = np.random.default_rng(5)
    cents = rng.integers(1, 10_000, 100) / 100
    large = rng.uniform(0.5, 1.5, 50) * magnitude
    total = lift(0.0)
    for value in [*cents, *large, *(-rng.permutation(large))]:
        total = RING.add(total, lift(value))
    assert abs(RING.values(total)[0] - math.fsum(cents)) < off_by


def three(*values: float):
    """One element of three doubles: the sum of these values."""
    return THREE.sum_by(THREE.lift(np.array(values)), np.zeros(len(values), np.int64), 1)


def test_a_sum_has_two_or_three_doubles():
    with pytest.raises(ValueError, match="two or three"):
        Compensated(4)


@settings(max_examples=200, deadline=None)
@given(st.lists(doubles(-60, 60), min_size=1, max_size=30), st.lists(doubles(-60, 60), min_size=1, max_size=30))
def test_three_doubles_lose_no_more_than_150_bits_of_the_largest(left, right):
    a, b = three(*left), three(*right)
    (x,), (y,), (total,), (product,) = map(exactly, (a, b, THREE.add(a, b), THREE.multiply(a, b)))
    magnitude = sum(abs(Fraction(v)) for v in left)
    assert abs(x - sum(map(Fraction, left))) <= magnitude / 2**150
    assert abs(total - (x + y)) <= (abs(x) + abs(y)) / 2**155
    assert abs(product - x * y) <= abs(x * y) / 2**150
    high, middle, low = (float(limb[0]) for limb in a)
    assert abs(middle) <= math.ulp(high), "what one double holds is below the last digit of the one before"
    assert abs(low) <= math.ulp(middle)


@settings(max_examples=100, deadline=None)
@given(doubles(-60, 60), st.integers(1, 10**6), st.integers(1, 10**6))
def test_equal_values_and_their_squares_are_summed_without_any_error(x, n, m):
    value = THREE.lift(np.array([x]))
    square = THREE.multiply(value, value)
    for element, exact in ((value, Fraction(x)), (square, Fraction(x) ** 2)):
        parts = [THREE.scale(element, np.array([times])) for times in (n, m)]
        assert exactly(THREE.add(*parts)) == [exact * (n + m)]


def test_squares_of_large_values_that_came_and_went_leave_nothing_that_shows():
    cents = np.random.default_rng(5).integers(1, 10_000, 100) / 100
    large = np.array([1e15, -3e14, 123456789.125e6])
    squares = THREE.multiply(THREE.lift(cents), THREE.lift(cents))
    gone = THREE.multiply(THREE.lift(large), THREE.lift(large))
    total = THREE.sum_by(squares, np.zeros(100, np.int64), 1)
    for i in range(3):
        total = THREE.add(total, tuple(limb[i : i + 1] for limb in gone))
    for i in (1, 0, 2):
        total = THREE.add(total, THREE.negate(tuple(limb[i : i + 1] for limb in gone)))
    assert THREE.values(total)[0] == float(sum(Fraction(x) ** 2 for x in cents))
