"""The covariance ring against outer products in NumPy, and its kernels against the ring's own operations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.rings import Covariance, Product, take
from headrace.rings.covariance import (
    gather_sum,
    lift_sum,
    pack,
    permuted,
    product_sum,
    projected,
    triangle,
    unpack,
    width,
)
from headrace.testing import check_ring

seeds = st.integers(0, 2**32 - 1)


def lifted(rows: np.ndarray) -> np.ndarray:
    """Lift each row of a table (n, m) on its own, with a matrix a row."""
    return np.array([pack(1.0, row, np.outer(row, row)) for row in rows]).reshape(len(rows), width(rows.shape[1]))


def table(rng: np.random.Generator, n: int, degree: int) -> np.ndarray:
    return rng.integers(-8, 9, (n, degree)) / 2  # exact, so that the order of summation cannot matter


def embedded(rows: np.ndarray, degree: int, at: int, total: int) -> np.ndarray:
    """Say the same of more features: those before `at` and after it are 0 everywhere."""
    out = []
    for row in rows:
        count, sums, cofactor = unpack(row, degree)
        wide, square = np.zeros(total), np.zeros((total, total))
        wide[at : at + degree] = sums
        square[at : at + degree, at : at + degree] = cofactor
        out.append(pack(count, wide, square))
    return np.array(out).reshape(len(rows), width(total))


@pytest.mark.parametrize("degree", [0, 1, 2, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_ring_obeys_the_laws(degree, seed):
    check_ring(Covariance(degree), seed=seed)
    check_ring(Product((Covariance(degree), Covariance(1))), seed=seed, rounds=3)


def test_the_laws_notice_a_product_of_numbers_and_a_column_too_few():
    class NumberByNumber(Covariance):
        def multiply(self, left, right):
            return (left[0] * right[0],)

    with pytest.raises(AssertionError, match=r"breaks 1 law:\n  one is neutral"):
        check_ring(NumberByNumber(2))

    class Flat(Covariance):
        def sample(self, rng, n):
            return (super().sample(rng, n)[0][:, :-1].copy(),)

    with pytest.raises(AssertionError, match=r"float64\[64, 5\], declared float64\[64, 6\]"):
        check_ring(Flat(2))


def test_equal_forgives_what_rounding_does_and_nothing_else():
    ring = Covariance(2)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 1000))
    row = lift_sum(x, np.ones(1000, np.int64), np.zeros(1000, np.int64), 1)
    halves = [
        lift_sum(x[:, half], np.ones(500, np.int64), np.zeros(500, np.int64), 1)
        for half in (slice(500), slice(500, None))
    ]
    assert ring.equal((row,), (row,)).all()
    assert np.allclose(row, halves[0] + halves[1], rtol=1e-13)
    for column in range(width(2)):
        other = row.copy()
        other[0, column] += 1e-9
        assert not ring.equal((row,), (other,)).any()


def test_the_layout_is_count_then_sums_then_the_triangle_row_by_row():
    row = lift_sum(np.array([[2.0], [3.0], [5.0]]), np.array([1]), np.array([0]), 1)[0]
    assert list(row) == [1, 2, 3, 5, 4, 6, 10, 9, 15, 25]
    assert list(zip(*triangle(3), strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    count, sums, cofactor = unpack(row, 3)
    assert count == 1
    assert list(sums) == [2, 3, 5]
    assert (cofactor == np.outer(sums, sums)).all()
    assert (pack(count, sums, cofactor) == row).all()


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(0, 7), st.integers(0, 300), st.integers(1, 40))
def test_lifted_sums_are_sums_of_outer_products(seed, degree, n, groups):
    rng = np.random.default_rng(seed)
    rows, diff = table(rng, n, degree), rng.integers(-2, 3, n)
    group_of = rng.integers(-1, groups, n)
    expected = np.zeros((groups, width(degree)))
    for row, times, group in zip(lifted(rows), diff, group_of, strict=True):
        if group >= 0:
            expected[group] += times * row
    assert (lift_sum(np.ascontiguousarray(rows.T), diff, group_of, groups) == expected).all()
    picked = rng.integers(0, n, n // 2) if n else np.zeros(0, np.int64)
    some = lift_sum(np.ascontiguousarray(rows.T), diff, group_of[picked], groups, picked)
    again = lift_sum(np.ascontiguousarray(rows[picked].T), diff[picked], group_of[picked], groups)
    assert (some == again).all()


def test_many_rows_are_sorted_in_parts():
    rng = np.random.default_rng(11)
    rows, diff, group_of = table(rng, 20_000, 3), rng.integers(-1, 2, 20_000), rng.integers(-1, 300, 20_000)
    ring = Covariance(3)
    kept = group_of >= 0
    (scaled,) = ring.scale((lifted(rows),), diff)
    (expected,) = ring.sum_by(take((scaled,), kept), group_of[kept], 300)
    for order in (np.arange(20_000), np.argsort(group_of, kind="stable")):
        values = np.ascontiguousarray(rows[order].T)
        assert (lift_sum(values, diff[order], group_of[order], 300) == expected).all()
    assert (lift_sum(values, diff[order], np.where(group_of[order] < 0, -1, 0), 1) == expected.sum(axis=0)).all()


@settings(max_examples=80, deadline=None)
@given(seeds, st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 200), st.integers(1, 60))
def test_sums_of_products_are_those_of_the_ring(seed, degrees, n, groups):
    rng = np.random.default_rng(seed)
    total, ring = sum(degrees), Covariance(sum(degrees))
    factors, wide, at = [], [], 0
    for degree in degrees:
        rows = lift_sum(
            np.ascontiguousarray(table(rng, 30, degree).T), rng.integers(-1, 2, 30), rng.integers(0, 9, 30), 9
        )
        factors.append(rows)
        wide.append(embedded(rows, degree, at, total))
        at += degree
    index = rng.integers(0, 9, (len(degrees), n))
    group_of = rng.integers(-1, groups, n)
    product = ring.ones(n)
    for rows, own in zip(wide, index, strict=True):
        product = ring.multiply(product, (rows[own],))
    kept = group_of >= 0
    (expected,) = ring.sum_by(take(product, kept), group_of[kept], groups)
    assert (product_sum(factors, degrees, index, group_of, groups) == expected).all()


@pytest.mark.parametrize("groups", [1, 7, 1500])
def test_more_products_than_a_block_holds(groups):
    rng = np.random.default_rng(12)
    degrees = (3, 0, 2)
    factors = [lifted(table(rng, 50, degree)) for degree in degrees]
    index, group_of = rng.integers(0, 50, (3, 1500)), rng.permutation(1500) % groups
    features = np.concatenate(
        [factor[own, 1 : 1 + m] for factor, own, m in zip(factors, index, degrees, strict=True)], 1
    )
    expected = lift_sum(np.ascontiguousarray(features.T), np.ones(1500, np.int64), group_of, groups)
    assert (product_sum(factors, degrees, index, group_of, groups) == expected).all()


def test_one_factor_is_a_sum_by_group_and_doubles_agree_to_rounding():
    rng = np.random.default_rng(13)
    rows = rng.normal(size=(40, width(4)))
    index, group_of = rng.integers(0, 40, (1, 900)), rng.integers(0, 5, 900)
    (expected,) = Covariance(4).sum_by((rows[index[0]],), group_of, 5)
    np.testing.assert_allclose(product_sum([rows], [4], index, group_of, 5), expected, rtol=1e-12, atol=1e-12)


def test_a_row_inserted_and_deleted_leaves_nothing_of_a_group_of_its_own():
    x = np.random.default_rng(1).normal(size=(6, 1))
    there = lift_sum(x, np.array([1]), np.array([0]), 1)
    away = lift_sum(x, np.array([-1]), np.array([0]), 1)
    assert Covariance(6).is_zero((there + away,)).all()


def test_gathered_sums_read_memory_maps(tmp_path):
    rng = np.random.default_rng(2)
    payload = rng.normal(size=(20, width(3)))
    payload.tofile(tmp_path / "payload")
    mapped = np.memmap(tmp_path / "payload", np.float64, "r", shape=payload.shape)
    positions, hits = rng.integers(0, 20, 50), rng.integers(0, 4, 50)
    expected = np.zeros((4, width(3)))
    np.add.at(expected, hits, payload[positions])
    for source in (payload, mapped):
        into = np.zeros((4, width(3)))
        gather_sum(into, source, positions, hits)
        assert (into == expected).all()
    index = rng.integers(0, 20, (2, 30))
    of_map = product_sum([mapped, mapped], [3, 3], index, np.zeros(30, np.int64), 1)
    assert (of_map == product_sum([payload, payload], [3, 3], index, np.zeros(30, np.int64), 1)).all()


@settings(max_examples=30, deadline=None)
@given(seeds, st.permutations(range(4)), st.lists(st.integers(0, 3), unique=True))
def test_features_can_be_reordered_and_chosen(seed, order, chosen):
    rows = table(np.random.default_rng(seed), 5, 4)
    assert (permuted(lifted(rows), 4, order) == lifted(rows[:, order])).all()
    assert (projected(lifted(rows), 4, chosen) == lifted(rows[:, chosen])).all()
    assert (projected(lifted(rows)[0], 4, chosen) == lifted(rows[:, chosen])[0]).all()


def test_what_cannot_be_right_is_refused():
    rows, one = np.ones((3, width(1))), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="not an order"):
        permuted(rows, 1, [1])
    with pytest.raises(ValueError, match="negative"):
        Covariance(-1)
    with pytest.raises(ValueError, match="group number 4"):
        lift_sum(np.ones((1, 1)), one, one + 4, 2)
    with pytest.raises(ValueError, match="2 group numbers were given for 1"):
        lift_sum(np.ones((1, 1)), one, np.zeros(2, np.int64), 2)
    with pytest.raises(ValueError, match="rows that do not exist"):
        lift_sum(np.ones((1, 1)), one, one, 1, one + 1)
    with pytest.raises(ValueError, match="rows that do not exist"):
        product_sum([rows], [1], np.array([[3]]), one, 1)
    with pytest.raises(ValueError, match="degree 2 has rows of 3"):
        product_sum([rows], [2], np.array([[0]]), one, 1)
    with pytest.raises(ValueError, match="positions that do not exist"):
        gather_sum(rows, rows, one, one + 3)
    with pytest.raises(ValueError, match="do not fit"):
        gather_sum(rows, rows, one, np.zeros(2, np.int64))


def test_the_view_tree_of_the_paper():
    # F-IVM, Example 35: R(A, B), S(A, C, E), T(C, D), features in the order A, B, C, D, E.
    r = np.array([[1, 10], [1, 11], [2, 12], [3, 13]], float)
    s = np.array([[1, 5, 20], [1, 5, 21], [1, 6, 22], [2, 6, 23]], float)
    t = np.array([[5, 30], [6, 31], [6, 32], [7, 33]], float)
    joined = [(a, b, c, d, e) for a, b in r for a2, c, e in s for c2, d in t if a == a2 and c == c2]
    expected = lifted(np.array(joined)).sum(axis=0)

    def lift(values, group_of, groups):
        return lift_sum(np.array(values)[None, :], np.ones(len(values), np.int64), np.array(group_of), groups)

    v_t = lift(t[:, 1], t[:, 0].astype(int) - 5, 3)  # by C: 5, 6, 7
    v_r = lift(r[:, 1], r[:, 0].astype(int) - 1, 3)  # by A: 1, 2, 3
    v_s = lift(s[:, 2], [0, 0, 1, 2], 3)  # by (A, C): (1, 5), (1, 6), (2, 6)
    g_a, g_c = lifted(np.array([[1.0], [2.0], [3.0]])), lifted(np.array([[5.0], [6.0], [7.0]]))
    c_of = np.array([0, 1, 1])
    v_st = product_sum([g_c, v_t, v_s], [1, 1, 1], np.array([c_of, c_of, [0, 1, 2]]), np.array([0, 0, 1]), 2)
    count, sums, cofactor = unpack(v_st[1], 3)  # V_ST[a2] as the paper spells it out, features C, D, E
    c2, d2, d3, e4 = 6, 31, 32, 23
    assert count == 2
    assert list(sums) == [2 * c2, d2 + d3, 2 * e4]
    assert cofactor.tolist() == [
        [2 * c2**2, c2 * (d2 + d3), 2 * c2 * e4],
        [c2 * (d2 + d3), d2**2 + d3**2, (d2 + d3) * e4],
        [2 * c2 * e4, (d2 + d3) * e4, 2 * e4**2],
    ]
    a_of = np.array([0, 1])
    root = product_sum([g_a, v_r, v_st], [1, 1, 3], np.array([a_of, a_of, a_of]), np.zeros(2, np.int64), 1)
    assert (root[0] == expected).all()
