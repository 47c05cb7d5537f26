"""Interval joins equal nested loops at every moment, for any order of arrival and split into batches."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.window.driven import DrivenMatching
from tests.window.streams import Windows, arrivals_of, random_streams, steady

from headrace.bench.disorder.local_join import WindowJoin
from headrace.datasets.disorder import Stream
from headrace.window.arrivals import Arrivals
from headrace.window.estimators import make_estimator
from headrace.window.spec import Aggregate, WindowSpec


def nested_loops(rows: Arrivals, spec: WindowSpec) -> Windows:
    """All windows that have a left row or may have a right one."""
    within, out = spec.within or 0, defaultdict(lambda: [0, 0, 0, 0.0])
    sides = [rows.take(rows.side == side) for side in (0, 1)]
    windows = range(-80, 80)
    for key, value, event in zip(sides[0].key[0], sides[0].value, sides[0].event, strict=True):
        for window in windows:
            if spec.start(window) <= event < spec.end(window):
                out[window][0] += 1
                for other, of_other, at in zip(sides[1].key[0], sides[1].value, sides[1].event, strict=True):
                    if other == key and abs(event - at) <= within:
                        out[window][2] += 1
                        out[window][3] += value if spec.aggregate.side == 0 else of_other
    for event in sides[1].event:
        for window in windows:
            if spec.start(window) - within <= event < spec.end(window) + within:
                out[window][1] += 1
    return {window: tuple(numbers) for window, numbers in out.items()}  # type: ignore[misc]


@pytest.mark.parametrize("aggregate", ["count", "sum(v)", "sum(right.v)"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(10, 10), (10, 5)]), st.integers(1, 6), st.sampled_from([0, 3, 25]))
def test_any_batches_are_nested_loops(
    aggregate: str, seed: int, windows: tuple[int, int], batches: int, within: int
) -> None:
    rng = np.random.default_rng(seed)
    spec = WindowSpec(*windows, 1, 30, Aggregate.parse(aggregate), within)
    rows = arrivals_of(random_streams(rng, 30, keys=3), spec.aggregate.side)
    rows = rows.take(rng.permutation(len(rows)))
    join = DrivenMatching(spec)
    for batch in np.array_split(np.arange(len(rows)), batches):
        join.add(rows.take(batch))
        if len(batch):
            seen = rows.take(np.arange(batch[-1] + 1))
            wanted = nested_loops(seen, spec)
            assert join.windows(-80, 80) == (
                wanted
                if aggregate != "count"
                else {w: (*n[:2], n[2], join.windows(-80, 80)[w][3]) for w, n in wanted.items()}
            )


def test_rows_without_partners_to_come_leave_the_state_and_others_stay() -> None:
    spec = WindowSpec(10, 10, 1, 5, within=15)
    join = DrivenMatching(spec)
    left = Stream.of([1, 1], [0, 0], [5, 25], [5, 25])
    right = Stream.of([1, 1], [0, 0], [2, 12], [2, 12])
    join.add(arrivals_of((left, right)))
    assert join.entries == 4
    # Windows 0 and 1 are complete; a left row of window 2 may still meet the right row at 12.
    nothing = Stream.of([], [], [], [])
    join.add(arrivals_of((Stream.of([2], [0], [29], [40]), nothing)), now=spec.complete_at(1))
    assert join.entries == 3
    join.add(arrivals_of((Stream.of([1], [0], [20], [26]), nothing)))
    assert join.windows(-80, 80)[2][2] == 2


def test_estimates_of_an_interval_join() -> None:
    spec = WindowSpec.parse("10 ms", emit_after="10 ms", horizon="5 ms", within="2 ms")
    streams = steady(1_200_000)
    join = WindowJoin(spec, {"auto": make_estimator("auto", spec)})
    answers = list(join.feed(arrivals_of(streams)))
    final = {a.window: a.observed for a in answers if a.final}
    early = {a.window: a for a in answers if not a.final}
    windows = range(50, 110)
    errors = [abs(early[w].estimates["auto"].value - final[w]) / final[w] for w in windows]
    missing = [abs(early[w].observed - final[w]) / final[w] for w in windows]
    assert np.mean(errors) < 0.06 < 0.3 < np.mean(missing)
    rows = arrivals_of(streams)
    near = rows.take((rows.event >= 595_000) & (rows.event < 615_000))
    left, right = (near.take(near.side == side) for side in (0, 1))
    inside = left.take((left.event >= 600_000) & (left.event < 610_000))
    apart = np.abs(inside.event[:, None] - right.event[None, :]) <= 2_000
    assert final[60] == np.count_nonzero(apart & (inside.key[0][:, None] == right.key[0][None, :]))
