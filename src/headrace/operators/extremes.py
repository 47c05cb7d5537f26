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

from headrace.relation import kernels
from headrace.relation.arrangement import AnyRun
from headrace.relation.kernels import Words
from headrace.relation.keys import strings_of_words, values_of_words
from headrace.relation.run import concatenate_words, consolidate
from headrace.relation.types import SqlType
from headrace.rings import COUNT

_GROWTH = 8


def extreme_values(runs: Sequence[AnyRun], groups: Words, kind: SqlType, *, smallest: bool) -> pa.Array:
    """Find MIN (or MAX) of each group as an Arrow array; NULL where no value is alive."""
    words, found = _extreme_words([run for run in runs if run.rows], groups, kind, smallest)
    if kind.kind == "string":
        return strings_of_words(words, ~found)
    return values_of_words(words, kind, ~found)


def _extreme_words(
    runs: Sequence[AnyRun], groups: Words, kind: SqlType, smallest: bool
) -> tuple[Words, NDArray[np.bool_]]:
    depth, m = groups.shape
    narrow = 2 if kind.precision > 18 else 1
    width = max([run.words.shape[0] for run in runs], default=depth + narrow)
    out, found = np.zeros((width - depth, m), np.uint64), np.zeros(m, bool)
    stretches = [run.find(groups) for run in runs]
    pending, window = np.arange(m), 1
    while len(pending) and runs:
        parts, counts, bound = [], [], _Bound(width - depth, len(pending))
        for run, (first, last) in zip(runs, stretches, strict=True):
            low, high = first[pending], last[pending]
            start, stop = (low, np.minimum(high, low + window)) if smallest else (np.maximum(low, high - window), high)
            size = int((stop - start).sum())
            positions, owners = np.empty(size, np.int64), np.empty(size, np.int64)
            kernels.expand(start, stop, positions, owners)
            values = _values(run, positions, depth, width, smallest)
            parts.append(np.concatenate([owners.astype(np.uint64)[None, :], values]))
            counts.append(run.payload[0][positions])
            cut = np.flatnonzero((stop < high) if smallest else (start > low))
            edge = stop[cut] - 1 if smallest else start[cut]
            bound.lower(cut, _values(run, edge, depth, width, smallest))
        entries = consolidate(COUNT, concatenate_words(parts), (np.concatenate(counts),), {})
        owners = entries.words[0].astype(np.int64)
        certain = (entries.payload[0] > 0) & bound.covers(owners, entries.words[1:])
        winners, at = np.unique(owners[certain], return_index=True)
        chosen = entries.words[1:, np.flatnonzero(certain)[at]]
        out[:, pending[winners]] = chosen if smallest else ~chosen
        found[pending[winners]] = True
        undecided = bound.exists.copy()
        undecided[winners] = False
        pending, window = pending[undecided], window * _GROWTH
    return out, found


def _values(run: AnyRun, positions: NDArray[np.int64], depth: int, width: int, smallest: bool) -> Words:
    if len(positions):
        taken = run.take(positions)
        words = concatenate_words([taken.words, np.zeros((width, 0), np.uint64)])[depth:]
    else:
        words = np.zeros((width - depth, 0), np.uint64)
    return words if smallest else ~words


class _Bound:
    """Per group, how far its windows reach: beyond this bound, some run has entries that were not looked at."""

    def __init__(self, width: int, m: int) -> None:
        self.words = np.zeros((width, m), np.uint64)
        self.exists = np.zeros(m, bool)

    def lower(self, groups: NDArray[np.int64], words: Words) -> None:
        """Lower the bound of some groups to these values, where they are lower."""
        less = ~self.exists[groups] | _less(words, self.words[:, groups])
        self.words[:, groups[less]] = words[:, less]
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
