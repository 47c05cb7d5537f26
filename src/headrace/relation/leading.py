"""The first live entries of ordered arrangements, read from the beginnings of runs, or from their ends.

What is asked for is the beginning of one or more *stretches* per run: all entries from some position on, or those whose
keys begin with a group. Runs may hold both deleted entries and the deletions that cancel them. So for all groups at
once, a window at the end of each stretch is added up. What does not lie behind the edge of any window is certain, and
the windows of groups that have too few certain rows become larger, each time four times. So what is read follows what
is wanted and the dead entries among it, and not what the runs hold.

MIN and MAX want one value per group, ORDER BY with LIMIT wants some rows behind those that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.relation import kernels, probing
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run, consolidate, merge
from headrace.relation.runset import Entries, RunSet
from headrace.rings import COUNT

_GROWTH = 4


@dataclass(frozen=True)
class Leading:
    """The first entries of some groups.

    Parameters
    ----------
    groups : the group of each entry, ascending.
    entries : the entries, by group and then in order, each with its count, which is not zero: what was deleted before
        it was inserted counts below zero, and is given without being counted as wanted. Words are those behind the
        group, complemented if they were read from the end.
    read : how many entries of runs were looked at.
    """

    groups: NDArray[np.int64]
    entries: Run
    read: int


def leading(
    runs: RunSet,
    stretches: NDArray[np.int64],
    wanted: int | NDArray[np.int64],
    *,
    depth: int = 0,
    texts: bool = False,
    end: bool = False,
    once: bool = False,
) -> Leading:
    """Read the first rows of each group: at least `wanted`, if it has so many.

    Parameters
    ----------
    stretches : columns (run, first, last, group), ordered by run, as `RunSet.find` gives them.
    wanted : how many rows of each group; or, in an array, of the group of that number.
    depth : how many words of the keys tell the group.
    texts : whether what is stored beside the keys is read as well.
    end : whether to read from the end of the stretches.
    once : whether an entry is one row, however often it is there.
    """
    width = max((run.words.shape[0] for run in runs), default=depth)
    found: list[Run] = []
    groups = int(stretches[3].max(initial=-1)) + 1
    wants = np.full(groups, wanted) if isinstance(wanted, int) else wanted
    windows, read = np.maximum(1, wants // max(1, len(runs))), 0
    while stretches.shape[1]:
        run, low, high, group = stretches
        window = windows[group]
        start, stop = (np.maximum(low, high - window), high) if end else (low, np.minimum(high, low + window))
        entries = Entries(*probing.expand(np.stack([run, start, stop, group])))
        read += len(entries)
        (counts,) = runs.payload(entries.runs, entries.positions)
        behind = _words(runs, entries.runs, entries.positions, depth, width, end)
        keys = np.concatenate([entries.owners.astype(np.uint64)[None], behind])
        sums = consolidate(COUNT, keys, (counts,), runs.values(entries) if texts else {})
        cut = np.flatnonzero((start > low) if end else (stop < high))
        edge = (start if end else stop - 1)[cut]
        bounds = _Bounds.of(group[cut], _words(runs, run[cut], edge, depth, width, end), int(group.max()) + 1)
        certain = np.flatnonzero(bounds.cover(sums.words))
        groups = sums.words[0].astype(np.int64)
        times = np.maximum(sums.payload[0][certain], 0)
        times = np.minimum(times, 1) if once else times
        (rows,) = COUNT.sum_by((times,), groups[certain], len(bounds.exist))
        done = (rows >= wants[: len(rows)]) | ~bounds.exist
        found.append(sums.take(certain[done[groups[certain]]]))
        stretches, windows = stretches[:, ~done[group]], windows * _GROWTH
    return _in_order(found, width - depth, read)


def one_group(first: Positions, last: Positions) -> NDArray[np.int64]:
    """The stretches of a single group: from one position to another, per run."""
    stretches = np.stack([np.arange(len(first)), first, last, np.zeros(len(first), np.int64)])
    return stretches[:, last > first]


def _words(runs: RunSet, run_of: Positions, positions: Positions, depth: int, width: int, end: bool) -> Words:
    words = runs.words(run_of, positions, depth, width)
    return ~words if end else words


def _in_order(found: Sequence[Run], width: int, read: int) -> Leading:
    """Put together what the rounds have found."""
    found = [part for part in found if part.rows]
    if not found:
        return Leading(np.zeros(0, np.int64), Run(np.zeros((width, 0), np.uint64), COUNT.zeros(0)), read)
    # Each group was done in one round, so nothing is added up here: entries are only brought together.
    run = merge(COUNT, found)
    return Leading(run.words[0].astype(np.int64), Run(run.words[1:], run.payload, run.values), read)


@dataclass(frozen=True)
class _Bounds:
    """Per group, how far its windows reach: beyond this bound, some run has entries that were not looked at."""

    words: Words
    exist: NDArray[np.bool_]

    @classmethod
    def of(cls, groups: NDArray[np.int64], words: Words, m: int) -> _Bounds:
        """The bound of each group is the lowest of its edges; it may have several, one per run."""
        order = kernels.sort_order(np.concatenate([groups.astype(np.uint64)[None], words]))
        first = order[np.flatnonzero(np.diff(groups[order], prepend=-1))]
        lowest, exist = np.zeros((len(words), m), np.uint64), np.zeros(m, bool)
        lowest[:, groups[first]] = words[:, first]
        exist[groups] = True
        return cls(lowest, exist)

    def cover(self, keys: Words) -> NDArray[np.bool_]:
        """Tell which keys (a group and the words behind it) are certain: not beyond the bound of their group."""
        groups = keys[0].astype(np.int64)
        beyond: NDArray[np.bool_] = self.exist[groups] & less(self.words[:, groups], keys[1:])
        return ~beyond


def less(left: Words, right: Words) -> NDArray[np.bool_]:
    """Tell which keys come before others, column by column."""
    before, same = np.zeros(left.shape[1], bool), np.ones(left.shape[1], bool)
    for a, b in zip(left, right, strict=True):
        before |= same & (a < b)
        same &= a == b
    return before
