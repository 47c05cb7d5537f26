"""A lazy window join: rows wait until their window is read, as in a radix join."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from headrace.bench.disorder.pieces import concatenated, heads
from headrace.errors import SchemaError
from headrace.relation import kernels
from headrace.rings.double import Compensated
from headrace.window.arrivals import LEFT, Arrivals
from headrace.window.exact import windows_of
from headrace.window.spec import WindowSpec
from headrace.window.totals import Floats, OpenWindows, Totals


class LazyJoin:
    """Keeps rows by window, and joins those of a window when it is read; after more rows, all of them again."""

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
        window, rows = windows_of(self.spec, arrivals.event)
        order = np.argsort(window, kind="stable")
        ordered, window = arrivals.take(order if rows is None else rows[order]), window[order]
        for first, last in pairwise([*heads(window), len(window)]):
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
        """The number of rows that are kept."""
        return sum(len(piece) for pieces in self._waiting.values() for piece in pieces)

    def _join(self, windows: Sequence[int]) -> None:
        unread = [window for window in windows if window not in self._joined]
        if not unread:
            return
        sizes = [sum(map(len, self._waiting[window])) for window in unread]
        rows = concatenated([piece for window in unread for piece in self._waiting[window]])
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
