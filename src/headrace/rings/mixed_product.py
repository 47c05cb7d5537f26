"""Products of covariance triples with categories, summed: the batch operation behind models with categorical features.

Each factor of a join gives, per key, a stretch of entries. Their product is the triple of the generalized covariance
ring (F-IVM, Definition 37), of which these parts are asked for: the scalars (Remark 39), per level of a category its
count and the sums of all features, and per pair of levels a count. A pair of categories of two factors needs only those
two, so that stretches never multiply out. Where only one factor has several entries per key, as in a join along foreign
keys, all of it is one pass (`mixed_together`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from headrace.rings import mixed_kernels as kernels
from headrace.rings.base import Positions
from headrace.rings.covariance import Doubles, Liftable, product_sum
from headrace.rings.mixed_together import Together
from headrace.rings.stretches import (
    Levels,
    MixedSums,
    Pairs,
    Stretches,
    Sums,
    is_dense,
    numbered_cells,
    pairs_of,
    spread_rows,
    summed,
)

_PIECE = 1 << 20  # pairs that are written down at a time


def mixed_product_sum(
    factors: Sequence[Stretches], lifted: Doubles, index: Positions, group_of: Positions, groups: int
) -> MixedSums:
    """Sum, by group, the products of the factors' elements.

    Parameters
    ----------
    lifted : continuous features that rows have themselves, of shape (features, rows); they come last.
    index : which key of each factor a row has, of shape (factors, rows).
    group_of, groups : the group of each row, and how many there are.
    """
    rows = index.shape[1]
    if lifted.shape[1] != rows or len(group_of) != rows or len(index) != len(factors):
        raise ValueError("mixed_product_sum was given rows that do not fit each other")
    if rows and not 0 <= group_of.min() <= group_of.max() < groups:
        raise ValueError("mixed_product_sum was given a group that does not exist")
    product = _Product(list(factors), np.ascontiguousarray(lifted), np.ascontiguousarray(index), group_of, groups)
    spread = product.spread_factor()
    if spread is not None:
        parts = product.factors, product.index, group_of, groups
        one_pass = Together(*parts, spread, product.first_features[spread], *product.others(spread))
        return MixedSums(product.moments(), one_pass.levels(), one_pass.pairs())
    return MixedSums(product.moments(), tuple(product.levels()), product.pairs())


@dataclass(frozen=True)
class _Product:
    factors: list[Stretches]
    lifted: Doubles
    index: Positions
    group_of: Positions
    groups: int

    @cached_property
    def first_features(self) -> list[int]:
        """The number of each factor's first feature."""
        return [sum(factor.degree for factor in self.factors[:i]) for i in range(len(self.factors) + 1)]

    @cached_property
    def _degree(self) -> int:
        return self.first_features[-1] + len(self.lifted)

    @cached_property
    def _counts(self) -> list[Doubles]:
        return [np.ascontiguousarray(f.heads[:, 0])[at] for f, at in zip(self.factors, self.index, strict=True)]

    def moments(self) -> Doubles:
        factors: list[Doubles | Liftable] = [factor.heads for factor in self.factors]
        degrees, index = [factor.degree for factor in self.factors], self.index
        if len(self.lifted):
            factors.append(Liftable(self.lifted))
            degrees.append(len(self.lifted))
            index = np.concatenate([index, np.arange(index.shape[1])[None, :]])
        return product_sum(factors, degrees, index, self.group_of, self.groups)

    def _count(self, *without: int) -> Doubles:
        """The product of the counts of all factors but some, per row."""
        out = np.ones(self.index.shape[1])
        for i, count in enumerate(self._counts):
            if i not in without:
                out *= count
        return out

    def others(self, factor: int) -> tuple[Doubles, Doubles]:
        """The count and the sums of the product of all factors but one, per row; with zeros for that one's features."""
        count, sums = self._count(factor), np.zeros((self.index.shape[1], self._degree))
        for i, other in enumerate(self.factors):
            if i != factor and other.degree:
                own = other.heads[:, 1 : 1 + other.degree][self.index[i]]
                sums[:, self.first_features[i] : self.first_features[i + 1]] = own * self._count(factor, i)[:, None]
        sums[:, self.first_features[-1] :] = (self.lifted * count).T
        return count, sums

    def spread_factor(self) -> int | None:
        """The factor whose entries are gone through, if all others have one entry per key; None if they do not."""
        having = [i for i, factor in enumerate(self.factors) if factor.sizes]
        several = [i for i in having if len(self.factors[i].payload) >= len(self.factors[i].starts)]
        return None if len(several) > 1 or not having else (several or having)[0]

    # -- level by level and pair by pair, where several factors have several entries per key ---------------------------

    def levels(self) -> list[Levels]:
        found = []
        for i, factor in enumerate(self.factors):
            if not factor.sizes:
                continue
            count, sums = self.others(i)
            entries, owners = self._spread(i)
            payload = np.ascontiguousarray(factor.payload)
            for code, size in zip(factor.codes, factor.sizes, strict=True):
                cells = self.group_of[owners] * size + code[entries]
                ids, slots = numbered_cells(cells, self.groups * size)
                out = np.zeros((len(ids), 1 + self._degree))
                kernels.add_levels(
                    slots, entries, owners, payload, factor.degree, self.first_features[i], count, sums, out
                )
                there = np.flatnonzero((out != 0).any(axis=1))
                found.append(Levels(*np.divmod(ids[there], size), out[there]))
        return found

    def _spread(self, factor: int) -> tuple[Positions, Positions]:
        return spread_rows(self.factors[factor], self.index[factor])

    def pairs(self) -> dict[tuple[int, int], Pairs]:
        out: dict[tuple[int, int], Pairs] = {}
        first = np.cumsum([0, *(len(factor.sizes) for factor in self.factors)])
        for i, factor in enumerate(self.factors):
            for (a, b), found in self._within(i).items():
                out[int(first[i] + a), int(first[i] + b)] = found
            for j in range(i + 1, len(self.factors)):
                for a in range(len(factor.sizes)):
                    for b in range(len(self.factors[j].sizes)):
                        out[int(first[i] + a), int(first[j] + b)] = self._crossed(i, a, j, b)
        return dict(sorted(out.items()))

    def _within(self, i: int) -> dict[tuple[int, int], Pairs]:
        """Pairs of categories of one factor: entries have both."""
        factor = self.factors[i]
        chosen = list(combinations(range(len(factor.sizes)), 2))
        if not chosen:
            return {}
        count, (entries, owners) = self._count(i), self._spread(i)
        cells = {(a, b): self.groups * factor.sizes[a] * factor.sizes[b] for a, b in chosen}
        dense = [pair for pair in chosen if is_dense(cells[pair], len(entries))]
        found: dict[tuple[int, int], Pairs] = {}
        if dense:
            base = np.cumsum([0, *(cells[pair] for pair in dense)])
            table = np.zeros(base[-1])
            left, right = np.array(dense, np.int64).T.copy()
            kernels.add_pairs(
                np.ascontiguousarray(factor.codes),
                self.group_of,
                entries,
                owners,
                np.ascontiguousarray(factor.payload),
                count,
                left,
                right,
                np.array(factor.sizes, np.int64),
                base,
                table,
            )
            for at, end, pair in zip(base[:-1], base[1:], dense, strict=True):
                ids = np.flatnonzero(table[at:end])
                found[pair] = pairs_of(ids, table[at:end][ids], factor.sizes[pair[0]], factor.sizes[pair[1]])
        for a, b in chosen:
            if (a, b) not in found:
                ids = self.group_of[owners] * factor.sizes[a] + factor.codes[a][entries]
                ids = ids * factor.sizes[b] + factor.codes[b][entries]
                weights = factor.payload[entries, 0] * count[owners]
                found[a, b] = pairs_of(*summed(ids, weights), factor.sizes[a], factor.sizes[b])
        return found

    def _crossed(self, i: int, a: int, j: int, b: int) -> Pairs:
        """Pairs of categories of two factors: every entry of one meets every entry of the other."""
        one, two = self._one(i, a), self._one(j, b)
        sizes = np.array([one.sizes[0], two.sizes[0]], np.int64)
        rest = self._count(i, j)
        arguments = (
            *(self.index[i], one.starts, one.codes[0], np.ascontiguousarray(one.payload[:, 0])),
            *(self.index[j], two.starts, two.codes[0], np.ascontiguousarray(two.payload[:, 0])),
            *(self.group_of, rest, sizes),
        )
        lengths = np.diff(one.starts)[self.index[i]] * np.diff(two.starts)[self.index[j]]
        cells = self.groups * int(sizes[0]) * int(sizes[1])
        if is_dense(cells, int(lengths.sum())):
            table = np.zeros(cells)
            kernels.add_crossed(*arguments, table)
            ids = np.flatnonzero(table)
            return pairs_of(ids, table[ids], one.sizes[0], two.sizes[0])
        sums = Sums()
        ends = np.cumsum(lengths)
        row = 0
        while row < len(lengths):
            done = ends[row - 1] if row else 0
            stop = max(row + 1, int(np.searchsorted(ends, done + _PIECE, side="right")))
            ids, weights = np.empty(ends[stop - 1] - done, np.int64), np.empty(ends[stop - 1] - done)
            kernels.crossed(*arguments, np.array([row, stop]), ids, weights)
            sums.add(ids, weights)
            row = stop
        return pairs_of(*sums.all(), one.sizes[0], two.sizes[0])

    def _one(self, i: int, category: int) -> Stretches:
        """The levels of one category of a factor, each once per key where that makes them fewer."""
        factor = self.factors[i]
        if len(factor.starts) - 1 == len(factor.payload):
            return Stretches(
                factor.payload[:, :1], 0, factor.starts, factor.codes[[category]], (factor.sizes[category],)
            )
        return self._collapsed.setdefault((i, category), factor.summed_to(category))

    @cached_property
    def _collapsed(self) -> dict[tuple[int, int], Stretches]:
        return {}
