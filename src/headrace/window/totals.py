"""What is known of windows: how many rows of each side, how many pairs of them match, and the sum over these pairs.

An aggregate of a window join is a function of these four numbers. They are kept for every open window and change with
each row that arrives, however late, so they can be read at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.window.saved import Saved
from headrace.window.spec import Times

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Totals:
    """Some windows, in order, and what has been seen of each."""

    window: Times
    left: Floats
    right: Floats
    matches: Floats
    total: Floats  # of the aggregated column, over matching pairs

    def __len__(self) -> int:
        return len(self.window)

    def take(self, at: NDArray[np.integer] | NDArray[np.bool_] | slice) -> Totals:
        """Pick windows."""
        return Totals(self.window[at], self.left[at], self.right[at], self.matches[at], self.total[at])

    @property
    def pairs(self) -> Floats:
        """All pairs of a left and a right row."""
        return self.left * self.right


@dataclass(frozen=True)
class Deltas:
    """What is added to windows, by the moment from which on it is seen; in the order of moments, then of windows.

    It is a relation like any other: those of several buckets, or batches, are added up.
    """

    moment: Times
    window: Times
    amounts: Floats  # rows of the left and the right side, matches, and the sum over these; by entries

    def __len__(self) -> int:
        return len(self.moment)

    @classmethod
    def nothing(cls) -> Deltas:
        """No change."""
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
        """Add up those of several buckets."""
        if not parts:
            return cls.nothing()
        return cls.of(
            np.concatenate([part.moment for part in parts]),
            np.concatenate([part.window for part in parts]),
            np.concatenate([part.amounts for part in parts], axis=1),
        )

    def slice(self, first: int, last: int) -> Deltas:
        """Some entries, by position."""
        return Deltas(self.moment[first:last], self.window[first:last], self.amounts[:, first:last])


class OpenWindows(Saved):
    """The totals of all open windows; those that were never touched are zero."""

    saved = ("_first", "_numbers")

    def __init__(self) -> None:
        self._first = 0
        self._numbers = np.zeros((4, 0))

    def add(self, window: Times, amounts: Floats) -> None:
        """Add to windows, each of which may be named several times; `amounts` has four rows."""
        if not len(window):
            return
        self._cover(int(window.min()), int(window.max()) + 1)
        at, width = window - self._first, self._numbers.shape[1]
        for row, amount in zip(self._numbers, amounts, strict=True):
            row += np.bincount(at, weights=amount, minlength=width)

    def read(self, first: int, last: int) -> Totals:
        """The windows from the first up to, but not including, the last."""
        window = np.arange(first, last)
        at = window - self._first
        inside = (at >= 0) & (at < self._numbers.shape[1])
        numbers = np.zeros((4, len(window)))
        numbers[:, inside] = self._numbers[:, at[inside]]
        return Totals(window, *numbers)

    def forget(self, before: int) -> None:
        """Let windows before one go."""
        gone = min(max(before - self._first, 0), self._numbers.shape[1])
        if gone:
            self._numbers = self._numbers[:, gone:].copy()
            self._first += gone

    def _cover(self, first: int, last: int) -> None:
        width = self._numbers.shape[1]
        if not width:
            self._first, self._numbers = first, np.zeros((4, last - first))
            return
        before, after = max(0, self._first - first), max(0, last - self._first - width)
        if before or after:
            # Room for as many again, so that windows that open one by one are not copied one by one.
            self._numbers = np.pad(self._numbers, ((0, 0), (before, after and after + width)))
            self._first -= before
