"""The covariance ring: a count, m sums and m x m sums of products, carried through joins as one payload.

A model over a join needs only these numbers, and they multiply (F-IVM, section 8.1), so the join itself need not
exist. Sums here are plain doubles, not compensated ones: a payload has hundreds of them, and twice the memory and
six times the arithmetic would buy digits that a regression cannot use. The batch kernels below write straight into
their result, so that no matrix is ever allocated for a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.rings import kernels
from headrace.rings.base import Payload, Positions

Doubles: TypeAlias = NDArray[np.float64]

_SCRATCH = 1 << 22  # doubles set aside to bring the rows of a group together: 32 MB, about the last-level cache
_NEAR = 1 << 11  # rows to sort at a time where few are enough
_BLOCK_BYTES = 1 << 20  # what is gathered at a time: small enough for the cache, large enough for threads to overlap


def width(degree: int) -> int:
    """Return how many numbers an element has: 1 count, m sums and the upper triangle of m x m products."""
    return 1 + degree + degree * (degree + 1) // 2


def triangle(degree: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the two features of each product, in the order in which an element stores them."""
    left, right = np.triu_indices(degree)
    return left, right


def unpack(row: Doubles, degree: int) -> tuple[float, Doubles, Doubles]:
    """Split one element into its count, its sums and its full symmetric matrix of sums of products."""
    cofactor = np.empty((degree, degree))
    left, right = triangle(degree)
    cofactor[left, right] = cofactor[right, left] = row[1 + degree :]
    return float(row[0]), row[1 : 1 + degree].copy(), cofactor


def pack(count: float, sums: Doubles, cofactor: Doubles) -> Doubles:
    """Put a count, sums and a symmetric matrix together as one element; the inverse of `unpack`."""
    return np.concatenate([[count], sums, cofactor[triangle(len(sums))]])


def projected(rows: Doubles, degree: int, chosen: Sequence[int]) -> Doubles:
    """Restrict elements to some of their features, in the order given; takes one element or many."""
    features = np.asarray(chosen, np.intp)
    left, right = triangle(len(features))
    first, second = np.minimum(features[left], features[right]), np.maximum(features[left], features[right])
    products = 1 + degree + first * degree - first * (first - 1) // 2 + second - first
    return np.ascontiguousarray(rows[..., np.concatenate([[0], 1 + features, products])])


def permuted(rows: Doubles, degree: int, order: Sequence[int]) -> Doubles:
    """Reorder the features of elements: feature `order[j]` becomes feature j."""
    if sorted(order) != list(range(degree)):
        raise ValueError(f"{list(order)} is not an order of {degree} features")
    return projected(rows, degree, order)


@dataclass(frozen=True)
class Covariance:
    """Elements (count, sums, products) of a fixed number of features; a payload is one array (n, width).

    Plain double arithmetic: integers and their halves are exact up to 2**53, anything else is rounded once per
    operation. Adding an element and taking it away leaves what was there to one unit in the last place of the larger
    of the two, so `is_zero` is sure only of elements whose numbers are exact.

    >>> ring = Covariance(1)
    >>> lifted = (lift_sum(np.array([[2.0, 3.0]]), np.ones(2, np.int64), np.zeros(2, np.int64), 1),)
    >>> ring.multiply(lifted, ring.ones(1))
    (array([[ 2.,  5., 13.]]),)
    """

    degree: int

    def __post_init__(self) -> None:
        if self.degree < 0:
            raise ValueError("a covariance ring has no negative number of features")

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return (np.dtype((np.float64, (width(self.degree),))),)

    @property
    def exact(self) -> bool:
        return False

    def zeros(self, n: int) -> Payload:
        return (np.zeros((n, width(self.degree))),)

    def ones(self, n: int) -> Payload:
        (rows,) = self.zeros(n)
        rows[:, 0] = 1.0
        return (rows,)

    def add(self, left: Payload, right: Payload) -> Payload:
        return (left[0] + right[0],)

    def negate(self, payload: Payload) -> Payload:
        return (-payload[0],)

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        return (payload[0] * times.astype(np.float64)[:, None],)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        out = np.empty((len(left[0]), width(self.degree)))
        kernels.multiply(_rows(left[0]), _rows(right[0]), self.degree, out)
        return (out,)

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        # Few elements have no count, and only those can be zero.
        zero: NDArray[np.bool_] = payload[0][:, 0] == 0
        candidates = np.flatnonzero(zero)
        zero[candidates] = (payload[0][candidates] == 0).all(axis=1)
        return zero

    def gather(self, into: Payload, payload: Payload, positions: Positions, hits: Positions) -> None:
        gather_sum(into[0], payload[0], positions, hits)

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        (out,) = self.zeros(groups)
        kernels.add_rows(out, _rows(payload[0]), np.arange(len(group_of)), np.ascontiguousarray(group_of, np.int64))
        return (out,)

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        """Compare each number to one unit in the last place of the largest it could be.

        By Cauchy-Schwarz a sum of products is at most the root of the product of its two sums of squares, and it is
        to that scale that its rounding errors are relative: where it is small, its terms cancelled.
        """
        a, b = left[0], right[0]
        scale = np.maximum(np.maximum(np.abs(a), np.abs(b)), np.maximum(self._bound(a), self._bound(b)))
        same: NDArray[np.bool_] = (np.abs(a - b) <= np.spacing(scale)).all(axis=1)
        return same

    def _bound(self, rows: Doubles) -> Doubles:
        first, second = triangle(self.degree)
        root = np.sqrt(np.abs(rows[:, 1 + self.degree :][:, first == second]))
        count = np.sqrt(np.abs(rows[:, :1]))
        return np.concatenate([count * count, count * root, root[:, first] * root[:, second]], axis=1)

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        # Dyadic numbers whose threefold products stay below 2**53 units: the laws are those of the algebra, and
        # what rounding does is bounded elsewhere. No matrix here need be one that data could have.
        rows = rng.integers(-64, 65, (n, width(self.degree))) * 2.0 ** rng.integers(-1, 6, (n, 1))
        rows[rng.random(n) < 0.2, 0] = 0.0
        rows[rng.random(rows.shape) < 0.1] = 0.0
        rows[: min(n, 3)] = np.array([0.0, 1.0, -0.5])[:n, None]
        return (rows,)


def lift_sum(
    values: Doubles, diff: NDArray[np.int64], group_of: Positions, groups: int, rows: Positions | None = None
) -> Doubles:
    """Sum the lifted rows of each group: diff * (1, x, upper triangle of x x^T) for each row x.

    Parameters
    ----------
    values
        The features, of shape (q, n): a column of data is a row here.
    diff
        How many times each row was inserted (negative: deleted).
    group_of
        The group of each row; rows with a negative one are left out.
    groups
        How many groups there are.
    rows
        If given, only these rows are lifted, and `group_of[i]` is the group of row `rows[i]`.
    """
    degree, n = values.shape
    picked = np.arange(n) if rows is None else np.ascontiguousarray(rows, np.int64)
    _check_groups(group_of, len(picked), groups)
    if len(picked) and not 0 <= picked.min() <= picked.max() < min(n, len(diff)):
        raise ValueError("lift_sum was given rows that do not exist")
    out = np.zeros((groups, width(degree)))
    left, right = np.triu_indices(degree + 1)
    # Rows of a group that are together already, or are bound to be, need no more than the nearest cache to be sorted.
    together = bool((group_of[1:] >= group_of[:-1]).all())
    at_a_time = _NEAR if together else max(_NEAR, min(16 * groups, 1 << 18, _SCRATCH // (degree + 1)))
    columns = _read_only(np.ascontiguousarray(values, np.float64))
    kernels.lift_sum(columns, _read_only(diff), _read_only(group_of), picked, left, right, at_a_time, out)
    return out


@dataclass(frozen=True)
class Liftable:
    """Elements that are lifted from their features only when they are needed: a factor that is never stored."""

    values: Doubles  # of shape (features, n)

    def rows(self, positions: Positions, into: Doubles) -> None:
        """Lift the elements at some positions."""
        kernels.lift_rows(self.values, positions, into)


def product_sum(
    factors: Sequence[Doubles | Liftable],
    degrees: Sequence[int],
    index: Positions,
    group_of: Positions,
    groups: int,
) -> Doubles:
    """Sum the products of each group: row i is the product over c of `factors[c][index[c, i]]`.

    The features of the result are those of the factors one after the other, so every feature must be in one factor
    only. Costs O(width of the result) per row, whatever the number of factors.

    Parameters
    ----------
    factors
        Elements of shape (rows, width(degrees[c])), or such that are lifted as they are needed; memory maps are fine,
        only the rows needed are read.
    degrees
        The number of features of each factor; 0 is a factor that only has a count.
    index
        The row of each factor, of shape (number of factors, n).
    group_of
        The group of each product; those with a negative one are left out.
    groups
        How many groups there are.
    """
    n = index.shape[1]
    _check_groups(group_of, n, groups)
    for factor, degree, own in zip(factors, degrees, index, strict=True):
        if isinstance(factor, Liftable):
            wide, rows = width(len(factor.values)), factor.values.shape[1]
        else:
            rows, wide = factor.shape
        if wide != width(degree):
            raise ValueError(f"a factor of degree {degree} has rows of {wide} numbers")
        if n and not 0 <= own.min() <= own.max() < rows:
            raise ValueError("product_sum was given rows that do not exist")
    out = np.zeros((groups, width(sum(degrees))))
    order = kernels.by_group(_read_only(group_of), groups)
    # Gathered in blocks, factors of any number and kind are one flat array to the kernel, which is compiled once.
    widths = [width(degree) for degree in degrees]
    block = max(1, min(_BLOCK_BYTES // (8 * sum(widths)), n))
    base = np.cumsum([0, *widths], dtype=np.int64) * block
    flat = np.empty(base[-1])
    gathered = [flat[at : at + block * w].reshape(block, w) for at, w in zip(base[:-1], widths, strict=True)]
    for start in range(0, len(order), block):
        taken = order[start : start + block]
        for factor, own, into in zip(factors, index, gathered, strict=True):
            if isinstance(factor, Liftable):
                factor.rows(own[taken], into[: len(taken)])
            else:
                np.take(factor, own[taken], axis=0, out=into[: len(taken)], mode="clip")
        kernels.product_sum(flat, base, np.asarray(degrees, np.int64), group_of[taken], out)
    return out


def gather_sum(into: Doubles, payload: Doubles, positions: Positions, hits: Positions) -> None:
    """Add some elements to others in place: `into[hits[j]] += payload[positions[j]]`, for each j in turn."""
    if len(positions) != len(hits) or into.shape[1] != payload.shape[1]:
        raise ValueError("gather_sum was given arrays that do not fit each other")
    if not len(positions):
        return
    if min(positions.min(), hits.min()) < 0 or positions.max() >= len(payload) or hits.max() >= len(into):
        raise ValueError("gather_sum was given positions that do not exist")
    kernels.add_rows(into, _rows(payload), np.ascontiguousarray(positions), np.ascontiguousarray(hits))


def _check_groups(group_of: Positions, n: int, groups: int) -> None:
    # The kernels do not check bounds; this costs them a hundredth of their time.
    if len(group_of) != n:
        raise ValueError(f"{len(group_of)} group numbers were given for {n} rows")
    if n and group_of.max() >= groups:
        raise ValueError(f"group number {group_of.max()} was given where there are {groups} groups")


def _rows(rows: Doubles) -> Doubles:
    return _read_only(np.ascontiguousarray(rows, np.float64))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    # Numba compiles a kernel anew for read-only arrays, such as those of memory maps; so every input is one.
    view = np.ascontiguousarray(array).view(np.ndarray)
    view.flags.writeable = False
    return view
