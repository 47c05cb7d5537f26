"""K-slack: a buffer that puts late rows back into the order of their events before they are joined."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from headrace.bench.disorder.pieces import by_event, concatenated, heads
from headrace.errors import SchemaError
from headrace.window.arrivals import Arrivals
from headrace.window.spec import Times

_SLOTS = 16  # of time, per which the largest lateness is remembered
_PIECES = 64  # sorted pieces of a buffer, beyond which they become one
_NEVER = -(1 << 62)
_NO_TIMES = np.zeros(0, np.int64)
_NONE = Arrivals(np.zeros(0, np.int8), np.zeros((1, 0), np.uint64), np.zeros(0), _NO_TIMES, _NO_TIMES)


class KSlack:
    """Holds rows back until the newest event time is `slack` beyond theirs, so that they leave in their order.

    The slack is the largest recent lateness: how far a row was behind the newest one when it arrived. A row that is
    later than any before it leaves at once, and the slack grows for those to come. Rows leave in the same order
    however they are cut into batches.

    Parameters
    ----------
    memory : for how long lateness is remembered, in microseconds of event time.
    """

    def __init__(self, memory: int) -> None:
        if memory <= 0:
            raise SchemaError(f"a memory of {memory} us remembers nothing", way_out="give one above 0")
        self.frontier = _NEVER  # rows up to here have left
        self.now = _NEVER  # when the last row arrived
        self._newest = _NEVER
        self._width = -(-memory // _SLOTS)
        self._lateness: dict[int, int] = {}  # the largest, by slot of the newest event time
        self._held: list[Arrivals] = []  # in order of event times, each of them

    def __len__(self) -> int:
        return sum(map(len, self._held))

    @property
    def slack(self) -> int:
        """The time by which rows are held back now."""
        return max(self._lateness.values(), default=0)

    def add(self, arrivals: Arrivals, stop: int | None = None) -> tuple[Arrivals, int]:
        """Take rows in, until the frontier reaches `stop`; return the rows that leave, and how many were taken."""
        if not len(arrivals) or (stop is not None and self.frontier >= stop):
            return arrivals.slice(0, 0), 0
        newest = np.maximum.accumulate(np.maximum(arrivals.event, self._newest))
        lateness, slot = newest - arrivals.event, newest // self._width
        frontier = np.maximum.accumulate(np.maximum(newest - self._slack(slot, lateness), self.frontier))
        taken = len(arrivals)
        if stop is not None:
            taken = min(taken, int(np.searchsorted(frontier, stop)) + 1)
        left = self._leaving(arrivals.slice(0, taken), frontier[:taken])
        self._remember(slot[:taken], lateness[:taken])
        self._newest, self.frontier = int(newest[taken - 1]), int(frontier[taken - 1])
        self.now = int(arrivals.arrival[taken - 1])
        return left, taken

    def flush(self, before: int) -> Arrivals:
        """Return the rows before a time, which leave now, in their order."""
        cuts = [int(np.searchsorted(piece.event, before)) for piece in self._held]
        left = [piece.slice(0, cut) for piece, cut in zip(self._held, cuts, strict=True) if cut]
        self._cut(cuts)
        return by_event(left) if left else _NONE

    def _slack(self, slot: Times, lateness: Times) -> Times:
        """Return, per row, the slack after all rows up to it."""
        slack = np.empty_like(lateness)
        known = dict(self._lateness)
        for first, last in pairwise([*heads(slot), len(slot)]):
            here = int(slot[first])
            before = max((late for then, late in known.items() if then > here - _SLOTS), default=0)
            slack[first:last] = np.maximum(np.maximum.accumulate(lateness[first:last]), before)
            known[here] = max(known.get(here, 0), int(lateness[first:last].max()))
        return slack

    def _remember(self, slot: Times, lateness: Times) -> None:
        first = heads(slot)
        for here, late in zip(slot[first].tolist(), np.maximum.reduceat(lateness, first).tolist(), strict=True):
            self._lateness[here] = max(self._lateness.get(here, 0), late)
        oldest = int(slot[-1]) - _SLOTS
        self._lateness = {then: late for then, late in self._lateness.items() if then > oldest}

    def _leaving(self, arrivals: Arrivals, frontier: Times) -> Arrivals:
        order = np.argsort(arrivals.event, kind="stable")
        self._held.append(arrivals.take(order))
        cuts = [int(np.searchsorted(piece.event, frontier[-1], side="right")) for piece in self._held]
        left = [piece.slice(0, cut) for piece, cut in zip(self._held, cuts, strict=True)]
        # A row leaves with the first one that brings the frontier to it, or at once if that has been.
        step = [np.searchsorted(frontier, piece.event) for piece in left]
        step[-1] = np.maximum(step[-1], order[: cuts[-1]])
        self._cut(cuts)
        rows = concatenated(left)
        return rows.take(np.lexsort((rows.event, np.concatenate(step))))

    def _cut(self, cuts: Sequence[int]) -> None:
        pairs = zip(self._held, cuts, strict=True)
        self._held = [piece.slice(cut, len(piece)) for piece, cut in pairs if cut < len(piece)]
        if len(self._held) > _PIECES:
            self._held = [by_event(self._held)]
