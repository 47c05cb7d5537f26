"""Moments of a payload against those of the rows themselves, shifted or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import NotEnoughDataError, SchemaError
from headrace.learn import Moments
from headrace.rings.covariance import lift_sum


def of_rows(features, rows, shift=None):
    """Make the moments of a table (n, m), lifted less a shift as a view does it."""
    rows = np.asarray(rows, np.float64)
    less = rows if shift is None else rows - shift
    n = len(rows)
    payload = lift_sum(np.ascontiguousarray(less.T), np.ones(n, np.int64), np.zeros(n, np.int64), 1)
    return Moments.of_row(features, payload[0], shift)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 200), st.booleans())
def test_moments_are_those_of_the_rows(seed, m, n, shifted):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, m)) * 3 + 1
    names = tuple(f"x{i}" for i in range(m))
    moments = of_rows(names, rows, rng.normal(size=m) if shifted else None)
    np.testing.assert_allclose(moments.sums, rows.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(moments.cofactor, rows.T @ rows, atol=1e-9)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), atol=1e-12)
    less = rows - rows.mean(axis=0)
    np.testing.assert_allclose(moments.centred(), less.T @ less, atol=1e-9)
    assert moments.count == n


def test_a_shift_keeps_the_digits_of_a_small_spread():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 2)) + 1e8
    less = rows - rows.mean(axis=0)
    exact = less.T @ less
    names = ("a", "b")
    shifted = of_rows(names, rows, np.array([1e8, 1e8]))
    np.testing.assert_allclose(shifted.centred(), exact, rtol=1e-10)
    assert abs(of_rows(names, rows).centred() - exact).max() > 1e-2 * exact.max()
    np.testing.assert_allclose(shifted.mean, rows.mean(axis=0), rtol=1e-15)


def test_a_centred_square_is_never_negative():
    moments = of_rows(("a",), np.full((1000, 1), 0.1))
    assert moments.centred()[0, 0] >= 0


def test_features_are_selected_by_name_with_their_shifts():
    rows = np.random.default_rng(1).normal(size=(20, 3))
    shift = np.array([1.0, 2.0, 3.0])
    chosen = of_rows(("a", "b", "c"), rows, shift).select(["c", "a"])
    assert chosen.features == ("c", "a")
    assert list(chosen.shift) == [3.0, 1.0]
    np.testing.assert_allclose(chosen.cofactor, rows[:, [2, 0]].T @ rows[:, [2, 0]], atol=1e-12)


def test_what_cannot_be_right_is_refused():
    moments = of_rows(("price", "size"), np.ones((2, 2)))
    with pytest.raises(SchemaError, match=r"no feature 'prize'(.|\n)*did you mean 'price', 'size'"):
        moments.select(["prize"])
    with pytest.raises(SchemaError, match=r"'zzz'(.|\n)*there are 'price', 'size'"):
        moments.select(["zzz"])
    with pytest.raises(SchemaError, match="more than once"):
        Moments(("a", "a"), 1, np.zeros(2), np.zeros((2, 2)))
    with pytest.raises(SchemaError, match="shapes"):
        Moments(("a", "b"), 1, np.zeros(2), np.zeros((3, 3)))
    with pytest.raises(SchemaError, match="payload of 3 numbers was given for 2 features"):
        Moments.of_row(("a", "b"), np.zeros(3))


def test_no_rows_have_no_mean():
    none = Moments(("a",), 0, np.zeros(1), np.zeros((1, 1)))
    assert list(none.sums) == [0.0]
    for ask in (lambda: none.mean, none.centred):
        with pytest.raises(NotEnoughDataError, match="no rows to learn from"):
            ask()
