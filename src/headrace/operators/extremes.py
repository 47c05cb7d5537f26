"""MIN and MAX under deletions: the first (or last) value of each group that is still alive.

The ordered arrangement of a group is a few sorted stretches, one per run, which may still hold both deleted values and
the deletions that cancel them. For all groups at once, a growing window at the end of each stretch is added up until
the nearest value with a positive count is certain. The window starts at one entry, which nearly always suffices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation import kernels, probing
from headrace.relation.kernels import Positions, Words
from headrace.relation.keys import strings_of_words, values_of_words
from headrace.relation.run import consolidate
from headrace.relation.runset import AnyRun, Entries, RunSet, as_set
from headrace.relation.types import SqlType
from headrace.rings import COUNT

_GROWTH = 8


def extreme_values(runs: Sequence[AnyRun], groups: Words, kind: SqlType, *, smallest: bool) -> pa.Array:
    """Find MIN (or MAX) of each group as an Arrow array; NULL where no value is alive."""
    words, found = _extreme_words(as_set(runs), groups, kind, smallest)
    if kind.kind == "string":
        return strings_of_words(words, ~found)
    return values_of_words(words, kind, ~found)


def _extreme_words(runs: RunSet, groups: Words, kind: SqlType, smallest: bool) -> tuple[Words, NDArray[np.bool_]]:
    depth, m = groups.shape
    narrow = 2 if kind.precision > 18 else 1
    width = max([run.words.shape[0] for run in runs], default=depth + narrow)
    out, found = np.zeros((width - depth, m), np.uint64), np.zeros(m, bool)
    stretches = runs.find(groups)
    window = 1
    while stretches.shape[1]:
        run, low, high, owner = stretches
        start, stop = (low, np.minimum(high, low + window)) if smallest else (np.maximum(low, high - window), high)
        entries = Entries(*probing.expand(np.stack([run, start, stop, owner])))
        values = _values(runs, entries.runs, entries.positions, depth, width, smallest)
        (counts,) = runs.payload(entries.runs, entries.positions)
        bound = _Bound(width - depth, m)
        cut = np.flatnonzero((stop < high) if smallest else (start > low))
        edge = stop[cut] - 1 if smallest else start[cut]
        bound.lower(owner[cut], _values(runs, run[cut], edge, depth, width, smallest))
        keys = np.concatenate([entries.owners.astype(np.uint64)[None, :], values])
        sums = consolidate(COUNT, keys, (counts,), {})
        owners = sums.words[0].astype(np.int64)
        certain = (sums.payload[0] > 0) & bound.covers(owners, sums.words[1:])
        winners, at = np.unique(owners[certain], return_index=True)
        chosen = sums.words[1:, np.flatnonzero(certain)[at]]
        out[:, winners] = chosen if smallest else ~chosen
        found[winners] = True
        undecided = bound.exists.copy()
        undecided[winners] = False
        stretches, window = stretches[:, undecided[owner]], window * _GROWTH
    return out, found


def _values(runs: RunSet, run_of: Positions, positions: Positions, depth: int, width: int, smallest: bool) -> Words:
    words = runs.words(run_of, positions, depth, width)
    return words if smallest else ~words


class _Bound:
    """Per group, how far its windows reach: beyond this bound, some run has entries that were not looked at."""

    def __init__(self, width: int, m: int) -> None:
        self.words = np.zeros((width, m), np.uint64)
        self.exists = np.zeros(m, bool)

    def lower(self, groups: NDArray[np.int64], words: Words) -> None:
        """Set the bound of groups to the lowest of their values; a group may have several, one per run."""
        order = kernels.sort_order(np.concatenate([groups.astype(np.uint64)[None, :], words]))
        first = order[np.flatnonzero(np.diff(groups[order], prepend=-1))]
        self.words[:, groups[first]] = words[:, first]
        self.exists[groups] = True

    def covers(self, groups: NDArray[np.int64], words: Words) -> NDArray[np.bool_]:
        """Tell which values are certain: not beyond the bound of their group."""
        return ~self.exists[groups] | ~_less(self.words[:, groups], words)


def _less(left: Words, right: Words) -> NDArray[np.bool_]:
    less, same = np.zeros(left.shape[1], bool), np.ones(left.shape[1], bool)
    for a, b in zip(left, right, strict=True):
        less |= same & (a < b)
        same &= a == b
    return less
