"""Listing the rows of a factorized result, from the top of its views down.

Rows are made in blocks: a block of partial rows looks up the entries of the next view under the values it has, and each
entry makes the row longer. Every partial row can be completed, because a view holds only what has a match below it. So
the work for a block is in proportion to its rows, and neither the first row nor the next one waits for the size of the
data (constant delay; a lookup is a search in sorted runs, which adds a logarithm).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.factorized.bucket import part_name
from headrace.factorized.maintenance import Level, MaintenancePlan
from headrace.factorized.matches import Matches, expanded, grouped
from headrace.relation.arrangement import lookup, pieces, scan
from headrace.relation.columns import take_column
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run
from headrace.relation.runset import AnyRun, as_set
from headrace.relation.variables import Variables
from headrace.rings import COUNT

_FIRST = 64
Pairs = tuple[Run, Positions, Positions]
"""Entries of a view, and pairs of a partial row with one of them."""


@dataclass(frozen=True)
class Block:
    """Some rows of a result: the words and, of strings, the text of each variable; and how often each row occurs."""

    rows: Matches
    times: NDArray[np.int64]

    def words(self, name: str) -> Words:
        """The words of a variable."""
        slot, words = self.rows.words[name]
        return np.take(words, self.rows.index[slot], axis=1)

    def text(self, name: str) -> pa.Array:
        """The text of a variable that is a string."""
        slot, text = self.rows.texts[name]
        return take_column(text, self.rows.index[slot])


class Enumeration:
    """Lists one bucket of a factorized result.

    Parameters
    ----------
    state : the runs of the bucket's arrangements.
    most : about how many rows a block has.
    """

    def __init__(
        self, plan: MaintenancePlan, variables: Variables, state: Mapping[str, Sequence[AnyRun]], most: int = 8_192
    ) -> None:
        self._levels = plan.listing
        self._plan = plan
        self._variables = variables
        self._state = {part: as_set(runs) for part, runs in state.items()}
        self._most = max(1, most)
        self.touched = 0
        """How many entries have been looked up or read so far."""

    def blocks(self) -> Iterator[Block]:
        """All distinct rows with their multiplicities, block by block."""
        times = np.ones(1, np.int64)
        for view in self._plan.factors:
            times = times * self._lookup(view, Matches(1, {}, {}, {}))
        yield from self._below(0, Matches(1, {}, {}, {}), times)

    def distinct(self) -> int:
        """How many distinct rows there are: one pass over the views, from the bottom up, without listing a row."""
        summed: dict[int, Run] = {}
        for number in reversed(range(len(self._levels))):
            level = self._levels[number]
            run = scan(COUNT, self._runs(level))
            if run is None:
                return 0
            self.touched += run.rows
            rows = Matches(run.rows, {}, {}, {})
            rows.join(number, run, np.arange(run.rows), self._variables, self._keys(level))
            ways = np.ones(run.rows, np.int64)
            for below in level.below:
                key = rows.key(self._variables, self._levels[below].bound)
                ways = ways * lookup(COUNT, [summed[below]], np.ascontiguousarray(key))[0]
            heads, group_of, _ = grouped(rows.key(self._variables, level.bound), True)
            summed[number] = Run(heads, COUNT.sum_by((ways,), group_of, heads.shape[1]))
        tops = set(range(len(self._levels))).difference(*(level.below for level in self._levels))
        if any(not self._lookup(view, Matches(1, {}, {}, {}))[0] for view in self._plan.factors):
            return 0
        return int(reduce(lambda total, top: total * int(summed[top].payload[0].sum()), tops, 1))

    def _below(self, number: int, rows: Matches, times: NDArray[np.int64]) -> Iterator[Block]:
        """Complete partial rows by the levels from this one on."""
        if number == len(self._levels):
            yield Block(rows, times)
            return
        level = self._levels[number]
        for entries, owners, at in self._pairs(level, rows):
            for start in range(0, len(owners), self._most):
                own, entry = owners[start : start + self._most], at[start : start + self._most]
                longer, count = rows.picked(own), times[own]
                longer.join(number, entries, entry, self._variables, self._keys(level))
                if level.counted:
                    count = count * entries.payload[0][entry]
                for view in level.factors:
                    count = count * self._lookup(view, longer)
                yield from self._below(number + 1, longer, count)

    def _keys(self, level: Level) -> tuple[str, ...]:
        return self._plan.views[level.view].orders[level.order]

    def _runs(self, level: Level) -> Sequence[AnyRun]:
        return self._state.get(part_name(level.view, level.order), ())

    def _lookup(self, view: int, rows: Matches) -> NDArray[np.int64]:
        """The payloads of a view for the values that some rows have."""
        heads, group_of, _ = grouped(rows.key(self._variables, self._plan.views[view].orders[0]), False)
        self.touched += heads.shape[1]
        found: NDArray[np.int64] = lookup(COUNT, self._state.get(part_name(view, 0), ()), heads)[0]
        return found[group_of]

    def _pairs(self, level: Level, rows: Matches) -> Iterator[Pairs]:
        """Pair partial rows with the entries of a view that have their values, about a block at a time."""
        runs = self._runs(level)
        if not level.bound:
            # Few at first: whoever wants one row should not wait for thousands of lookups.
            for entries in pieces(COUNT, runs, self._most, first=_FIRST):
                yield from self._product(np.arange(rows.rows), entries)
            return
        heads, group_of, _ = grouped(rows.key(self._variables, level.bound), False)
        by_head = np.argsort(group_of, kind="stable")
        starts = np.searchsorted(group_of[by_head], np.arange(heads.shape[1] + 1))
        found = as_set(runs).find(heads)
        sizes = np.bincount(found[3], found[2] - found[1], heads.shape[1]).astype(np.int64)
        self.touched += heads.shape[1]
        for low, high in _portions(sizes, self._most):
            own = by_head[starts[low] : starts[high]]
            if high - low == 1 and sizes[low] > self._most:
                # One key with very many entries: they are read a block at a time, too.
                stretches = [runs[run].slice(first, last) for run, first, last, head in found.T.tolist() if head == low]
                for entries in pieces(COUNT, stretches, self._most):
                    yield from self._product(own, entries)
                continue
            matching = as_set(runs).matching(COUNT, np.ascontiguousarray(heads[:, low:high]))
            if matching is not None:
                yield from self._matched(own, group_of[own] - low, matching, heads[:, low:high])

    def _product(self, own: Positions, entries: Run) -> Iterator[Pairs]:
        """Pair each of some rows with every entry."""
        if not entries.rows:
            return
        self.touched += entries.rows
        every = max(1, self._most // entries.rows)
        for start in range(0, len(own), every):
            some = own[start : start + every]
            yield entries, np.repeat(some, entries.rows), np.tile(np.arange(entries.rows), len(some))

    def _matched(self, own: Positions, head_of: Positions, entries: Run, heads: Words) -> Iterator[Pairs]:
        """Pair rows with the entries of their keys."""
        self.touched += entries.rows
        first, last = entries.find(np.ascontiguousarray(heads))
        sizes = (last - first)[head_of]
        for low, high in _portions(sizes, self._most):
            of = head_of[low:high]
            positions, owners = expanded(first[of], last[of])
            yield entries, own[low:high][owners], positions


def _portions(sizes: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Cut a list into stretches whose sizes add up to at most `most`, or that have one element."""
    ends = np.cumsum(sizes)
    low = 0
    while low < len(sizes):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + most, "right")))
        yield low, high
        low = high
