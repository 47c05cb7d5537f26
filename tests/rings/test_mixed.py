"""The generalized covariance ring: the paper's Example 38 in it, and products in bulk against rows multiplied out."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from headrace.rings.covariance import lift_sum
from headrace.rings.mixed import MixedCovariance, Ragged
from headrace.rings.mixed_product import mixed_product_sum
from headrace.rings.stretches import Stretches, Sums


def relation(column: Ragged, element: int = 0) -> dict[tuple[int, ...], list[float]]:
    at = np.flatnonzero(column.keys[0] == element)
    return {tuple(column.keys[1:, i].tolist()): column.values[i].tolist() for i in at}


def test_example_38() -> None:
    """V_ST[a2] = V_T[c2] * V_S[a2, c2] * g_C(c2) over the database of Figure 6, with C categorical."""
    d2, d3, e4, c2 = 37.0, 41.0, 61.0, 23
    ring = MixedCovariance(2, 1)  # D, E; C
    nothing = np.zeros((0, 1), np.int64)

    def lifted(**values: float) -> tuple[object, ...]:
        """A value of D or E alone: the other variables are summed away elsewhere."""
        only = MixedCovariance(2, 0)
        x = np.array([[values.get("D", 0.0)], [values.get("E", 0.0)]])
        return only.lift(x, nothing)

    v_t = ring.add(lifted(D=d2), lifted(D=d3))
    v_s = lifted(E=e4)
    g_c = ring.lift(np.zeros((2, 1)), np.array([[c2]]))
    scalars, levels, pairs = ring.multiply(ring.multiply(v_t, v_s), g_c)
    # Count; D and E; D*D, D*E and E*E: the scalars of Example 35.
    assert scalars.tolist() == [[2, d2 + d3, 2 * e4, d2**2 + d3**2, (d2 + d3) * e4, 2 * e4**2]]
    # s_3 = {c2 -> 2}, Q_(3,4) = {c2 -> d2 + d3}, Q_(3,5) = {c2 -> 2 e4}, and Q_(3,3) = {c2 -> 2}.
    assert relation(levels) == {(0, c2): [2, d2 + d3, 2 * e4]}
    assert relation(pairs) == {(0, c2, 0, c2): [2]}


@pytest.mark.parametrize("several", [0, 1, 3], ids=["foreign keys", "one with several", "many to many"])
@pytest.mark.parametrize("far", [False, True], ids=["dense", "hashed"])
@pytest.mark.parametrize("seed", range(6))
def test_products_in_bulk_are_those_of_rows(seed: int, far: bool, several: int) -> None:
    rng = np.random.default_rng(seed)
    degrees, categories = rng.integers(0, 3, 3), rng.integers(0, 3, 3)
    categories[0] += not categories.sum()
    heads, rows, groups = 4, 9, int(rng.integers(1, 4))
    many = 20_000 if far else 3
    data = []
    factors = []
    for f in range(3):
        lengths = rng.integers(1, 4, heads) if f < several else np.ones(heads, np.int64)
        n = int(lengths.sum())
        values = rng.integers(-3, 4, (degrees[f], n)).astype(float)
        codes = rng.integers(0, many, (categories[f], n)).astype(np.int32)
        times = rng.integers(1, 3, n)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        payload = lift_sum(values, times, np.arange(n), n)
        factors.append(Stretches(payload, int(degrees[f]), starts, codes, (many,) * int(categories[f])))
        data.append((values, codes, times, starts))
    index, group_of = rng.integers(0, heads, (3, rows)), rng.integers(0, groups, rows)
    lifted = rng.integers(-2, 3, (1, rows)).astype(float)
    found = mixed_product_sum(factors, lifted, index, group_of, groups)

    levels: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(categories.sum())]
    sums: dict[tuple[int, ...], np.ndarray] = {}
    pairs: dict[tuple[int, int], Counter[tuple[int, ...]]] = {}
    total: np.ndarray = np.zeros(groups)
    for r in range(rows):
        stretches = [range(data[f][3][index[f, r]], data[f][3][index[f, r] + 1]) for f in range(3)]
        for chosen in product(*stretches):
            times = int(np.prod([data[f][2][e] for f, e in enumerate(chosen)]))
            x = np.concatenate([*(data[f][0][:, e] for f, e in enumerate(chosen)), lifted[:, r]])
            code = [int(c) for f, e in enumerate(chosen) for c in data[f][1][:, e]]
            g = int(group_of[r])
            total[g] += times
            for k, own in enumerate(code):
                levels[k][g, own] += times
                sums[k, g, own] = sums.get((k, g, own), 0) + times * x
                for j in range(k + 1, len(code)):
                    pairs.setdefault((k, j), Counter())[g, own, code[j]] += times
    assert found.moments[:, 0].tolist() == total.tolist()
    for k, own in enumerate(found.levels):
        assert {(g, c): s[0] for g, c, s in zip(own.group, own.code, own.sums, strict=True)} == levels[k]
        for g, c, s in zip(own.group, own.code, own.sums, strict=True):
            assert s[1:].tolist() == sums[k, int(g), int(c)].tolist()
    assert found.pairs.keys() == pairs.keys()
    for key, own in found.pairs.items():
        got = zip(own.group.tolist(), own.left.tolist(), own.right.tolist(), strict=True)
        assert dict(zip(got, own.counts.tolist(), strict=True)) == pairs[key]


def test_sums_grow_and_leave_zeros_out() -> None:
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 30_000, 100_000)
    weights = rng.integers(-2, 3, 100_000).astype(float)
    sums = Sums()
    for part in np.array_split(np.arange(100_000), 7):
        sums.add(ids[part], weights[part])
    keys, values = sums.all()
    expected = np.bincount(ids, weights, 30_000)
    assert keys.tolist() == np.flatnonzero(expected).tolist()
    assert values.tolist() == expected[keys].tolist()


def test_factors_that_do_not_fit_are_refused() -> None:
    payload, starts = np.ones((2, 1)), np.array([0, 1, 2])
    with pytest.raises(ValueError, match="no level"):
        Stretches(payload, 0, starts, np.array([[0, 3]], np.int32), (3,))
    with pytest.raises(ValueError, match="not its entries"):
        Stretches(payload, 0, np.array([0, 1]), np.zeros((0, 2), np.int32), ())
    with pytest.raises(ValueError, match="do not fit"):
        Stretches(payload, 1, starts, np.zeros((0, 2), np.int32), ())
    factor = Stretches(payload, 0, starts, np.zeros((0, 2), np.int32), ())
    with pytest.raises(ValueError, match="group"):
        mixed_product_sum([factor], np.zeros((0, 1)), np.zeros((1, 1), np.int64), np.array([2]), 1)
