"""The exact part equals a recomputation at every moment, for any order of arrival, split into batches and buckets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.window.driven import DrivenMatching
from tests.window.streams import Windows, arrivals_of, random_streams, recomputed

from headrace.datasets.disorder import Stream
from headrace.window.arrivals import Arrivals
from headrace.window.spec import Aggregate, WindowSpec

AGGREGATES = ["count", "sum(v)", "sum(right.v)", "avg(v)"]


@pytest.mark.parametrize("aggregate", AGGREGATES)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(10, 10), (10, 5), (10, 3), (7, 7)]),
    st.integers(1, 12),
    st.integers(1, 4),
)
def test_any_batches_and_buckets_are_a_recomputation(
    aggregate: str, seed: int, windows: tuple[int, int], batches: int, buckets: int
) -> None:
    rng = np.random.default_rng(seed)
    left, right = random_streams(rng, 60)
    spec = WindowSpec(*windows, 1, 30, Aggregate.parse(aggregate))
    side = spec.aggregate.side
    rows = arrivals_of((left, right), side)
    rows = rows.take(rng.permutation(len(rows)))
    joins = [DrivenMatching(spec) for _ in range(buckets)]
    for batch in np.array_split(np.arange(len(rows)), batches):
        some = rows.take(batch)
        for number, join in enumerate(joins):
            join.add(some.take(some.key[0] % buckets == number))
        seen = rows.take(np.arange(batch[-1] + 1)) if len(batch) else None
        if seen is not None:
            wanted = recomputed(*(_stream(seen, s) for s in (0, 1)), *windows, side)
            assert _summed([join.windows(-60, 60) for join in joins]) == _expected(wanted, aggregate)


def _stream(rows: Arrivals, side: int) -> Stream:
    mine = rows.take(rows.side == side)
    return Stream.of(mine.key[0].view(np.int64), mine.value, mine.event, np.maximum(mine.arrival, mine.event))


def _summed(parts: list[Windows]) -> Windows:
    windows = {window for part in parts for window in part}
    zero = (0, 0, 0, 0.0)
    return {w: tuple(map(sum, zip(*(part.get(w, zero) for part in parts), strict=True))) for w in windows}  # type: ignore[misc]


def _expected(wanted: Windows, aggregate: str) -> Windows:
    return {w: (a, b, m, 0.0 if aggregate == "count" else t) for w, (a, b, m, t) in wanted.items()}


def test_complete_windows_leave_the_state() -> None:
    rng = np.random.default_rng(1)
    spec = WindowSpec(10, 10, 1, 30)
    rows = arrivals_of(random_streams(rng, 200, length=100))
    join = DrivenMatching(spec)
    join.add(rows)
    everything = join.windows(-60, 60)
    keys = {(window, key) for window, key in zip(rows.event // 10, rows.key[0], strict=True)}
    assert join.entries == len(keys)
    # The next batch comes after windows before 0 have completed: what the others have stays.
    later = Arrivals.of(Stream.of([99], [0], [100], [100]), Stream.of([], [], [], []))
    join.add(later, now=spec.complete_at(-1))
    assert join.entries == len({key for key in keys if key[0] >= 0}) + 1
    assert join.windows(-60, 10) == {w: numbers for w, numbers in everything.items() if w < 10}
    # A window that completes in the batch that brings its rows is not kept at all.
    join.add(later, now=spec.complete_at(1_000))
    assert join.entries == 0


def test_a_large_value_of_one_key_does_not_swallow_small_ones_of_another() -> None:
    left = Stream.of([1, 2, 2], [1e17, 1.0, 1.0], [0, 1, 2], [0, 1, 2])
    right = Stream.of([2], [0.0], [0], [0])
    join = DrivenMatching(WindowSpec(10, 10, 1, 30, Aggregate.parse("sum(v)")))
    rows = arrivals_of((left, right))
    deltas = join.add(rows, rows.arrival)
    assert deltas.amounts[3].sum() == 2
