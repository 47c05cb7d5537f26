"""From the stored answer of moments with categories to values that models are fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import StorageError
from headrace.factorized.mixed_answer import MixedAnswer
from headrace.learn.mixed_moments import Category, LazyPairs, MixedMoments, in_order
from headrace.learn.moments import Moments
from headrace.relation.arrangement import alive
from headrace.relation.kernels import Positions, Words
from headrace.relation.keys import values_of_words
from headrace.relation.run import Run
from headrace.relation.variables import is_hashed

Codes = NDArray[np.uint64]


def mixed_moments(
    answer: MixedAnswer,
    moments: Sequence[Moments],
    groups: Words,
    runs: Mapping[str, Run | None],
    names: Mapping[str, str],
    order: Sequence[int],
) -> list[MixedMoments]:
    """Put the moments of each group together with its levels and pairs.

    Parameters
    ----------
    moments, groups : the moments of the continuous features of each group, and its key.
    runs : the stored levels, pairs and values, each added up; None where there is nothing.
    names : the variable of each categorical feature, by the name that users see.
    order : the number that each continuous feature has in the stored sums.
    """
    return _Reading(answer, runs, list(order)).of_groups(moments, groups, names)


class _Reading:
    def __init__(self, answer: MixedAnswer, runs: Mapping[str, Run | None], order: list[int]) -> None:
        self.answer, self.order = answer, order
        self.levels, self.pairs, self.values = (_there(runs.get(part)) for part in ("levels", "pairs", "=values"))
        self.width = answer.keys.width  # words of a group's key, behind the hash

    def of_groups(self, moments: Sequence[Moments], groups: Words, names: Mapping[str, str]) -> list[MixedMoments]:
        levels, pairs = (self._by_group(run, groups) for run in (self.levels, self.pairs))
        return [self._one(own, levels[i], pairs[i], names) for i, own in enumerate(moments)]

    def _by_group(self, run: Run | None, groups: Words) -> list[Positions]:
        """The entries of each group."""
        if run is None:
            return [np.zeros(0, np.int64)] * groups.shape[1]
        if groups.shape[1] == 1:
            return [np.flatnonzero((run.words[1 : 1 + self.width] == groups).all(axis=0))]
        keys = np.concatenate([groups, run.words[1 : 1 + self.width]], axis=1)
        number = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
        sliced = _sliced(number[groups.shape[1] :], int(number.max(initial=-1)) + 1)
        return [sliced[one] for one in number[: groups.shape[1]]]

    def _one(self, moments: Moments, levels: Positions, pairs: Positions, names: Mapping[str, str]) -> MixedMoments:
        categories: dict[str, Category] = {}
        codes: dict[str, Codes] = {}  # in the order of levels
        columns = [1 + number for number in self.order]
        numbered = self._numbers(self.levels, levels, len(self.answer.categories))
        for name, variable in names.items():
            at = numbered[self.answer.categories.index(variable)]
            if self.levels is None or not len(at):
                values = pa.array([], self._type(variable))
                codes[name] = np.zeros(0, np.uint64)
                categories[name] = Category(values, np.zeros(0, np.int64), np.zeros((0, len(columns))))
                continue
            found = np.ascontiguousarray(self.levels.words[-1, at])
            values = self._decoded(variable, found)
            by = in_order(values)
            sums = self.levels.payload[0][at[by]]
            codes[name] = found[by]
            counts = _rounded(sums[:, 0])
            categories[name] = Category(values.take(pa.array(by)), counts, np.ascontiguousarray(sums[:, columns]))
        return MixedMoments(moments, categories, self._pairs(pairs, names, codes))

    def _numbers(self, run: Run | None, at: Positions, count: int) -> list[Positions]:
        """The entries of each category, or of each pair of them, among some entries."""
        if run is None:
            return [at] * count
        return [at[mine] for mine in _sliced(run.words[1 + self.width, at].astype(np.int64), count)]

    def _pairs(self, at: Positions, names: Mapping[str, str], codes: Mapping[str, Codes]) -> LazyPairs:
        every = self._numbers(self.pairs, at, len(self.answer.pairs))
        counts = np.zeros(0, np.int64) if self.pairs is None else _rounded(self.pairs.payload[0][:, 0])
        number = {pair: i for i, pair in enumerate(self.answer.pairs)}
        index = {name: self.answer.categories.index(variable) for name, variable in names.items()}
        rows = {
            (a, b): every[number[min(index[a], index[b]), max(index[a], index[b])]]
            for i, a in enumerate(names)
            for b in list(names)[i + 1 :]
        }

        def levels(a: str, b: str) -> tuple[Positions, Positions]:
            if self.pairs is None:
                return rows[a, b], rows[a, b]
            words = self.pairs.words[-2:, rows[a, b]]
            left, right = words if index[a] < index[b] else words[::-1]
            return _positions(codes[a], left), _positions(codes[b], right)

        return LazyPairs({pair: counts[mine] for pair, mine in rows.items()}, levels)

    def _type(self, variable: str) -> pa.DataType:
        return self.answer.variables.kinds[variable].type.arrow

    def _decoded(self, variable: str, codes: Codes) -> pa.Array:
        kind = self.answer.variables.kinds[variable].type
        if not is_hashed(kind):
            return values_of_words(codes[None, :], kind, None)
        assert self.values is not None, "a level is counted in the same steps as its value"
        mine = np.flatnonzero(self.values.words[1] == np.uint64(self.answer.categories.index(variable)))
        known = self.values.words[2, mine]
        order = np.argsort(known)
        if (known[order][1:] == known[order][:-1]).any():
            raise StorageError(
                f"two values of {variable!r} have the same code, so that their counts cannot be told apart",
                way_out="rename one of them: one pair of a million values in ten million million has one code",
            )
        at = np.searchsorted(known[order], codes)
        found = self.values.values["value"].take(pa.array(mine[order[at]]))
        return found.cast(kind.arrow)


def _there(run: Run | None) -> Run | None:
    """The entries that exist."""
    if run is None:
        return None
    run = run.take(np.flatnonzero(alive(run.payload)))
    return run if run.rows else None


def _sliced(numbers: Positions, count: int) -> list[Positions]:
    """The positions of each number below `count`; small numbers are sorted by their digits, in linear time."""
    small = numbers.astype(np.uint16) if count < 1 << 16 else numbers
    order = np.argsort(small, kind="stable")
    bounds = np.searchsorted(small[order], np.arange(1, count).astype(small.dtype))
    return np.split(order, bounds)


def _rounded(sums: NDArray[np.float64]) -> NDArray[np.int64]:
    counts: NDArray[np.int64] = np.rint(sums).astype(np.int64)
    return counts


def _positions(codes: Codes, wanted: Codes) -> Positions:
    order = np.argsort(codes)
    found: Positions = order[np.searchsorted(codes[order], wanted)]
    return found
