"""The arrival curve of late data: batches that shrink by about the same factor, until a large one starts a new tail.

Every day 90% of a table come at once, then 9%, 0.9% and 0.1%. Ratios of successive batches of all tails that are
remembered say how the next batch relates to the last one, so a new tail is right from its second batch on. Their
median is taken, because one odd batch must not bend the curve. If batches shrink, and the finished tails had equally
many of them, the end of a tail is known too: the next batch is a large one.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from headrace.thrifty.keep.change import Change

REMEMBERED = 24  # steps of a table: six tails of four batches
_GROWTH = 2.0  # within a tail, a batch is at most this many times the one before; a larger one starts a new tail


def next_of(changes: Sequence[Change]) -> Change:
    """The change that follows on those that have come into a table, the last of them last.

    >>> day = [Change(9_000.0), Change(900.0), Change(90.0)]
    >>> next_of([*day, Change(9_000.0)])
    Change(inserted=900.0, deleted=0.0)
    """
    tails = tails_of(changes)
    # What has been forgotten may have begun the first tail.
    whole = tails[1:-1] if len(changes) >= REMEMBERED else tails[:-1]
    factor = _factor(changes, tails)
    if factor < 1 / _GROWTH and _is_over(len(tails[-1]), [len(tail) for tail in whole]):
        heads = [tail[0] for tail in [*whole, tails[-1]]]
        return Change(
            statistics.median(head.inserted for head in heads), statistics.median(head.deleted for head in heads)
        )
    return changes[-1].times(factor)


def tails_of(changes: Sequence[Change]) -> list[list[Change]]:
    """The changes of a table, cut before each that is much larger than the one before it."""
    tails = [[changes[0]]]
    for before, change in pairwise(changes):
        if change.rows > _GROWTH * before.rows:
            tails.append([])
        tails[-1].append(change)
    return tails


def _is_over(length: int, lengths: Sequence[int]) -> bool:
    """Whether a tail is as long as all tails before it were; single batches are not tails."""
    return length > 1 and len(lengths) > 0 and set(lengths) == {length}


def _factor(changes: Sequence[Change], tails: Sequence[Sequence[Change]]) -> float:
    ratios = [after.rows / before.rows for tail in tails for before, after in pairwise(tail)]
    if ratios:
        return statistics.median(ratios)
    # Each batch was much larger than the one before, or there is only one.
    return _GROWTH if len(changes) > 1 else 1.0
