"""Answers come at their moments, are revised when late rows change them, and become final."""

import numpy as np
import pytest
from tests.window.streams import arrivals_of, recomputed, steady

from headrace.datasets.disorder import Stream
from headrace.window.answers import Answer, Answers
from headrace.window.estimators import make_estimator
from headrace.window.join import WindowJoin
from headrace.window.spec import WindowSpec
from headrace.window.tally import Bucket, Tally

SPEC = WindowSpec.parse("10 ms", emit_after="8 ms", horizon="25 ms")


def test_every_window_is_answered_once_and_completed_once_at_its_moment() -> None:
    streams = steady(300_000, rate=5_000)
    answers = list(WindowJoin(SPEC, {}).feed(arrivals_of(streams), until=400_000))
    early, final = ([a for a in answers if a.final is final] for final in (False, True))
    assert [a.window for a in early] == list(range(len(early)))
    assert [a.at for a in early] == [SPEC.emitted_at(w) for w in range(len(early))]
    assert [a.at for a in final] == [SPEC.complete_at(w) for w in range(len(final))]
    assert [a.at for a in answers] == sorted(a.at for a in answers)
    truth = recomputed(*streams, SPEC.length, SPEC.slide)
    assert [a.observed for a in final[:30]] == [truth[w][2] for w in range(30)]


def test_rows_that_come_after_the_horizon_are_counted_and_change_nothing() -> None:
    left = Stream.of([1, 1], [0, 0], [5_000, 6_000], [5_000, 31_001])  # by a microsecond
    right = Stream.of([1], [0], [5_500], [30_500])  # and just in time
    join = WindowJoin(SPEC, {})
    answers = list(join.feed(arrivals_of((left, right)), until=100_000))
    assert [a.observed for a in answers if a.final and a.window == 0] == [1]
    assert join.answers.too_late == 1


def numbers(answer: Answer) -> list[float]:
    bounds = [x for e in answer.estimates.values() for x in (e.value, e.low, e.high)]
    return [answer.window, answer.at, answer.final, answer.observed, *bounds]


def test_revisions_come_with_batches_until_a_window_is_complete() -> None:
    rows = arrivals_of(steady(400_000, rate=10_000))
    bucket, estimator = Bucket(SPEC), make_estimator("auto", SPEC)
    plain = Answers(SPEC, {"auto": make_estimator("auto", SPEC)})
    revising = Answers(SPEC, {"auto": estimator}, revises=True)
    told: dict[int, list[float]] = {}
    revised = 0
    for batch in np.array_split(np.arange(len(rows)), 100):
        tally = bucket.add(rows.slice(int(batch[0]), int(batch[-1]) + 1))
        first = [numbers(a) for a in plain.advance(tally)]
        again = list(revising.advance(tally))
        # Revisions teach nothing: without them, answers are the same.
        assert [numbers(a) for a in again][: len(first)] == [pytest.approx(one, rel=1e-9) for one in first]
        for answer in again[len(first) :]:
            revised += 1
            assert not answer.final
            assert answer.at > SPEC.emitted_at(answer.window)
        for answer in again:
            told.setdefault(answer.window, []).append(answer.observed)
    assert revised > 50
    assert all(counts == sorted(counts) for counts in told.values()), "of a count, revisions only add"


def test_tallies_of_nothing() -> None:
    assert list(Answers(SPEC, {}).advance(Tally(), until=1_000_000)) == []
    assert Tally.total([]).first is None
    assert Tally.total([Tally(), Tally(too_late=2), Tally(last=5)]).too_late == 2
