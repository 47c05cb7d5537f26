"""Runs the methods of the disorder benchmark over one stream: their answers of the measured windows, and their times.

Rows are handed over at the moments when an answer is due, so the time after such a moment is that of the rows since the
last one, and of the answer. All estimators share one join, and their times are kept apart: each is charged its own
time, an equal share of what is common to all (the calibration of bounds), and all of the exact part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

import numpy as np

from headrace.bench.disorder.baselines import Join, answered
from headrace.bench.disorder.eager_join import EagerJoin
from headrace.bench.disorder.k_slack import KSlack
from headrace.bench.disorder.lazy_join import LazyJoin
from headrace.bench.disorder.local_join import WindowJoin
from headrace.bench.disorder.workload import LENGTH, Floats, Numbers, Sides
from headrace.window.answers import Answer
from headrace.window.arrivals import Arrivals
from headrace.window.estimate import Estimate, Estimator
from headrace.window.estimators import make_estimator
from headrace.window.spec import WindowSpec
from headrace.window.tally import Tally
from headrace.window.totals import Totals

WATERMARK, SLACK, EAGER, LAZY = "wmj", "ksj", "shj", "prj"
BASELINES = (WATERMARK, SLACK, EAGER, LAZY)
ESTIMATING = ("aema", "svi", "mlp", "delay", "auto")
METHODS = (*BASELINES, *ESTIMATING)
_MEMORY = 20  # windows for which lateness is remembered, or two of the longest delays if that is longer
_CLOSE = 1e-9  # to which sums of doubles agree, whatever their order


@dataclass
class MethodAnswers:
    """The answers of one method for the measured windows of one stream, and the time they took."""

    value: Floats
    low: Floats
    high: Floats
    moment: Numbers  # of each answer
    after: Floats  # seconds of work from the moment to the answer
    estimation: Floats  # seconds per window to estimate it, and to learn from it when it is complete
    beside: Floats  # seconds per window of everything else that an estimator does: counting delays, and its bounds
    rows: int = 0
    seconds: float = 0.0
    wrong: str | None = None

    @classmethod
    def nothing(cls, count: int) -> MethodAnswers:
        """Return answers without any values yet."""
        value, low, high = (np.full(count, np.nan) for _ in range(3))
        after, estimation, beside = (np.zeros(count) for _ in range(3))
        return cls(value, low, high, np.zeros(count, np.int64), after, estimation, beside)


def run_methods(
    methods: Sequence[str], spec: WindowSpec, sides: Sides, arrivals: Arrivals, seed: int
) -> dict[str, MethodAnswers]:
    """Run methods over one stream."""
    found = {}
    if any(name not in (SLACK, EAGER, LAZY) for name in methods):
        found = _run_estimators([name for name in methods if name in ESTIMATING], spec, sides, arrivals, seed)
    for name in methods:
        if name in (SLACK, EAGER, LAZY):
            found[name] = _run_baseline(name, spec, sides, arrivals)
    return {name: found[name] for name in methods}


# -- estimators, and what has arrived at the watermark -----------------------------------------------------------------


class _TimedJoin(WindowJoin):
    """A window join that measures the time of its exact part."""

    exact_seconds = 0.0

    def tally(self, arrivals: Arrivals) -> Tally:
        start = perf_counter()
        found = super().tally(arrivals)
        self.exact_seconds += perf_counter() - start
        return found


class _TimedEstimator:
    """An estimator that measures its own time."""

    def __init__(self, estimator: Estimator) -> None:
        self.name = estimator.name
        self.observing = self.estimating = 0.0
        self._estimator = estimator

    def observe(self, *arguments: Any, **options: Any) -> None:
        start = perf_counter()
        self._estimator.observe(*arguments, **options)
        self.observing += perf_counter() - start

    def estimate(self, *arguments: Any, **options: Any) -> Estimate:
        start = perf_counter()
        found = self._estimator.estimate(*arguments, **options)
        self.estimating += perf_counter() - start
        return found

    def complete(self, *arguments: Any, **options: Any) -> None:
        start = perf_counter()
        self._estimator.complete(*arguments, **options)
        self.estimating += perf_counter() - start

    def taken(self) -> tuple[float, float]:
        """Return the seconds of observing, and those of estimating and learning, since the last call."""
        found = self.observing, self.estimating
        self.observing = self.estimating = 0.0
        return found


class _Pass:
    """One pass of all estimators over a stream."""

    def __init__(self, names: Sequence[str], spec: WindowSpec, sides: Sides, seed: int) -> None:
        self.estimators = {name: _TimedEstimator(make_estimator(name, spec, seed=seed)) for name in names}
        self.join = _TimedJoin(spec, cast(Mapping[str, Estimator], self.estimators))
        self.sides = sides
        self.answers = {name: MethodAnswers.nothing(sides.count) for name in (WATERMARK, *names)}
        self.final = np.full(sides.count, np.nan)
        self._after: dict[str, float] = {}

    def feed(self, rows: Arrivals, moment: int) -> None:
        """Hand over the rows that have arrived by a moment."""
        self._after = dict.fromkeys(self.answers, 0.0)
        start = perf_counter()
        for answer in self.join.feed(rows, until=moment):
            spent = self._spent(perf_counter() - start)
            at = answer.window - self.sides.first
            if 0 <= at < self.sides.count:
                self._note(answer, at, spent)
            start = perf_counter()
        self._spent(perf_counter() - start)
        for answers in self.answers.values():
            answers.rows += len(rows)

    def _spent(self, seconds: float) -> dict[str, tuple[float, float]]:
        """Share out the time since the last answer; return, per estimator, the seconds beside and of estimating."""
        exact, self.join.exact_seconds = self.join.exact_seconds, 0.0
        own = {name: estimator.taken() for name, estimator in self.estimators.items()}
        rest = seconds - exact - sum(map(sum, own.values()))
        if own:
            own = {name: (beside + rest / len(own), estimating) for name, (beside, estimating) in own.items()}
        else:
            exact += rest
        for name, answers in self.answers.items():
            spent = exact + sum(own.get(name, ()))
            answers.seconds += spent
            self._after[name] += spent
        return own

    def _note(self, answer: Answer, at: int, spent: Mapping[str, tuple[float, float]]) -> None:
        for name, (beside, estimating) in spent.items():
            self.answers[name].beside[at] += beside
            self.answers[name].estimation[at] += estimating
        if answer.final:
            self.final[at] = answer.observed
            return
        for name, answers in self.answers.items():
            answers.moment[at], answers.after[at] = answer.at, self._after[name]
            if name == WATERMARK:
                answers.value[at] = answer.observed
            else:
                estimate = answer.estimates[name]
                answers.value[at], answers.low[at], answers.high[at] = estimate.value, estimate.low, estimate.high


def _run_estimators(
    names: Sequence[str], spec: WindowSpec, sides: Sides, arrivals: Arrivals, seed: int
) -> dict[str, MethodAnswers]:
    running = _Pass(names, spec, sides, seed)
    windows = range(sides.first + sides.count)
    at = 0
    for moment in sorted({*map(spec.emitted_at, windows), *map(spec.complete_at, windows)}):
        upto = arrivals.until(moment, at)
        running.feed(arrivals.slice(at, upto), moment)
        at = upto
    observed = running.answers[WATERMARK]
    wrong = _difference("the exact part at its moment", observed.value, sides.arrived(observed.moment))
    wrong = wrong or _difference("the complete window", running.final, sides.truth)
    for answers in running.answers.values():
        answers.wrong = wrong
    return running.answers


# -- baselines ---------------------------------------------------------------------------------------------------------


class _WatchedJoin:
    """A join that notes when it last closed a window: that time is not part of answering the next one."""

    def __init__(self, join: Join) -> None:
        self.closed = 0.0
        self._join = join

    def add(self, arrivals: Arrivals) -> None:
        self._join.add(arrivals)

    def read(self, first: int, last: int) -> Totals:
        return self._join.read(first, last)

    def close(self, before: int, known: int) -> None:
        self._join.close(before, known)
        self.closed = perf_counter()


def _run_baseline(name: str, spec: WindowSpec, sides: Sides, arrivals: Arrivals) -> MethodAnswers:
    join = _WatchedJoin(LazyJoin(spec) if name == LAZY else EagerJoin(spec))
    slack = KSlack(max(_MEMORY * LENGTH, 2 * spec.horizon)) if name == SLACK else None
    answers = MethodAnswers.nothing(sides.count)
    start = perf_counter()
    for answer in answered(spec, join, arrivals, slack, spec.emitted_at(sides.first + sides.count - 1)):
        now = perf_counter()
        answers.seconds += now - start
        at = answer.window - sides.first
        if 0 <= at < sides.count:
            answers.value[at], answers.moment[at] = answer.observed, answer.at
            answers.after[at] = now - max(start, join.closed)
        if at == sides.count - 1:
            break
        start = perf_counter()
    answers.rows = arrivals.until(int(answers.moment[-1]))
    answers.wrong = _difference("what had arrived", answers.value, sides.arrived(answers.moment))
    return answers


def _difference(about: str, found: Floats, expected: Floats) -> str | None:
    bad = np.flatnonzero(~np.isclose(found, expected, rtol=_CLOSE, atol=_CLOSE))
    if not len(bad):
        return None
    return f"{about}: {found[bad[0]]:g} instead of {expected[bad[0]]:g}, and {len(bad)} windows like it"
