"""Integer against Python's own integers modulo 2**(64 * limbs)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.rings import Integer, take

LIMBS = [1, 2, 3]


def wrapped(value: int, limbs: int) -> int:
    half = 1 << (64 * limbs - 1)
    return (value + half) % (2 * half) - half


def elements(ring: Integer, values: list[int]):
    columns = [[(value >> (64 * limb)) % 2**64 for value in values] for limb in range(ring.limbs)]
    return tuple(np.array(c, np.uint64).view(dtype) for c, dtype in zip(columns, ring.dtypes, strict=True))


def numbers(limbs: int) -> st.SearchStrategy[int]:
    edges = [sign * (1 << bits) + by for bits in (0, 31, 32, 63, 64, 127, 128) for sign in (1, -1) for by in (-1, 0, 1)]
    anything = st.integers(-(2 ** (64 * limbs - 1)), 2 ** (64 * limbs - 1) - 1)
    return st.one_of(anything, st.sampled_from([wrapped(edge, limbs) for edge in edges]))


@pytest.mark.parametrize("limbs", LIMBS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_arithmetic_is_that_of_integers_modulo_a_power_of_two(limbs, data):
    ring = Integer(limbs)
    pairs = data.draw(st.lists(st.tuples(numbers(limbs), numbers(limbs)), min_size=1, max_size=20))
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    a, b = elements(ring, left), elements(ring, right)
    assert ring.values(a) == left
    assert ring.values(ring.add(a, b)) == [wrapped(x + y, limbs) for x, y in pairs]
    assert ring.values(ring.multiply(a, b)) == [wrapped(x * y, limbs) for x, y in pairs]
    assert ring.values(ring.negate(a)) == [wrapped(-x, limbs) for x in left]
    assert list(ring.is_zero(a)) == [x == 0 for x in left]
    assert list(ring.equal(a, b)) == [x == y for x, y in pairs]


@pytest.mark.parametrize("limbs", LIMBS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_scaling_and_grouped_sums_are_those_of_integers(limbs, data):
    ring = Integer(limbs)
    triples = data.draw(
        st.lists(
            st.tuples(numbers(limbs), st.integers(-(2**63), 2**63 - 1), st.integers(0, 4)), min_size=1, max_size=30
        )
    )
    a = elements(ring, [x for x, _, _ in triples])
    scaled = ring.scale(a, np.array([k for _, k, _ in triples], np.int64))
    assert ring.values(scaled) == [wrapped(x * k, limbs) for x, k, _ in triples]
    sums = ring.sum_by(scaled, np.array([g for _, _, g in triples]), 5)
    assert ring.values(sums) == [wrapped(sum(x * k for x, k, g in triples if g == group), limbs) for group in range(5)]


@pytest.mark.parametrize("limbs", LIMBS)
@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=10))
def test_lifting_keeps_the_number(limbs, values):
    assert Integer(limbs).values(Integer(limbs).lift(np.array(values, np.int64))) == values


@pytest.mark.parametrize("limbs", [2, 3])
@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.integers(-(2**127), 2**127 - 1), min_size=1, max_size=10))
def test_lifting_halves_keeps_the_number(limbs, values):
    low = np.array([value % 2**64 for value in values], np.uint64)
    high = np.array([value >> 64 for value in values], np.int64)
    assert Integer(limbs).values(Integer(limbs).lift_pairs(low, high)) == values


def test_one_limb_cannot_hold_128_bits():
    with pytest.raises(ValueError, match="at least two limbs"):
        Integer(1).lift_pairs(np.zeros(1, np.uint64), np.zeros(1, np.int64))


@pytest.mark.parametrize("limbs", LIMBS)
def test_no_elements_are_fine(limbs):
    ring = Integer(limbs)
    none = ring.zeros(0)
    assert ring.values(ring.multiply(ring.add(none, none), ring.negate(none))) == []
    assert ring.values(ring.sum_by(none, np.zeros(0, np.int64), 2)) == [0, 0]
    assert len(take(none, np.zeros(0, bool))) == limbs


def test_a_sum_that_overflows_on_the_way_comes_back_exact():
    ring = Integer(1)
    total = ring.sum_by((np.array([2**63 - 1, 5, -7]),), np.zeros(3, np.int64), 1)
    assert ring.values(total) == [2**63 - 3]
