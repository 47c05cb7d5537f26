"""The distribution of the delays of one stream, learned while it drifts and while late rows are still missing.

Rows that are still under way cannot be counted, so short delays are seen too often. The fair question is: among events
older than d, how many of the rows whose delay is at most d have exactly d? All of those rows have had the time to
arrive. With these shares h(d), the probability to have arrived after d is the product of 1 - h over all longer delays
(a Kaplan-Meier estimate in reversed time, known as chain ladder). Old events count less and less.

Two short tables are enough for that: a row that has arrived with delay d is older than d, so all of these count; and
the rows with a delay of at most d whose event is not older than d are all rows that have arrived of such events.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from headrace.window.estimator_state import Stateful
from headrace.window.spec import Times
from headrace.window.totals import Floats

_jit: Any = nb.njit(cache=True, nogil=True)

_BINS = 64  # of delays up to the horizon; events are counted in slots of the same width
_ENOUGH = 5.0  # rows to expect in a bin; with fewer, a drift cannot be told from chance


def bins_of(horizon: int, event: Times, arrival: Times) -> tuple[Times, Times]:
    """Return the slot of each event, and the bin of each delay up to a horizon.

    >>> slot, delay = bins_of(6_400, np.array([250, 300]), np.array([250, 3_500]))
    >>> slot.tolist(), delay.tolist()
    ([2, 3], [0, 32])
    """
    width, bins = _bins(horizon)
    return event // width, np.minimum((arrival - event) // width, bins - 1)


def _bins(horizon: int) -> tuple[int, int]:
    """Return the width of bins, and their number."""
    width = max(1, -(-horizon // _BINS))
    return width, max(1, -(-max(1, horizon) // width))


@dataclass(frozen=True)
class _Known:
    """A distribution of delays over bins."""

    hazard: Floats  # per bin: among rows whose delay is in it or in a shorter one, the share whose delay is in it
    probability: Floats  # per edge of bins: to have arrived by then
    below: Floats  # per edge: the integral of the probability up to it, in bins


class _Counts(Stateful):
    """The rows that have arrived, per bin of their delay; old ones count less."""

    state_fields = ("delays",)

    def __init__(self, bins: int, decay: float) -> None:
        self.delays = np.zeros(bins)
        self._decay = decay
        self._weights = decay ** np.arange(bins + 1.0)

    def add(self, delay: Times, age: Times, count: Floats) -> None:
        self.delays += np.bincount(delay, count * self._decay ** age.astype(float), minlength=len(self.delays))

    def advance(self, steps: int) -> None:
        self.delays *= self._decay**steps

    def at_risk(self, young: Floats, within: float) -> Floats:
        """Return, per bin, the rows of events older than it whose delay is in it or in a shorter one."""
        bins = len(self.delays)
        edges = np.arange(-1, bins + 1) + within
        younger = np.append(0.0, np.cumsum(young * self._weights))
        # Of an event that is as old as a bin, half of the bin's delays have had the time, on average.
        found: Floats = np.cumsum(self.delays) - np.interp(np.arange(bins) + 0.5, edges, younger)
        found = np.maximum(found, self.delays)
        return found


class Delays(Stateful):
    """Learns the probability that a row has arrived by some time after its event.

    Parameters
    ----------
    horizon : the longest delay there can be.
    memory : the time after which an event counts half.
    lately : the same, shorter, for the recent delays that show a drift.
    """

    state_fields = ("_young", "_counts", "_lately", "_newest", "_within")

    def __init__(self, horizon: int, memory: int, lately: int) -> None:
        self._width, self._bins = _bins(horizon)
        # Rows that have arrived by the slot of their event, the newest one first.
        self._young = np.zeros(self._bins + 1)
        self._counts, self._lately = (
            _Counts(self._bins, 0.5 ** (self._width / max(1, time))) for time in (memory, lately)
        )
        self._newest: int | None = None  # the slot that it is now
        self._within = 0.0  # how much of that slot has passed
        self._known: _Known | None = None  # what follows from all that; None if it must be made anew

    def observe(self, slots: tuple[Times, Floats], delays: tuple[Times, Times, Floats]) -> None:
        """Count rows that have arrived: per slot of their event, and per moment and bin of their delay (`bins_of`)."""
        slot, count = slots
        if not len(slot):
            return
        if self._newest is None:
            self._newest = int(slot.min())
        self._advance(int(slot.max()), 0.0)
        age = self._newest - slot
        young = age < len(self._young)
        self._young += np.bincount(age[young], count[young], minlength=len(self._young))
        moment, delay, count = delays
        # Moments follow each other closely, so at the moment from which on a row is seen its age is about its delay.
        age = self._newest - moment // self._width + delay
        for counts in (self._counts, self._lately):
            counts.add(delay, age, count)
        self._known = None

    def advance(self, at: int) -> None:
        """Let time pass to a moment; all rows that have arrived by it have been counted."""
        if self._newest is not None:
            self._advance(at // self._width, at % self._width / self._width)

    def arrived(self, elapsed: NDArray[np.int64] | Floats) -> Floats:
        """Return the probability that a row has arrived, per time elapsed since its event."""
        edges = np.arange(self._bins + 1) * float(self._width)
        found: Floats = np.interp(elapsed, edges, self._distribution().probability, left=0.0, right=1.0)
        return found

    def share(self, start: Floats, length: int, at: float) -> Floats:
        """Return the share of events that has arrived at a moment, per stretch over which they are spread evenly."""
        known = self._distribution()
        share: Floats = _shares(at - start, float(length), float(self._width), known.probability, known.below)
        return share

    @property
    def drift(self) -> float:
        """The relative distance of recent delays to the distribution, beyond what chance explains."""
        hazard = self._distribution().hazard
        expected = self._lately.at_risk(self._young, self._within) * hazard
        enough = (expected >= _ENOUGH) & (hazard < 1)
        if not enough.any():
            return 0.0
        hazard, expected, found = hazard[enough], expected[enough], self._lately.delays[enough]
        # Weights that fall by halves have squares that come to half of their sum.
        chance = 0.5 * expected * (1 - hazard)
        return math.sqrt(max(0.0, float(((found - expected) ** 2 - chance).sum()) / float(expected @ expected)))

    def _advance(self, now: int, within: float) -> None:
        assert self._newest is not None
        steps = now - self._newest
        if steps < 0 or (steps == 0 and within <= self._within):
            return
        self._known, self._within = None, within
        if steps:
            for counts in (self._counts, self._lately):
                counts.advance(steps)
            kept = self._young[: max(0, len(self._young) - steps)].copy()
            self._young[:] = 0
            self._young[len(self._young) - len(kept) :] = kept
            self._newest = now

    def _hazard(self) -> Floats:
        at_risk = self._counts.at_risk(self._young, self._within)
        if not at_risk.any():  # nothing is known: all delays are as likely
            return 1.0 / np.arange(1, self._bins + 1)
        found: Floats = np.divide(self._counts.delays, at_risk, out=np.zeros(self._bins), where=at_risk > 0)
        return found

    def _distribution(self) -> _Known:
        if self._known is None:
            hazard = self._hazard()
            after = np.cumprod((1.0 - hazard)[::-1])[::-1]  # arrived before the bin begins
            probability = np.append(after, 1.0)
            probability[0] = 0.0
            below = np.append(0.0, np.cumsum((probability[1:] + probability[:-1]) / 2))
            self._known = _Known(hazard, probability, below)
        return self._known


@_jit
def _shares(elapsed, length, width, probability, below):  # type: ignore[no-untyped-def]
    out = np.empty(len(elapsed))
    for i in range(len(elapsed)):
        whole = _integral(elapsed[i] / width, probability, below)
        rest = _integral((elapsed[i] - length) / width, probability, below)
        out[i] = min(max((whole - rest) * width / length, 0.0), 1.0)
    return out


@_jit
def _integral(at, probability, below):  # type: ignore[no-untyped-def]
    """Integrate the probability to have arrived up to a time, in bins; it is linear between their edges."""
    bins = len(below) - 1
    if at <= 0:
        return 0.0
    if at >= bins:
        return below[bins] + at - bins
    number = int(at)
    inside = at - number
    rise = probability[number + 1] - probability[number]
    return below[number] + inside * (probability[number] + 0.5 * rise * inside)
