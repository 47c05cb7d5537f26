"""Sums by level and by pair in one pass, where all factors of a product but one have a single entry per key.

So it is in joins along foreign keys: a row meets one item, one shop and one day. Then a row has one level of each
category of those factors, and only the entries of the one other factor are gone through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from headrace.rings import mixed_kernels as kernels
from headrace.rings.base import Positions
from headrace.rings.covariance import Doubles
from headrace.rings.stretches import Levels, Pairs, Stretches, is_dense, is_wide, pairs_of, spread_rows, summed


@dataclass(frozen=True)
class Together:
    """The sums of one product.

    Parameters
    ----------
    factors, index, group_of, groups : as in `mixed_product_sum`.
    spread : the factor whose entries are gone through.
    first : the number of its first feature.
    counts, sums : the count and the sums of the product of the other factors, by row.
    """

    factors: list[Stretches]
    index: Positions
    group_of: Positions
    groups: int
    spread: int
    first: int
    counts: Doubles
    sums: Doubles

    def levels(self) -> tuple[Levels, ...]:
        """Sums by level, per category."""
        found = []
        for c, size in enumerate(self._sizes):
            if self._wide_at[c] >= 0:
                cells = self._tables[0][self._wide_at[c] : self._wide_at[c] + self.groups * size]
                there = np.flatnonzero((cells != 0).any(axis=1))
                found.append(Levels(*np.divmod(there, size), cells[there]))
            else:
                found.append(self._many_levels(c))
        return tuple(found)

    def pairs(self) -> dict[tuple[int, int], Pairs]:
        """Counts by pair of levels, per pair of categories."""
        out = {}
        for a, b in combinations(range(len(self._sizes)), 2):
            if (a, b) in self._table_at:
                part = self._tables[1][self._table_at[a, b] : self._table_at[a, b] + self._cells(a, b)]
                ids = np.flatnonzero(part)
                out[a, b] = pairs_of(ids, part[ids], self._sizes[a], self._sizes[b])
            else:
                out[a, b] = self._many_pairs(a, b)
        return out

    # -- one pass -----------------------------------------------------------------------------------------------------

    @cached_property
    def _owner(self) -> list[int]:
        """The factor of each category."""
        return [i for i, factor in enumerate(self.factors) for _ in factor.sizes]

    @cached_property
    def _sizes(self) -> list[int]:
        return [size for factor in self.factors for size in factor.sizes]

    @cached_property
    def _number(self) -> list[int]:
        """The number of each category among those of the factor that is gone through, or among the others."""
        mine = [owner == self.spread for owner in self._owner]
        return [mine[:c].count(own) for c, own in enumerate(mine)]

    @cached_property
    def _entries(self) -> int:
        return int(np.diff(self.factors[self.spread].starts)[self.index[self.spread]].sum())

    def _cells(self, a: int, b: int) -> int:
        return self.groups * self._sizes[a] * self._sizes[b]

    @cached_property
    def _wide_at(self) -> list[int]:
        """Where the levels of each category start; -1 if there are too many for a table of all of them."""
        out, rows = [], 0
        for size in self._sizes:
            fits = is_wide(self.groups * size, self._entries)
            out.append(rows if fits else -1)
            rows += self.groups * size * fits
        return out

    @cached_property
    def _table_at(self) -> dict[tuple[int, int], int]:
        """Where the cells of each pair start, for those that have a table."""
        out, cells = {}, 0
        for a, b in combinations(range(len(self._sizes)), 2):
            if is_dense(self._cells(a, b), self._entries):
                out[a, b] = cells
                cells += self._cells(a, b)
        return out

    @cached_property
    def _row_codes(self) -> NDArray[np.int32]:
        """The codes that each row has of all factors but one."""
        factors = zip(self.factors, self.index, strict=True)
        codes = [own[at] for i, (factor, at) in enumerate(factors) if i != self.spread for own in factor.codes]
        return np.stack(codes) if codes else np.empty((0, self.index.shape[1]), np.int32)

    @cached_property
    def _tables(self) -> tuple[Doubles, Doubles]:
        """The tables of levels and of pairs, filled."""
        rows = sum(self.groups * size for size, at in zip(self._sizes, self._wide_at, strict=True) if at >= 0)
        wide, table = (
            np.zeros((rows, 1 + self.sums.shape[1])),
            np.zeros(sum(self._cells(a, b) for a, b in self._table_at)),
        )
        factor = self.factors[self.spread]
        mine = [owner == self.spread for owner in self._owner]
        levels = [
            [(self._wide_at[c], self._sizes[c]) for c, own in enumerate(mine) if own is of] for of in (True, False)
        ]
        within: list[tuple[int, ...]] = []
        between: list[tuple[int, ...]] = []
        rest: list[tuple[int, ...]] = []
        for (a, b), at in self._table_at.items():
            one, two, per_group = self._number[a], self._number[b], self._sizes[a] * self._sizes[b]
            if mine[b] and not mine[a]:
                between.append((two, one, at, per_group, 1, self._sizes[b]))
            else:
                kind = within if mine[b] else between if mine[a] else rest
                kind.append((one, two, at, per_group, self._sizes[b], 1))
        kernels.add_together(
            *(factor.starts, self.index[self.spread], self.group_of),
            *((np.ascontiguousarray(factor.payload), factor.degree, self.first), (self.counts, self.sums)),
            *(np.ascontiguousarray(factor.codes), self._row_codes),
            *(_columns(levels[0], 2), _columns(levels[1], 2), wide),
            *(_columns(within, 6), _columns(between, 6), _columns(rest, 6), table),
        )
        return wide, table

    # -- too many levels for a table ----------------------------------------------------------------------------------

    @cached_property
    def _by_entry(self) -> tuple[Positions, Positions]:
        return spread_rows(self.factors[self.spread], self.index[self.spread])

    def _codes(self, category: int) -> Positions:
        """The codes of a category, for each entry of each row."""
        entries, rows = self._by_entry
        number = self._number[category]
        own = self._owner[category] == self.spread
        codes: NDArray[np.int32] = (
            self.factors[self.spread].codes[number][entries] if own else self._row_codes[number][rows]
        )
        return codes.astype(np.int64)

    def _many_levels(self, category: int) -> Levels:
        factor, (entries, rows), size = self.factors[self.spread], self._by_entry, self._sizes[category]
        ids, slots = np.unique(self.group_of[rows] * size + self._codes(category), return_inverse=True)
        out = np.zeros((len(ids), 1 + self.sums.shape[1]))
        payload = np.ascontiguousarray(factor.payload)
        kernels.add_levels(slots, entries, rows, payload, factor.degree, self.first, self.counts, self.sums, out)
        there = np.flatnonzero((out != 0).any(axis=1))
        group, code = np.divmod(ids[there], size)
        return Levels(group, code, out[there])

    def _many_pairs(self, a: int, b: int) -> Pairs:
        entries, rows = self._by_entry
        ids = (self.group_of[rows] * self._sizes[a] + self._codes(a)) * self._sizes[b] + self._codes(b)
        weights = self.factors[self.spread].payload[entries, 0] * self.counts[rows]
        return pairs_of(*summed(ids, weights), self._sizes[a], self._sizes[b])


def _columns(rows: Sequence[tuple[int, ...]], columns: int) -> Positions:
    return np.array(rows, np.int64).reshape(-1, columns)
