"""The queries of the disorder benchmark, and the streams that they join.

A stream is generated, or recorded rows are played again from a random row on; each seed begins at another part of a
window. Half-way through the measured windows, the rate or the delays may change. Methods know nothing of all this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.bench.disorder.truth import truth
from headrace.datasets.delays import DelayLaw, Drift, Exponential, Uniform
from headrace.datasets.disorder import Rate, Stream, evenly, generate, poisson, read_recorded
from headrace.errors import StorageError

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]

LENGTH = 10_000  # of windows, in microseconds
MICRO, ROVIO, STOCK = "micro", "rovio", "stock"
NO_CHANGE, DRIFT = "none", "drift"
_FACTORS = {"double": 2.0, "halve": 0.5}
CHANGES = (NO_CHANGE, *_FACTORS, DRIFT)
RECORDED: Mapping[str, tuple[str, str]] = {  # the files of the left and the right side
    ROVIO: ("rovio.csv", "rovio.csv"),
    STOCK: ("stock_r.csv", "stock_s.csv"),
}
DATA = (MICRO, *RECORDED)
DRIFTING = 20  # windows that a drift takes


@dataclass(frozen=True)
class Query:
    """An aggregate over windows of 10 ms, the delays of their rows, and when answers are wanted."""

    aggregate: str
    latest: int  # the longest delay, in microseconds
    omegas: tuple[float, ...]  # moments of answers, in milliseconds after the start of a window
    warm: int  # windows before the measured ones: some must have completed


QUERIES = {
    "q1": Query("count", 5_000, (7.0, 10.0, 12.0), 50),
    "q2": Query("sum(v)", 5_000, (7.0, 10.0, 12.0), 50),
    "q3": Query("count", 1_000_000, (200.0, 300.0, 600.0), 400),
}


@dataclass(frozen=True)
class Recorded:
    """The recorded keys and values of both sides, in their order."""

    left: tuple[Numbers, Floats]
    right: tuple[Numbers, Floats]
    together: bool  # whether both sides play the same part of the day, as prices and trades do


def load_recorded(data: str, folder: Path | None) -> Recorded | None:
    """Read the files of a data set; None for data that is generated."""
    if data == MICRO:
        return None
    names = RECORDED[data]
    wanted = " and ".join(dict.fromkeys(names))
    way_out = f"Give the folder that has {wanted} with --recorded FOLDER, or use --data {MICRO}, which is generated."
    if folder is None:
        raise StorageError(
            f"{data} is a recorded stream, and no folder of recorded streams was given.", way_out=way_out
        )
    for name in names:
        if not (folder / name).is_file():
            raise StorageError(f"There is no {name} in {folder}.", way_out=way_out)
    left, right = (read_recorded(folder / name) for name in names)
    return Recorded(left, right, together=data == STOCK)


@dataclass(frozen=True)
class Sides:
    """The two streams of a join, and which of its windows are measured."""

    left: Stream
    right: Stream
    first: int
    count: int
    values: bool  # whether the values of the left side are summed up

    @cached_property
    def truth(self) -> Floats:
        """The true answers of the measured windows."""
        return truth(self.left, self.right, LENGTH, self.first, self.count, summed=self.values)

    def arrived(self, moments: Numbers) -> Floats:
        """Return the answers of the measured windows over the rows that had arrived by their moments."""
        return truth(self.left, self.right, LENGTH, self.first, self.count, summed=self.values, moments=moments)


@dataclass(frozen=True)
class Workload:
    """The parameters of the streams, but for the seed."""

    query: Query
    recorded: Recorded | None
    windows: int
    warm: int
    longest: int  # how long after its start a window is answered, in microseconds, at most
    rate: float = 100_000.0
    keys: int = 10
    skew: float = 0.0
    arrivals: str = "even"
    change: str = NO_CHANGE

    @property
    def changes_at(self) -> int | None:
        """The first of the measured windows after the change; None if there is no change."""
        return None if self.change == NO_CHANGE else self.windows // 2

    def visible_at(self, omega: int) -> int | None:
        """Return the first of the measured windows whose answer can reflect the change.

        Another rate shows in the very window where it begins. Of delays, the longest must have had the time to come.
        """
        at = self.changes_at
        if at is None or self.change != DRIFT:
            return at
        return at + DRIFTING + -(-max(0, self.query.latest - omega) // LENGTH)

    def sides(self, seed: int) -> Sides:
        """Return both sides under a seed."""
        rng = np.random.default_rng([seed, 1])
        shift = int(rng.integers(0, LENGTH))  # of all times, so the first window has only a part of its rows
        first = 1 + self.warm
        last = first + self.windows
        # It goes on until all measured windows have been answered and are complete.
        length = last * LENGTH + max(self.longest, self.query.latest) + LENGTH - shift
        change = (first + (self.changes_at or 0)) * LENGTH - shift
        rate, law = self._rate(change), self._law(change)
        offsets = (0, 0)
        if self.recorded is not None:
            sizes = (len(self.recorded.left[0]), len(self.recorded.right[0]))
            offset = int(rng.integers(0, min(sizes)))
            offsets = (offset, offset if self.recorded.together else int(rng.integers(0, sizes[1])))
        left, right = (
            _shifted(self._side(side, offsets[side], length, rate, law, 2 * seed + side), shift) for side in (0, 1)
        )
        return Sides(left, right, first, self.windows, self.query.aggregate != "count")

    def _side(self, side: int, offset: int, length: int, rate: Rate, law: DelayLaw, seed: int) -> Stream:
        if self.recorded is None:
            return generate(
                length,
                rate=rate,
                keys=self.keys,
                skew=self.skew,
                delays=law,
                arrivals="even" if self.arrivals == "even" else "poisson",
                seed=seed,
            )
        key, value = self.recorded.right if side else self.recorded.left
        rng = np.random.default_rng([seed, 2])
        event = evenly(rate, length) if self.arrivals == "even" else poisson(rng, rate, length)
        at = (offset + np.arange(len(event))) % len(key)
        return Stream.of(key[at], value[at], event, event + law.draw(rng, event, key[at]))

    def _rate(self, change: int) -> Rate:
        factor = _FACTORS.get(self.change)
        return self.rate if factor is None else [(0, self.rate), (change, self.rate * factor)]

    def _law(self, change: int) -> DelayLaw:
        latest = self.query.latest
        law = Uniform(latest)
        if self.change != DRIFT:
            return law
        return Drift(law, Exponential(latest / 5, most=latest), change, change + DRIFTING * LENGTH)


def _shifted(stream: Stream, by: int) -> Stream:
    return Stream(stream.key, stream.value, stream.event + by, stream.arrival + by)
