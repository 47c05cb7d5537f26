"""Fitting the units of cost to the machine: a few probes, each of some milliseconds.

The default units in `cost` were measured on the developers' machine, with whole steps over large tables. A probe is a
small piece of the same work: the ratio of its time here to its time there scales the units. Each probe runs several
times, and the fastest run counts, because other load on this machine only makes a probe slower.
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
_FARTHEST = 20.0  # a larger ratio to the developers' machine means a probe at a bad moment


@dataclass(frozen=True)
class Probes:
    """Seconds that each probe takes."""

    group: float  # `_ROWS` rows are summed by key
    join: float  # `_ROWS` keys are looked up among as many
    job: float  # Spark answers an aggregate over one row
    scan: float  # the additional seconds for an aggregate over `_SCANNED` rows


OURS = Probes(group=0.0009, join=0.003, job=0.1, scan=0.1)
"""The seconds of the probes on the machine on which `UNITS` were measured."""


def probe(run: Callable[[int], object], is_stopped: Callable[[], bool]) -> Probes | None:
    """Make all probes; None if they were stopped.

    Parameters
    ----------
    run : makes Spark compute an aggregate with an exchange over a number of rows.
    is_stopped : whether to give up; called between probes.
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
    """The units of a machine, from the seconds of its probes.

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
    """Units from plain values; raises ValueError or TypeError if the values are not units."""
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
    """Round to two digits: more would only make the choice between equally good plans vary."""
    return float(f"{value:.1e}")
