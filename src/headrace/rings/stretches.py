"""Relational payloads in bulk: stretches of entries, and the sums by level and by pair of levels that come of them.

A *stretch* is the entries of one key of a view, each a covariance triple for one combination of categories: together
they are the relational payload of the key (F-IVM, Definition 37). Tables of sums are dense where the codes of a batch
span few cells, and hashed where they span many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace.rings import mixed_kernels as kernels
from headrace.rings.base import Positions
from headrace.rings.covariance import Doubles, width

_CELLS, _CELLS_PER_ENTRY = 4096, 4  # a table is dense if it has at most so many cells
_WIDE_CELLS = 256


@dataclass(frozen=True)
class Stretches:
    """A factor: the entries of each of its keys.

    Parameters
    ----------
    payload : the covariance triple of each entry, over the factor's continuous features.
    degree : how many features these are.
    starts : where the entries of each key start, and where the last ones end.
    codes : the number of each entry's level, one row per category.
    sizes : how many levels each category has.
    """

    payload: Doubles
    degree: int
    starts: Positions
    codes: NDArray[np.int32]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        n = len(self.payload)
        if self.payload.shape[1] != width(self.degree) or self.codes.shape != (len(self.sizes), n):
            raise ValueError("a factor's payloads or codes do not fit each other")
        if not len(self.starts) or self.starts[0] != 0 or self.starts[-1] != n or (np.diff(self.starts) < 0).any():
            raise ValueError("the stretches of a factor are not its entries")
        for own, size in zip(self.codes, self.sizes, strict=True):
            if n and not 0 <= own.min() <= own.max() < size:
                raise ValueError("a factor has a code that is no level")

    @cached_property
    def heads(self) -> Doubles:
        """The sum of each key's entries."""
        if len(self.starts) == len(self.payload) + 1 and (np.diff(self.starts) == 1).all():
            return self.payload
        out = np.zeros((len(self.starts) - 1, self.payload.shape[1]))
        kernels.sum_stretches(np.ascontiguousarray(self.payload), self.starts, out)
        return out

    def summed_to(self, category: int) -> Stretches:
        """The stretches with one of the categories only, and counts only."""
        owner = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        ids, counts = summed(owner * self.sizes[category] + self.codes[category], self.payload[:, 0])
        owner, code = np.divmod(ids, self.sizes[category])
        starts = np.searchsorted(owner, np.arange(len(self.starts)))
        return Stretches(counts[:, None], 0, starts, code[None, :], (self.sizes[category],))


@dataclass(frozen=True)
class Levels:
    """Sums by level: the group and code of each level, and its count followed by the sums of all features."""

    group: Positions
    code: Positions
    sums: Doubles


@dataclass(frozen=True)
class Pairs:
    """Counts by pair of levels."""

    group: Positions
    left: Positions
    right: Positions
    counts: Doubles


@dataclass(frozen=True)
class MixedSums:
    """A sum of products per group.

    Parameters
    ----------
    moments : the covariance triple of each group; features are those of the factors, one after the other.
    levels : per category, in the order of the factors.
    pairs : per pair of categories, by their numbers, the smaller one first.
    """

    moments: Doubles
    levels: tuple[Levels, ...]
    pairs: dict[tuple[int, int], Pairs]


def spread_rows(factor: Stretches, index: Positions) -> tuple[Positions, Positions]:
    """The entries of each row's key, and the row that each belongs to."""
    starts = factor.starts
    if starts[-1] == len(starts) - 1 == len(index) and (np.diff(index, prepend=-1) == 1).all():
        return index, index  # each row has one entry, and they are in order
    count = int((starts[index + 1] - starts[index]).sum())
    entries, owners = np.empty(count, np.int64), np.empty(count, np.int64)
    kernels.spread(starts, index, entries, owners)
    return entries, owners


class Sums:
    """Sums by number, in a hash table that grows."""

    def __init__(self) -> None:
        self._keys, self._values = np.full(1 << 12, -1), np.zeros(1 << 12)

    def add(self, ids: Positions, weights: Doubles) -> None:
        while True:
            done = kernels.add_hashed(ids, weights, self._keys, self._values)
            if done == len(ids):
                return
            ids, weights = ids[done:], weights[done:]
            keys, values = self._taken()
            size = 4 * len(self._keys)
            self._keys, self._values = np.full(size, -1), np.zeros(size)
            kernels.add_hashed(keys, values, self._keys, self._values)

    def _taken(self) -> tuple[Positions, Doubles]:
        there = np.flatnonzero(self._keys >= 0)
        return self._keys[there], self._values[there]

    def all(self) -> tuple[Positions, Doubles]:
        """The numbers that have a sum other than zero, ascending, and their sums."""
        keys, values = self._taken()
        order = np.argsort(keys)
        order = order[values[order] != 0]
        return keys[order], values[order]


def summed(ids: Positions, weights: Doubles) -> tuple[Positions, Doubles]:
    sums = Sums()
    sums.add(ids, np.ascontiguousarray(weights, np.float64))
    return sums.all()


def numbered_cells(ids: Positions, cells: int) -> tuple[Positions, Positions]:
    """The cells that get a row of their own, and the row of each entry."""
    if is_wide(cells, len(ids)):
        return np.arange(cells), ids
    found, rows = np.unique(ids, return_inverse=True)
    return found, rows


def is_wide(cells: int, entries: int) -> bool:
    """Whether all levels get a row: rows are wide, so there must be fewer of them than entries."""
    return cells <= _WIDE_CELLS + entries // 4


def is_dense(cells: int, entries: int) -> bool:
    return cells <= _CELLS + _CELLS_PER_ENTRY * entries


def pairs_of(ids: Positions, counts: Doubles, left: int, right: int) -> Pairs:
    rest, b = np.divmod(ids, right)
    group, a = np.divmod(rest, left)
    return Pairs(group, a, b, counts)
