"""Rows of a join in progress, as positions in its factors, and the groups of their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run
from headrace.relation.runset import AnyRun
from headrace.relation.variables import Variables

Reader = Callable[[int, int], Sequence[AnyRun]]
"""The runs of a view in one of its orders."""
_SORTED_BITS = 44  # keys that vary in no more bits are grouped faster by sorting them than by hashing them


@dataclass
class Matches:
    """Rows of a join in progress. A row is nothing but one position per factor that has been joined."""

    rows: int
    index: dict[int, Positions]  # per factor: the position of each row's entry
    words: dict[str, tuple[int, Words]]  # per variable: a factor that has it, and its words there
    texts: dict[str, tuple[int, pa.Array]]

    def take(self, positions: Positions) -> None:
        """Keep or repeat rows; positions never go down, so rows never move past one another."""
        self.rows = len(positions)
        self.index = {slot: at[positions] for slot, at in self.index.items()}

    def picked(self, positions: Positions) -> Matches:
        """Some of the rows, to which factors can be joined without changing these."""
        index = {slot: at[positions] for slot, at in self.index.items()}
        return Matches(len(positions), index, dict(self.words), dict(self.texts))

    def join(self, slot: int, run: Run, at: Positions, variables: Variables, keys: Sequence[str]) -> None:
        """Add a factor: row i has the entry `at[i]` of a run."""
        self.index[slot] = at
        for name, where in variables.slices(keys).items():
            self.words.setdefault(name, (slot, run.words[where]))
        for name, text in run.values.items():
            self.texts.setdefault(name, (slot, text))

    def key(self, variables: Variables, names: Sequence[str], rows: Positions | None = None) -> Words:
        """The words of some variables, side by side, of all rows or of some."""
        picked = {}
        for name in names:
            slot, words = self.words[name]
            at = self.index[slot] if rows is None else self.index[slot][rows]
            picked[name] = np.take(words, at, axis=1)
        return variables.key(picked, names, self.rows if rows is None else len(rows))

    def numbers(self, variables: Variables, name: str) -> NDArray[np.float64]:
        """The values of a numeric variable."""
        slot, words = self.words[name]
        return variables.numbers(name, words)[self.index[slot]]


def expanded(first: Positions, last: Positions) -> tuple[Positions, Positions]:
    """List the positions of the stretches [first, last), and which stretch each belongs to."""
    count = int((last - first).sum())
    positions, owners = np.empty(count, np.int64), np.empty(count, np.int64)
    kernels.expand(first, last, positions, owners)
    return positions, owners


def grouped(words: Words, is_sorted: bool) -> tuple[Words, Positions, Positions]:
    """Find the distinct keys, ascending; per row, the number of its key; and per key, one row that has it."""
    n = words.shape[1]
    group_of, first = np.empty(n, np.int64), np.empty(n, np.int64)
    if is_sorted:
        groups = kernels.heads_sorted(words, group_of, first)
        first = first[:groups].copy()
        return (words if groups == n else np.take(words, first, axis=1)), group_of, first
    one = kernels.packed(words)
    if one is not None and one[1] <= _SORTED_BITS:
        groups = kernels.group_packed(*one, group_of, first)
        first = first[:groups].copy()
        return np.take(words, first, axis=1), group_of, first
    groups = kernels.group_hashed(words, group_of, first)
    first = first[:groups].copy()
    heads = np.take(words, first, axis=1)
    order = kernels.sort_order(heads)
    rank = np.empty(groups, np.int64)
    rank[order] = np.arange(groups)
    return np.take(heads, order, axis=1), rank[group_of], first[order]
