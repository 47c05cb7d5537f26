"""When a view with a goal is due: its progress since the last trigger, in rows and in time.

All of it is arithmetic on committed numbers, so an engine that opens the location again goes on where the last one was.
Times are microseconds since 1970. What is due by rows is decided in integers: two engines never disagree about it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headrace.relation.from_log import from_log
from headrace.thrifty.goal import AtWindowEnd, Budget, Every, EveryRows, Freshness, Manual, OnRefresh, TargetLag

_NEWS = 0.3  # the weight of the last trigger in averages
# A result takes some time to make. It is begun this much earlier, and at the latest after half of the target lag.
_RESERVE, _LEAST_RESERVE, _MOST_RESERVE = 1.5, 50_000, 0.5
_SECOND = 1_000_000
# Until a trigger that failed is tried again by the clock: twice as long after each attempt.
_PAUSE, _LONGEST_PAUSE = _SECOND, 60 * _SECOND
LEARNING = 0
"""The pace of a path of which nothing is known yet."""
# Hundredths of the rows after which such a path is flushed: flushes from 1% to 38%, small ones with little state and
# with much, and the last one small. They tell what a start costs and what a row, and in which order rows come.
LEARNING_AT = (1, 3, 7, 15, 31, 69, 85, 93, 97, 99)


def now() -> int:
    """The time of the machine's clock."""
    return time.time_ns() // 1_000


@dataclass(frozen=True)
class Progress:
    """How far a view is on its way to the next trigger, and how earlier triggers went.

    Parameters
    ----------
    rows : changed rows of its tables that have come since the last trigger.
    first, last : when the first and the last of them came; None if none has.
    flushed : how often each path has been flushed since the last trigger.
    fired, step : when the last trigger fired, and the step that it was part of.
    triggers, met, missed : how many there were, and how many of them met the goal.
    expected : rows between two triggers, on average; 0 if not known.
    seconds : from the moment of a trigger to its result, on average.
    cost : CPU seconds of a trigger, on average.
    cpu : CPU seconds of holding changes and of flushes so far.
    held : CPU seconds of holding the rows that have come since the last trigger.
    credit : CPU seconds that a budget leaves, as of `fired`.
    failed : why the last trigger did not give an answer; empty if it did.
    again : when a trigger that failed may be tried again by the clock.
    failures : how often it has failed.
    """

    rows: int = 0
    first: int | None = None
    last: int | None = None
    flushed: Mapping[str, int] = field(default_factory=dict)
    paces: Mapping[str, int] = field(default_factory=dict)
    fired: int = 0
    step: int = 0
    triggers: int = 0
    met: int = 0
    missed: int = 0
    expected: float = 0.0
    seconds: float = 0.0
    cost: float = 0.0
    cpu: float = 0.0
    held: float = 0.0
    credit: float = 0.0
    failed: str = ""
    again: int = 0
    failures: int = 0

    def to_json(self) -> dict[str, Any]:
        """The progress as plain values."""
        return asdict(self)

    @classmethod
    @from_log("how far a view with a goal is")
    def from_json(cls, data: Mapping[str, Any]) -> Progress:
        return cls(**data)

    def came(self, rows: int, now: int, held: float = 0.0) -> Progress:
        """The progress after more changed rows have come; to hold them took some CPU seconds."""
        if not rows:
            return self
        first = now if self.first is None else self.first
        return replace(self, rows=self.rows + rows, first=first, last=now, held=self.held + held, cpu=self.cpu + held)

    def flush(self, paths: Mapping[str, int], cpu: float) -> Progress:
        """The progress after some paths were flushed, each for the n-th time since the last trigger."""
        return replace(self, flushed={**self.flushed, **paths}, cpu=self.cpu + cpu)

    def trigger(self, now: int, step: int, cpu: float, seconds: float, met: bool | None, credit: float) -> Progress:
        """The progress after a trigger gave its result.

        Parameters
        ----------
        cpu, seconds : what the last flush took.
        met : whether the goal was met; None if that cannot be said.
        """
        is_first = not self.triggers
        return replace(
            self,
            rows=0,
            first=None,
            last=None,
            flushed={},
            held=0.0,
            fired=now,
            step=step,
            triggers=self.triggers + 1,
            met=self.met + (met is True),
            missed=self.missed + (met is False),
            expected=float(self.rows) if is_first else _mean(self.expected, self.rows),
            seconds=seconds if is_first else _mean(self.seconds, seconds),
            cost=cpu if is_first else _mean(self.cost, cpu),
            cpu=self.cpu + cpu,
            credit=credit,
            failed="",
            again=0,
            failures=0,
        )

    def fail(self, why: str, now: int) -> Progress:
        """The progress after a trigger failed: what waits goes on waiting."""
        pause = min(_LONGEST_PAUSE, _PAUSE << min(self.failures, 20))
        return replace(self, failed=why, again=now + pause, failures=self.failures + 1)


def progress_of(goals: Mapping[str, Mapping[str, Any]], view: str) -> Progress:
    """How far a view is, given what the log says of all views with goals."""
    return Progress.from_json(goals[view]) if view in goals else Progress()


def _mean(before: float, now: float) -> float:
    return (1 - _NEWS) * before + _NEWS * now


def is_due(freshness: Freshness, progress: Progress, now: int, *, window_ended: bool) -> bool:
    """Whether the trigger of a view fires now, and there is something to do.

    >>> every = Freshness(TargetLag("5 s"), EveryRows(10))
    >>> [is_due(every, Progress(rows=rows, first=0), 0, window_ended=False) for rows in (9, 10, 11)]
    [False, True, True]
    """
    if progress.first is None:
        return False
    if isinstance(freshness.trigger, EveryRows):
        return progress.rows >= freshness.trigger.rows
    if isinstance(freshness.trigger, AtWindowEnd):
        return window_ended
    at = wakes_at(freshness, progress)
    return at is not None and now >= at


def wakes_at(freshness: Freshness, progress: Progress) -> int | None:
    """When a view will be due by the clock; None if time alone does not make it due.

    >>> wakes_at(Freshness(TargetLag("1 s")), Progress(first=5_000_000))
    5950000
    >>> wakes_at(Freshness(TargetLag("1 s"), Every("1 minute")), Progress(first=61_000_000))
    120000000
    """
    if progress.first is None:
        return None
    goal, trigger = freshness.goal, freshness.trigger
    if isinstance(trigger, Every):
        period = trigger.period.microseconds
        return max(progress.again, (progress.first // period + 1) * period)
    if trigger is not None or isinstance(goal, Manual):
        return None
    if isinstance(goal, TargetLag):
        return max(progress.again, progress.first + goal.lag.microseconds - reserve(goal, progress))
    assert isinstance(goal, Budget)
    missing = min(progress.cost, _most_credit(goal)) - progress.credit
    return max(progress.again, progress.first, progress.fired + round(_SECOND * missing / goal.share))


def reserve(goal: TargetLag, progress: Progress) -> int:
    """How long before its deadline a result is begun, in microseconds."""
    wanted = max(_LEAST_RESERVE, round(_RESERVE * _SECOND * progress.seconds))
    return min(wanted, round(_MOST_RESERVE * goal.lag.microseconds))


def credit(goal: Budget, progress: Progress, now: int, cpu: float) -> float:
    """The CPU seconds that a budget leaves after some were spent; unspent ones last for one period."""
    earned = goal.share * max(0, now - progress.fired) / _SECOND if progress.fired else _most_credit(goal)
    return min(_most_credit(goal), progress.credit + earned) - cpu


def _most_credit(goal: Budget) -> float:
    return goal.microseconds / _SECOND


def expected_rows(freshness: Freshness, progress: Progress) -> int:
    """About how many changed rows the next trigger has in all; 0 if nothing is known."""
    return freshness.trigger.rows if isinstance(freshness.trigger, EveryRows) else round(progress.expected)


def paths_due(progress: Progress, expected: int) -> dict[str, int]:
    """The paths to flush before the trigger, each with how often it has been flushed then.

    A path of pace k is flushed whenever another k-th of the expected rows has come; the trigger flushes all paths. The
    pace `LEARNING` stands for flushes of many sizes.

    >>> paths_due(Progress(rows=50, paces={"a": 4, "b": 1}, flushed={"a": 1}), 100)
    {'a': 2}
    """
    if not expected:
        return {}
    counts = {path: _flushes(pace, progress.rows, expected) for path, pace in progress.paces.items()}
    return {path: count for path, count in counts.items() if count > progress.flushed.get(path, 0)}


def _flushes(pace: int, rows: int, expected: int) -> int:
    """How many flushes are due before the trigger, once so many rows have come."""
    if pace == LEARNING:
        return bisect_right(LEARNING_AT, 100 * rows // expected)
    return min(pace - 1, rows * pace // expected)


def goal_met(freshness: Freshness, progress: Progress, began: int, now: int, credit_left: float) -> bool | None:
    """Whether a result that is there now meets the goal; None if the goal says nothing about it.

    Parameters
    ----------
    began : when the step began that gave the result: rows of that step came then.
    """
    goal = freshness.goal
    if isinstance(goal, TargetLag):
        # With a trigger, time counts from the last row of its data, otherwise from the first that was not shown.
        since = progress.first if freshness.trigger is None else _complete_at(freshness, progress, began)
        return since is None or now - since <= goal.lag.microseconds
    if isinstance(goal, Budget):
        return credit_left >= 0
    return None


def _complete_at(freshness: Freshness, progress: Progress, began: int) -> int | None:
    """When the data of the trigger was complete."""
    if isinstance(freshness.trigger, Every):
        return wakes_at(freshness, replace(progress, again=0))
    return began if isinstance(freshness.trigger, OnRefresh) else progress.last
