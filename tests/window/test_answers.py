"""Answers come at their moments, are revised when late rows change them, and become final."""

import numpy as np
import pytest
from tests.window.streams import arrivals_of, recomputed, steady

from headrace.bench.disorder.local_join import Bucket, WindowJoin
from headrace.datasets.disorder import Stream
from headrace.window.answers import Answer, Answers
from headrace.window.estimator_state import to_text
from headrace.window.estimators import make_estimator
from headrace.window.spec import WindowSpec
from headrace.window.tally import Tally

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
    assert Tally.total([]).earliest is None
    assert Tally.total([Tally(), Tally(too_late=2), Tally(last=5)]).too_late == 2


def test_streams_may_begin_anywhere_in_any_batches() -> None:
    """A first window that is not whole teaches nothing, and which one is first does not depend on batches."""
    left, right = steady(200_000, rate=5_000)
    begin = 1_006_000  # within window 100
    shifted = [Stream.of(s.key, s.value, s.event + begin, s.arrival + begin) for s in (left, right)]
    rows = arrivals_of((shifted[0], shifted[1]))
    found = []
    for batches in (1, 50, 500):
        join = WindowJoin(SPEC, {"auto": make_estimator("auto", SPEC)})
        told = []
        for batch in np.array_split(np.arange(len(rows)), batches):
            told += join.feed(rows.slice(int(batch[0]), int(batch[-1]) + 1))
        found.append([numbers(answer) for answer in told])
    assert found[0][0][0] == 100, "the window of the first row, of which less than half is there"
    for one in found[1:]:
        assert [a[:4] for a in one] == [a[:4] for a in found[0]]
        assert one == [pytest.approx(a, rel=1e-9) for a in found[0]]
    # None of the others is taken for one like the first.
    early = {a[0]: a for a in found[0] if not a[2]}
    final = {a[0]: a[3] for a in found[0] if a[2]}
    errors = [abs(early[w][4] - final[w]) / final[w] for w in range(105, 115)]
    assert max(errors) < 0.2


def test_windows_that_have_no_row_by_their_moment_are_answered_all_the_same() -> None:
    spec = WindowSpec.parse("10 ms", emit_after="1 ms", horizon="50 ms")
    stream = Stream.of([1] * 30, [0] * 30, np.arange(30) * 10_000, np.arange(30) * 10_000 + 45_000)
    answers = [a for a in WindowJoin(spec, {}).feed(arrivals_of((stream, stream))) if not a.final]
    assert [a.observed for a in answers] == [0.0] * len(answers)
    assert len(answers) > 20


def test_of_silence_nothing_is_told_and_nothing_is_left_behind() -> None:
    """A stream that stops for a day, and one whose clock is off by centuries, cost no more than their rows."""
    left, right = steady(300_000, rate=5_000)
    day = 86_400_000_000
    parts = [
        [Stream.of(s.key, s.value, s.event + pause, s.arrival + pause) for s in (left, right)]
        for pause in (0, day + 3_000, 3 * day, 300 * 365 * day)
    ]
    rows = [arrivals_of((part[0], part[1])) for part in parts]
    found = []
    for batches in (1, 40):
        answers = Answers(SPEC, {"auto": make_estimator("auto", SPEC)})
        bucket, told = Bucket(SPEC), []
        for some in rows:
            for batch in np.array_split(np.arange(len(some)), batches):
                told += answers.advance(bucket.add(some.slice(int(batch[0]), int(batch[-1]) + 1)))
        found.append([numbers(answer) for answer in told])
        assert len(to_text(answers)) < 500_000
    assert len(found[0]) < 4 * 80
    assert [a[:4] for a in found[1]] == [a[:4] for a in found[0]]
    final = {a[0]: a[3] for a in found[0] if a[2]}
    truth = recomputed(left, right, SPEC.length, SPEC.slide)
    assert [final[3 * day // SPEC.slide + w] for w in range(2, 25)] == [truth[w][2] for w in range(2, 25)]
    # It goes on with what it knew.
    early = {a[0]: a[4] for a in found[0] if not a[2]}
    again = [3 * day // SPEC.slide + w for w in range(5, 25)]
    assert np.mean([abs(early[w] - final[w]) / final[w] for w in again]) < 0.2


def test_silence_ends_when_time_is_told_to_pass() -> None:
    rows = arrivals_of(steady(100_000, rate=5_000))
    join = WindowJoin(SPEC, {"auto": make_estimator("auto", SPEC)})
    told = list(join.feed(rows, until=10**12))
    assert [a.window for a in told if a.final][-1] < 25
    assert list(join.feed(rows.slice(0, 0), until=2 * 10**12)) == []


def test_rows_of_windows_that_are_past_are_counted() -> None:
    left, right = steady(200_000, rate=5_000)
    whole = WindowJoin(SPEC, {})
    list(whole.feed(arrivals_of((left, right))))
    assert whole.answers.missed == 0
    # One side after the other: when the second comes, time has passed.
    apart = WindowJoin(SPEC, {})
    list(apart.feed(arrivals_of((left, right.take([])))))
    closed = apart.answers.closed
    list(apart.feed(arrivals_of((left.take([]), right))))
    assert closed is not None
    assert apart.answers.missed == (right.event // SPEC.slide < closed).sum() > 0
