"""The exact part of a window join: counts and sums of both sides per (window, key), and the totals of their join.

The state is a relation from (window, key) to the rows of both sides and the sum of the aggregated column, kept as runs.
A batch is summed per (window, key) and looked up once; with counts l and r before and dl, dr in the batch, the matches
of a key change by

    (l + dl)(r + dr) - l r  =  dl r + l dr + dl dr

and the sums over them likewise. So the totals of windows are always up to date. A batch may span several moments at
which windows are answered: it is still looked up once, and gives the change of the totals per moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.arrangement import lookup
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run, consolidate
from headrace.relation.runset import AnyRun
from headrace.rings import Payload
from headrace.rings.double import Compensated
from headrace.rings.integer import Integer
from headrace.rings.product import Product
from headrace.window.arrivals import LEFT, RIGHT, Arrivals
from headrace.window.spec import Times, WindowSpec
from headrace.window.totals import Deltas, Floats

# The number of all rows, of those on the right, and the sum of the aggregated column, which only one side has. An entry
# is alive if its first number is not 0, as everywhere: so the first one counts both sides.
COUNTS, SUMS = Product((Integer(), Integer())), Product((Integer(), Integer(), Compensated()))
_SIGN = np.uint64(1 << 63)  # flipped, so that words of negative times come before those of positive ones


def ring_of(spec: WindowSpec) -> Product:
    """Return the ring of the payloads that are kept per (window, key)."""
    return COUNTS if spec.aggregate.function == "count" else SUMS


def rows_by_key(spec: WindowSpec, arrivals: Arrivals, window: Times, moments: Times) -> Run:
    """Sum rows per (window, key, moment), where the moment is the first at which a row counts."""
    words = np.concatenate([time_words(window)[None, :], arrivals.key, time_words(moments)[None, :]])
    group_of, first = np.empty(len(window), np.int64), np.empty(len(window), np.int64)
    groups = kernels.group_hashed(words, group_of, first)
    right = np.bincount(group_of[arrivals.side == RIGHT], minlength=groups)
    payload: Payload = (np.bincount(group_of, minlength=groups), right)
    ring = ring_of(spec)
    if ring is SUMS:
        payload += Compensated().sum_by(Compensated().lift(arrivals.value), group_of, groups)
    return consolidate(ring, np.ascontiguousarray(words[:, first[:groups]]), payload, {})


@dataclass(frozen=True)
class Matched:
    """New matches and the sum over them, per window and key; a (window, key) may occur several times."""

    window: Times
    key: Words
    matches: Floats
    total: Floats


def match_change(spec: WindowSpec, runs: Sequence[AnyRun], change: Run) -> tuple[Deltas, Run, Matched]:
    """Match a change (of `rows_by_key`) with the state.

    Returns
    -------
    The change of windows' totals, the run to add to the state, and the new matches per (window, key).
    """
    ring = ring_of(spec)
    group_of, first = np.empty(change.rows, np.int64), np.empty(change.rows, np.int64)
    words = np.ascontiguousarray(change.words[:-1])
    groups = kernels.heads_sorted(words, group_of, first)
    first = first[:groups]
    keys = np.ascontiguousarray(words[:, first])
    before = lookup(ring, runs, keys)
    right, more_right = _moving(before[1], change.payload[1], group_of, first)
    left, more_left = _moving(before[0] - before[1], change.payload[0] - change.payload[1], group_of, first)
    matches = more_left * right + left * more_right + more_left * more_right
    total = np.zeros(change.rows)
    if ring is SUMS:
        # Each value counts once for every row of the other side.
        was, more = (Compensated().values(payload[2:]) for payload in (before, change.payload))
        value, more = _moving(was, more, group_of, first)
        others, more_others = (right, more_right) if spec.aggregate.side == LEFT else (left, more_left)
        total = more * others + value * more_others + more * more_others
    window, moment = (times_of(change.words[i]) for i in (0, -1))
    deltas = Deltas.of(moment, window, np.stack([more_left, more_right, matches, total]))
    matched = Matched(window, change.words[1:-1], matches, total)
    return deltas, Run(keys, ring.sum_by(change.payload, group_of, groups)), matched


def _moving(before: NDArray[Any], more: NDArray[Any], group_of: Positions, first: Positions) -> tuple[Floats, Floats]:
    """Per entry of a change, return the number of its key just before the moment, and what is added then."""
    more = more.astype(np.float64)
    so_far = np.empty(len(more))
    _running(more, first, so_far)
    return before.astype(np.float64)[group_of] + so_far, more


@nb.njit(cache=True, nogil=True)
def _running(more, first, out):  # type: ignore[no-untyped-def]
    # Each key is summed by itself: large values of one must not swallow small values of the next.
    for key in range(len(first)):
        total = 0.0
        for i in range(first[key], first[key + 1] if key + 1 < len(first) else len(more)):
            out[i] = total
            total += more[i]


def entries_before(runs: Sequence[AnyRun], before: int) -> list[int]:
    """Return, per run, how many of its entries belong to windows before `before`; these are its first entries."""
    probe, found = time_words(np.array([before]))[None, :], []
    for run in runs:
        edge = np.empty(1, np.int64)
        kernels.lower_bounds(run.words, probe, np.zeros(1, np.int64), np.array([run.rows]), edge)
        found.append(int(edge[0]))
    return found


def windows_of(spec: WindowSpec, event: Times) -> tuple[Times, NDArray[np.int64] | None]:
    """Return the windows that rows belong to, and which row each entry is (None if windows do not overlap)."""
    last = spec.last_window(event)
    if spec.slide == spec.length:
        return last, None
    first = spec.first_window(event)
    return counting_on(first, last - first + 1)


def counting_on(first: Times, times: Times) -> tuple[Times, NDArray[np.int64]]:
    """Count on from each first window, so many times; return the windows, and which of the first each came from.

    >>> windows, origin = counting_on(np.array([5, 9]), np.array([3, 1]))
    >>> windows.tolist(), origin.tolist()
    ([5, 6, 7, 9], [0, 0, 0, 1])
    """
    rows = np.repeat(np.arange(len(first)), times)
    ends = np.cumsum(times)
    return first[rows] + np.arange(len(rows)) - (ends - times)[rows], rows


def time_words(times: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return times, or windows, as words that sort in the same order.

    >>> times_of(np.sort(time_words(np.array([7, -3, 0])))).tolist()
    [-3, 0, 7]
    """
    return times.astype(np.int64).view(np.uint64) ^ _SIGN


def times_of(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the times that words stand for."""
    times: NDArray[np.int64] = (words ^ _SIGN).view(np.int64)
    return times
