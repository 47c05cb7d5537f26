"""Sums by level and counts by pair as one table, whoever computed them: what the systems of a run are compared by.

A system that has only SQL answers with one query of grouping sets: no column, each category, and each pair of them. The
products of continuous features are left out there, so that it has less to do than Headrace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import HeadraceError
from headrace.learn.mixed_moments import MixedMoments

_RELATIVE = 1e-9

Key = tuple[tuple[str, int], ...]
"""Categories with their levels: none, one or two of them."""


@dataclass(frozen=True)
class Answer:
    """Counts by no category, by one and by two; and with at most one, the sums of the continuous features."""

    counts: dict[Key, int]
    sums: dict[Key, NDArray[np.float64]]

    @classmethod
    def of(cls, mixed: MixedMoments) -> Answer:
        """Read an answer from moments."""
        counts: dict[Key, int] = {(): mixed.count}
        sums: dict[Key, NDArray[np.float64]] = {(): mixed.continuous.sums}
        values = {name: mixed.levels(name).to_pylist() for name in mixed.categorical}
        for name in mixed.categorical:
            for value, n, row in zip(values[name], mixed.level_counts(name), mixed.level_sums(name), strict=True):
                counts[((name, value),)], sums[((name, value),)] = int(n), row
        for a, b in combinations(mixed.categorical, 2):
            for x, y, n in zip(*mixed.pair_counts(a, b), strict=True):
                counts[(a, values[a][x]), (b, values[b][y])] = int(n)
        return cls(counts, sums)

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[Any]], categorical: Sequence[str]) -> Answer:
        """Read an answer from the rows of `grouping_sets`."""
        counts: dict[Key, int] = {}
        sums: dict[Key, NDArray[np.float64]] = {}
        k = len(categorical)
        for row in rows:
            # The first category is the highest bit, and a bit that is set stands for a category that is summed over.
            there = [i for i in range(k) if not int(row[k]) >> (k - 1 - i) & 1]
            key = tuple((categorical[i], int(row[i])) for i in there)
            counts[key] = int(row[k + 1])
            if len(key) < 2:
                sums[key] = np.array([0.0 if x is None else x for x in row[k + 2 :]], np.float64)
        return cls(counts, sums)


def grouping_sets(join: str, categorical: Sequence[str], continuous: Sequence[str]) -> str:
    """The query of all levels and pairs of levels."""
    sets = ["()", *(f"({name})" for name in categorical), *(f"({a}, {b})" for a, b in combinations(categorical, 2))]
    names = ", ".join(categorical)
    sums = ", ".join(f"SUM({name})" for name in continuous)
    return (
        f"SELECT {names}, GROUPING_ID({names}), COUNT(*), {sums} FROM ({join}) AS joined "
        f"GROUP BY GROUPING SETS ({', '.join(sets)})"
    )


def difference(case: str, ours: Answer, other: str, theirs: Answer) -> float:
    """The largest difference of sums, relative to their size; a wrong count or a wrong sum stops the benchmark."""
    wrong = [key for key in ours.counts.keys() | theirs.counts.keys() if ours.counts.get(key) != theirs.counts.get(key)]
    worst = 0.0
    if not wrong:
        largest = np.max([np.abs(row) for row in ours.sums.values()], axis=0, initial=1.0)
        worst = max(
            float((np.abs(row - theirs.sums[key]) / largest).max(initial=0.0)) for key, row in ours.sums.items()
        )
    if wrong or worst > _RELATIVE:
        said = f"{len(wrong)} counts, as of {wrong[0]}" if wrong else f"sums by up to {worst:.1e}"
        raise HeadraceError(
            f"{case} and {other} disagree: {said}.",
            way_out="Report this with the command that you ran: one of them is wrong.",
        )
    return worst
