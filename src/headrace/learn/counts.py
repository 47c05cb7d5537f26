"""How often the levels of categorical features occur, alone and in pairs: what is learned from categories.

These are the aggregates C_0, C_X and C_XY of Section 8.2: SUM(1), alone, by one variable and by two. The covariance
ring over categorical variables keeps them; any object that has them will do here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Protocol

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import NotEnoughDataError, SchemaError
from headrace.learn.moments import Doubles, instead, listed

Integers = NDArray[np.int64]

_jit: Any = nb.njit(cache=True, nogil=True)


class Counts(Protocol):
    """The counts of categorical features and of each pair of them."""

    @property
    def count(self) -> float:
        """The number of rows."""
        ...

    @property
    def categorical(self) -> tuple[str, ...]:
        """The names of the features."""
        ...

    def levels(self, name: str) -> pa.Array:
        """The levels of a feature."""
        ...

    def level_counts(self, name: str) -> Integers:
        """How often each level occurs, in the order of `levels`."""
        ...

    def pair_counts(self, a: str, b: str) -> tuple[Integers, Integers, Integers]:
        """The pairs of levels that occur, as positions in `levels` of both features, and how often each does."""
        ...

    def pair_sizes(self, a: str, b: str) -> Integers:
        """How often each pair of levels that occurs does, in any order."""
        ...


def chosen(counts: Counts, features: Sequence[str] | None, label: str | None = None) -> tuple[str, ...]:
    """The features to learn from, all by default, with the label as the last; refuses unknown ones, or no rows."""
    names = [name for name in counts.categorical if name != label] if features is None else list(features)
    names += [] if label is None else [label]
    unknown = [name for name in names if name not in counts.categorical]
    if unknown:
        raise SchemaError(
            f"there is no categorical feature {listed(unknown)} in these counts",
            way_out=instead(unknown, counts.categorical),
        )
    if not counts.count > 0:
        raise NotEnoughDataError(
            f"there are no rows to learn from: the count is {counts.count:g}",
            way_out="insert rows that join first; a filter or a key that never matches also leaves nothing",
        )
    return tuple(names)


def pairs_of(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The positions of each two of the names, the first before the second."""
    return ((i, j) for i in range(len(names)) for j in range(i + 1, len(names)))


def sum_of_logs(counts: Sequence[Integers]) -> Doubles:
    """The sum of c log c over each array of counts; zeros add nothing.

    >>> sum_of_logs([np.array([1, 2]), np.array([], np.int64), np.array([3, 0, 3])]).round(4)
    array([1.3863, 0.    , 6.5917])
    """
    known = _small()
    return np.array([_sum_of_logs(np.ascontiguousarray(part, np.int64), known) for part in counts], np.float64)


@cache
def _small() -> Doubles:
    """c log c for counts below 32,768, which most are: a look into the cache is faster than a logarithm."""
    counts = np.arange(1 << 15, dtype=np.float64)
    return counts * np.log(np.maximum(counts, 1.0))


@_jit
def _sum_of_logs(counts: Integers, known: Doubles) -> float:
    total = 0.0
    for count in counts:
        if count < len(known):
            total += known[count] if count > 0 else 0.0
        else:
            total += count * np.log(float(count))
    return total


def check_categories(features: Sequence[str] | None, label: str | None = None, least: int = 1) -> None:
    """Refuse a list of features that is a string, too short, has the label or has a name twice."""
    if isinstance(features, str):
        raise SchemaError(f"features is the string {features!r}", way_out=f"pass a list: [{features!r}]")
    if features is None:
        return
    if label is not None and label in features:
        raise SchemaError(f"the label {label!r} is among the features", way_out="leave it out of them")
    if len(features) < least:
        raise SchemaError(f"{len(features)} features are too few", way_out=f"name at least {least}")
    twice = sorted({name for name in features if list(features).count(name) > 1})
    if twice:
        raise SchemaError(f"{listed(twice)} is among the features more than once", way_out="name each feature once")
