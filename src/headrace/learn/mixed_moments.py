"""Moments of continuous and categorical features: what regression, mutual information and naive Bayes are fitted to.

One-hot encoding would turn a category of a thousand levels into a thousand columns, of which a row has one that is not
zero. So a category is kept by level, and two of them by the pairs of levels that occur (F-IVM, section 8.1); a model
that wants columns asks for them (`one_hot`), for the levels that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import SchemaError
from headrace.learn.moments import Doubles, Moments, instead, listed

Codes = NDArray[np.int64]
PairCounts = tuple[Codes, Codes, Codes]
"""Levels of one category, levels of another, and how many rows have both."""


class LazyPairs(Mapping[tuple[str, str], PairCounts]):
    """The pairs of levels of each two categories; their levels are looked up when somebody asks for them.

    Mutual information wants to know how often pairs occur, and not of which levels they are.

    Parameters
    ----------
    counts
        Per two categories, how many rows each pair of levels has that occurs.
    levels
        Gives the codes of both levels of these pairs.
    """

    def __init__(
        self, counts: Mapping[tuple[str, str], Codes], levels: Callable[[str, str], tuple[Codes, Codes]]
    ) -> None:
        self.counts = counts
        self._levels = levels

    def __getitem__(self, pair: tuple[str, str]) -> PairCounts:
        first, second = self._levels(*pair)
        by = np.lexsort((second, first))
        return first[by], second[by], self.counts[pair][by]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __contains__(self, pair: object) -> bool:
        return pair in self.counts


@dataclass(frozen=True, eq=False)
class Category:
    """The levels of one categorical feature.

    Parameters
    ----------
    values
        The values that occur, ascending; a level is a position in this array, its *code*.
    counts
        How many rows have each.
    shifted_sums
        Per level, the sums of the continuous features over its rows, each less its shift; of shape (levels, features).
    """

    values: pa.Array
    counts: Codes
    shifted_sums: Doubles

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class MixedMoments:
    """The moments of some continuous features of a join, by level of its categorical ones, and their pairs.

    >>> flat = Category(pa.array(["flat", "house"]), np.array([2, 1]), np.array([[90.0], [120.0]]))
    >>> mixed = MixedMoments(Moments(("area",), 3, np.array([210.0]), np.array([[18900.0]])), {"kind": flat})
    >>> mixed.count, mixed.categorical, mixed.levels("kind").to_pylist()
    (3, ('kind',), ['flat', 'house'])
    >>> mixed.level_counts("kind"), mixed.level_sums("kind")
    (array([2, 1]), array([[ 90.],
           [120.]]))
    >>> mixed.one_hot(drop=None).features
    ('area', 'kind=flat', 'kind=house')

    Parameters
    ----------
    continuous
        The moments of the continuous features.
    categories
        The categorical features by name, in order.
    pairs
        Per two of them, in that order, the pairs of levels that occur: codes of the first, codes of the second, counts.
    """

    continuous: Moments
    categories: Mapping[str, Category] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], PairCounts] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return round(self.continuous.count)

    @property
    def features(self) -> tuple[str, ...]:
        """All features, the continuous ones first."""
        return (*self.continuous.features, *self.categories)

    @property
    def categorical(self) -> tuple[str, ...]:
        """The names of the categorical features."""
        return tuple(self.categories)

    def levels(self, name: str) -> pa.Array:
        """The values of a categorical feature that occur, ascending; positions in this array are its codes."""
        return self._category(name).values

    def level_counts(self, name: str) -> Codes:
        """How many rows have each level."""
        return self._category(name).counts

    def level_sums(self, name: str) -> Doubles:
        """The sums of the continuous features over the rows of each level: one row per level."""
        own = self._category(name)
        total: Doubles = own.shifted_sums + np.outer(own.counts, self.continuous.shift)
        return total

    def pair_counts(self, a: str, b: str) -> PairCounts:
        """How many rows have a level of one categorical feature and one of another, for the pairs that occur.

        Returns codes of `a` (ascending), codes of `b`, and counts.
        """
        first, second = self._category(a), self._category(b)
        if first is second:
            every = np.arange(len(first))
            return every, every, first.counts
        if (a, b) in self.pairs:
            return self.pairs[a, b]
        codes_b, codes_a, counts = self.pairs[b, a]
        by = np.lexsort([codes_b, codes_a])
        return codes_a[by], codes_b[by], counts[by]

    def pair_sizes(self, a: str, b: str) -> Codes:
        """How many rows have each pair of levels that occurs, in any order."""
        if isinstance(self.pairs, LazyPairs) and a != b:
            return self.pairs.counts[(a, b) if (a, b) in self.pairs else (b, a)]
        return self.pair_counts(a, b)[2]

    def pair_table(self, a: str, b: str) -> Codes:
        """The same as a table of all levels of one by all levels of the other."""
        table = np.zeros((len(self._category(a)), len(self._category(b))), np.int64)
        codes_a, codes_b, counts = self.pair_counts(a, b)
        table[codes_a, codes_b] = counts
        return table

    def select(self, features: Sequence[str]) -> MixedMoments:
        """Restrict the moments to some features; continuous and categorical ones keep the order given."""
        unknown = [name for name in features if name not in self.features]
        if unknown:
            raise SchemaError(
                f"there is no feature {listed(unknown)} in these moments", way_out=instead(unknown, self.features)
            )
        numbers = [name for name in features if name not in self.categories]
        at = [self.continuous.features.index(name) for name in numbers]
        chosen = {
            name: Category(own.values, own.counts, own.shifted_sums[:, at])
            for name, own in ((name, self.categories[name]) for name in features if name in self.categories)
        }
        names = list(chosen)
        pairs = {(a, b): self.pair_counts(a, b) for i, a in enumerate(names) for b in names[i + 1 :]}
        return MixedMoments(self.continuous.select(numbers), chosen, pairs)

    def one_hot(self, drop: Mapping[str, int] | None = None) -> Moments:
        """The moments of a table in which each level is a column of zeros and ones, named `feature=value`.

        Parameters
        ----------
        drop
            Per category, the code of a level that gets no column.
        """
        kept = {name: self._kept(name, drop) for name in self.categories}
        names = [f"{name}={text}" for name in self.categories for text in self._texts(name, kept[name])]
        m, total = len(self.continuous.features), len(self.continuous.features) + len(names)
        first = dict(zip(kept, m + np.cumsum([0, *map(len, kept.values())]), strict=False))
        sums, cofactor = np.zeros(total), np.zeros((total, total))
        sums[:m], cofactor[:m, :m] = self.continuous.shifted_sums, self.continuous.shifted_cofactor
        for name, own in self.categories.items():
            at = np.arange(first[name], first[name] + len(kept[name]))
            sums[at] = cofactor[at, at] = own.counts[kept[name]]
            cofactor[at, :m] = own.shifted_sums[kept[name]]
            cofactor[:m, at] = own.shifted_sums[kept[name]].T
        for a, b in self._each_pair():
            rows, columns, counts = self._kept_pairs(a, b, kept)
            cofactor[first[a] + rows, first[b] + columns] = counts
            cofactor[first[b] + columns, first[a] + rows] = counts
        shift = np.concatenate([self.continuous.shift, np.zeros(len(names))])
        return Moments((*self.continuous.features, *names), self.continuous.count, sums, cofactor, shift)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _category(self, name: str) -> Category:
        if name not in self.categories:
            what = f"{name!r} is continuous" if name in self.continuous.features else f"there is no feature {name!r}"
            raise SchemaError(f"{what}, so it has no levels", way_out=instead([name], self.categorical))
        return self.categories[name]

    def _each_pair(self) -> Iterator[tuple[str, str]]:
        names = self.categorical
        return ((a, b) for i, a in enumerate(names) for b in names[i + 1 :])

    def _kept(self, name: str, drop: Mapping[str, int] | None) -> Codes:
        every = np.arange(len(self.categories[name]))
        return every if drop is None or name not in drop else np.delete(every, drop[name])

    def _texts(self, name: str, codes: Codes) -> list[str]:
        return [str(value) for value in self.categories[name].values.take(pa.array(codes)).to_pylist()]

    def _kept_pairs(self, a: str, b: str, kept: Mapping[str, Codes]) -> PairCounts:
        """Pairs of levels that have columns, by the number of the column within its category."""
        codes_a, codes_b, counts = self.pair_counts(a, b)
        column = {}
        for name in (a, b):
            column[name] = np.full(len(self.categories[name]), -1)
            column[name][kept[name]] = np.arange(len(kept[name]))
        rows, columns = column[a][codes_a], column[b][codes_b]
        there = (rows >= 0) & (columns >= 0)
        return rows[there], columns[there], counts[there]


def in_order(values: pa.Array) -> Codes:
    """The positions of values from the smallest to the largest, as levels are ordered."""
    return np.asarray(pc.sort_indices(values), np.int64)
