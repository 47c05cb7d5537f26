"""Window joins that do not estimate: they answer a window at its moment by the rows that have arrived.

The joins differ in when they do their work: eagerly (`eager_join`), lazily (`lazy_join`), or behind a buffer that puts
rows back into their order (`k_slack`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from headrace.bench.disorder.k_slack import KSlack
from headrace.window.answers import Answer
from headrace.window.arrivals import Arrivals
from headrace.window.estimate import answer_of
from headrace.window.spec import WindowSpec
from headrace.window.totals import Totals

_NEVER = -(1 << 62)


class Join(Protocol):
    """A window join that can be read at any moment."""

    def add(self, arrivals: Arrivals) -> None:
        """Take rows in."""

    def read(self, first: int, last: int) -> Totals:
        """Return the totals, by the rows so far, of the windows from `first` up to, but not including, `last`."""

    def close(self, before: int, known: int) -> None:
        """Drop the state of the windows before `before`; keep their totals from the window `known` on."""


def answered(
    spec: WindowSpec, join: Join, arrivals: Arrivals, slack: KSlack | None = None, until: int | None = None
) -> Iterator[Answer]:
    """Yield the answer of each window at its moment, by the rows that have arrived.

    Parameters
    ----------
    arrivals : in the order of their arrival.
    slack : a buffer before the join. A window is then answered as soon as the frontier passes its end, if that comes
        before its moment; at its moment, rows of it that are still held back count too.
    until : goes on to this moment; by default, to the last arrival.
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
    """Hand rows to a join, through its slack if it has one; return the position behind the last row taken."""
    if slack is None:
        join.add(arrivals.slice(first, last))
        return last
    rows, taken = slack.add(arrivals.slice(first, last), stop)
    join.add(rows)
    return first + taken
