"""The totals of windows: how many rows each side has, how many pairs of them match, and the sum over these pairs.

An aggregate of a window join is a function of these four numbers. They are kept per open window and change with each
row that arrives, however late, so they can be read at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.window.estimator_state import Stateful
from headrace.window.spec import Times

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Totals:
    """The totals of some windows, in their order."""

    window: Times
    left: Floats
    right: Floats
    matches: Floats
    total: Floats  # of the aggregated column, over matching pairs

    def __len__(self) -> int:
        return len(self.window)

    def take(self, at: NDArray[np.integer] | NDArray[np.bool_] | slice) -> Totals:
        """Return the totals of some of the windows."""
        return Totals(self.window[at], self.left[at], self.right[at], self.matches[at], self.total[at])

    @property
    def pairs(self) -> Floats:
        """The number of pairs of a left and a right row, matching or not."""
        return self.left * self.right


@dataclass(frozen=True)
class Deltas:
    """Changes of windows' totals per (moment, window), in this order; the moment is the first at which they count.

    They are a relation: the changes of several buckets or batches are added up.
    """

    moment: Times
    window: Times
    amounts: Floats  # per entry: rows of the left and of the right side, matches, and the sum over these

    def __len__(self) -> int:
        return len(self.moment)

    @classmethod
    def nothing(cls) -> Deltas:
        """Return no change."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((4, 0)))

    @classmethod
    def of(cls, moment: Times, window: Times, amounts: Floats) -> Deltas:
        """Add up entries of the same moment and window."""
        if not len(moment):
            return cls.nothing()
        order = np.lexsort((window, moment))
        moment, window, amounts = moment[order], window[order], amounts[:, order]
        heads = np.flatnonzero(np.append(True, (np.diff(moment) != 0) | (np.diff(window) != 0)))
        return cls(moment[heads], window[heads], np.add.reduceat(amounts, heads, axis=1))

    @classmethod
    def total(cls, parts: Sequence[Deltas]) -> Deltas:
        """Add up the changes of several buckets."""
        if not parts:
            return cls.nothing()
        return cls.of(
            np.concatenate([part.moment for part in parts]),
            np.concatenate([part.window for part in parts]),
            np.concatenate([part.amounts for part in parts], axis=1),
        )

    def slice(self, first: int, last: int) -> Deltas:
        """Return the entries from `first` up to `last`."""
        return Deltas(self.moment[first:last], self.window[first:last], self.amounts[:, first:last])


class OpenWindows(Stateful):
    """The totals of all open windows; those of a window without rows are 0."""

    state_fields = ("_window", "_numbers")

    def __init__(self) -> None:
        # Only windows that have rows, in their order: there may be years of silence between two of them.
        self._window = np.zeros(0, np.int64)
        self._numbers = np.zeros((4, 0))

    def add(self, window: Times, amounts: Floats) -> None:
        """Add to the totals of windows; a window may occur several times, and `amounts` has a row per total."""
        if not len(window):
            return
        coming, at = np.unique(window, return_inverse=True)
        together = np.union1d(self._window, coming)
        numbers = np.zeros((4, len(together)))
        numbers[:, np.searchsorted(together, self._window)] = self._numbers
        where = np.searchsorted(together, coming)
        for row, amount in zip(numbers, amounts, strict=True):
            row[where] += np.bincount(at, weights=amount, minlength=len(coming))
        self._window, self._numbers = together, numbers

    @property
    def last(self) -> int | None:
        """The last window that has rows; None if there is none."""
        return int(self._window[-1]) if len(self._window) else None

    def read(self, first: int, last: int) -> Totals:
        """Return the totals of the windows from `first` up to, but not including, `last`."""
        window = np.arange(first, last)
        numbers = np.zeros((4, len(window)))
        start, stop = np.searchsorted(self._window, (first, last))
        numbers[:, self._window[start:stop] - first] = self._numbers[:, start:stop]
        return Totals(window, *numbers)

    def forget(self, before: int) -> None:
        """Drop the windows before `before`."""
        gone = int(np.searchsorted(self._window, before))
        if gone:
            self._window, self._numbers = self._window[gone:].copy(), self._numbers[:, gone:].copy()
