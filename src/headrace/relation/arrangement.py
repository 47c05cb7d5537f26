"""Arrangements: the runs of one view in one bucket, read as their sum.

A step adds one run. Runs are merged geometrically: runs of about the same size wait until there are a few of them
(`fan_in`) and become one, so an entry is rewritten O(log n) times and a reader looks at O(log n) runs. When the runs
hold more than twice as many entries as are alive, all of them are merged, so state stays within a constant of the
live data whatever was deleted. A step itself merges only short runs (`runs_to_merge`); other merges are `owed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.kernels import Words
from headrace.relation.run import Run, at_width, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.rings import Group, Payload

_SMALLEST_TIER = 1024
# Small runs are cheap to rewrite and dear to look at, large ones the other way round, so large ones wait for more.
_SMALL_FAN_IN, _LARGE_FAN_IN = 4, 8
_SMALL_TIERS = 4
_SAMPLE = 64  # entries that are looked up to estimate how many are new
_SLACK = 512  # entries that may be dead before a full merge is worth its fixed cost


def lookup(group: Group, runs: Sequence[AnyRun], probes: Words) -> Payload:
    """Sum, over the runs, the payloads of each probed key (zero where there is none)."""
    return as_set(runs).lookup(group, probes)


def scan(group: Group, runs: Sequence[AnyRun]) -> Run | None:
    """Add all runs up; None when there are none."""
    if not runs:
        return None
    return merge(group, list(runs))  # type: ignore[arg-type]


def pieces(group: Group, runs: Sequence[AnyRun], rows: int, first: int | None = None) -> Iterator[Run]:
    """Add all runs up piece by piece, in the order of their keys, reading at most about `rows` entries per piece.

    If `first` is given, the first piece has about so many entries, and each of the next ones twice as many as the last.
    At most about half of the entries of an arrangement are dead, so the cost of a piece is in proportion to the
    entries it has, and the first one comes as fast as the last.
    """
    left, most = [(run, 0) for run in runs if run.rows], rows
    rows = most if first is None else min(first, most)
    while left:
        # Where keys of all runs lie among each other, an equal share of each is a piece; where the runs follow each
        # other, the piece is of one of them.
        stops = _stops(left, max(1, rows // len(left)))
        if 2 * _entries(left, stops) < rows:
            wider = _stops(left, rows)
            stops = wider if _entries(left, wider) <= 2 * rows else stops
        if not _entries(left, stops):  # keys are not in order: the file of a run is damaged
            for run, _ in left:
                run.check()
            raise AssertionError("the keys of a run are in ascending order")
        yield merge(group, [run.slice(at, end) for (run, at), end in zip(left, stops, strict=True)])
        left = [(run, end) for (run, _), end in zip(left, stops, strict=True) if end < run.rows]
        rows = min(most, 2 * rows)


def _stops(left: Sequence[tuple[AnyRun, int]], most: int) -> list[int]:
    """Up to where to read each run, so that none is read further than `most` entries, and all up to the same key."""
    width = max(run.words.shape[0] for run, _ in left)
    edges = [at_width(run.words[:, at + most - 1 : at + most], width) for run, at in left if at + most < run.rows]
    if not edges:
        return [run.rows for run, _ in left]
    edge = min(edges, key=lambda key: tuple(key[:, 0].tolist()))
    return [_upper_bound(run, np.ascontiguousarray(edge), at) for run, at in left]


def _entries(left: Sequence[tuple[AnyRun, int]], stops: Sequence[int]) -> int:
    return sum(end - at for (_, at), end in zip(left, stops, strict=True))


def _upper_bound(run: AnyRun, key: Words, start: int) -> int:
    out = np.empty(1, np.int64)
    kernels.upper_bounds(run.words, at_width(key, run.words.shape[0]), np.array([start]), np.array([run.rows]), out)
    return int(out[0])


def runs_to_merge(sizes: Sequence[int], incoming: int, live: int) -> list[int]:
    """Choose which runs a new run of `incoming` entries should be merged with, given the entries alive after it.

    >>> runs_to_merge([1_000_000, 900, 800, 700], 600, live=1_002_000)
    [1, 2, 3]
    >>> runs_to_merge([1_000_000, 900], 600, live=1_000_900)
    []
    """
    if sum(sizes) + incoming > 2 * live + _SLACK:
        return list(range(len(sizes)))
    chosen: set[int] = set()
    size = incoming
    while True:
        tier = _tier(size)
        peers = [i for i, other in enumerate(sizes) if i not in chosen and _tier(other) <= tier]
        if len(peers) + 1 < fan_in(tier):
            return sorted(chosen)
        chosen.update(peers)
        size = incoming + sum(sizes[i] for i in chosen)


def owed(sizes: Sequence[int], live: int) -> list[int]:
    """Choose which of the runs that are there should become one, given the entries alive in all of them.

    >>> owed([1_000_000, *range(900, 908)], live=1_003_000)
    [1, 2, 3, 4, 5, 6, 7, 8]
    >>> owed([1_000_000, *range(900, 907)], live=1_003_000)
    []
    >>> owed([1_000_000, 900, 600], live=400_000)
    [0, 1, 2]
    """
    if len(sizes) > 1 and sum(sizes) > 2 * live + _SLACK:
        return list(range(len(sizes)))
    tiers = [_tier(size) for size in sizes]
    full = [tier for tier in set(tiers) if tiers.count(tier) >= _LARGE_FAN_IN]
    return [i for i, tier in enumerate(tiers) if tier <= min(full)] if full else []


def fan_in(tier: int) -> int:
    """Return how many runs of a tier are merged into one."""
    return _SMALL_FAN_IN if tier < _SMALL_TIERS else _LARGE_FAN_IN


def _tier(size: int) -> int:
    tier, edge = 0, _SMALLEST_TIER
    while size > edge:
        edge *= fan_in(tier)
        tier += 1
    return tier


def alive(payload: Payload) -> NDArray[np.bool_]:
    """Tell which entries exist: their count, the first column of every payload, is not zero."""
    exists: NDArray[np.bool_] = counts(payload) != 0
    return exists


def counts(payload: Payload) -> NDArray[Any]:
    """Return the counts of entries: the first column of a payload, or the first number of each of its rows."""
    first = payload[0]
    return first if first.ndim == 1 else first[:, 0]


def growth(group: Group, before: Sequence[AnyRun], change: Run, sample_size: int | None = _SAMPLE) -> int:
    """Estimate by how many entries a change makes an arrangement grow, from a sample of them; None looks at all.

    It only decides when runs are merged, and is exact again after every full merge.
    """
    sample = np.arange(0, change.rows, 1 if sample_size is None else max(1, change.rows // sample_size))
    was = counts(lookup(group, before, np.ascontiguousarray(change.words[:, sample])))
    now = was + counts(change.payload)[sample]
    return round(change.rows * float(((now != 0).astype(int) - (was != 0)).mean())) if len(sample) else 0
