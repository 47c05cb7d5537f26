"""Fitting the units of cost to the machine: a few probes, each of some milliseconds.

The units that `cost` has were measured on one machine, with whole steps over large tables. A probe takes a small piece
of the same work: how much longer it takes here than it took there is how much longer a row takes. Each probe is made
several times, and the fastest counts, as whatever else runs here only makes it slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headrace.relation.arrangement import lookup
from headrace.relation.run import consolidate
from headrace.rings import Integer
from headrace.thrifty.cost import UNITS, Units

_ROWS, _KEYS = 50_000, 5_000
_TIMES, _QUERIES = 5, 3
_SCANNED = 10_000_000
_FARTHEST = 20.0  # a machine that is so much faster or slower than ours has been measured at a bad moment


@dataclass(frozen=True)
class Probes:
    """Seconds that each probe takes."""

    group: float  # `_ROWS` rows are summed by key
    join: float  # `_ROWS` keys are looked up among as many
    job: float  # Spark answers an aggregate over one row
    scan: float  # and over `_SCANNED` rows, beyond that


OURS = Probes(group=0.0009, join=0.003, job=0.1, scan=0.1)
"""What the probes took on the machine on which `UNITS` were measured."""


def probe(run: Callable[[int], object], is_stopped: Callable[[], bool]) -> Probes | None:
    """Make all probes; None if there was no time for it.

    Parameters
    ----------
    run : has Spark compute an aggregate with an exchange over so many rows.
    is_stopped : asked between probes.
    """
    found: list[float] = []
    probes: list[tuple[Callable[[], object], int]]
    probes = [(_group, _TIMES), (_join, _TIMES), (lambda: run(1), _QUERIES), (lambda: run(_SCANNED), _QUERIES)]
    for work, repeated in probes:
        times = []
        for _ in range(repeated):
            if is_stopped():
                return None
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        found.append(min(times))
    group, join, job, whole = found
    return Probes(group, join, job, max(whole - job, 1e-6))


def fitted(here: Probes) -> Units:
    """The units of a machine on which the probes take so long.

    >>> fitted(OURS) == UNITS
    True
    """
    group, join = _slower(here.group, OURS.group), _slower(here.join, OURS.join)
    scan, job = _slower(here.scan, OURS.scan), _slower(here.job, OURS.job)
    return Units(
        group=_rounded(UNITS.group * group),
        join=_rounded(UNITS.join * join),
        product=_rounded(UNITS.product * (group + join) / 2),
        scan=_rounded(UNITS.scan * scan),
        compare=_rounded(UNITS.compare * join),
        job=_rounded(UNITS.job * job),
    )


def to_json(units: Units) -> dict[str, float]:
    """Units as plain values."""
    return asdict(units)


def from_json(data: dict[str, Any]) -> Units:
    """Units from plain values; raises ValueError or TypeError if they are none."""
    units = Units(**{name: float(value) for name, value in data.items()})
    if min(asdict(units).values()) <= 0:
        raise ValueError("nothing is free")
    return units


def _group() -> None:
    words = (np.arange(_ROWS, dtype=np.uint64) * 7_919 % _KEYS)[None, :]
    ring = Integer()
    consolidate(ring, words, ring.ones(_ROWS), {})


def _join() -> None:
    ring, words = Integer(), np.arange(_ROWS, dtype=np.uint64)[None, :]
    lookup(ring, [consolidate(ring, words, ring.ones(_ROWS), {})], words)


def _slower(here: float, there: float) -> float:
    return min(_FARTHEST, max(1 / _FARTHEST, here / there))


def _rounded(value: float) -> float:
    """Two digits: more would only make plans differ that are as good."""
    return float(f"{value:.1e}")
