"""The window joins that Headrace is compared with: the totals and answers of all pairs of rows that have arrived."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from headrace.bench.disorder.baselines import answered
from headrace.bench.disorder.eager_join import EagerJoin
from headrace.bench.disorder.k_slack import KSlack
from headrace.bench.disorder.lazy_join import LazyJoin
from headrace.errors import SchemaError
from headrace.window.arrivals import LEFT, Arrivals
from headrace.window.spec import Aggregate, WindowSpec


def rows(seed: int, count: int, *, span: int = 400, delay: int = 60, keys: int = 4, first: int = -100) -> Arrivals:
    """Random rows of both sides, some before time zero; values are whole, so that any order sums them the same."""
    rng = np.random.default_rng(seed)
    event = np.sort(rng.integers(first, first + span, count))
    arrival = event + rng.integers(0, delay + 1, count)
    order = np.argsort(arrival, kind="stable")
    key = rng.integers(0, keys, (2, count)).astype(np.uint64)
    value = rng.integers(-50, 50, count).astype(float)
    side = rng.integers(0, 2, count).astype(np.int8)
    return Arrivals(side, key, value * (side == LEFT), event, arrival).take(order)


def oracle(spec: WindowSpec, seen: Arrivals, window: int) -> tuple[float, ...]:
    """The totals of a window: every pair of rows is looked at."""
    inside = (seen.event >= spec.start(window)) & (seen.event < spec.end(window))
    left = np.flatnonzero(inside & (seen.side == LEFT))
    right = np.flatnonzero(inside & (seen.side != LEFT))
    match = (seen.key[:, left, None] == seen.key[:, None, right]).all(axis=0)
    value = seen.value[left][:, None] if spec.aggregate.side == LEFT else seen.value[right][None, :]
    total = float((match * value).sum()) if spec.aggregate.function != "count" else 0.0
    return float(len(left)), float(len(right)), float(match.sum()), total


def numbers(join: LazyJoin | EagerJoin, first: int, last: int) -> np.ndarray:
    totals = join.read(first, last)
    assert totals.window.tolist() == list(range(first, last))
    return np.stack([totals.left, totals.right, totals.matches, totals.total])


def cuts(count: int, seed: int, pieces: int) -> list[int]:
    inner = np.random.default_rng(seed).integers(0, count + 1, pieces - 1)
    return [0, *sorted(inner.tolist()), count]


@pytest.mark.parametrize("agg", ["count", "sum(v)", "avg(left.v)"])
@pytest.mark.parametrize(("length", "slide"), [(40, 40), (50, 20)])
@pytest.mark.parametrize("pieces", [1, 7, 300])
def test_lazy_and_eager_joins_have_the_totals_of_all_pairs(agg: str, length: int, slide: int, pieces: int) -> None:
    spec = WindowSpec(length, slide, length, 60, Aggregate.parse(agg))
    for seed in range(3):
        given = rows(seed, 300)
        lazy, eager = LazyJoin(spec), EagerJoin(spec)
        for number, (first, last) in enumerate(pairwise(cuts(300, seed, pieces))):
            for join in (lazy, eager):
                join.add(given.slice(first, last))
            if number % 3 == 0:  # so that windows are read again after more rows have come
                window = int(spec.last_window(given.event[max(0, last - 1)]))
                expected = oracle(spec, given.slice(0, last), window)
                for join in (lazy, eager):
                    assert numbers(join, window, window + 1)[:, 0].tolist() == list(expected)
        expected_all = np.array([oracle(spec, given, window) for window in range(-8, 20)]).T
        for join in (lazy, eager):
            assert numbers(join, -8, 20).tolist() == expected_all.tolist()


def test_closed_windows_leave_both_joins_alike() -> None:
    spec = WindowSpec(40, 40, 40, 60, Aggregate.parse("sum(v)"))
    lazy, eager = LazyJoin(spec), EagerJoin(spec)
    given = rows(5, 400)
    for first, last in pairwise(cuts(400, 1, 12)):
        for join in (lazy, eager):
            join.add(given.slice(first, last))
            newest = int(spec.last_window(given.event[:last].max())) if last else 0
            join.close(newest - 2, newest - 4)
        assert numbers(lazy, -10, 20).tolist() == numbers(eager, -10, 20).tolist()
    assert 0 < lazy.entries < 400
    for join in (lazy, eager):
        join.close(100, 100)
        assert join.entries == 0
        assert not numbers(join, -10, 20).any()


def test_a_lazy_join_has_nothing_to_wait_for_in_an_interval_join() -> None:
    with pytest.raises(SchemaError, match="interval join"):
        LazyJoin(WindowSpec(10, 10, 10, 10, within=5))


def stream(event: list[int], arrival: list[int] | None = None) -> Arrivals:
    count = len(event)
    times = np.array(event)
    sides, keys = np.zeros(count, np.int8), np.arange(count, dtype=np.uint64)[None, :]
    return Arrivals(sides, keys, np.zeros(count), times, np.arange(count) if arrival is None else np.array(arrival))


def released(slack: KSlack, given: Arrivals, pieces: list[int]) -> list[int]:
    parts = [slack.add(given.slice(first, last))[0] for first, last in pairwise(pieces)]
    return [int(key) for part in parts for key in part.key[0]]


def by_hand(given: Arrivals, memory: int) -> Iterator[int]:
    """Let rows leave one by one, by the definition."""
    held: list[tuple[int, int]] = []
    late: list[tuple[int, int]] = []  # (slot of the newest time, lateness)
    newest, frontier, width = -(10**9), -(10**9), -(-memory // 16)
    for i, event in enumerate(given.event.tolist()):
        newest = max(newest, event)
        late.append((newest // width, newest - event))
        slack = max(one for slot, one in late if slot > newest // width - 16)
        frontier = max(frontier, newest - slack)
        held.append((event, i))
        leaving = sorted(row for row in held if row[0] <= frontier)
        held = [row for row in held if row[0] > frontier]
        yield from (number for _, number in leaving)


@pytest.mark.parametrize("memory", [5, 40, 10_000])
def test_rows_leave_a_slack_in_the_same_order_however_they_are_cut(memory: int) -> None:
    for seed in range(4):
        given = rows(seed, 200, span=900, delay=50)
        given = Arrivals(given.side, np.arange(200, dtype=np.uint64)[None, :], given.value, given.event, given.arrival)
        expected = list(by_hand(given, memory))
        for pieces in ([0, 200], list(range(201)), cuts(200, seed, 9)):
            assert released(KSlack(memory), given, pieces) == expected


def test_rows_that_are_as_late_as_those_before_leave_in_the_order_of_their_times() -> None:
    given = rows(3, 5_000, span=20_000, delay=50)
    slack = KSlack(1_000_000)
    slack.add(given.slice(0, 1_000))
    assert 40 <= slack.slack <= 50
    later, taken = slack.add(given.slice(1_000, 5_000))
    assert taken == 4_000
    assert (np.diff(later.event) >= 0).mean() > 0.999  # but for a few that are later than any before
    assert 0 < len(slack) < 30


def test_a_slack_follows_the_lateness_of_late() -> None:
    slack = KSlack(160)
    slack.add(stream([0, 10, 20, 30]))
    assert (slack.slack, slack.frontier, len(slack)) == (0, 30, 0)
    left, _ = slack.add(stream([5, 40]))  # 25 late, which leaves at once; from then on rows are held back
    assert (left.event.tolist(), slack.slack, slack.frontier, len(slack)) == ([5], 25, 30, 1)
    left, _ = slack.add(stream([70, 66]))
    assert (left.event.tolist(), slack.frontier, len(slack)) == ([40], 45, 2)
    slack.add(stream([195]))  # it was at 30 that a row was 25 late, and 160 is remembered
    assert slack.slack == 4
    with pytest.raises(SchemaError, match="remembers nothing"):
        KSlack(0)


def test_a_slack_stops_where_its_frontier_gets_to_and_can_be_flushed() -> None:
    slack = KSlack(1_000)
    slack.add(stream([10, 4]))
    left, taken = slack.add(stream([12, 11, 17, 30, 40], [2, 3, 4, 5, 6]), stop=11)
    assert (taken, left.event.tolist(), slack.frontier, slack.now) == (3, [11], 11, 4)
    assert slack.add(stream([30, 40]), stop=11)[1] == 0  # it is there already
    assert slack.flush(13).event.tolist() == [12]
    assert len(slack.flush(13)) == 0
    assert len(slack) == 1


def test_a_slack_holds_rows_of_many_batches() -> None:
    slack = KSlack(10_000)
    slack.add(stream([500, 1]))
    for i in range(0, 200, 2):
        slack.add(stream([502 + i, 501 + i]))
    assert (slack.slack, slack.frontier, len(slack)) == (499, 500, 200)
    assert slack.flush(10_000).event.tolist() == list(range(501, 701))


@pytest.mark.parametrize("omega", [30, 40, 70])
@pytest.mark.parametrize("agg", ["count", "sum(v)"])
def test_baselines_answer_by_what_has_arrived(omega: int, agg: str) -> None:
    spec = WindowSpec(40, 40, omega, 60, Aggregate.parse(agg))
    for seed in range(3):
        given = rows(seed, 500)
        for join, slack in ((EagerJoin(spec), None), (LazyJoin(spec), None), (EagerJoin(spec), KSlack(200))):
            answers = list(answered(spec, join, given, slack))
            first = int(spec.first_window(given.event).min())
            last = (int(given.arrival[-1]) - omega) // 40
            assert [answer.window for answer in answers] == list(range(first, last + 1))
            for answer in answers:
                if slack is None:
                    assert answer.at == spec.emitted_at(answer.window)
                assert answer.at <= spec.emitted_at(answer.window)
                totals = oracle(spec, given.slice(0, given.until(answer.at)), answer.window)
                assert answer.observed == pytest.approx(totals[2] if agg == "count" else totals[3])
            assert join.entries < 500


def test_behind_a_slack_a_window_is_answered_once_its_end_is_passed() -> None:
    spec = WindowSpec(40, 40, 4_000, 100)
    given = stream([0, 10, 39, 30, 48, 49, 90], [0, 10, 39, 45, 48, 49, 90])
    answers = list(answered(spec, EagerJoin(spec), given, KSlack(10_000)))
    assert [(answer.window, answer.at) for answer in answers] == [(0, 49), (1, 90)]


def test_no_rows_have_no_answers() -> None:
    spec = WindowSpec(40, 40, 40, 60)
    assert list(answered(spec, LazyJoin(spec), rows(0, 300).slice(0, 0))) == []
    late = stream([0], [100])
    assert list(answered(spec, LazyJoin(spec), late)) == []
