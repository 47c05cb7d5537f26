"""Window joins as others do them: the same answers of what has arrived, by another order of work.

The join of this package is eager: each row meets the other side as it arrives (`exact`, a symmetric hash join). Beside
it stand those that it is compared with: a lazy join, whose rows wait until their window is read (as in a radix join),
and a buffer that puts rows back into their order before they are joined (K-slack). None of them estimates anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from headrace.errors import SchemaError
from headrace.relation import kernels
from headrace.rings.double import Compensated
from headrace.window.answers import Answer
from headrace.window.arrivals import LEFT, Arrivals
from headrace.window.estimate import answer_of
from headrace.window.exact import spread
from headrace.window.spec import Times, WindowSpec
from headrace.window.totals import Floats, OpenWindows, Totals

_SLOTS = 16  # that the memory of lateness is divided into
_PIECES = 64  # sorted pieces of a buffer, beyond which they become one
_NEVER = -(1 << 62)
_NO_TIMES = np.zeros(0, np.int64)
_NONE = Arrivals(np.zeros(0, np.int8), np.zeros((1, 0), np.uint64), np.zeros(0), _NO_TIMES, _NO_TIMES)


class Join(Protocol):
    """The exact part of a window join, whatever its order of work."""

    def add(self, arrivals: Arrivals) -> object:
        """Take rows in."""

    def read(self, first: int, last: int) -> Totals:
        """What has been seen of the windows from the first up to, but not including, the last."""

    def close(self, before: int, known: int) -> None:
        """Let windows before one go; their totals stay, back to the window `known`, which is not after it."""


class LazyJoin:
    """Rows wait by window, and are joined when their window is read; if more have come since, all of them again."""

    def __init__(self, spec: WindowSpec) -> None:
        if spec.within is not None:
            raise SchemaError("an interval join has no windows to wait for", way_out="give a spec without `within`")
        self.spec = spec
        self._waiting: dict[int, list[Arrivals]] = {}
        self._joined: dict[int, Floats] = {}  # the four totals of windows of which nothing is unread
        self._closed = OpenWindows()

    def add(self, arrivals: Arrivals) -> None:
        if not len(arrivals):
            return
        window, rows = spread(self.spec, arrivals.event)
        order = np.argsort(window, kind="stable")
        ordered, window = arrivals.take(order if rows is None else rows[order]), window[order]
        for first, last in pairwise([*_heads(window), len(window)]):
            one = int(window[first])
            self._waiting.setdefault(one, []).append(ordered.slice(first, last))
            self._joined.pop(one, None)

    def read(self, first: int, last: int) -> Totals:
        wanted = [window for window in self._waiting if first <= window < last]
        self._join(wanted)
        closed = self._closed.read(first, last)
        numbers = np.stack([closed.left, closed.right, closed.matches, closed.total])
        for window in wanted:
            numbers[:, window - first] += self._joined[window]
        return Totals(closed.window, *numbers)

    def close(self, before: int, known: int) -> None:
        leaving = sorted(window for window in self._waiting if window < before)
        kept = [window for window in leaving if window >= known]
        self._join(kept)
        if kept:
            self._closed.add(np.array(kept), np.stack([self._joined[window] for window in kept], axis=1))
        for window in leaving:
            del self._waiting[window]
            self._joined.pop(window, None)
        self._closed.forget(known)

    @property
    def entries(self) -> int:
        """How many rows wait."""
        return sum(len(piece) for pieces in self._waiting.values() for piece in pieces)

    def _join(self, windows: Sequence[int]) -> None:
        unread = [window for window in windows if window not in self._joined]
        if not unread:
            return
        sizes = [sum(map(len, self._waiting[window])) for window in unread]
        rows = _concatenated([piece for window in unread for piece in self._waiting[window]])
        owner = np.repeat(np.arange(len(unread)), sizes)
        words = np.concatenate([owner.view(np.uint64)[None, :], rows.key])
        group_of, first = np.empty(len(owner), np.int64), np.empty(len(owner), np.int64)
        groups = kernels.group_hashed(words, group_of, first)
        left = np.bincount(group_of[rows.side == LEFT], minlength=groups).astype(np.float64)
        right = np.bincount(group_of, minlength=groups) - left
        total = np.zeros(groups)
        if self.spec.aggregate.function != "count":
            sums = Compensated().sum_by(Compensated().lift(rows.value), group_of, groups)
            total = Compensated().values(sums) * (right if self.spec.aggregate.side == LEFT else left)
        owner = owner[first[:groups]]
        numbers = [np.bincount(owner, each, len(unread)) for each in (left, right, left * right, total)]
        self._joined.update(zip(unread, np.stack(numbers, axis=1), strict=True))


class KSlack:
    """Holds rows back until the newest event time is `slack` beyond theirs, so that they leave in their order.

    The slack is the largest lateness that was seen of late: how far a row was behind the newest one when it arrived. A
    row that is later than any before it leaves at once, and the slack grows for those to come. However rows are cut
    into batches, the same leave, in the same order.

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
        """How long rows are held back now."""
        return max(self._lateness.values(), default=0)

    def add(self, arrivals: Arrivals, stop: int | None = None) -> tuple[Arrivals, int]:
        """Take rows in; give those that leave, and how many were taken: fewer if the frontier comes to `stop`."""
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
        """Let rows before a time leave now, in their order."""
        cuts = [int(np.searchsorted(piece.event, before)) for piece in self._held]
        left = [piece.slice(0, cut) for piece, cut in zip(self._held, cuts, strict=True) if cut]
        self._cut(cuts)
        return _by_event(left) if left else _NONE

    def _slack(self, slot: Times, lateness: Times) -> Times:
        """The slack at each row, by all that came before it and itself."""
        slack = np.empty_like(lateness)
        known = dict(self._lateness)
        for first, last in pairwise([*_heads(slot), len(slot)]):
            here = int(slot[first])
            before = max((late for then, late in known.items() if then > here - _SLOTS), default=0)
            slack[first:last] = np.maximum(np.maximum.accumulate(lateness[first:last]), before)
            known[here] = max(known.get(here, 0), int(lateness[first:last].max()))
        return slack

    def _remember(self, slot: Times, lateness: Times) -> None:
        heads = _heads(slot)
        for here, late in zip(slot[heads].tolist(), np.maximum.reduceat(lateness, heads).tolist(), strict=True):
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
        rows = _concatenated(left)
        return rows.take(np.lexsort((rows.event, np.concatenate(step))))

    def _cut(self, cuts: Sequence[int]) -> None:
        pairs = zip(self._held, cuts, strict=True)
        self._held = [piece.slice(cut, len(piece)) for piece, cut in pairs if cut < len(piece)]
        if len(self._held) > _PIECES:
            self._held = [_by_event(self._held)]


def answered(
    spec: WindowSpec, join: Join, arrivals: Arrivals, slack: KSlack | None = None, until: int | None = None
) -> Iterator[Answer]:
    """Answer windows at their moment by what has arrived, from rows in the order of their arrival.

    It ends with the last row, or at a later moment. Behind a slack, a window is answered as soon as the frontier passes
    its end, if that is earlier; at its moment, the rows of it that are still held count too.
    """
    arrivals = arrivals.take(arrivals.arrival - arrivals.event <= spec.horizon)
    if not len(arrivals):
        return
    last = max(int(arrivals.arrival[-1]), _NEVER if until is None else until)
    window = closing = int(spec.first_window(arrivals.event).min())
    at = 0
    while True:
        completes = spec.complete_at(closing) < spec.emitted_at(window)
        moment = spec.complete_at(closing) if completes else spec.emitted_at(window)
        at = _take(join, arrivals, at, arrivals.until(moment, at), slack, spec.end(window))
        early = slack is not None and slack.frontier >= spec.end(window)
        if moment > last and not early:
            return
        if slack is not None and not early:
            join.add(slack.flush(spec.end(closing if completes else window)))
        if completes and not early:
            closing += 1
            join.close(closing, closing)
            continue
        seen = join.read(window, window + 1)
        value = answer_of(spec, float(seen.matches[0]), float(seen.total[0]))
        yield Answer(window, slack.now if slack is not None and early else moment, value, {}, final=False)
        window += 1


def _take(join: Join, arrivals: Arrivals, first: int, last: int, slack: KSlack | None, stop: int) -> int:
    """Let a join take rows, through a slack if there is one; gives the position behind the last row taken."""
    if slack is None:
        join.add(arrivals.slice(first, last))
        return last
    rows, taken = slack.add(arrivals.slice(first, last), stop)
    join.add(rows)
    return first + taken


def _heads(ordered: Times) -> Times:
    """The positions at which another number begins."""
    return np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))


def _by_event(pieces: Sequence[Arrivals]) -> Arrivals:
    rows = _concatenated(pieces)
    return rows.take(np.argsort(rows.event, kind="stable"))


def _concatenated(pieces: Sequence[Arrivals]) -> Arrivals:
    if len(pieces) == 1:
        return pieces[0]
    return Arrivals(
        np.concatenate([piece.side for piece in pieces]),
        np.concatenate([piece.key for piece in pieces], axis=1),
        np.concatenate([piece.value for piece in pieces]),
        np.concatenate([piece.event for piece in pieces]),
        np.concatenate([piece.arrival for piece in pieces]),
    )
