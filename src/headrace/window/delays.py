"""The distribution of delays of one stream, learned while it drifts and while late rows have not come yet.

Rows that are still under way are not there to be counted, so short delays are seen too often. What is fair is to ask,
of the rows whose delay is at most d, how many have exactly d, among events that are older than d: all of those have had
the time to arrive. With these shares h(d), the probability to have arrived after d is the product of 1 - h over all
longer delays (a Kaplan-Meier estimate in reversed time, known as chain ladder). Old events count less and less.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.window.saved import Saved
from headrace.window.spec import Times
from headrace.window.totals import Floats

_BINS = 128  # of delays; events are counted in slots of the same width


def bins_of(horizon: int, event: Times, arrival: Times) -> tuple[Times, Times]:
    """The slot of each event, and the bin of each delay, up to a horizon."""
    width, bins = _bins(horizon)
    return event // width, np.minimum((arrival - event) // width, bins - 1)


def _bins(horizon: int) -> tuple[int, int]:
    """The width of bins, and their number."""
    width = max(1, -(-horizon // _BINS))
    return width, max(1, -(-max(1, horizon) // width))


class Delays(Saved):
    """Learns how likely a row has arrived by some time after its event.

    Parameters
    ----------
    horizon : the longest delay there can be.
    memory : after how much time an event counts half.
    """

    saved = ("_young", "_old", "_newest")

    def __init__(self, horizon: int, memory: int) -> None:
        self._width, self._bins = _bins(horizon)
        self._decay = 0.5 ** (self._width / max(1, memory))
        # Events of which rows may still be under way; what is older is summed up. A row at the end of its slot, and of
        # its bin, arrives in the slot after next: hence two more slots than bins.
        self._young = np.zeros((self._bins + 2, self._bins))
        self._old = np.zeros(self._bins)
        # Of each slot and bin, how much it counts: nothing as long as rows with this delay may still come.
        ages = np.arange(len(self._young) - 1, -1, -1)
        self._settled = self._decay ** ages.astype(float)[:, None] * (ages[:, None] > np.arange(self._bins) + 1)
        self._newest: int | None = None  # the slot of the last row of `_young`
        self._arrived: Floats | None = None

    def observe(self, slot: Times, delay: Times, count: Floats) -> None:
        """See rows that have arrived: how many there are of each slot and bin (`bins_of`)."""
        if not len(slot):
            return
        if self._newest is None:
            self._newest = int(slot.min())
        self._advance(int(slot.max()))
        age = self._newest - slot
        young = age < len(self._young)
        rows = len(self._young) - 1 - age[young]
        cells = np.bincount(rows * self._bins + delay[young], count[young], minlength=self._young.size)
        self._young += cells.reshape(self._young.shape)
        if not young.all():
            old = np.flatnonzero(~young)
            weights = count[old] * self._decay ** age[old].astype(float)
            self._old += np.bincount(delay[old], weights, minlength=self._bins)
        self._arrived = None

    def advance(self, at: int) -> None:
        """Let time pass: all rows that have arrived by this moment have been seen."""
        if self._newest is not None:
            self._advance(at // self._width)

    def arrived(self, elapsed: NDArray[np.int64] | Floats) -> Floats:
        """The probability that a row has arrived so long after its event."""
        edges = np.arange(self._bins + 1) * float(self._width)
        found: Floats = np.interp(elapsed, edges, self._distribution(), left=0.0, right=1.0)
        return found

    def share(self, start: Floats, length: int, at: float, points: int = 32) -> Floats:
        """Of events spread evenly over stretches of a length, the share that has arrived at a moment."""
        inside = (np.arange(points) + 0.5) * (length / points)
        share: Floats = self.arrived(at - (np.asarray(start)[:, None] + inside)).mean(axis=1)
        return share

    def _advance(self, now: int) -> None:
        assert self._newest is not None
        steps = now - self._newest
        if steps <= 0:
            return
        self._arrived = None
        rows = len(self._young)
        weights = self._decay ** np.arange(rows - 1, -1, -1.0)
        if steps >= rows:
            self._old = (self._old + weights @ self._young) * self._decay**steps
            self._young[:] = 0
        else:
            leaving = self._young[:steps]
            self._old = self._old * self._decay**steps + weights[:steps] @ leaving * self._decay**steps
            self._young[:-steps] = self._young[steps:]
            self._young[-steps:] = 0
        self._newest = now

    def _distribution(self) -> Floats:
        """The probability to have arrived, at the edges of all bins."""
        if self._arrived is None:
            exact = self._old + np.einsum("ij,ij->j", self._settled, self._young)
            up_to = np.cumsum(self._old) + np.einsum("ij,ij->j", self._settled, np.cumsum(self._young, axis=1))
            hazard = np.divide(exact, up_to, out=np.zeros(self._bins), where=up_to > 0)
            if not up_to.any():  # nothing is known: all delays are as likely
                hazard = 1.0 / np.arange(1, self._bins + 1)
            after = np.cumprod((1.0 - hazard)[::-1])[::-1]  # arrived before the bin begins
            self._arrived = np.append(after, 1.0)
            self._arrived[0] = 0.0
        return self._arrived
