"""Rows of two streams in the order in which they arrive: the input of a window join, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.kernels import Words
from headrace.window.spec import Times

LEFT, RIGHT = 0, 1
_SEED = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Arrivals:
    """Rows of both streams. Equal keys have equal words; a key has one or several words."""

    side: NDArray[np.int8]
    key: NDArray[np.uint64]  # words by rows
    value: NDArray[np.float64]  # the aggregated column of its side; 0 on the other
    event: Times
    arrival: Times

    def __len__(self) -> int:
        return len(self.side)

    @classmethod
    def of(cls, left: Any, right: Any, value_side: int = LEFT) -> Arrivals:
        """Merge two streams (with `key`, `value`, `event` and `arrival`) in the order of arrival.

        The values of `value_side` are aggregated.
        """
        side = np.repeat(np.array([LEFT, RIGHT], np.int8), [len(left.event), len(right.event)])
        arrival = np.concatenate([left.arrival, right.arrival])
        order = np.argsort(arrival, kind="stable")
        key = np.concatenate([np.asarray(s.key, np.int64) for s in (left, right)]).view(np.uint64)[None, :]
        value = np.concatenate([left.value, right.value]) * (side == value_side)
        event = np.concatenate([left.event, right.event])
        return cls(side, key, value, event, arrival).take(order)

    def take(self, at: NDArray[Any]) -> Arrivals:
        """Return some rows, by position or by mask."""
        return Arrivals(self.side[at], self.key[:, at], self.value[at], self.event[at], self.arrival[at])

    def until(self, moment: int, first: int = 0) -> int:
        """Return how many rows have arrived by a moment, of rows in this order; at least `first` of them have."""
        return first + int(np.searchsorted(self.arrival[first:], moment, side="right"))

    def slice(self, first: int, last: int) -> Arrivals:
        """Return the rows from `first` up to `last`, without copying them."""
        return Arrivals(
            self.side[first:last],
            self.key[:, first:last],
            self.value[first:last],
            self.event[first:last],
            self.arrival[first:last],
        )


def bucket_of(arrivals: Arrivals, buckets: int) -> NDArray[np.int32]:
    """Return the bucket of each row, by its key."""
    out = np.empty(len(arrivals), np.int32)
    kernels.buckets_of(lead_of(arrivals.key), buckets, out)
    return out


def lead_of(key: Words) -> NDArray[np.uint64]:
    """Return the word of each key that decides its bucket."""
    lead = np.empty(key.shape[1], np.uint64)
    kernels.fold(np.ascontiguousarray(key), _SEED, lead)
    return lead
