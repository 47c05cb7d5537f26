"""How far a changed row reaches: the rows whose frames it may be in, and the rows that these frames have.

Where all frames of an operator end some rows, or some distance, from their row, a change alters no value that is
farther away, and a partition need not be read as a whole. What is read of it is a *stretch*: from the first of its
changed rows to the last, and what is near enough at both ends. Values are computed over stretches as if they were
partitions. Those of rows near an end are then wrong, unless the partition ends there, and are not shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from headrace.operators.partitions import PartitionedRows
from headrace.plan.over import SHIFTS, OverFunction
from headrace.plan.tree import Over
from headrace.relation import probing
from headrace.relation.kernels import Positions, Words
from headrace.relation.leading import leading
from headrace.relation.run import Run, consolidate, merge
from headrace.relation.runset import Entries, RunSet
from headrace.rings import COUNT


@dataclass(frozen=True)
class Reach:
    """How far the frames of a row reach before it and behind it, in rows or (`by_value`) in the value of the order."""

    by_value: bool
    before: int
    behind: int

    @property
    def both(self) -> int:
        """How far from a changed row there are rows that a value near it is computed from."""
        return self.before + self.behind


def reach_of(node: Over) -> Reach | None:
    """How far the functions of an operator reach; None if one has no bound, or if rows and values are mixed."""
    found = [_bounds(function, node) for function in node.functions]
    if not found or None in found or node.first is not None:
        return None
    bounds = [one for one in found if one is not None]
    kinds = {by_value for by_value, _, _ in bounds}
    if len(kinds) > 1:
        return None
    return Reach(kinds.pop(), max(-low for _, low, _ in bounds), max(high for _, _, high in bounds))


def _bounds(function: OverFunction, node: Over) -> tuple[bool, int, int] | None:
    if function.function in SHIFTS and not function.ignores_nulls:
        return False, min(function.number, 0), max(function.number, 0)
    frame = function.frame
    if frame is None or frame.low is None or frame.high is None:
        return None
    if frame.by_value:
        place, kind = node.order[0][0], node.port.fields[node.order[0][0]].type
        is_one_word = not (kind.is_floating or kind.kind == "string" or kind.precision > 18)
        if len(node.order) > 1 or place < node.keys or not is_one_word:
            return None  # the distance of words is not that of values, or rows of a partition differ in others
    return frame.by_value, min(int(frame.low), 0), max(int(frame.high), 0)


@dataclass(frozen=True)
class Stretches:
    """The rows near changed ones, as they were and as they are.

    Parameters
    ----------
    partitions : those that have a stretch; of the others, all rows have to be read.
    hidden : how many rows of each are not shown: at its beginning, and at its end.
    """

    before: Run
    after: Run
    partitions: NDArray[np.bool_]
    hidden: NDArray[np.int64]


def near(layout: PartitionedRows, reach: Reach, runs: RunSet, change: Run) -> Stretches | None:
    """Read the stretches around the changed rows of each partition; None if words do not tell the order of rows."""
    starts, partitions = layout.partitions(change)
    ends = np.append(starts[1:], change.rows) - 1
    has = _ordinary(layout, change, starts, ends) if reach.by_value else np.ones(len(starts), bool)
    if not has.any() or not layout.is_decided(change):
        return None
    partitions = np.ascontiguousarray(partitions[:, has])
    first, last = (np.ascontiguousarray(change.words[:, at[has]]) for at in (starts, ends))
    pieces = _by_value if reach.by_value else _by_rows
    left, between, right, hidden = pieces(layout, reach, runs, partitions, first, last)
    parts = [part for part in (left, between, right) if part is not None and part.rows]
    if not all(map(layout.is_decided, parts)):
        return None
    change = change if has.all() else layout.without(change, ~has)
    before = merge(COUNT, parts) if parts else change.slice(0, 0)
    return Stretches(before, merge(COUNT, [before, change]), has, hidden)


_Pieces = tuple[Run | None, Run | None, Run | None, NDArray[np.int64]]


def _by_rows(
    layout: PartitionedRows, reach: Reach, runs: RunSet, partitions: Words, first: Words, last: Words
) -> _Pieces:
    """What lies between changed rows, and some rows on both sides of it."""
    low, high = runs.bounds(first, above=False), runs.bounds(last, above=True)
    run_of, begin, end, which = runs.find(partitions)
    low, high = np.clip(low[run_of, which], begin, end), np.clip(high[run_of, which], begin, end)
    left = _beside(runs, _filled(run_of, begin, low, which), reach.both, partitions, end=True)
    right = _beside(runs, _filled(run_of, high, end, which), reach.both, partitions, end=False)
    hidden = np.stack([_rows(left, partitions) - reach.behind, _rows(right, partitions) - reach.before])
    return left, _all(runs, _filled(run_of, low, high, which)), right, np.maximum(hidden, 0)


def _by_value(
    layout: PartitionedRows, reach: Reach, runs: RunSet, partitions: Words, first: Words, last: Words
) -> _Pieces:
    """What is so near to changed rows that their frames have it, or the frames of rows whose frames have them."""
    at = layout.depth + int(layout.tail.ordering.columns[0].nullable)

    def bounds(words: Words, distance: int, *, above: bool) -> NDArray[np.int64]:
        moved = np.ascontiguousarray(words[: at + 1])
        moved[at] = _moved(moved[at], distance)
        return runs.bounds(moved, above=above)

    run_of, begin, end, which = runs.find(partitions)
    edges = [
        bounds(first, -reach.both, above=False),
        bounds(first, -reach.behind, above=False),
        bounds(last, reach.before, above=True),
        bounds(last, reach.both, above=True),
    ]
    edges = [np.clip(edge[run_of, which], begin, end) for edge in edges]
    left, between, right = (_all(runs, _filled(run_of, a, b, which)) for a, b in pairwise(edges))
    return left, between, right, np.stack([_rows(left, partitions), _rows(right, partitions)])


def _ordinary(layout: PartitionedRows, change: Run, starts: Positions, ends: Positions) -> NDArray[np.bool_]:
    """The partitions of which no changed row has NULL in the order, from which no distance leads to other rows."""
    column = layout.tail.ordering.columns[0]
    if not column.nullable:
        return np.ones(len(starts), bool)
    flags = change.words[layout.depth]
    missing = np.uint64(not column.nulls_first)
    return np.asarray((flags[starts] != missing) & (flags[ends] != missing), bool)


def _moved(word: NDArray[np.uint64], distance: int) -> NDArray[np.uint64]:
    """Words some distance farther on, or back; those that would leave their range stay at its end."""
    most = np.minimum(np.uint64(abs(distance)), ~word if distance >= 0 else word)
    moved: NDArray[np.uint64] = word + most if distance >= 0 else word - most
    return moved


def _filled(run_of: Positions, first: Positions, last: Positions, which: Positions) -> NDArray[np.int64]:
    stretches = np.stack([run_of, first, last, which])
    return stretches[:, last > first]


def _beside(runs: RunSet, stretches: NDArray[np.int64], wanted: int, partitions: Words, *, end: bool) -> Run | None:
    """The first (or last) rows of stretches, at least as many as are wanted."""
    if not stretches.shape[1] or not wanted:
        return None
    found = leading(runs, stretches, wanted, depth=len(partitions), texts=True, end=end)
    behind = ~found.entries.words if end else found.entries.words
    words = np.concatenate([partitions[:, found.groups], behind])
    return consolidate(COUNT, words, found.entries.payload, found.entries.values)


def _all(runs: RunSet, stretches: NDArray[np.int64]) -> Run | None:
    """All rows of stretches."""
    if not stretches.shape[1]:
        return None
    found = runs.take(Entries(*probing.expand(stretches)))
    return consolidate(COUNT, found.words, found.payload, found.values)


def _rows(run: Run | None, partitions: Words) -> NDArray[np.int64]:
    """How many rows a run has of each partition."""
    if run is None:
        return np.zeros(partitions.shape[1], np.int64)
    first, last = run.find(partitions)
    before = np.concatenate([[0], np.cumsum(np.maximum(run.payload[0], 0))])
    rows: NDArray[np.int64] = before[last] - before[first]
    return rows
